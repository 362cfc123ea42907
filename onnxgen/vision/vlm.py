"""Which family's processor a vision-language model has, told by its config files.

The image processor's class tells most families. Those whose images are plain pictures of one size
(CLIP's, Siglip's) are told by the class of the whole processor, else by ``model_type``.
"""

from importlib import import_module
from inspect import signature
from typing import Any

from onnxgen.errors import OptionError, UnsupportedModelError
from onnxgen.vision.loading import MAX_PIXELS
from onnxgen.vision.pictures import (
    PREPROCESSOR,
    PROCESSOR,
    Configs,
    VisionProcessor,
    image_fields,
    section,
)

# Name without "ImageProcessor" -> the module here and its class, a VisionProcessor.
_BY_IMAGES = {
    "Idefics3": ("tiling", "Tiling"),
    "SmolVLM": ("tiling", "Tiling"),
    "LlavaOnevision": ("anyres", "AnyRes"),
    "Gemma3": ("pan_and_scan", "PanAndScan"),
    "Qwen2VL": ("patches", "Patches"),
}
# Name without "Processor".
_BY_PROCESSOR = {
    "Llava": ("plain", "Llava"),
    "PaliGemma": ("plain", "PaliGemma"),
    "Florence2": ("plain", "Florence"),
}
_BY_MODEL = {"llava": "Llava", "paligemma": "PaliGemma", "florence2": "Florence2"}
_NAMES = ("image_processor_type", "feature_extractor_type")


def processor(
    configs: Configs, *, max_pixels: int = MAX_PIXELS, newline: bool = True, **options: Any
) -> VisionProcessor:
    """The processor of the model whose config files are ``configs``, parsed, by file name.

    Args:
        configs: preprocessor_config.json, processor_config.json, config.json and
            tokenizer_config.json; what a family does not need may be missing.
        max_pixels: see :func:`onnxgen.vision.loading.load`.
        newline: the vision session has an output ``image_newline``; see
            :class:`onnxgen.vision.anyres.AnyRes`. No other family heeds it.
        options: of the family's class, like transformers' arguments of the processor.

    Raises:
        ModelFileError: a file is missing, or a field has a wrong value.
        UnsupportedModelError: no family that is known.
        OptionError: an option that the family does not have.
    """
    module, name = _family(configs)
    family = getattr(import_module(f"onnxgen.vision.{module}"), name)
    known = signature(family).parameters.keys() - {"configs", "max_pixels", "newline"}
    for option in options:
        if option not in known:
            raise OptionError.unknown(option, known, f"the image processor of {name}")
    if "newline" in signature(family).parameters:
        options["newline"] = newline
    made: VisionProcessor = family(configs, max_pixels=max_pixels, **options)
    return made


def _family(configs: Configs) -> tuple[str, str]:
    """The module and the class for ``configs``."""
    fields = image_fields(configs)
    images = next((str(fields[name]) for name in _NAMES if fields.get(name)), "")
    kind = images.removesuffix("Fast").removesuffix("ImageProcessor")
    if kind in _BY_IMAGES:
        return _BY_IMAGES[kind]
    sections = [section(configs, PROCESSOR), fields, section(configs, "tokenizer_config.json")]
    whole = next((str(s["processor_class"]) for s in sections if s.get("processor_class")), "")
    model = section(configs, "config.json").get("model_type")
    for family in (whole.removesuffix("Processor"), _BY_MODEL.get(str(model), "")):
        if family in _BY_PROCESSOR:
            return _BY_PROCESSOR[family]
    raise UnsupportedModelError(
        f"{PREPROCESSOR} names {images or 'no class'}, its processor is {whole or 'not named'}, "
        f"and config.json says {model!r}",
        wanted=f"images of {', '.join(_BY_IMAGES)}, or a processor of {', '.join(_BY_PROCESSOR)}",
    )
