"""Models that do not fit together, and texts and images that are none, end in clear errors."""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import onnxgen
from onnxgen.errors import (
    CapacityError,
    ImageError,
    InputNotFoundError,
    ModelFileError,
    OnnxgenError,
    OptionError,
    UnsupportedModelError,
)
from onnxgen.tasks.markup import to_json
from tests.audio.sounds import tone
from tests.fixture_models import FIXTURES

MODELS, IMAGES = FIXTURES / "models", FIXTURES / "images"
PHOTO = (IMAGES / "photo.jpg").read_bytes()
FEW = {"num_beams": 1, "max_new_tokens": 4}
NEVER = ("expected.json", "images", "pixel_values.npz")


@pytest.fixture(scope="module")
def captions():
    return onnxgen.load(MODELS / "vit-gpt2")


@pytest.fixture(scope="module")
def texts():
    return onnxgen.load(MODELS / "t5")


@pytest.fixture(scope="module")
def nllb():
    return onnxgen.load(MODELS / "m2m_100")


def copied(name: str, place: Path, **config) -> Path:
    """A copy of a model with more in its config.json."""
    ignore = shutil.ignore_patterns(*NEVER)
    folder = Path(shutil.copytree(MODELS / name, place / name, ignore=ignore))
    told = json.loads((folder / "config.json").read_text()) | config
    (folder / "config.json").write_text(json.dumps(told))
    return folder


def source_of(name: str):
    if name in ("vit-gpt2", "donut", "trocr"):
        return PHOTO
    return tone(0.5).astype(np.float32) if name in ("whisper", "moonshine") else "good day"


@pytest.mark.parametrize(
    ("decoder", "encoder"),
    [
        ("t5", "m2m_100"),  # both take texts, of other widths
        ("m2m_100", "t5"),
        ("marian", "t5"),
        ("donut", "vit-gpt2"),
        ("whisper", "moonshine"),
        ("moonshine", "whisper"),
        ("t5", "vit-gpt2"),  # of another sense
        ("vit-gpt2", "t5"),
        ("whisper", "t5"),
        ("t5", "whisper"),
        ("donut", "whisper"),
    ],
)
def test_an_encoder_of_another_model_is_an_error(decoder, encoder, tmp_path):
    folder = copied(decoder, tmp_path)
    shutil.copy(MODELS / encoder / "encoder_model.onnx", folder)
    with pytest.raises(OnnxgenError) as caught:
        onnxgen.load(folder).generate(source_of(encoder), **FEW)
    assert "unexpected" not in str(caught.value)


@pytest.mark.parametrize("name", ["t5", "vit-gpt2", "whisper", "moonshine"])
def test_an_encoder_alone_is_no_model(name, tmp_path):
    folder = copied(name, tmp_path)
    for graph in folder.glob("decoder*.onnx"):
        graph.unlink()
    with pytest.raises(OnnxgenError, match="decoder"):
        onnxgen.load(folder)


@pytest.mark.parametrize("name", ["t5", "vit-gpt2", "whisper", "moonshine"])
def test_an_encoder_that_is_cut_off_is_named(name, tmp_path):
    graph = copied(name, tmp_path) / "encoder_model.onnx"
    graph.write_bytes(graph.read_bytes()[:5000])
    with pytest.raises(OnnxgenError, match=r"encoder_model\.onnx"):
        onnxgen.load(graph.parent).generate(source_of(name), **FEW)


@pytest.mark.parametrize("name", ["vit-gpt2", "whisper", "moonshine"])
def test_a_model_without_its_preprocessor_is_an_error(name, tmp_path):
    folder = copied(name, tmp_path)
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(ModelFileError, match="no preprocessor_config"):
        onnxgen.load(folder)


@pytest.mark.parametrize("name", ["whisper", "moonshine"])
def test_a_preprocessor_of_another_kind_is_an_error(name, tmp_path):
    folder = copied(name, tmp_path)
    other = "moonshine" if name == "whisper" else "whisper"
    shutil.copy(MODELS / other / "preprocessor_config.json", folder)
    with pytest.raises(UnsupportedModelError, match="preprocessor_config"):
        onnxgen.load(folder)


@pytest.mark.parametrize("size", [0, -3, "wide", 10**9, {"height": 8}, [1, 2, 3]], ids=str)
def test_a_size_that_makes_no_sense_is_an_error(size, tmp_path):
    folder = copied("vit-gpt2", tmp_path)
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"size": size}))
    with pytest.raises(OnnxgenError):
        onnxgen.load(folder).generate(PHOTO, **FEW)


def test_pixels_of_another_size_than_the_encoder_takes_are_an_error(tmp_path):
    folder = copied("vit-gpt2", tmp_path)
    path = folder / "preprocessor_config.json"
    size = {"height": 40, "width": 24}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"size": size}))
    with pytest.raises(OnnxgenError, match="encoder_model"):
        onnxgen.load(folder).generate(PHOTO, **FEW)


