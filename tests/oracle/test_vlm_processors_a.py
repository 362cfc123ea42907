"""Images and prompts through transformers' slow processors and through onnxgen, from one config.

Of Idefics3, SmolVLM, LLaVA-OneVision and Gemma 3. The images are those of the fixtures and some of
extreme form; transformers is told that channels stand last. Its SmolVLMProcessor does not load
without torchvision, which it needs for videos alone: it gets stubs for that.
"""

import importlib
import random
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from onnxgen.errors import ImageError
from onnxgen.vision import anyres, tiling
from onnxgen.vision.pictures import Picture
from onnxgen.vision.vlm import processor
from tests.oracle.test_image_processors import load_image
from tests.vision.goldens import FIXTURES, IMAGES

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::UserWarning"),  # transformers' and Pillow's own
]

EXTREMES = {"wide": (60, 2000), "tall": (2000, 60), "dot": (1, 1), "line": (1, 90)}
LAST = {"input_data_format": "channels_last"}
IDEFICS = ["<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>"]
GEMMA = {
    "boi_token": "<start_of_image>",
    "image_token": "<image_soft_token>",
    "eoi_token": "<end_of_image>",
}


def everything() -> list[Any]:
    """Images in RGB, as both sides take them."""
    from PIL import Image

    noise = np.random.default_rng(0)
    made = [
        Image.fromarray(noise.integers(0, 256, (*size, 3), np.uint8)) for size in EXTREMES.values()
    ]
    return [load_image(name) for name in IMAGES] + made


