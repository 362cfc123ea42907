"""The encoder-decoders under ``fixtures/models`` with what transformers says of them."""

import json
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import onnxgen
from tests.fixture_models import FIXTURES

TASKS = ("text2text-generation", "image-to-text")
# What a call has where generation_config.json is not to count, as for the models' own code.
IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")


@dataclass(frozen=True)
class EncoderDecoder:
    folder: Path

    def expected(self) -> dict[str, Any]:
        return json.loads((self.folder / "expected.json").read_text())

    def inputs(self) -> list[Any]:
        found = self.expected()["inputs"]
        if "input_ids" in found:
            return found["input_ids"]
        return [str(self.folder / name) for name in found["images"]]

    def cases(self) -> dict[str, dict[str, Any]]:
        return self.expected()["cases"]

    @property
    def exact(self) -> bool:
        """Not where activations are quantised by the range of the whole batch (8-bit decoders).

        There a row's logits depend on its neighbours, beams too: by 0.05 in these small models.
        """
        return self.expected().get("dtype") != "q8"

    def alone(self, case: dict[str, Any], number: int) -> list[int]:
        """The tokens of a greedy case's row that runs by itself.

        Of 8 bits they are those of ONNX Runtime on the same machine: without VNNI its products of 8
        bits saturate, so what a graph gives depends on the processor.
        """
        if self.exact or "num_beams" in case["options"]:
            return case["tokens"][number]
        return bare_greedy(self, case, number)

    @property
    def noise(self) -> float:
        """How far the score of a sequence may be from transformers'."""
        return 1e-4 if self.expected().get("dtype", "fp32") == "fp32" else 2e-3

    @property
    def has_pair(self) -> bool:
        names = ("decoder_model_merged", "decoder_model", "decoder_with_past_model")
        return all((self.folder / f"{name}.onnx").exists() for name in names)


@cache
def load(folder: Path, settings: bool) -> Any:
    """The model; without ``settings`` its generation_config.json names token ids alone."""
    model = onnxgen.load(folder)
    if not settings:
        model.defaults = {k: v for k, v in model.defaults.items() if k in IDS}
    return model


def pair_of(folder: Path, place: Path) -> Path:
    """A copy of ``folder`` without its merged decoder."""
    ignore = shutil.ignore_patterns("decoder_model_merged.onnx", "expected.json")
    return Path(shutil.copytree(folder, place / "pair", ignore=ignore))


def found() -> list[EncoderDecoder]:
    folders = sorted(p.parent for p in (FIXTURES / "models").glob("*/expected.json"))
    models = [EncoderDecoder(folder) for folder in folders]
    return [model for model in models if model.expected().get("task") in TASKS]


def keywords(case: dict[str, Any], numbers: list[int]) -> dict[str, Any]:
    """The options of a case for some of its rows, by their places in it."""
    own = dict(case["options"])
    if "decoder_input_ids" in case:
        own["decoder_input_ids"] = [case["decoder_input_ids"][i] for i in numbers]
    # transformers' 20 where nothing says how long; onnxgen gives 256 then.
    return {"max_new_tokens": 20, **own} if "max_length" not in own else own


def bare_greedy(fixture: EncoderDecoder, case: dict[str, Any], number: int) -> list[int]:
    """A row's tokens by a loop over ONNX Runtime and the graphs as they came: merged, cached."""
    place, options = fixture.folder, keywords(case, [number])
    settings = json.loads((place / "generation_config.json").read_text())
    encoder = onnxruntime.InferenceSession(place / "encoder_model.onnx")
    decoder = onnxruntime.InferenceSession(next(place.glob("decoder_model_merged*.onnx")))
    shapes = {port.name: port.shape for port in decoder.get_inputs()}
    names = [port.name for port in decoder.get_outputs()]
    ids = np.array([fixture.inputs()[case["rows"][number]]])
    mask = np.ones_like(ids)
    (states,) = encoder.run(None, {"input_ids": ids, "attention_mask": mask})
    past = {
        name: np.zeros((1, shape[1], 1, shape[3]), np.float32)
        for name, shape in shapes.items()
        if "past" in name
    }
    start = [[settings["decoder_start_token_id"]]]
    fed, found = np.array(options.get("decoder_input_ids", start)), list[int]()
    while len(found) < options["max_new_tokens"]:
        feeds = {
            "input_ids": fed,
            "encoder_attention_mask": mask,
            "encoder_hidden_states": states,
            "use_cache_branch": np.array([bool(found)]),
            **past,
        }
        feeds = {name: value for name, value in feeds.items() if name in shapes}
        made = dict(zip(names, decoder.run(None, feeds), strict=True))
        for name in past:  # the encoder's are given by the first step alone
            if not found or ".decoder." in name:
                past[name] = made[name.replace("past_key_values", "present")]
        token = int(made["logits"][0, -1].argmax())
        found.append(token)
        if token == settings["eos_token_id"]:
            break
        fed = np.array([[token]])
    return found
