"""The files tell which family's processor a model has."""

import pytest

from onnxgen.errors import ModelFileError, OptionError, UnsupportedModelError
from onnxgen.vision.vlm import _family, processor


@pytest.mark.parametrize(
    ("kind", "family"),
    [
        ("Idefics3", "Tiling"),
        ("SmolVLM", "Tiling"),
        ("LlavaOnevision", "AnyRes"),
        ("Gemma3", "PanAndScan"),
        ("Qwen2VL", "Patches"),
    ],
)
@pytest.mark.parametrize("fast", ["", "Fast"])
def test_by_the_image_processor(kind, family, fast):
    fields = {"image_processor_type": f"{kind}ImageProcessor{fast}"}
    for files in (
        {"preprocessor_config.json": fields},
        {"processor_config.json": {"image_processor": fields}},
    ):
        assert _family(files)[1] == family


@pytest.mark.parametrize(
    ("named", "family"),
    [
        ("LlavaProcessor", "Llava"),
        ("PaliGemmaProcessor", "PaliGemma"),
        ("Florence2Processor", "Florence"),
    ],
)
def test_by_the_whole_processor(named, family):
    fields = {"image_processor_type": "CLIPImageProcessor"}
    for files in (
        {"preprocessor_config.json": fields | {"processor_class": named}},
        {"preprocessor_config.json": fields, "processor_config.json": {"processor_class": named}},
        {"preprocessor_config.json": fields, "tokenizer_config.json": {"processor_class": named}},
    ):
        assert _family(files)[1] == family


def test_by_the_model():
    fields = {"image_processor_type": "SiglipImageProcessor"}
    files = {"preprocessor_config.json": fields, "config.json": {"model_type": "paligemma"}}
    assert _family(files)[1] == "PaliGemma"


def test_what_is_not_known_is_refused():
    with pytest.raises(UnsupportedModelError, match="FuyuImageProcessor"):
        processor({"preprocessor_config.json": {"image_processor_type": "FuyuImageProcessor"}})
    with pytest.raises(ModelFileError):
        processor({})
    with pytest.raises(ModelFileError):
        processor({"preprocessor_config.json": {}, "processor_config.json": []})


def test_options():
    gemma = {"preprocessor_config.json": {"image_processor_type": "Gemma3ImageProcessor"}}
    processor(gemma, do_pan_and_scan=True, newline=False)
    with pytest.raises(OptionError, match="do_pan_and_scan"):
        processor(gemma, do_pan_and_scn=True)
