"""Qwen2-VL, Qwen2.5-VL, LLaVA, PaliGemma and Florence-2: pixels, prompts, positions and answers.

Each is compared with the slow processors of transformers, from the same images, files and texts.
"""

import json
import random
import warnings
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from onnxgen.errors import ImageError, OptionError
from onnxgen.vision import florence
from onnxgen.vision.patches import Patches, smart_size
from onnxgen.vision.pictures import VisionProcessor
from onnxgen.vision.positions import Rules, positions
from onnxgen.vision.vlm import processor
from tests.oracle.test_image_processors import load_image
from tests.vision.goldens import IMAGES

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::UserWarning"),  # transformers' and Pillow's own
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

# (rows, columns): a panorama, a portrait, the smallest, one row, and too slender for Qwen.
EXTREMES = [(60, 2000), (2000, 60), (1, 1), (1, 150), (2, 3), (1, 400)]
LAST = {"input_data_format": "channels_last"}  # 1 or 3 rows are no channels


@cache
def pictures() -> dict[str, Any]:
    """Pillow images in RGB: the fixtures', and noise of extreme sizes."""
    from PIL import Image

    noise = np.random.default_rng(0)
    made = {name: load_image(name) for name in IMAGES}
    for rows, columns in EXTREMES:
        pixels = noise.integers(0, 256, (rows, columns, 3), np.uint8)
        made[f"{rows}x{columns}"] = Image.fromarray(pixels)
    return made


