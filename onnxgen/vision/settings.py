"""The steps from a picture to a model's input, read from ``preprocessor_config.json``."""

from dataclasses import dataclass
from typing import Any

from onnxgen.errors import ModelFileError, UnsupportedModelError
from onnxgen.vision.fields import FILE, STEPS, Fields, choose
from onnxgen.vision.sizes import EDGE, EXACT, FORMS, Form, Size, read_size, shown

_FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # Pillow's order

Triple = tuple[float, float, float]  # one for each channel

_LEAST, _MOST = 1e-30, 1e30  # what float32 holds, with room for the arithmetic


@dataclass(frozen=True, slots=True)
class Settings:
    """What is done to a picture, in this order; the names are those of the file.

    ``size`` is as :func:`onnxgen.vision.resizing.target` takes it. With ``document``, the way of
    Donut and Nougat, its shorter side is the shortest edge, and thumbnail and frame do the rest.
    A step of arithmetic that is not done has numbers that change nothing.
    """

    kind: str  # "ViT", ...; as the file names it, known or not; "" if it does not
    size: Size  # empty if no step has a use for it
    do_crop_margin: bool
    do_align_long_axis: bool
    do_resize: bool
    document: bool
    resample: int  # Pillow's number
    do_thumbnail: bool
    do_pad: bool
    crop_size: Size | None  # of the crop in the middle
    rescale_factor: float
    offset: bool  # 1 is subtracted
    do_flip_channel_order: bool  # BGR
    image_mean: Triple
    image_std: Triple
    unread: tuple[str, ...]  # fields of the file that its class does not read


def read(config: Any) -> Settings:
    """The settings in ``config``, the content of preprocessor_config.json or processor_config.json.

    Raises:
        ModelFileError: a field has a wrong value, is missing, or is misspelt.
        UnsupportedModelError: steps that are not known, or a class that the fields do not tell.
    """
    fields = choose(config)
    flags = {name: flag(fields, name) for name in (*STEPS, "do_resize", "do_rescale")}
    factor, mean, std = numbers(fields)
    offset = flags["offset"] or flags["rescale_offset"]
    if offset and not flags["do_rescale"]:
        raise ModelFileError(f"{FILE}: an offset without do_rescale")
    if flags["do_flip_channel_order"] and len({*mean}) + len({*std}) > 2:
        raise UnsupportedModelError(
            f"{FILE}: do_flip_channel_order with a mean or deviation for each channel",
            wanted="one of the two: which channel a mean belongs to is not said",
        )
    return Settings(
        kind=fields.kind,
        size=_size(fields, flags),
        do_crop_margin=flags["do_crop_margin"],
        do_align_long_axis=flags["do_align_long_axis"],
        do_resize=flags["do_resize"],
        document=_is_document(fields),
        resample=resampling(fields) if flags["do_resize"] else 0,
        do_thumbnail=flags["do_thumbnail"],
        do_pad=flags["do_pad"],
        crop_size=_crop_size(fields) if flags["do_center_crop"] else None,
        rescale_factor=factor,
        offset=offset,
        do_flip_channel_order=flags["do_flip_channel_order"],
        image_mean=mean,
        image_std=std,
        unread=fields.unread,
    )


def numbers(fields: Fields) -> tuple[float, Triple, Triple]:
    """Factor of rescaling, mean and deviation, which change nothing where the step is off."""
    factor = number(fields, "rescale_factor") if flag(fields, "do_rescale") else 1.0
    if not flag(fields, "do_normalize"):
        return factor, (0.0,) * 3, (1.0,) * 3
    mean, std = triple(fields, "image_mean"), triple(fields, "image_std")
    if min(map(abs, std)) < _LEAST:
        raise ModelFileError(f"{FILE}: image_std is {std}", wanted="nothing that is 0")
    return factor, mean, std


def _is_document(fields: Fields) -> bool:
    return "do_thumbnail" in fields.values  # of a class that is not known: only if true


def _size(fields: Fields, flags: dict[str, bool]) -> Size:
    """The size in the forms that the class takes; empty if no step needs one."""
    if not any(flags[s] for s in ("do_resize", "do_thumbnail", "do_pad", "do_align_long_axis")):
        return {}
    forms: tuple[Form, ...] = (EXACT,)
    number: Form | None = EXACT if fields.known else None
    if fields.kind == "CLIP":
        forms, number = (EXACT, EDGE), EDGE
    elif not fields.known and not _is_document(fields):
        forms = FORMS
    size = read_size(
        fields.values.get("size"),
        f"{FILE}: size",
        forms=forms,
        number=number,
        width_first=fields.kind == "Donut",
    )
    if flags["use_square_size"] and "shortest_edge" in size:  # Kosmos-2's old files
        return dict.fromkeys(EXACT, size["shortest_edge"])
    return size


def _crop_size(fields: Fields) -> Size:
    return read_size(fields.values.get("crop_size"), f"{FILE}: crop_size", forms=(EXACT,))


def flag(fields: Fields, name: str) -> bool:
    """Whether the step ``name`` is on; ModelFileError if the field says neither."""
    value = fields.values.get(name)
    if value is not None and not isinstance(value, bool):
        raise ModelFileError(f"{FILE}: {name} is {shown(value)}", wanted="true or false")
    return bool(value)


def resampling(fields: Fields) -> int:
    """Pillow's number of a filter, given as such or by name."""
    value = fields.values.get("resample")
    if isinstance(value, str) and value.lower() in _FILTERS:
        return _FILTERS.index(value.lower())
    if type(value) is int and 0 <= value < len(_FILTERS):
        return value
    names = ", ".join(f"{number} ({name})" for number, name in enumerate(_FILTERS))
    raise ModelFileError(f"{FILE}: resample is {shown(value)}", wanted=f"one of {names}")


def number(fields: Fields, name: str) -> float:
    """The number in the field ``name``; ModelFileError if it is none."""
    value: Any = fields.values.get(name)
    if not _is_number(value):
        raise ModelFileError(f"{FILE}: {name} is {shown(value)}", wanted="a number")
    return float(value)


def triple(fields: Fields, name: str) -> Triple:
    """Three numbers, one for each channel; a single one counts for all."""
    value = fields.values.get(name)
    values = value if isinstance(value, list | tuple) else [value] * 3
    if len(values) != 3 or not all(map(_is_number, values)):
        raise ModelFileError(f"{FILE}: {name} is {shown(value)}", wanted="a number or three")
    first, second, third = map(float, values)
    return first, second, third


def _is_number(value: Any) -> bool:
    """A number that float32 can hold; NaN is between no bounds."""
    return isinstance(value, int | float) and type(value) is not bool and -_MOST < value < _MOST
