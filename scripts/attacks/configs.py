"""Hostile configs: too deep, too large, of wrong types, and such that name what they should not.

They lie beside the decoder of :mod:`scripts.attacks.models`; those of processors, in
``PROCESSORS``, beside a model of ``fixtures/models`` that sees or hears.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from scripts.attacks import PLACE, Cases
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
# As transformers: small models keep the default id of a large vocabulary. A warning tells of it.
_value("generation_eos_beyond", "generation", "an end token beyond the vocabulary", "runs",
       eos_token_id=50_256)  # fmt: skip
_value("generation_eos_huge", "generation", "an end token beyond all tokenizers", "OptionError",
       eos_token_id=2**40)  # fmt: skip
_value("generation_eos_none", "generation", "-1, which stands for no end token", "runs",
       eos_token_id=-1)  # fmt: skip
_value("generation_eos_negative", "generation", "an end token below -1", "OptionError",
       eos_token_id=-5)  # fmt: skip
_value("generation_eos_list", "generation", "end tokens of mixed types", "OptionError",
       eos_token_id=[1, "2", None])  # fmt: skip
_value("generation_length_text", "generation", "a length that is a text, and unused", "runs",
       max_length="many")  # fmt: skip
_value("generation_temperature_text", "generation", "a temperature that is a text", "OptionError",
       temperature="hot", do_sample=True)  # fmt: skip
# As transformers: more than there are means all of them.
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

PROCESSORS: list[str] = []  # names of cases whose model is to be shown a picture or to hear a hum


def _processor(
    source: str,
    name: str,
    tries: str,
    must: str = "ModelFileError",
    file: str = "preprocessor_config.json",
    **values: Any,
) -> None:
    """A model of the fixtures whose ``file`` says ``values``."""

    def build(folder: Path) -> Path:
        own = PLACE.parent / "models" / source
        unread = shutil.ignore_patterns("expected.json", "images", "*.npz")
        shutil.copytree(own, folder, dirs_exist_ok=True, ignore=unread)
        config = json.loads((own / file).read_text())
        (folder / file).write_text(json.dumps(config | values))
        return folder

    build.__name__ = f"{source}_{name}"
    CASES.case(tries, must)(build)
    PROCESSORS.append(build.__name__)


for _field in ("n_fft", "hop_length", "feature_size", "chunk_length", "sampling_rate"):
    _processor("whisper", f"{_field}_0", f"{_field} 0", **{_field: 0})
    _processor("whisper", f"{_field}_negative", f"{_field} -1", **{_field: -1})
    _processor("whisper", f"{_field}_huge", f"{_field} 10^9", **{_field: 10**9})
    _processor("whisper", f"{_field}_text", f"{_field} as a text", **{_field: "400"})
_processor("whisper", "window_huge", "10^6 Hz for an hour, 14 GB a window", sampling_rate=10**6,
           chunk_length=3_600)  # fmt: skip
_processor("whisper", "filters_huge", "4,096 filters of 32,769 frequencies", feature_size=4_096,
           n_fft=1 << 16)  # fmt: skip
_processor("whisper", "frames_huge", "a frame for each sample", hop_length=1)
_processor("whisper", "hop_beyond", "a hop longer than a window", hop_length=1 << 16,
           chunk_length=1)  # fmt: skip
_processor("whisper", "mels_of_another", "128 filters for an encoder of 80", "OnnxgenError",
           feature_size=128)  # fmt: skip
_processor("whisper", "padding_infinite", "silence of 10^308", padding_value=1e308)
_processor("whisper", "padding_digits", "silence of 10^400", padding_value=10**400)
_processor("whisper", "dither_infinite", "noise of 10^308", dither=1e308)
_processor("whisper", "kind_list", "a list for a class", "UnsupportedModelError",
           feature_extractor_type=["Whisper"])  # fmt: skip
_processor("whisper", "nested_list", "a list for the extractor's section", feature_extractor=[1],
           sampling_rate=-1)  # fmt: skip

for _source in ("vit-gpt2", "smolvlm", "qwen2-vl"):
    _processor(_source, "mean_short", "a mean of two channels", image_mean=[0.5, 0.5])
    _processor(_source, "mean_text", "a mean that is a text", image_mean="0.5")
    _processor(_source, "mean_infinite", "a mean of 10^308", image_mean=[1e308] * 3)
    _processor(_source, "std_0", "a deviation of 0", image_std=[0.5, 0, 0.5])
    _processor(_source, "std_long", "a deviation of 10^5 channels", image_std=[0.5] * 10**5)
    _processor(_source, "factor_text", "a factor that is a text", rescale_factor="1/255")
    _processor(_source, "factor_digits", "a factor of 10^400", rescale_factor=10**400)
    _processor(_source, "resample_huge", "filter 10^9", resample=10**9)
    _processor(_source, "resize_text", "a step that is a text", do_resize="false")
    _processor(_source, "size_list", "a size of lists", size=[[32], [32]])
    _processor(_source, "size_null", "a size of nothing", "OnnxgenError", size={})
    _processor(_source, "kind_number", "a number for a class", "OnnxgenError",
               image_processor_type=7, processor_class=7)  # fmt: skip

for _size in (0, -32, 10**9, 10**30, 32.5, "32", True, [32]):
    _processor("vit-gpt2", f"size_{_size}".strip("[]").replace(" ", ""), f"a size of {_size!r}",
               size={"height": _size, "width": 32})  # fmt: skip
_processor("vit-gpt2", "size_gigabytes", "a picture of 10^6 x 10^6", "ImageError",
           size={"height": 10**6, "width": 10**6})  # fmt: skip
_processor("vit-gpt2", "size_of_another", "a picture twice as large as the encoder's",
           "OnnxgenError", size={"height": 64, "width": 64})  # fmt: skip

for _size in (0, -1, 10**9, "28", None):
    _processor("smolvlm", f"tile_{_size}", f"tiles of {_size!r}",
               "UnsupportedModelError" if _size is None else "ModelFileError",
               max_image_size={"longest_edge": _size})  # fmt: skip
_processor("smolvlm", "tiles_millions", "10^7 tiles of one pixel", "ImageError",
           max_image_size={"longest_edge": 1}, size={"longest_edge": 4_096})  # fmt: skip
_processor("smolvlm", "tiles_thousands", "5,000 tiles", "ImageError",
           max_image_size={"longest_edge": 28}, size={"longest_edge": 2_400})  # fmt: skip
_processor("smolvlm", "size_0", "an edge of 0", size={"longest_edge": 0})
_processor("smolvlm", "split_number", "a number for a step", do_image_splitting=2)
for _length in (0, -4, 10**6, 10**30, "4"):
    _processor("smolvlm", f"length_{_length}", f"{_length!r} tokens a tile",
               file="processor_config.json", image_seq_len=_length)  # fmt: skip
_processor("smolvlm", "length_of_all", "10^5 tokens for each of 17 tiles", "ImageError",
           "processor_config.json", image_seq_len=10**5)  # fmt: skip
_processor("smolvlm", "length_of_another", "5 tokens for a tile of 4", "OnnxgenError",
           "processor_config.json", image_seq_len=5)  # fmt: skip

for _field in ("patch_size", "merge_size", "temporal_patch_size"):
    for _size in (0, -1, 10**9, "2", 2.0):
        _processor("qwen2-vl", f"{_field}_{_size}", f"{_field} {_size!r}", **{_field: _size})
_processor("qwen2-vl", "time_long", "patches of 1,000 frames, gigabytes of an image",
           "ImageError", temporal_patch_size=1_000, min_pixels=1 << 20,
           max_pixels=1 << 21)  # fmt: skip
_processor("qwen2-vl", "patch_1000", "merged patches of 10^6 pixels a side", "ImageError",
           patch_size=1_000, merge_size=1_000)  # fmt: skip
_processor("qwen2-vl", "patches_millions", "a token for each of 10^6 pixels", "ImageError",
           patch_size=1, merge_size=1, min_pixels=10**6, max_pixels=2 * 10**6)  # fmt: skip
_processor("qwen2-vl", "pixels_crossed", "more pixels at least than at most", min_pixels=3_136,
           max_pixels=784)  # fmt: skip
_processor("qwen2-vl", "pixels_huge", "10^9 pixels at least", min_pixels=10**9, max_pixels=10**10)
_processor("qwen2-vl", "pixels_negative", "-1 pixels at most", max_pixels=-1)
_processor("qwen2-vl", "pixels_text", "a text for the pixels", min_pixels="784")
_processor("qwen2-vl", "patch_of_another", "patches of 5 x 5 for an encoder of 7 x 7",
           "OnnxgenError", patch_size=5)  # fmt: skip

if __name__ == "__main__":
    CASES.write("configs")
