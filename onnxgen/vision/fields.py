"""Which fields of ``preprocessor_config.json`` count, and what holds for those it leaves out.

A class of :mod:`onnxgen.vision.kinds` reads its own fields and no others, as in transformers. For
any other class each field must have a meaning here or be known to change no pixel, and nothing
may be left to a default that classes differ in.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from onnxgen.errors import ModelFileError, UnsupportedModelError
from onnxgen.vision.kinds import KINDS

FILE = "preprocessor_config.json"

# Steps that a class may have, off where the file does not say; then all fields with a meaning.
STEPS = (
    "do_crop_margin",
    "do_align_long_axis",
    "do_thumbnail",
    "do_pad",
    "do_center_crop",
    "rescale_offset",
    "offset",
    "do_flip_channel_order",
    "use_square_size",
)
_FIELDS = {field for kind in KINDS.values() for field in kind} | set(STEPS)
# Fields that change no pixel: pictures are always RGB, and the result is always (B, 3, H, W).
_SILENT = {
    "_name_or_path",
    "_valid_processor_keys",
    "auto_map",
    "data_format",
    "default_to_square",
    "device",
    "disable_grouping",
    "do_convert_rgb",
    "do_reduce_labels",
    "feature_extractor_type",
    "image_processor_type",
    "image_seq_length",
    "input_data_format",
    "model_input_names",
    "processor_class",
    "return_tensors",
    "transformers_version",
}
# Classes whose files look plain, but whose steps are not what the fields say elsewhere.
_ODD = {"Chameleon", "Idefics2", "Levit", "Owlv2", "Perceiver"}
_ODD |= {"InstructBlipVideo", "VideoLlava", "VideoMAE", "Vivit"}  # (B, frames, 3, H, W)


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields that count, by name, defaults included; see :class:`onnxgen.vision.settings`."""

    kind: str  # "ViT", ...: the class, known or not; "" if the file names none
    values: Mapping[str, Any]
    unread: tuple[str, ...]  # fields of the file that do something elsewhere, not in this class

    @property
    def known(self) -> bool:
        """The class is one whose defaults are known."""
        return self.kind in KINDS


def choose(config: Any) -> Fields:
    """The fields of ``config``, the content of preprocessor_config.json or processor_config.json.

    Raises:
        ModelFileError: no fields, or a misspelt one.
        UnsupportedModelError: steps that are not known, or a class that the fields do not tell.
    """
    config = _unwrapped(config)
    kind, _ = _class_name(config)
    if kind in KINDS:
        return of_class(config, KINDS[kind])
    return Fields(kind, _stated(config, kind), ())


def of_class(config: Any, defaults: Mapping[str, Any]) -> Fields:
    """The fields of ``config`` that a class with ``defaults`` reads; the content as above.

    Raises:
        ModelFileError: no fields, or a misspelt one.
        UnsupportedModelError: a step that only the fast variant of the class has.
    """
    config = _unwrapped(config)
    kind, fast = _class_name(config)
    return Fields(kind, *_known(config, kind, defaults, fast))


def _unwrapped(config: Any) -> Mapping[str, Any]:
    """The image processor's fields of a file; ModelFileError if there are none."""
    if isinstance(config, Mapping) and "image_processor" in config:  # a whole processor's file
        config = config["image_processor"]
    if not isinstance(config, Mapping) or not all(isinstance(name, str) for name in config):
        raise ModelFileError(f"{FILE} is a {type(config).__name__}", wanted="an object of fields")
    return config


def _class_name(config: Mapping[str, Any]) -> tuple[str, bool]:
    """The class that ``config`` names, ViT for example, and whether in its fast variant.

    Fast variants resize with torchvision, whose results differ by a grey level or so. The slow
    ones are followed here, which transformers takes too where torchvision is not installed.
    """
    name = config.get("image_processor_type") or config.get("feature_extractor_type") or ""
    if not isinstance(name, str):
        raise ModelFileError(f"{FILE}: image_processor_type is {name!r}", wanted="a class name")
    base = name.removesuffix("Fast")
    return base.removesuffix("ImageProcessor").removesuffix("FeatureExtractor"), base != name