def tokenizer(kind: str, *special: str, **more: Any) -> Any:
    """A tokenizer of the class ``kind``, one token for each byte: ids tell the text."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    letters = ["<s>", "</s>", "<pad>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokens = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokens.add_special_tokens([*letters[:4], "<bos>", "<eos>", *special])
    made = getattr(transformers, kind)(
        tokenizer_object=tokens, unk_token="<unk>", pad_token="<pad>", **more
    )
    made.add_special_tokens({"additional_special_tokens": list(special)})
    return made


def files(image_processor: Any, tokens: Any, **whole: Any) -> dict[str, Any]:
    """The config files as transformers writes them."""
    names = ("bos_token", "eos_token")
    own = {name: getattr(tokens, name) for name in names if getattr(tokens, name)}
    return {
        "preprocessor_config.json": json.loads(image_processor.to_json_string()),
        "processor_config.json": whole,
        "tokenizer_config.json": own,
    }


def assert_same(
    ours: VisionProcessor, theirs: Any, tokens: Any, text: str, names: list[str]
) -> None:
    """The feeds and the ids of one prompt, or an error of both."""
    images = [pictures()[name] for name in names]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = theirs(images=images, text=[text], images_kwargs=dict(LAST), return_tensors="np")
    made = ours(images)
    for name, values in made.feeds.items():
        other = np.asarray(wanted[name])
        assert values.shape == other.shape, name
        np.testing.assert_allclose(values, other, rtol=0, atol=1e-5, err_msg=f"{names} {name}")
    expanded = ours.expand(text, made.pictures)
    special = ours.add_special_tokens  # type: ignore[attr-defined]
    ids = tokens(expanded, add_special_tokens=special)["input_ids"]
    assert ids == wanted["input_ids"][0].tolist()
    sizes = [(image.height, image.width) for image in images]
    assert [picture.size for picture in made.pictures] == sizes


def test_smart_size():
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

    rng = random.Random(0)
    refused = 0
    for _ in range(8_000):
        size = rng.randint(1, 3000), rng.choice([rng.randint(1, 3000), rng.randint(1, 20)])
        factor = rng.choice([28, 28, 32, 4, 6])
        least = rng.randint(1, 10) * factor**2
        most = least + rng.randint(0, 1000) * factor**2
        try:
            wanted = smart_resize(*size, factor, least, most)
        except ValueError:
            refused += 1
            with pytest.raises(ImageError):
                smart_size(*size, factor, least, most)
            continue
        assert smart_size(*size, factor, least, most) == wanted, (size, factor, least, most)
    assert refused > 100


def qwen_file(rng: random.Random) -> dict[str, Any]:
    """Arguments of Qwen2VLImageProcessor."""
    mean = [round(rng.uniform(0.1, 0.9), 3) for _ in range(3)]
    side = rng.choice([14, 8, 3])
    fields = {
        "patch_size": side,
        "temporal_patch_size": rng.choice([1, 2, 3]),
        "merge_size": rng.choice([1, 2, 3]),
        "resample": rng.randrange(6),
        "do_rescale": rng.random() < 0.8,
        "rescale_factor": rng.choice([1 / 255, 1 / 127.5]),
        "do_normalize": rng.random() < 0.8,
        "image_mean": mean,
        "image_std": mean[::-1],
    }
    kept = {name: value for name, value in fields.items() if rng.random() < 0.6}
    return kept | {"min_pixels": 30 * side**2, "max_pixels": rng.choice([40, 200]) * side**2}


def test_qwen_images():
    from transformers import Qwen2VLImageProcessor

    compared = refused = 0
    for seed in range(25):
        theirs = Qwen2VLImageProcessor(**qwen_file(random.Random(seed)))
        ours = processor({"preprocessor_config.json": json.loads(theirs.to_json_string())})
        assert isinstance(ours, Patches)
        for name, image in pictures().items():
            try:
                wanted = theirs([image], return_tensors="np", **LAST)
            except ValueError:
                refused += 1
                with pytest.raises(ImageError):
                    ours([image])
                continue
            made = ours([image])
            assert made.feeds["image_grid_thw"].tolist() == wanted["image_grid_thw"].tolist()
            np.testing.assert_allclose(
                made.feeds["pixel_values"],
                wanted["pixel_values"],
                rtol=0,
                atol=1e-5,
                err_msg=f"{seed} {name}",
            )
            compared += 1
    assert refused == 25  # the slender one
    assert compared == 25 * (len(pictures()) - 1)


def test_qwen_images_that_are_not_resized():
    from transformers import Qwen2VLImageProcessor

    theirs = Qwen2VLImageProcessor(do_resize=False, patch_size=4, merge_size=2)
    ours = processor({"preprocessor_config.json": json.loads(theirs.to_json_string())})
    image = pictures()["photo.jpg"]
    for height, width in ((16, 24), (8, 8), (16, 20), (9, 8), (4, 4)):
        part = image.crop((0, 0, width, height))
        try:
            wanted = theirs([part], return_tensors="np", **LAST)["pixel_values"]
        except ValueError:
            with pytest.raises(ImageError):
                ours([part])
            continue
        np.testing.assert_allclose(ours([part]).feeds["pixel_values"], wanted, rtol=0, atol=1e-5)


def test_qwen_videos():
    from transformers import Qwen2VLImageProcessor

    frames = [image for name, image in pictures().items() if name != "1x400"]
    for seed in range(15):
        rng = random.Random(seed)
        theirs = Qwen2VLImageProcessor(**qwen_file(rng))
        ours = processor({"preprocessor_config.json": json.loads(theirs.to_json_string())})
        assert isinstance(ours, Patches)
        clips = []
        for _ in range(rng.randint(1, 3)):
            first = rng.choice(frames)  # the others as large: transformers sizes all by the first
            others = [rng.choice(frames).resize(first.size) for _ in range(rng.randint(0, 4))]
            clips.append([first, *others])
        arrays = [[np.asarray(frame) for frame in clip] for clip in clips]
        wanted = theirs(images=None, videos=arrays, return_tensors="np", **LAST)
        made = ours.videos(clips)
        assert made.feeds["video_grid_thw"].tolist() == wanted["video_grid_thw"].tolist()
        np.testing.assert_allclose(
            made.feeds["pixel_values_videos"], wanted["pixel_values_videos"], rtol=0, atol=1e-5
        )


class Videos:
    """A video processor that needs no torchvision: the way that the image processor has."""

    def __init__(self, images: Any) -> None:
        self.images = images
        self.merge_size, self.temporal_patch_size = images.merge_size, images.temporal_patch_size

    def __call__(self, videos: Any, **more: Any) -> Any:
        return self.images(images=None, videos=videos, **LAST)


@pytest.mark.parametrize("family", ["Qwen2VL", "Qwen2_5_VL"])
def test_qwen_prompts(family):
    import transformers
    from transformers import Qwen2VLImageProcessor

    class Whole(getattr(transformers, f"{family}Processor")):
        def check_argument_for_proper_class(self, name: str, argument: Any) -> None:
            pass

    tokens = tokenizer("Qwen2TokenizerFast", "<|image_pad|>", "<|video_pad|>")
    images = Qwen2VLImageProcessor(min_pixels=28 * 28, max_pixels=28 * 28 * 12)
    theirs = Whole(images, tokens, Videos(images))
    ours = processor(files(images, tokens, processor_class=f"{family}Processor"))
    assert isinstance(ours, Patches)
    for name in pictures():
        if name != "1x400":
            assert_same(ours, theirs, tokens, "hello <|image_pad|> world", [name])
    several = ["60x2000", "photo.jpg", "2000x60"]
    text = "<|image_pad|><|image_pad|> hello <|image_pad|>\n"
    assert_same(ours, theirs, tokens, text, several)

    clip = [np.asarray(pictures()["photo.jpg"])] * 3
    text = "<|video_pad|> hello <|image_pad|> <|video_pad|>"
    wanted = theirs(
        images=[pictures()["2000x60"]],
        text=[text],
        videos=[clip, clip[:1]],
        images_kwargs=dict(LAST),
    )
    made, moving = ours([pictures()["2000x60"]]), ours.videos([clip, clip[:1]])
    expanded = ours.expand(text, made.pictures, moving.pictures)
    assert [tokens(expanded)["input_ids"]] == wanted["input_ids"]
    if family == "Qwen2_5_VL":
        assert wanted["second_per_grid_ts"] == [ours.seconds(2.0)] * 2


TEXT, START, END, IMAGE, VIDEO, PAD = 9, 1, 2, 3, 4, 0


def random_row(rng: random.Random, rules: Rules) -> tuple[list[int], list[Any], list[Any]]:
    """A row's tokens, and the grids of its images and videos; now and then one without a start."""
    row: list[int] = []
    images: list[Any] = []
    videos: list[Any] = []
    for _ in range(rng.randint(0, 4)):
        row += [TEXT] * rng.randint(0, 4)
        is_image = rng.random() < 0.5
        grid = (
            rng.choice([1, 1, 3]) if is_image else rng.randint(1, 4),
            *(2 * rng.randint(1, 4) for _ in "hw"),
        )
        token = IMAGE if is_image else VIDEO
        row += [START, *[token] * (int(np.prod(grid)) // rules.merge**2)]
        row += [END] * (rng.random() < 0.8)
        (images if is_image else videos).append(grid)
    if rng.random() < 0.1:  # image tokens that no start announces
        row += [TEXT, IMAGE, IMAGE]
    row += [TEXT] * rng.randint(0 if row else 1, 5)
    return row, images, videos


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl"])
def test_positions(family):
    import torch
    from transformers import Qwen2_5_VLModel, Qwen2VLModel

    timed = family == "qwen2_5_vl"
    index = (Qwen2_5_VLModel if timed else Qwen2VLModel).get_rope_index
    for seed in range(400):
        rng = random.Random(seed)
        per_second = rng.choice([1, 2, 4, 25])
        rules = Rules(IMAGE, VIDEO, START, 2, per_second if timed else None)
        config = SimpleNamespace(
            vision_config=SimpleNamespace(spatial_merge_size=2, tokens_per_second=per_second),
            image_token_id=IMAGE,
            video_token_id=VIDEO,
            vision_start_token_id=START,
        )
        rows = [random_row(rng, rules) for _ in range(rng.randint(1, 3))]
        images = [grid for _, own, _ in rows for grid in own]
        videos = [grid for _, _, own in rows for grid in own]
        seconds = [rng.choice([0.5, 1.0, 1.5, 2.0, 0.04, 7]) for _ in videos]
        seconds_given = rng.random() < 0.8
        longest = max(len(row) for row, _, _ in rows)
        pads = [longest - len(row) for row, _, _ in rows]
        left = rng.random() < 0.5
        padded = [
            [PAD] * pad + row if left else row + [PAD] * pad
            for (row, _, _), pad in zip(rows, pads, strict=True)
        ]
        mask = torch.tensor([[int(token != PAD) for token in row] for row in padded])
        more = {"second_per_grid_ts": seconds} if timed and seconds_given else {}
        wanted, deltas = index(
            SimpleNamespace(config=config),
            torch.tensor(padded),
            torch.tensor(images) if images else None,
            torch.tensor(videos) if videos else None,
            attention_mask=mask if any(pads) or rng.random() < 0.5 else None,
            **more,
        )
        used = 0
        for i, (row, own_images, own_videos) in enumerate(rows):
            own = seconds[used : used + len(own_videos)] if seconds_given else None
            used += len(own_videos)
            ours, delta = positions(row, rules, own_images, own_videos, own)
            theirs = wanted[:, i].numpy()
            start = pads[i] if left else 0
            np.testing.assert_array_equal(ours, theirs[:, start : start + len(row)])
            # With text alone a pad's 1 may be transformers' largest position.
            if images or videos or not pads[i]:
                assert int(deltas[i]) == delta - pads[i], (seed, i)


LLAVA_IMAGES = [
    ("CLIP", {"size": {"shortest_edge": 30}, "crop_size": 28}),
    ("CLIP", {"size": {"height": 30, "width": 46}, "do_center_crop": False}),
    ("Siglip", {"size": {"height": 42, "width": 30}}),
    ("Llava", {"size": {"shortest_edge": 30}, "crop_size": 28, "do_pad": True}),
    ("Llava", {"size": {"height": 30, "width": 46}, "do_center_crop": False, "do_pad": True}),
    ("Llava", {"size": {"shortest_edge": 30}, "crop_size": 28}),
]


@pytest.mark.parametrize(("kind", "fields"), LLAVA_IMAGES)
@pytest.mark.parametrize(("strategy", "added"), [("default", 1), ("full", 0), ("default", 0)])
def test_llava(kind, fields, strategy, added):
    import transformers

    tokens = tokenizer("LlamaTokenizerFast", "<image>")
    images = getattr(transformers, f"{kind}ImageProcessor")(**fields)
    whole = {
        "processor_class": "LlavaProcessor",
        "patch_size": 7,
        "vision_feature_select_strategy": strategy,
        "num_additional_image_tokens": added,
        "image_token": "<image>",
    }
    more = {name: whole[name] for name in whole if name != "processor_class"}
    theirs = transformers.LlavaProcessor(images, tokens, **more)
    ours = processor(files(images, tokens, **whole))
    for name in pictures():
        assert_same(ours, theirs, tokens, "hello <image>\nworld", [name])
    several = ["60x2000", "photo.jpg", "1x1"]
    assert_same(ours, theirs, tokens, "<image><image> hello <image>", several)


def test_paligemma():
    import transformers

    tokens = tokenizer("GemmaTokenizerFast", "<image>", bos_token="<bos>", eos_token="<eos>")
    images = transformers.SiglipImageProcessor(size={"height": 28, "width": 42}, image_seq_length=6)
    theirs = transformers.PaliGemmaProcessor(images, tokens)
    ours = processor(files(images, tokens, processor_class="PaliGemmaProcessor"))
    for name in pictures():
        assert_same(ours, theirs, tokens, "<image>hello world", [name])
    for text in ("hello", "", "hello\n", " hello world "):
        assert_same(ours, theirs, tokens, text, ["1x1"])
    several = ["60x2000", "photo.jpg", "1x1"]
    for text in ("<image><image><image>hello", "<image>hello<image> world <image>What\n"):
        assert_same(ours, theirs, tokens, text, several)
    # Without a place, several images of one prompt come as a list of lists.
    nested = [[pictures()[name] for name in several]]
    wanted = theirs(images=nested, text=["hello"], images_kwargs=dict(LAST))
    expanded = ours.expand("hello", ours(nested[0]).pictures)
    assert [tokens(expanded, add_special_tokens=False)["input_ids"]] == wanted["input_ids"]


@cache
def florence_pair() -> tuple[VisionProcessor, Any, Any]:
    """Ours, theirs, and the tokenizer of both."""
    import transformers

    tokens = tokenizer(
        "BartTokenizerFast",
        "<image>",
        bos_token="<s>",
        eos_token="</s>",
        extra_special_tokens={"image_token": "<image>"},
    )
    images = transformers.CLIPImageProcessor(
        size={"height": 32, "width": 32},
        crop_size={"height": 32, "width": 32},
        do_center_crop=False,
        image_seq_length=5,
    )
    kinds = ["ocr", "phrase_grounding", "pure_text", "description_with_bboxes", "polygons"]
    kinds += ["bboxes", "description_with_polygons", "description_with_bboxes_or_polygons"]
    reading: dict[str, Any] = {kind: {} for kind in kinds}
    reading["ocr"] = {"AREA_THRESHOLD": 0.01}
    reading["phrase_grounding"] = {"banned_grounding_tokens": ["it", "a dog", "é"]}
    theirs = transformers.Florence2Processor(images, tokens, post_processor_config=reading)
    whole = {"processor_class": "Florence2Processor", "post_processor_config": reading}
    return processor(files(images, tokens, **whole)), theirs, tokens


def test_florence():
    ours, theirs, tokens = florence_pair()
    for name in pictures():
        assert_same(ours, theirs, tokens, "<CAPTION>", [name])
    for task in florence.TASKS:
        for text in (task, f"{task}hello <loc_1>", f" hello{task} world\n", f"{task}{task}"):
            try:
                theirs(text=[text])
            except ValueError:
                with pytest.raises(OptionError):
                    ours.expand(text, ())
                continue
            assert [ours.expand(text, ())] == theirs._construct_prompts([text])
            assert_same(ours, theirs, tokens, text, ["1x1"])
    for text in ("", "hello world", "<caption>", "<FOO>"):
        assert_same(ours, theirs, tokens, text, ["1x1"])


PIECES = ["a dog", "it", " red car ", "é", "x\ny", "\n", " ", "<", ">", "<od>", "<obj>", "</box>"]
PIECES += ["<ground>", "<s>", "</s>", "<pad>", "<loc_>", "<loc_a>", "<loc_7", "<LOC_7>", "cat"]
MARKS = ["<poly>", "</poly>", "<sep>"]


def random_answer(rng: random.Random) -> str:
    """An answer: well formed in places, else of pieces in any order."""

    def locs(count: int) -> str:
        top = rng.choice([999, 999, 999, 5000, 200_000_000])
        return "".join(f"<loc_{rng.randint(0, top)}>" for _ in range(count))

    def part() -> str:
        kind = rng.randrange(6)
        if kind == 0:
            return rng.choice(PIECES) + locs(rng.choice([4, 4, 8]))
        if kind == 1:
            return locs(rng.randint(1, 9))
        if kind == 2:
            polygons = "<sep>".join(locs(rng.randint(2, 9)) for _ in range(rng.randint(1, 3)))
            return f"{rng.choice(PIECES)}<poly>{polygons}</poly>"
        if kind == 3:
            return "".join(rng.choice([*MARKS, locs(1), locs(2)]) for _ in range(6))
        return rng.choice([*PIECES, *PIECES, *MARKS])

    body = "".join(part() for _ in range(rng.randint(0, 6)))
    return rng.choice(["", "</s><s>"]) + body + rng.choice(["", "</s>", "</s><pad><pad>"])


def test_florence_answers():
    _, theirs, _ = florence_pair()
    whole = {"post_processor_config": theirs.post_processor_config}
    reading = florence.reading({"processor_config.json": whole})
    found = dict.fromkeys([*florence.TASKS, "<FOO>"], 0)
    for seed in range(1000):
        rng = random.Random(seed)
        answer = random_answer(rng)
        rows, columns = rng.randint(1, 3000), rng.randint(1, 3000)
        for task in found:
            wanted = theirs.post_process_generation(answer, task=task, image_size=(columns, rows))
            ours = florence.parse(answer, task, (rows, columns), reading)
            assert ours == wanted[task], (seed, task, answer)
            found[task] += bool(ours) and (isinstance(ours, str) or any(ours.values()))
    assert min(found.values()) > 100, found


def test_florence_places():
    """Every place of many sizes, as torch rounds it."""
    _, theirs, _ = florence_pair()
    rng = random.Random(0)
    answer = "".join(f"t<loc_{n}>" + f"<loc_{n}>" * 7 for n in range(1000))
    for _ in range(12):
        rows, columns = rng.randint(1, 10_000), rng.randint(1, 10_000)
        task = "<OD>"
        wanted = theirs.post_process_generation(answer, task=task, image_size=(columns, rows))
        assert florence.parse(answer, task, (rows, columns)) == wanted[task]
