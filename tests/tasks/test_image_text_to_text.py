"""Vision-language models: tokens, ids and positions are transformers', alone, batched, in chats."""

import shutil

import numpy as np
import pytest

import onnxgen
from onnxgen.runtime.group import Group
from onnxgen.tasks.cache import Cache
from tests.tasks.vision_language import FIXTURES, IMAGES, folders, keywords, load, told

CASES = [
    (folder, case["name"])
    for folder in folders()
    if told(folder)["family"] != "florence-2"
    for case in told(folder)["cases"]
]
DECODERS = sorted({folder for folder, _ in CASES})


def case_of(folder, name):
    return next(case for case in told(folder)["cases"] if case["name"] == name)


@pytest.mark.parametrize(("folder", "name"), CASES, ids="-".join)
def test_tokens_are_those_of_transformers(folder, name):  # known problems V1, V2
    case, model = case_of(folder, name), load(folder)
    prompt = case.get("messages") or case["prompt"]
    request = model.request([prompt], None, keywords(case))
    assert request._prompts[0] == case["input_ids"]
    for _ in request.steps():
        pass
    ((answer,),) = request.results()
    assert list(answer.tokens) == case["tokens"]
    assert answer.text == case["text"]
    if "score" in case:
        assert answer.sequence_score == pytest.approx(case["score"], abs=1e-4)


@pytest.mark.parametrize("folder", DECODERS)
def test_a_batch_of_none_one_and_two_images_is_its_rows(folder):  # known problem V4
    rows, model = told(folder)["batch"], load(folder)
    assert [len(row["images"]) for row in rows] == [0, 1, 2]
    answers = model.generate(
        [row["prompt"] for row in rows],
        images=[[IMAGES / name for name in row["images"]] for row in rows],
        **rows[0]["options"],
    )
    assert [list(answer.tokens) for answer in answers] == [row["tokens"] for row in rows]


@pytest.mark.parametrize("folder", DECODERS)
def test_a_stream_is_the_whole_answer(folder):
    case, model = case_of(folder, "two images"), load(folder)
    pieces = list(model.stream(case["prompt"], **keywords(case)))
    assert [piece.token for piece in pieces] == case["tokens"]
    assert "".join(piece.text for piece in pieces) == case["text"]


@pytest.mark.parametrize("folder", ["qwen2-vl", "qwen2_5-vl"])
def test_positions_and_what_follows_them(folder):  # known problems V2, V3
    for case in told(folder)["cases"]:
        prompt = case.get("messages") or case["prompt"]
        own = keywords(case)
        model = load(folder)
        read = model._read(
            prompt, model.processor, own.get("images", []), own.get("videos", []), None
        )
        expected = np.array(case["position_ids"]).reshape(3, -1)
        if read.positions is None:  # text: the index on all axes
            assert (expected == np.arange(len(read.ids))).all(), case["name"]
            assert case["rope_delta"] == 0, case["name"]
        else:
            assert np.array_equal(read.positions[0], expected), case["name"]
            assert read.positions[1] == case["rope_delta"], case["name"]


# known problems V2, V3
@pytest.mark.parametrize("name", ["two images", "text only"])
@pytest.mark.parametrize("folder", ["qwen2-vl", "smolvlm"])
def test_each_step_is_fed_its_position(folder, name, monkeypatch):
    """By a graph that steps one token at a time, and by one that is fed without short cuts."""
    case, model = case_of(folder, name), load(folder)
    monkeypatch.setattr(model.model, "steady", False)
    seen = []
    lay = Group.forward

    def noted(group, tokens, lengths, every=False):
        layout, *rest = lay(group, tokens, lengths, every)
        seen.append(np.array(layout.positions))
        return layout, *rest

    monkeypatch.setattr(Group, "forward", noted)
    answer = model.generate(case["prompt"], **keywords(case))
    assert list(answer.tokens) == case["tokens"]
    prompt, *steps = seen
    length, delta = len(case["input_ids"]), case.get("rope_delta", 0)
    assert prompt.shape[-1] == length
    assert [set(step.ravel().tolist()) for step in steps] == [
        {length + i + delta} for i in range(len(steps))
    ]


@pytest.mark.parametrize("folder", ["qwen2-vl", "smolvlm", "gemma3", "llava-onevision"])
def test_a_chat_goes_on_after_an_image_with_one_pass_for_it(folder):
    model = onnxgen.load(FIXTURES / "models" / folder, threads=1)
    image = {"type": "image", "image": IMAGES / "photo.jpg"}
    chat = [{"role": "user", "content": [image, {"type": "text", "text": "What is it?"}]}]
    cache = Cache()
    for turn in range(3):
        answer = model.generate(chat, cache=cache, max_new_tokens=6)
        fresh = onnxgen.load(FIXTURES / "models" / folder, threads=1)
        assert answer.tokens == fresh.generate(chat, max_new_tokens=6).tokens, turn
        chat = [
            *chat,
            {"role": "assistant", "content": [{"type": "text", "text": answer.text}]},
            {"role": "user", "content": [{"type": "text", "text": "Where is the cat?"}]},
        ]
    assert model.features.passes == 1