def _known(
    config: Mapping[str, Any], kind: str, defaults: Mapping[str, Any], fast: bool
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields that the class ``kind`` reads, defaults filled in, and the names of the others."""
    fields = dict(defaults)
    for name in fields.keys() & config.keys():
        # Null switches a step off; for a value it means the default, but these two have none.
        off = name.startswith("do_") or name in ("resample", "rescale_factor")
        if config[name] is not None or off:
            fields[name] = config[name]
    others = config.keys() - fields.keys() - _SILENT
    others = {name for name in others if config[name] not in (None, False)}
    for name in sorted(others - _FIELDS):
        if near := get_close_matches(name, fields, n=1, cutoff=0.85):
            raise ModelFileError(f"{FILE}: no field {name!r}", do=f"did you mean {near[0]!r}?")
    if fast and (steps := sorted(others & set(STEPS))):
        raise UnsupportedModelError(
            f"{FILE}: {kind}ImageProcessorFast with {', '.join(steps)}",
            wanted="steps that the slow class has too",
        )
    return fields, tuple(sorted(others))


def _stated(config: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The fields of a class that is not known; refused unless they say all that is done."""
    name = f"the class {kind}ImageProcessor" if kind else "no class"
    code = config.get("auto_map")
    if isinstance(code, Mapping) and code.keys() & {"AutoImageProcessor", "AutoFeatureExtractor"}:
        raise UnsupportedModelError(f"{FILE} names {name}, whose code comes with the model")
    if kind in _ODD:
        raise UnsupportedModelError(f"{FILE} names {name}, whose steps are its own")
    fields = {field: config[field] for field in config if field in _FIELDS}
    others = config.keys() - _FIELDS - _SILENT
    if unknown := sorted(field for field in others if not _is_off(field, config[field])):
        raise UnsupportedModelError(
            f"{FILE} names {name} and has the fields {', '.join(unknown)}",
            wanted=f"these alone: {', '.join(sorted(_FIELDS))}",
        )
    if missing := [field for field in _needed(fields) if field not in fields]:
        raise UnsupportedModelError(
            f"{FILE} names {name} and does not say {', '.join(missing)}",
            wanted="a class with known defaults, or all of its fields",
            do="add them to the file as the model was trained with them",
        )
    _check_order(fields, name)
    return {"do_rescale": True, "rescale_factor": 1 / 255} | fields


def _needed(fields: Mapping[str, Any]) -> list[str]:
    """The fields that ``fields`` must hold, as classes differ in their defaults."""
    needed = ["do_resize"]
    needed += ["size", "resample"] if fields.get("do_resize") else []
    needed += ["do_normalize"] if fields.keys() & {"image_mean", "image_std"} else []
    needed += ["image_mean", "image_std"] if fields.get("do_normalize") else []
    needed += ["do_center_crop"] if fields.get("crop_size") else []
    needed += ["crop_size"] if fields.get("do_center_crop") else []
    return needed


def _check_order(fields: Mapping[str, Any], name: str) -> None:
    """Refuses steps whose order or meaning the fields alone do not tell."""
    thumbnail, crop = fields.get("do_thumbnail"), fields.get("do_center_crop")
    alone = [
        step for step in ("do_pad", "do_align_long_axis", "do_crop_margin") if fields.get(step)
    ]
    if "do_thumbnail" in fields:
        alone = [] if thumbnail and not crop else ["do_thumbnail"]
    size = fields.get("size")
    if crop and isinstance(size, Mapping) and "longest_edge" in size:
        alone.append("size.longest_edge")  # most classes that crop pay no heed to it
    if alone:
        raise UnsupportedModelError(
            f"{FILE} names {name} and has the fields {', '.join(alone)}",
            wanted="do_thumbnail (true) with do_pad and the like, or do_center_crop: not both, "
            "and a longest_edge without do_center_crop",
        )


def _is_off(name: str, value: Any) -> bool:
    """A field that is not known does nothing with this value; null may stand for a default."""
    return value is False or (value is None and (name.startswith("do_") or name == "pad_size"))
