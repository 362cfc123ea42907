"""LLaVA, PaliGemma and Florence-2: how many tokens an image is, and where they stand."""

import numpy as np
import pytest

from onnxgen.errors import ImageError, ModelFileError, OptionError
from onnxgen.vision.pictures import Picture
from onnxgen.vision.vlm import processor

PICTURE = np.zeros((30, 50, 3), np.uint8)
CLIP = {"image_processor_type": "CLIPImageProcessor", "size": 28, "crop_size": 28}
WHOLE = {"processor_class": "LlavaProcessor", "patch_size": 7, "num_additional_image_tokens": 1}
WHOLE |= {"vision_feature_select_strategy": "default"}
SIGLIP = {"image_processor_type": "SiglipImageProcessor", "size": {"height": 14, "width": 14}}
PALI = {"processor_class": "PaliGemmaProcessor", "image_seq_length": 3} | SIGLIP
FLORENCE = {"processor_class": "Florence2Processor", "image_seq_length": 2} | CLIP


def llava(whole=None, config=None, **fields):
    files = {"preprocessor_config.json": CLIP | fields, "processor_config.json": whole or WHOLE}
    return processor(files | {"config.json": config or {}})


def of(fields, **tokenizer):
    files = {"preprocessor_config.json": fields, "tokenizer_config.json": tokenizer}
    return processor(files)


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({}, 16),  # 4 x 4, one added and dropped
        ({"vision_feature_select_strategy": "full"}, 17),
        ({"num_additional_image_tokens": 0}, 15),
        ({"patch_size": 8}, 9),  # 28 / 8 = 3.5
    ],
)
def test_llava_tokens(fields, tokens):
    made = llava(WHOLE | fields)([PICTURE, PICTURE[:10, :10]])
    assert made.feeds["pixel_values"].shape == (2, 3, 28, 28)
    assert made.pictures == (Picture(tokens, size=(30, 50)), Picture(tokens, size=(10, 10)))


def test_llava_prompts():
    ours = llava()
    pictures = [Picture(2), Picture(1)]
    assert ours.expand("a<image>\n<image>b", pictures) == "a<image><image>\n<image>b"
    for wrong in ([], pictures[:1], [*pictures, Picture(1)]):
        with pytest.raises(ImageError):
            ours.expand("a<image>\n<image>b", wrong)
    assert ours.expand("text alone", []) == "text alone"


def test_llava_of_old_files():
    silent = {"processor_class": "LlavaProcessor"}
    config = {"vision_config": {"patch_size": 14}, "vision_feature_select_strategy": "default"}
    assert llava(silent, config)([PICTURE]).pictures[0].tokens == 4
    del config["vision_feature_select_strategy"]
    assert llava(silent, config)([PICTURE]).pictures[0].tokens == 4
    for wrong in ({}, config | {"vision_feature_select_strategy": "full"}):
        with pytest.raises(ModelFileError):
            llava(silent, wrong)


def test_llavas_square():
    fields = {"image_processor_type": "LlavaImageProcessor", "do_pad": True, "do_resize": False}
    fields |= {"do_center_crop": False, "do_normalize": False, "do_rescale": False}
    picture = np.full((2, 5, 3), 9, np.uint8)
    values = llava(WHOLE | {"patch_size": 5}, image_mean=[0.5, 0.25, 0.1], **fields)([picture])
    square = values.feeds["pixel_values"][0]
    assert square[:, :, 0].T.tolist() == [[127, 63, 25], [9] * 3, [9] * 3, *[[127, 63, 25]] * 2]
    assert values.pictures[0].size == (2, 5)
    with pytest.raises(ImageError, match="would become"):
        llava(**fields)([np.zeros((1, 9000, 3), np.uint8)])


@pytest.mark.parametrize(
    "fields",
    [
        {"patch_size": 0},
        {"patch_size": "7"},
        {"num_additional_image_tokens": -1},
        {"vision_feature_select_strategy": "some"},
    ],
)
def test_wrong_llava_files(fields):
    with pytest.raises(ModelFileError):
        llava(WHOLE | fields)


def test_wrong_llava_images():
    with pytest.raises(ImageError, match="at least one patch"):
        llava(WHOLE | {"patch_size": 29})([PICTURE])
    with pytest.raises(ImageError):
        llava()([])
    with pytest.raises(ImageError):
        llava()(PICTURE)
    with pytest.raises(ImageError, match="unlike sizes"):
        llava(do_center_crop=False)([PICTURE, PICTURE[:20]])


@pytest.mark.parametrize(
    ("text", "images", "wanted"),
    [
        ("hi", 1, "<image><image><image><bos>hi\n"),
        ("", 1, "<image><image><image><bos>\n"),
        ("hi", 2, "<image><image><image>" * 2 + "<bos>hi\n"),
        ("<image>hi", 1, "<image><image><image><bos>hi\n"),
        ("<image>hi\n", 1, "<image><image><image><bos>hi\n\n"),
        ("a<image>b<image>c", 2, "a<image><image><image>b<image><image><image><bos>c\n"),
    ],
)
def test_paligemma(text, images, wanted):
    ours = of(PALI)
    pictures = ours([PICTURE] * images).pictures
    assert [picture.tokens for picture in pictures] == [3] * images
    assert ours.expand(text, pictures) == wanted


def test_paligemmas_tokens_and_errors():
    assert of(PALI, bos_token="<s>").expand("a", []) == "<s>a\n"
    assert of(PALI, bos_token={"content": "<s>"}).expand("a", [Picture(1)]) == "<image><s>a\n"
    listed = {"bos_token": "<s>", "extra_special_tokens": ["<a>"]}  # as transformers 5 writes it
    assert of(PALI, **listed).expand("a", [Picture(1)]) == "<image><s>a\n"
    extra = {"bos_token": "<s>", "extra_special_tokens": {"image_token": "<image>"}}
    assert of(PALI, **extra).expand("a", [Picture(1)]) == "<image><s>a\n"
    for text, pictures in (
        ("<image>a", [Picture(1)] * 2),
        ("<image>" * 2, [Picture(1)]),
    ):
        with pytest.raises(ImageError):
            of(PALI).expand(text, pictures)
    for wrong in ({"image_seq_length": None}, {"image_seq_length": 0}):
        with pytest.raises(ModelFileError):
            of(PALI | wrong)


def test_florence():
    ours = of(FLORENCE, bos_token="<s>", eos_token="</s>")
    pictures = ours([PICTURE]).pictures
    assert pictures == (Picture(2, size=(30, 50)),)
    wanted = "<image><image><s>What does the image describe?</s>"
    assert ours.expand("<CAPTION>", pictures) == wanted
    assert ours.expand("Why?", pictures) == "<image><image><s>Why?</s>"
    assert ours.expand("Why?", []) == "Why?"
    with pytest.raises(ImageError):
        ours.expand("Why?", [Picture(2)] * 2)
    with pytest.raises(OptionError):
        ours.expand("<CAPTION> of a dog", pictures)
    with pytest.raises(ModelFileError):
        of({name: FLORENCE[name] for name in FLORENCE if name != "image_seq_length"})


def test_features_are_packed_in_order():
    features = np.arange(2 * 3 * 4).reshape(2, 3, 4)
    for ours in (llava(), of(PALI), of(FLORENCE)):
        packed = ours.pack(features, [Picture(3)] * 2)
        np.testing.assert_array_equal(packed, np.arange(24).reshape(6, 4))
