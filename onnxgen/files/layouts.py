"""Where exporters put the graphs of a model.

Works on file names and on ``genai_config.json`` alone, so the same rules hold for a folder on
disk, for the listing of a Hub repository and for what a cache holds of it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from onnxgen.errors import ModelFileError, ModelNotFoundError, UnsupportedModelError
from onnxgen.files.external import inside

# dtype -> suffix of the file name. Best first, the order in which one is taken where neither the
# user nor the repository names one: more bits before fewer, and with equal bits of weight,
# float32 sums before float16 ones.
DTYPES: Mapping[str, str] = {
    "fp32": "",
    "fp16": "_fp16",
    "q8": "_quantized",
    "int8": "_int8",
    "uint8": "_uint8",
    "q4": "_q4",
    "q4f16": "_q4f16",
    "bnb4": "_bnb4",
    "q2": "_q2",
    "q2f16": "_q2f16",
    "q1": "_q1",
    "q1f16": "_q1f16",
}

PAST_ROLE = "decoder_with_past"  # of an un-merged pair; takes the decoder's dtype, never its own

# File base name -> role; the decoder's names in order of preference.
BASE_ROLES: dict[str, str] = {
    "model": "decoder",
    "decoder_model_merged": "decoder",
    "decoder_model": "decoder",
    "decoder_with_past_model": "decoder",
    "encoder_model": "encoder",
    "embed_tokens": "embed_tokens",
    "vision_encoder": "vision_encoder",
    "audio_encoder": "audio_encoder",
}
# Section of genai_config.json -> role.
_GENAI_ROLES = {
    "decoder": "decoder",
    "encoder": "encoder",
    "embedding": "embed_tokens",
    "vision": "vision_encoder",
    "speech": "audio_encoder",
}
_NAMES = {
    f"{base}{suffix}.onnx": (base, dtype) for base in BASE_ROLES for dtype, suffix in DTYPES.items()
}
GENAI_CONFIG = "genai_config.json"

# role -> dtype -> file name relative to the model's folder
Variants = dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class Layout:
    """The ``kind`` of layout and every graph in it."""

    kind: str
    variants: Variants

    def only(self, has: Callable[[str], bool]) -> "Layout":
        """The variants whose files are all there; a pair counts only as a whole."""
        past = self.variants.get(PAST_ROLE, {})
        kept = {
            role: {
                dtype: name
                for dtype, name in names.items()
                if has(name) and (role != "decoder" or dtype not in past or has(past[dtype]))
            }
            for role, names in self.variants.items()
        }
        return Layout(self.kind, kept)


def find(source: str, names: Collection[str], read: Callable[[str], dict[str, Any]]) -> Layout:
    """The layout of a model whose folder holds ``names`` (with ``/``); ``read`` parses a config.

    ``onnx/`` goes before ``genai_config.json``, that before the names of the root folder.

    Raises:
        ModelNotFoundError: no decoder among them; says what is there instead.
        ModelFileError, UnsupportedModelError: genai_config.json names no usable files.
    """
    by_name = _by_name(names, "onnx/")
    if "decoder" in by_name:
        return Layout("transformers.js", by_name)
    if GENAI_CONFIG in names:
        return Layout("genai", _genai(source, names, read(GENAI_CONFIG)))
    for prefix, kind in (("", "optimum"), ("onnx/", "transformers.js")):
        found = _by_name(names, prefix) or _lone(names, prefix)
        if "decoder" in found:
            return Layout(kind, found)
    raise _no_decoder(source, names)


def dtype_of(file_name: str) -> str:
    """The dtype that a file's own name tells, empty if it tells none."""
    return _NAMES[file_name][1] if file_name in _NAMES else ""


def _by_name(names: Collection[str], prefix: str) -> Variants:
    """The variants of each role among the files of one folder, by their names."""
    bases: Variants = {base: {} for base in BASE_ROLES}
    for file_name, (base, dtype) in _NAMES.items():
        if prefix + file_name in names:
            bases[base][dtype] = prefix + file_name
    variants = _decoders(bases)
    for base, role in BASE_ROLES.items():
        if role != "decoder":
            variants[role] = bases[base]
    return {
        role: {dtype: found[dtype] for dtype in DTYPES if dtype in found}
        for role, found in variants.items()
        if found
    }


def _decoders(bases: Variants) -> Variants:
    """``model`` wins over a merged decoder, that over a pair; each dtype is settled by itself."""
    first, past = bases["decoder_model"], bases["decoder_with_past_model"]
    whole = bases["decoder_model_merged"] | bases["model"]
    pair = {d: name for d, name in past.items() if d in first and d not in whole}
    alone = first or past  # without its other half, a file has to do all by itself
    return {"decoder": alone | whole, PAST_ROLE: pair}


def _lone(names: Collection[str], prefix: str) -> Variants:
    """A single graph under a name of its own is the decoder."""
    graphs = [n for n in names if n.endswith(".onnx") and _folder(n) == prefix]
    if len(graphs) == 1 and graphs[0].removeprefix(prefix) not in _NAMES:
        return {"decoder": {"": graphs[0]}}
    return {}


def _folder(name: str) -> str:
    return name[: name.rfind("/") + 1]


def _genai(source: str, names: Collection[str], config: dict[str, Any]) -> Variants:
    model = config.get("model")
    sections = model if isinstance(model, dict) else {}
    variants: Variants = {}
    for section, role in _GENAI_ROLES.items():
        entry = sections.get(section)
        file_name = entry.get("filename") if isinstance(entry, dict) else None
        if not file_name:
            if isinstance(entry, dict) and entry.get("pipeline"):
                raise UnsupportedModelError(
                    f"{source}: its {section} is a pipeline of several graphs",
                    wanted=f"one graph, model.{section}.filename in {GENAI_CONFIG}",
                    do="use an export for another device",
                )
            continue
        if not isinstance(file_name, str) or not inside(file_name):
            raise ModelFileError(
                f"{source}: model.{section}.filename in {GENAI_CONFIG} leaves the folder",
                wanted="a file beside it",
            )
        name = PurePosixPath(file_name.replace("\\", "/")).as_posix()
        if name not in names:
            raise ModelFileError(
                f"{source}: {GENAI_CONFIG} names {name}, which is missing",
                do="download or export the model again",
            )
        variants[role] = {"": name}
    if "decoder" not in variants:
        raise ModelFileError(f"{source}: {GENAI_CONFIG} names no decoder", wanted="model.decoder")
    return variants


def _no_decoder(source: str, names: Collection[str]) -> ModelNotFoundError:
    graphs = sorted(name for name in names if name.endswith(".onnx"))
    configs = sorted(_folder(n) for n in names if PurePosixPath(n).name == GENAI_CONFIG)
    weights = sorted(n for n in names if n.endswith((".safetensors", ".gguf", ".bin", ".pt")))
    do = ""
    if configs:
        found = _some([folder + GENAI_CONFIG for folder in configs])
        do = "name the folder it is in, on disk"
    elif graphs:
        found = _some(graphs)
        do = "name the .onnx file itself if one of them is the decoder"
    elif weights:
        found, do = _some(weights), "export it, e.g. optimum-cli export onnx --model MODEL FOLDER"
    else:
        found = _some(sorted(names)) if names else "nothing"
    return ModelNotFoundError(
        f"no decoder graph in {source}: found {found}",
        wanted="model.onnx, decoder_model_merged.onnx or decoder_model.onnx, in the folder itself"
        f" or in onnx/, or the file that {GENAI_CONFIG} names",
        do=do,
    )


def _some(names: list[str], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
