"""``--image`` of chat and caption, and caption with models that take text and images."""

import json

import pytest

from onnxgen.cli import main
from tests.cli.loaded import keep
from tests.tasks.vision_language import FIXTURES, IMAGES, told

MODELS = FIXTURES / "models"
SMOL, QWEN, PALI, FLORENCE = (
    str(MODELS / name) for name in ("smolvlm", "qwen2-vl", "paligemma", "florence-2")
)
PHOTO, CMYK = str(IMAGES / "photo.jpg"), str(IMAGES / "cmyk.jpg")


@pytest.fixture(autouse=True)
def _loaded_once(monkeypatch):
    keep(monkeypatch)


def case_of(folder, name):
    return next(case for case in told(folder)["cases"] if case["name"] == name)


def printed(capsys, *words: str) -> str:
    assert main([*words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refused(capsys, code: int, *words: str) -> str:
    assert main([*words]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert "unexpected" not in err
    return err


def test_a_chat_about_an_image(capsys):
    case = case_of("smolvlm", "chat")
    text = case["messages"][0]["content"][-1]["text"]
    out = printed(capsys, "chat", SMOL, "--image", PHOTO, "-m", text, "--max-new-tokens", "14")
    assert out == case["text"] + "\n"


def test_caption_asks_by_the_models_template(capsys):
    case = case_of("smolvlm", "chat")
    text = case["messages"][0]["content"][-1]["text"]
    few = ["--max-new-tokens", "14", "--json"]
    out = printed(capsys, "caption", SMOL, PHOTO, "--prompt", text, *few)
    assert json.loads(out)["tokens"] == case["tokens"]
    out = printed(capsys, "caption", SMOL, PHOTO, CMYK, "--question", text, *few)
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["image"] for line in lines] == [PHOTO, CMYK]
    assert lines[0]["tokens"] == case["tokens"] != lines[1]["tokens"]


def test_several_images_in_one_prompt(capsys):
    case = case_of("qwen2-vl", "two images")
    given = [word for name in case["images"] for word in ("--image", str(IMAGES / name))]
    few = ["--max-new-tokens", "14", "--json"]
    out = printed(capsys, "caption", QWEN, *given, "--prompt", case["prompt"], *few)
    assert json.loads(out)["tokens"] == case["tokens"]


def test_a_model_without_a_template_gets_places_in_front(capsys):
    case = case_of("paligemma", "one image")
    prompt = case["prompt"].removeprefix("<image>")
    few = ["--max-new-tokens", "14", "--json"]
    out = printed(capsys, "caption", PALI, PHOTO, "--prompt", prompt, *few)
    assert json.loads(out)["tokens"] == case["tokens"]


def test_fields_of_a_model_that_finds_places(capsys):
    case = case_of("florence-2", "objects")
    words = ["--prompt", "<OD>", "--fields", "--num-beams", "1", "--max-new-tokens", "30"]
    words += ["-o", "early_stopping=false", "-o", "no_repeat_ngram_size=0"]
    out = printed(capsys, "caption", FLORENCE, str(IMAGES / case["images"][0]), *words)
    assert json.loads(out) == case["parsed"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["chat", SMOL, "--image", "no.jpg", "-m", "Hi"], 1, "no.jpg"),
        (["chat", str(MODELS / "llama-tjs"), "--image", PHOTO, "-m", "Hi"], 1, "vision_encoder"),
        (["caption", SMOL], 2, "no image is named"),
        (["caption", SMOL, PHOTO, "--image", PHOTO], 2, "each in its own"),
        (["caption", str(MODELS / "vit-gpt2"), "--image", PHOTO], 2, "one image at a time"),
        (["caption", SMOL, "no.jpg"], 1, "no.jpg"),
        (["caption", SMOL, PHOTO, "--fields", "--max-new-tokens", "2"], 2, "fields"),
    ],
)
def test_wrong_input(capsys, words, code, says):
    assert says in refused(capsys, code, *words)


def test_one_bad_image_does_not_lose_the_others(capsys):
    assert main(["caption", SMOL, "no.jpg", PHOTO, "--max-new-tokens", "4"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith(f"{PHOTO}\t")
    assert out.count("\n") == 1
    assert "no.jpg" in err