def test_features_are_let_go_before_they_are_too_many(monkeypatch):
    case, other = (case_of("smolvlm", name) for name in ("one image", "another image"))
    model = onnxgen.load(FIXTURES / "models" / "smolvlm", threads=1)
    one = 20 * 32 * 4  # bytes of the features of one of these images
    monkeypatch.setattr("onnxgen.tasks.pictured.KEPT_BYTES", one)
    for turn, own in enumerate((case, case, other, other, case), start=1):
        assert list(model.generate(own["prompt"], **keywords(own)).tokens) == own["tokens"]
        assert sum(rows.nbytes for rows in model.features._kept.values()) <= one, turn
    assert model.features.passes == 3


def test_a_kept_cache_tells_one_image_from_another():
    model, cache = load("smolvlm"), Cache()
    cases = [case_of("smolvlm", name) for name in ("one image", "another image", "one image")]
    for case in cases:
        answer = model.generate(case["prompt"], cache=cache, **keywords(case))
        assert list(answer.tokens) == case["tokens"]


@pytest.mark.parametrize("folder", DECODERS)
def test_text_alone_does_not_load_the_vision_session(folder):
    model, case = onnxgen.load(FIXTURES / "models" / folder), case_of(folder, "text only")
    assert list(model.generate(case["prompt"], **case["options"]).tokens) == case["tokens"]
    assert not model.vision.loaded


def test_openai_parts_and_images_of_the_call_are_the_same_chat():
    case, model = case_of("smolvlm", "chat"), load("smolvlm")
    text = case["messages"][0]["content"][-1]
    image = IMAGES / case["images"][0]
    for part in (
        {"type": "image", "image": str(image)},
        {"type": "image", "path": str(image)},
        {"type": "image_url", "image_url": {"url": str(image)}},
    ):
        chat = [{"role": "user", "content": [part, text]}]
        assert list(model.generate(chat, **case["options"]).tokens) == case["tokens"]


def test_a_message_that_is_a_text_reaches_a_template_that_wants_parts():
    case, model = case_of("smolvlm", "chat without image"), load("smolvlm")
    chat = [{"role": "user", "content": case["messages"][0]["content"][0]["text"]}]
    assert list(model.generate(chat, **case["options"]).tokens) == case["tokens"]


PHOTO = IMAGES / "photo.jpg"
WRONG = {
    "image without a place": ("What?", {"images": PHOTO}, onnxgen.OnnxgenError, "0 places"),
    "place without an image": ("<image>What?", {}, onnxgen.OnnxgenError, "0 are given"),
    "two images for one place": ("<image>?", {"images": [PHOTO] * 2}, ValueError, "1 places"),
    "no image file": ("<image>?", {"images": "nowhere.png"}, FileNotFoundError, "nowhere.png"),
    "an address": ("<image>?", {"images": "https://a.b/c.png"}, ValueError, "address"),
    "a list for each prompt": (["<image>", "<image>"], {"images": [PHOTO]}, ValueError, "for 2"),
    "an option of other models": (
        "<image>?", {"images": PHOTO, "processing": {"do_pan_and_scan": True}}, ValueError, "option"
    ),
    "ids and images": ([1, 2, 3], {"images": PHOTO}, ValueError, "a prompt of ids"),
    "videos": ("<image>?", {"videos": [[PHOTO]]}, ValueError, "takes no videos"),
    "too many tokens": ("<image>" * 40, {"images": [PHOTO] * 40}, ValueError, "at most"),
    "a part of no kind": (
        [{"role": "user", "content": [{"type": "audio"}]}], {}, ValueError, "'audio'"
    ),
    "a bare part too many": (
        [{"role": "user", "content": [{"type": "image"}]}], {}, ValueError, "0 are given"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input(name):  # known problem V1
    prompt, given, kind, words = WRONG[name]
    model = load("smolvlm")
    with pytest.raises(kind, match=words) as caught:
        model.generate(prompt, max_new_tokens=2, **given)
    assert isinstance(caught.value, onnxgen.OnnxgenError)
    case = case_of("smolvlm", "one image")  # and the model is as it was
    assert list(model.generate(case["prompt"], **keywords(case)).tokens) == case["tokens"]


def test_a_model_without_vision_files(tmp_path):
    folder = shutil.copytree(FIXTURES / "models/smolvlm", tmp_path / "m")
    (folder / "onnx/vision_encoder.onnx").unlink()
    model = onnxgen.load(folder)
    case = case_of("smolvlm", "text only")
    assert list(model.generate(case["prompt"], **case["options"]).tokens) == case["tokens"]
    with pytest.raises(onnxgen.OnnxgenError, match="vision_encoder"):
        model.generate("<image>What?", images=[PHOTO])
    with pytest.raises(onnxgen.OnnxgenError, match="vision_encoder"):
        onnxgen.load(folder, task="image-text-to-text")
