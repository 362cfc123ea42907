"""The models under ``fixtures/`` with what transformers or NumPy says of them."""

import json
import tempfile
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxgen.files import resolve
from onnxgen.generation.loop import Clock, Row, greedy, run
from onnxgen.graph.decoder import DecoderGraph
from onnxgen.runtime.decoder import DecoderModel
from onnxgen.runtime.embeddings import Embedder
from onnxgen.tasks.defaults import graph_config

FIXTURES = Path(__file__).parent.parent / "fixtures"
# A model of each cache mode.
MODES = {
    "append": "models/llama",
    "in_place": "models/genai-llama",
    "grow": "models/gemma3_text",
    "states": "models/genai-lfm2",
    "none": "models/llama-nocache",
}


@dataclass(frozen=True)
class FixtureModel:
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.folder.parent.name}/{self.folder.name}"

    @cached_property
    def expected(self) -> dict[str, Any]:
        return json.loads((self.folder / "expected.json").read_text())

    @property
    def prompts(self) -> list[list[int]]:
        return self.expected["prompts"]

    @property
    def greedy(self) -> list[list[int]]:
        return self.expected["greedy"]

    def facts(self) -> dict[str, DecoderGraph]:
        files = resolve(self.folder)
        config = graph_config(files)
        return {
            role: DecoderGraph.load(path, config)
            for role, path in files.graphs.items()
            if role.startswith("decoder")
        }

    def model(self) -> DecoderModel:
        return load(self)


@cache
def load(fixture: FixtureModel) -> DecoderModel:
    facts = fixture.facts()
    return DecoderModel(
        facts["decoder"], later=facts.get("decoder_with_past"), embedder=embedder(fixture.folder)
    )


def embedder(folder: Path) -> Embedder | None:
    """The embeddings' own graph, made from the table where the exporter left only that."""
    if (folder / "embed_tokens.onnx").exists():
        return Embedder(folder / "embed_tokens.onnx")
    if not (folder / "embeddings.npy").exists():
        return None
    table = numpy_helper.from_array(np.load(folder / "embeddings.npy"), "table")  # (V,H)
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["B", "S"])
    out = helper.make_tensor_value_info("inputs_embeds", TensorProto.FLOAT, ["B", "S", "H"])
    gather = helper.make_node("Gather", ["table", "input_ids"], ["inputs_embeds"])
    graph = helper.make_graph([gather], "embed", [ids], [out], [table])
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "embed_tokens.onnx"
        opsets = [helper.make_opsetid("", 18)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
        return Embedder(path)


def found(kind: str) -> list[FixtureModel]:
    folders = sorted(p.parent for p in (FIXTURES / kind).glob("*/expected.json"))
    assert folders, f"no fixtures in {FIXTURES / kind}"
    models = [FixtureModel(folder) for folder in folders]
    return [model for model in models if "prompts" in model.expected]


def decode(model: DecoderModel, prompts: list[list[int]], count: int) -> list[list[int]]:
    """``count`` greedy tokens for each prompt, all in one batch."""
    rows = [Row(i, prompt, count, frozenset()) for i, prompt in enumerate(prompts)]
    decoder = model.start(max(map(len, prompts)) + count - 1)
    for _ in run(decoder, rows, greedy, Clock()):
        pass
    return [row.tokens for row in rows]


def padded(prompts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.array([len(p) for p in prompts])
    tokens = np.zeros((len(prompts), lengths.max()), np.int64)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = prompt
    return tokens, lengths