@pytest.mark.parametrize("source", ["", " ", "\n\t ", ["good", ""]], ids=repr)
def test_an_empty_text_is_refused(texts, source):
    with pytest.raises(OptionError, match="the text is empty"):
        texts.generate(source)


@pytest.mark.parametrize(
    "source", [[], [[]], 5, None, b"bytes", [5.5], ["a", 5], [{"role": "user", "content": "a"}]],
    ids=repr,
)  # fmt: skip
def test_what_is_no_text_is_refused(texts, source):
    with pytest.raises(OptionError):
        texts.generate(source)


@pytest.mark.parametrize("ids", [[128], [-1], [5, 10**12]], ids=str)
def test_ids_beyond_the_vocabulary_are_refused(texts, ids):
    with pytest.raises(OptionError, match="ids from 0 to 127"):
        texts.generate(ids)


@pytest.mark.parametrize("source", ["day " * 200, [5] * 65])
def test_a_text_beyond_the_encoders_positions_is_refused(nllb, source):
    with pytest.raises(CapacityError, match="at most 64"):
        nllb.generate(source, tgt_lang="fra_Latn", **FEW)


@pytest.mark.parametrize("name", ["src_lang", "tgt_lang"])
@pytest.mark.parametrize("value", ["xx", "", 5], ids=repr)
def test_an_unknown_language_is_refused_with_the_valid_ones(nllb, name, value):
    with pytest.raises(OptionError, match="eng_Latn, fra_Latn, deu_Latn"):
        nllb.generate("day", **({"tgt_lang": "fra_Latn"} | {name: value}))


@pytest.mark.parametrize(
    "options", [{"prefix": 5}, {"task": 5}, {"task": ""}, {"task": ["a"]}], ids=str
)
def test_prefix_and_task_are_texts(texts, options, tmp_path):
    task = {"summarization": {"prefix": "a "}}
    with pytest.raises(OptionError):
        texts.generate("day", **options)
    with pytest.raises(OptionError):
        onnxgen.load(copied("t5", tmp_path, task_specific_params=task)).generate("day", **options)


@pytest.mark.parametrize("prefix", [5, ["a"], {"b": 1}], ids=str)
def test_a_prefix_in_a_file_is_a_text(prefix, tmp_path):
    with pytest.raises(OnnxgenError, match="prefix"):
        onnxgen.load(copied("t5", tmp_path, prefix=prefix)).generate("day")


@pytest.mark.parametrize(
    "source",
    [
        b"",
        b"no image",
        PHOTO[:2000],
        "https://example.com/a.png",
        5,
        None,
        np.zeros((4,)),
        np.zeros((0, 4, 3), np.uint8),
        np.full((4, 4, 3), np.nan),
        io.StringIO("text"),
        [PHOTO, b"no image"],
        Path("/"),
    ],
    ids=lambda source: repr(source)[:20],
)
def test_what_is_no_image_is_refused(captions, source):
    with pytest.raises(ImageError):
        captions.generate(source, **FEW)


def test_no_image_at_all_is_refused(captions, tmp_path):
    with pytest.raises(OptionError, match="there is no image"):
        captions.generate([])
    with pytest.raises(InputNotFoundError):
        captions.generate(tmp_path / "none.png")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"prompt": ""}, "prompt is ''"),
        ({"prompt": 5}, "prompt is 5"),
        ({"prompt": ["a", "b"]}, "2 prompts for 1 images"),
        ({"prompt": ["a", ""]}, "prompt is"),
        ({"prompt": [5]}, "prompt is"),
        ({"question": "what?"}, "knows no questions"),
        ({"prompt": "a", "decoder_input_ids": [5]}, "prompt and decoder_input_ids"),
        ({"decoder_input_ids": [128]}, "ids from 0 to 127"),
        ({"decoder_input_ids": "abc"}, "token ids"),
        ({"promt": "a"}, "'prompt'"),
    ],
    ids=str,
)
def test_prompts_that_make_no_sense_are_refused(captions, options, says):
    with pytest.raises(OptionError) as caught:
        captions.generate(PHOTO, **options, **FEW)
    assert says in str(caught.value)


def test_a_prompt_beyond_the_decoders_positions_is_refused(captions):
    with pytest.raises(CapacityError, match="at most 64"):
        captions.generate(PHOTO, prompt="a " * 100, **FEW)


def test_an_answer_of_many_parts_is_read_whole():
    many = "<sep/>".join(f"<s_name>{i}</s_name>" for i in range(5_000))
    assert to_json(many) == [{"name": str(i)} for i in range(5_000)]
    assert to_json(f"<s_all>{many}</s_all>") == {"all": [{"name": str(i)} for i in range(5_000)]}