def tokenizer(*special: str, **extra: str) -> Any:
    """One token for each byte, and the special ones: ids tell the text."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.add_special_tokens([*special, *extra.values()])
    return PreTrainedTokenizerFast(tokenizer_object=made, extra_special_tokens=extra)


def smolvlm() -> tuple[type, Any]:
    """SmolVLMProcessor, and what stands for its video processor."""
    import transformers.video_processing_utils  # noqa: F401  # looks for torchvision

    names = ("torchvision", "torchvision.transforms", "torchvision.transforms.v2")
    with mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in names}):
        importlib.import_module("transformers.models.smolvlm.video_processing_smolvlm")
        module = importlib.import_module("transformers.models.smolvlm.processing_smolvlm")
    module.num2words = str
    return module.SmolVLMProcessor, mock.MagicMock()


def unchecked(kind: type, *parts: Any, **options: Any) -> Any:
    """A processor of transformers that takes a stub for a video processor."""
    with mock.patch.object(kind, "check_argument_for_proper_class"):
        return kind(*parts, **options)


def assert_equal(ours: Any, prompt: str, made: Any, theirs: Any, tokens: Any, what: Any) -> None:
    """``theirs``: ids, and the pixel values (T, 3, H, W) of the real tiles."""
    values = made.feeds["pixel_values"]
    assert values.dtype == np.float32
    assert values.shape == theirs[1].shape, what
    np.testing.assert_allclose(values, theirs[1], rtol=0, atol=1e-5, err_msg=str(what))
    assert tokens(ours.expand(prompt, made.pictures))["input_ids"] == list(theirs[0]), what


def tiling_file(kind: str, rng: random.Random) -> dict[str, Any]:
    side = rng.randint(6, 60)
    fields = {
        "size": rng.choice([{"longest_edge": rng.randint(5, 250)}, {"height": 50, "width": 31}]),
        "max_image_size": {"longest_edge": side},
        "do_image_splitting": rng.random() < 0.7,
        "resample": rng.choice([1, 2, 3]),
        "image_mean": [0.5, 0.4, 0.3],
        "image_std": [0.2, 0.5, 0.3],
        "do_normalize": rng.random() < 0.7,
    }
    # Without it an image of 2000 columns has as many tiles as fit.
    more = {"do_resize": False, "max_image_size": {"longest_edge": 90}}
    fields |= more if rng.random() < 0.2 else {}
    return {"image_processor_type": f"{kind}ImageProcessor", "do_pad": True} | fields


@pytest.mark.parametrize("kind", ["Idefics3", "SmolVLM"])
def test_tiles(kind):
    import transformers

    pictures = everything()
    tiles = [f"<row_{row + 1}_col_{column + 1}>" for row in range(6) for column in range(6)]
    tokens = tokenizer(
        *IDEFICS, *tiles, **({"image_token": "<image>"} if kind == "SmolVLM" else {})
    )
    made_by = getattr(transformers, f"{kind}ImageProcessor")
    whole, rest = (transformers.Idefics3Processor, ())
    if kind == "SmolVLM":
        whole, video = smolvlm()
        rest = (video,)
    split = 0
    for seed in range(12):
        rng = random.Random(f"{kind}{seed}")
        config, length = tiling_file(kind, rng), rng.randint(1, 5)
        theirs = unchecked(whole, made_by(**config), tokens, *rest, image_seq_len=length)
        ours = processor(
            {
                "preprocessor_config.json": config,
                "processor_config.json": {
                    "image_seq_len": length,
                    "processor_class": whole.__name__,
                },
            }
        )
        for number, image in enumerate(pictures):
            images = [image] if number % 4 else [image, pictures[number - 1]]
            prompt = "a<image>é b" + "<image>\n" * (len(images) - 1)
            wanted = theirs(
                text=prompt, images=[images], images_kwargs=dict(LAST), return_tensors="np"
            )
            made = ours(images)
            got = (wanted["input_ids"][0], wanted["pixel_values"][0])
            assert_equal(ours, prompt, made, got, tokens, (config, number))
            mask = made.feeds["pixel_attention_mask"]
            assert mask.dtype == np.bool_
            np.testing.assert_array_equal(mask, wanted["pixel_attention_mask"][0])
            assert [p.size for p in made.pictures] == [(i.height, i.width) for i in images]
            split += made.pictures[0].grid[1] > 0
    assert split > 40


def test_sizes_before_tiles():
    from transformers.models.idefics3 import image_processing_idefics3 as theirs

    rng = random.Random(0)
    for _ in range(5000):
        height, width = rng.randint(1, 3000), rng.randint(1, 3000)
        edge = rng.choice([rng.randint(1, 700), rng.randint(3000, 9000)])
        picture = np.broadcast_to(np.uint8(0), (height, width, 3))
        size = theirs.get_resize_output_image_size(picture, edge, "channels_last")
        assert tiling._resized({"longest_edge": edge}, height, width) == size


def grid_file(rng: random.Random, side: int) -> dict[str, Any]:
    cells = [[side * rng.randint(1, 5), side * rng.randint(1, 5)] for _ in range(rng.randint(1, 9))]
    return {
        "image_processor_type": "LlavaOnevisionImageProcessor",
        "size": rng.choice([{"height": side, "width": side}, {"shortest_edge": side}, side]),
        "image_grid_pinpoints": cells,
        "resample": rng.choice([2, 3]),
        "do_normalize": rng.random() < 0.7,
        "image_mean": rng.choice([[0.5, 0.4, 0.3], None]),
        "image_std": [0.2, 0.5, 0.3],
    }


def test_grids_and_packing():
    import torch
    from transformers import LlavaOnevisionImageProcessor, LlavaOnevisionModel
    from transformers import LlavaOnevisionProcessor as Whole

    pictures, tokens = everything(), tokenizer("<image>", "<video>", "<placeholder>")
    shrunk = single = 0
    for seed in range(14):
        rng = random.Random(seed)
        across, patch, most = rng.randint(2, 9), rng.randint(1, 4), rng.randint(1, 9)
        config = grid_file(rng, across * patch)
        rest = {
            "num_image_tokens": across**2,
            "vision_feature_select_strategy": "full",
            "vision_aspect_ratio": f"anyres_max_{most}",
        }
        images_of = LlavaOnevisionImageProcessor(**config)
        images_of.pad = partial(images_of.pad, **LAST)  # else it guesses, wrongly for 1 row
        theirs = unchecked(Whole, images_of, tokens, mock.MagicMock(), **rest)
        ours = processor({"preprocessor_config.json": config, "processor_config.json": rest})
        vision = SimpleNamespace(image_size=across * patch, patch_size=patch)
        cells = config["image_grid_pinpoints"]
        model = SimpleNamespace(
            config=SimpleNamespace(vision_config=vision, image_grid_pinpoints=cells)
        )
        for number, image in enumerate(pictures):
            images = [image] if number % 5 else [image, pictures[number - 1]]
            prompt = "a<image>é b" + "<image>\n" * (len(images) - 1)
            wanted = theirs(text=prompt, images=[images], images_kwargs=dict(LAST))
            made = ours(images)
            got = (wanted["input_ids"][0], np.concatenate(wanted["pixel_values"]))
            assert_equal(ours, prompt, made, got, tokens, (config, number))

            features, newline = torch.randn(len(got[1]), across**2, 3), torch.randn(3)
            packed, lengths = LlavaOnevisionModel.pack_image_features(
                model,
                torch.split(features, [len(part) for part in wanted["pixel_values"]]),
                torch.tensor(wanted["image_sizes"]),
                newline,
                rest["vision_aspect_ratio"],
            )
            mine = ours.pack(features.numpy(), made.pictures, image_newline=newline.numpy())
            np.testing.assert_allclose(mine, torch.cat(packed).numpy(), rtol=0, atol=1e-5)
            assert [picture.tokens for picture in made.pictures] == lengths.tolist()
            if len(images) == 1:
                single += 1
                kept, final = ours._map_size(made.pictures[0].size, made.pictures[0].grid[1:])
                shrunk += kept != final
    assert 20 < shrunk < single - 20


def test_numbers_of_tokens():
    from transformers import LlavaOnevisionImageProcessor, LlavaOnevisionProcessor

    kind = {"image_processor_type": "LlavaOnevisionImageProcessor"}
    tokens = tokenizer("<image>", "<video>")
    for aspect, strategy in (("anyres_max_9", "full"), ("anyres_max_4", "default")):
        rest = {
            "num_image_tokens": 729 + (strategy == "default"),
            "vision_feature_select_strategy": strategy,
            "vision_aspect_ratio": aspect,
        }
        images_of = LlavaOnevisionImageProcessor()
        theirs = unchecked(LlavaOnevisionProcessor, images_of, tokens, mock.MagicMock(), **rest)
        ours = processor({"preprocessor_config.json": kind, "processor_config.json": rest})
        rng = random.Random(aspect)
        for _ in range(1500):
            size = tuple(int(10 ** rng.uniform(0, 3.6)) for _ in range(2))
            grid = anyres.best_grid(ours._grids, *size)
            height, width = ours._map_size(size, grid)[1]
            wanted = theirs._get_number_of_features(*size, 384, 384) - (strategy == "default")
            assert ours.tokens + height * (width + 1) == wanted, size


@pytest.mark.parametrize("crops", [False, True])
def test_pan_and_scan(crops):
    from transformers import Gemma3ImageProcessor, Gemma3Processor

    pictures, tokens, several = everything(), tokenizer(**GEMMA), 0
    for seed in range(10):
        rng = random.Random(seed)
        config = {
            "image_processor_type": "Gemma3ImageProcessor",
            "size": rng.choice([{"height": 20, "width": 33}, 24]),
            "resample": rng.choice([2, 3]),
            "do_pan_and_scan": rng.choice([None, True]),  # the processor does not heed it
            "image_std": [0.2, 0.5, 0.3],
        }
        options: dict[str, Any] = {"do_pan_and_scan": True} if crops else {}
        if crops and seed:
            options |= {
                "pan_and_scan_min_crop_size": rng.randint(8, 70),
                "pan_and_scan_max_num_crops": rng.randint(2, 7),
                "pan_and_scan_min_ratio_to_activate": rng.choice([1, 1.2, 1.5, 2.5]),
            }
        length = rng.randint(1, 6)
        theirs = Gemma3Processor(Gemma3ImageProcessor(**config), tokens, image_seq_length=length)
        ours = processor(
            {
                "preprocessor_config.json": config,
                "processor_config.json": {"image_seq_length": length},
                "tokenizer_config.json": {"extra_special_tokens": GEMMA},
            },
            **options,
        )
        for number, image in enumerate(pictures):
            images = [image] if number % 4 else [image, pictures[number - 1]]
            prompt = "a<start_of_image>é b" + "<start_of_image>\n" * (len(images) - 1)
            wanted = theirs(text=prompt, images=[images], images_kwargs=LAST | options)
            made = ours(images)
            got = (wanted["input_ids"][0], np.stack(wanted["pixel_values"]))
            assert_equal(ours, prompt, made, got, tokens, (config, options, number))
            soft = tokens.convert_tokens_to_ids(GEMMA["image_token"])
            assert sum(p.tokens for p in made.pictures) == got[0].count(soft)
            several += len(got[1]) > len(images)
    assert several > 20 if crops else several == 0


def test_unequal_counts_are_refused_on_both_sides():
    from transformers import Gemma3ImageProcessor, Gemma3Processor, Idefics3ImageProcessor
    from transformers import Idefics3Processor as Idefics

    image = load_image("tiny.png")
    idefics = Idefics(Idefics3ImageProcessor(), tokenizer(*IDEFICS), image_seq_len=1)
    gemma = Gemma3Processor(Gemma3ImageProcessor(), tokenizer(**GEMMA), image_seq_length=1)
    for theirs, kind, place in (
        (idefics, "Idefics3", "<image>"),
        (gemma, "Gemma3", "<start_of_image>"),
    ):
        ours = processor(
            {"preprocessor_config.json": {"image_processor_type": f"{kind}ImageProcessor"}}
        )
        for prompt in ("no place", place * 2):
            with pytest.raises(ValueError):
                theirs(text=prompt, images=[[image]], images_kwargs=dict(LAST))
            with pytest.raises(ImageError):
                ours.expand(prompt, [Picture(1)])


def test_files_of_the_fixtures_by_path():
    """Paths and pictures give the same."""
    ours = processor({"preprocessor_config.json": {"image_processor_type": "Gemma3ImageProcessor"}})
    by_path = ours([FIXTURES / "turned.jpg"]).feeds["pixel_values"]
    np.testing.assert_array_equal(by_path, ours([load_image("turned.jpg")]).feeds["pixel_values"])


@pytest.mark.parametrize("kind", ["Idefics3", "SmolVLM", "LlavaOnevision", "Gemma3"])
def test_files_that_say_nothing(kind):
    import transformers

    named = {"image_processor_type": f"{kind}ImageProcessor"}
    rest = {"num_image_tokens": 729}  # the one number that has no default
    ours = processor({"preprocessor_config.json": named, "processor_config.json": rest})
    image = load_image("photo.jpg")
    theirs = getattr(transformers, f"{kind}ImageProcessor")()
    wanted = theirs(image, return_tensors="np", **LAST)["pixel_values"]
    values = ours([image]).feeds["pixel_values"]
    np.testing.assert_allclose(values, wanted.reshape(values.shape), rtol=0, atol=1e-5)
