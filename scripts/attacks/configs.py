"""Hostile configs: too deep, too large, of wrong types, and such that name what they should not.

All lie beside the decoder of :mod:`scripts.attacks.models`.
"""

import json
from pathlib import Path
from typing import Any

from scripts.attacks import Cases
from scripts.attacks.models import decoder, put

CASES = Cases()
FILES = {
    "config": "config.json",
    "generation": "generation_config.json",
    "genai": "genai_config.json",
}
GENAI = {"model": {"type": "llama", "decoder": {"filename": "model.onnx"}}}


def _text(name: str, file: str, tries: str, must: str, content: bytes, kept: bool = True) -> None:
    def build(folder: Path) -> Path:
        (folder / file).write_bytes(content)
        return put(folder, decoder())

    build.__name__ = name
    CASES.case(tries, must, kept=kept)(build)


def _value(name: str, file: str, tries: str, must: str, **values: Any) -> None:
    base = GENAI if file == "genai" else {}
    _text(name, FILES[file], tries, must, json.dumps(base | values).encode())


for _kind, _file in FILES.items():
    _must = "ModelFileError"
    _text(f"{_kind}_deep", _file, "lists in lists, 10^5 deep", _must, b"[" * 10**5, kept=False)
    _text(f"{_kind}_deep_objects", _file, "objects 10^5 deep", _must, b'{"a":' * 10**5, kept=False)
    _text(f"{_kind}_list", _file, "a list in place of an object", _must, b"[1]")
    _text(f"{_kind}_nan", _file, "NaN", _must, b'{"temperature": NaN}')
    _text(f"{_kind}_digits", _file, "a number of 10,000 digits", _must,
          b'{"a": ' + b"9" * 10_000 + b"}")  # fmt: skip
    _text(f"{_kind}_bytes", _file, "bytes that are no text", _must, b'{"a": "\xff\xfe"}')
    _text(f"{_kind}_empty", _file, "nothing", _must, b"")


@CASES.case("a config of a gigabyte", "ModelFileError")
def config_huge(folder: Path) -> Path:
    with (folder / "config.json").open("wb") as file:
        file.truncate(2**30)  # a hole: no disk is filled
    return put(folder, decoder())


_value("config_layers", "config", "10^9 layers", "runs", num_hidden_layers=10**9)
_value("config_head_dim", "config", "heads of no size", "runs", head_dim=0, num_attention_heads=0)
_value("config_vocab", "config", "a vocabulary of -1", "runs", vocab_size=-1)
_value("config_positions", "config", "10^30 positions", "runs", max_position_embeddings=10**30)
_value("config_strings", "config", "texts in place of numbers", "runs", num_hidden_layers="2")
_value("config_text_config", "config", "a number in place of a section", "runs", text_config=7)
_value(
    "config_eos_text", "config", "an end token that is a text", "OptionError", eos_token_id="</s>"
)
_value("generation_eos_beyond", "generation", "an end token beyond the vocabulary", "runs",
       eos_token_id=2**40)  # fmt: skip
_value("generation_eos_negative", "generation", "an end token below 0", "runs",
       eos_token_id=-5)  # fmt: skip
_value("generation_eos_list", "generation", "end tokens of mixed types", "OptionError",
       eos_token_id=[1, "2", None])  # fmt: skip
_value("generation_length_text", "generation", "a length that is a text", "runs",
       max_length="many")  # fmt: skip
_value("generation_temperature_text", "generation", "a temperature that is a text", "OptionError",
       temperature="hot", do_sample=True)  # fmt: skip
_value("generation_top_k_huge", "generation", "the best 10^30 tokens", "runs",
       top_k=10**30, do_sample=True)  # fmt: skip
_value("generation_beams", "generation", "10^9 beams", "OnnxgenError", num_beams=10**9)
_value("generation_infinite", "generation", "an infinite temperature", "OptionError",
       temperature=float("inf"), do_sample=True)  # fmt: skip
_value("generation_unknown", "generation", "an option that nobody knows", "runs",
       __class__="subprocess.Popen", _from_model_config=True)  # fmt: skip
_value("genai_custom_library", "genai", "a library of custom operators", "runs",
       model={"type": "llama", "decoder": {"filename": "model.onnx", "session_options": {
           "custom_ops_library": "/tmp/evil.so"}}})  # fmt: skip
_value("genai_no_decoder", "genai", "no decoder", "ModelFileError", model={})
_value("genai_escapes", "genai", "a graph outside of the folder", "ModelFileError",
       model={"decoder": {"filename": "../model.onnx"}})  # fmt: skip
_value("genai_number", "genai", "a number for a file name", "ModelFileError",
       model={"decoder": {"filename": 7}})  # fmt: skip

if __name__ == "__main__":
    CASES.write("configs")
