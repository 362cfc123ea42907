"""``onnxgen caption``: what comes out, what is told of bad images, and how it ends."""

import json
import os
import re
import signal
import struct
import zlib

import pytest

from onnxgen.cli import main
from tests.cli.loaded import keep
from tests.cli.running import LLAMA, run, start
from tests.fixture_models import FIXTURES

MODELS, IMAGES = FIXTURES / "models", FIXTURES / "images"
VIT, DONUT = str(MODELS / "vit-gpt2"), str(MODELS / "donut")
PHOTO, TINY, PAGE = (str(IMAGES / name) for name in ("photo.jpg", "tiny.png", "page.png"))
FEW = ["--num-beams", "1", "--max-new-tokens", "4", "-o", "eos_token_id=null"]


@pytest.fixture(autouse=True)
def _loaded_once(monkeypatch):
    keep(monkeypatch)


def printed(capsys, *words: str) -> str:
    assert main(["caption", *words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def objects(out: str) -> list[dict]:
    return [json.loads(line) for line in out.splitlines()]


def refused(capsys, code: int, *words: str) -> str:
    assert main(["caption", *words]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert "unexpected" not in err
    return err


def png(width: int, height: int, rows: bytes) -> bytes:
    """A grey PNG that claims a size, whatever ``rows`` hold."""
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
             (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]  # fmt: skip
    body = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + body


def bad_images(place) -> dict[str, str]:
    """Files that are no images, with what the message says of each."""
    contents = {
        "text.png": (b"no image", "is no image"),
        "empty.png": (b"", "is no image"),
        "cut.jpg": ((IMAGES / "photo.jpg").read_bytes()[:2000], "broken or cut off"),
        "bomb.png": (png(60_000, 60_000, b"\0" * 100_000), "too many pixels"),
    }
    for name, (data, _) in contents.items():
        (place / name).write_bytes(data)
    told = {str(place / name): says for name, (_, says) in contents.items()}
    return {**told, str(place / "none.png"): "no file", str(place): "Is a directory"}


def test_one_image_prints_its_text_alone_and_several_a_line_each(capsys):
    texts = [
        answer["text"] for answer in objects(printed(capsys, VIT, PHOTO, TINY, "--json", *FEW))
    ]
    assert printed(capsys, VIT, PHOTO, *FEW) == texts[0] + "\n"
    assert printed(capsys, VIT, PHOTO, "--no-stream", *FEW) == texts[0] + "\n"
    lines = printed(capsys, VIT, PHOTO, TINY, *FEW).splitlines()
    assert lines == [f"{name}\t{text}" for name, text in zip((PHOTO, TINY), texts, strict=True)]


@pytest.mark.parametrize("images", [[PHOTO], [PHOTO, TINY, PAGE]])
@pytest.mark.parametrize("size", ["1", "2", "8"])
def test_json_is_one_object_a_line(images, size, capsys):
    found = objects(printed(capsys, VIT, *images, "--json", "--batch-size", size, *FEW))
    assert [answer["image"] for answer in found] == images
    keys = {"image", "text", "tokens", "finish_reason", "prompt_tokens", "timings"}
    assert all(set(answer) == keys and len(answer["tokens"]) == 4 for answer in found)


def test_a_batch_gives_each_image_what_it_gets_alone(capsys):
    images = [PHOTO, TINY, PAGE]
    alone = [objects(printed(capsys, VIT, one, "--json", *FEW))[0]["tokens"] for one in images]
    for size in ("1", "2", "8"):
        out = printed(capsys, VIT, *images, "--json", "--batch-size", size, *FEW)
        assert [answer["tokens"] for answer in objects(out)] == alone


def test_several_answers_take_a_line_each(capsys):
    words = ["--num-beams", "3", "--num-return-sequences", "2", "--max-new-tokens", "4"]
    found = objects(printed(capsys, VIT, PHOTO, TINY, "--json", *words))
    assert [answer["image"] for answer in found] == [PHOTO, PHOTO, TINY, TINY]
    assert found[0]["sequence_score"] >= found[1]["sequence_score"]
    assert len(printed(capsys, VIT, PHOTO, *words).splitlines()) == 2


def test_stdin_is_an_image():
    with open(PHOTO, "rb") as file:  # noqa: PTH123
        process = start("caption", VIT, "-", "--json", *FEW, stdin=file)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")
    (answer,) = objects(out.decode())
    code, whole, _ = run("caption", VIT, PHOTO, "--json", *FEW)
    assert code == 0
    assert answer["image"] == "-"
    assert answer["tokens"] == objects(whole)[0]["tokens"]


def test_stdin_is_asked_for_once(capsys):
    assert "stdin is named twice" in refused(capsys, 2, VIT, "-", "-")


def test_an_empty_stdin_is_an_error():
    code, out, err = run("caption", VIT, "-")
    assert (code, out) == (1, "")
    assert err.startswith("onnxgen: error: ")


def test_a_bad_image_alone_is_an_error(tmp_path, capsys):
    for name, says in bad_images(tmp_path).items():
        err = refused(capsys, 1, VIT, name, *FEW)
        assert err.startswith("onnxgen: error: ")
        assert says in err
        assert name in err


@pytest.mark.parametrize("size", ["1", "3", "8"])
def test_bad_images_lose_nothing_of_the_others(size, tmp_path, capsys):
    bad = bad_images(tmp_path)
    good = printed(capsys, VIT, PHOTO, TINY, *FEW)
    assert main(["caption", VIT, PHOTO, *bad, TINY, "--batch-size", size, *FEW]) == 1
    out, err = capsys.readouterr()
    assert out == good
    assert err.count("onnxgen: error: ") == len(bad)
    for name, says in bad.items():
        (line,) = [line for line in err.splitlines() if says in line and f"{name}'" in line]
        assert line.count(name) == 1


def test_an_image_too_narrow_for_the_model_loses_nothing_of_the_others(tmp_path, capsys):
    narrow = tmp_path / "narrow.png"
    narrow.write_bytes(png(20_000, 1, b"\0" * 20_001))
    good = printed(capsys, DONUT, PHOTO, TINY, *FEW)
    assert main(["caption", DONUT, PHOTO, str(narrow), TINY, *FEW]) == 1
    out, err = capsys.readouterr()
    assert out == good
    assert err.startswith(f"onnxgen: error: {narrow}: a picture of ")
    assert "less narrow" in refused(capsys, 1, DONUT, str(narrow))


def test_images_that_are_all_bad_print_nothing(tmp_path, capsys):
    refused(capsys, 1, VIT, *bad_images(tmp_path))


def test_fields_are_json(capsys):
    fields = json.loads(printed(capsys, DONUT, PAGE, "--fields", *FEW))
    assert isinstance(fields, dict | list)
    (answer,) = objects(printed(capsys, DONUT, PAGE, "--fields", "--json", *FEW))
    assert answer["fields"] == fields
    lines = printed(capsys, DONUT, PAGE, PHOTO, "--fields", *FEW).splitlines()
    assert lines[0] == f"{PAGE}\t{json.dumps(fields, ensure_ascii=False)}"


def test_a_prompt_begins_the_answer(capsys):
    (free,) = objects(printed(capsys, VIT, PHOTO, "--json", *FEW))
    (told,) = objects(printed(capsys, VIT, PHOTO, "--json", "--prompt", "a cat", *FEW))
    assert told["prompt_tokens"] > free["prompt_tokens"] == 1
    assert len(told["tokens"]) == 4


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--question", "what?"], "knows no questions"),
        (["--question", ""], "knows no questions"),
        (["--prompt", ""], "prompt is ''"),
        (["--prompt", "a", "--question", "b"], "prompt and question are given"),
        (["--prompt", "a " * 100, *FEW], "at most 64"),
        (["-o", "max_token=3"], "max_token"),
        (["--batch-size", "0"], "--batch-size"),
        (["--batch-size", "x"], "--batch-size"),
        (["--num-return-sequences", "2", "--num-beams", "1"], "num_return_sequences"),
    ],
)
def test_options_that_make_no_sense_are_refused(words, says, capsys):
    code = 1 if "--max-new-tokens" in words else 2
    assert says in refused(capsys, code, VIT, PHOTO, *words)


def test_an_address_is_not_fetched(capsys):
    assert "download the image first" in refused(capsys, 1, VIT, "https://example.com/a.png")


@pytest.mark.parametrize(
    ("model", "command"),
    [
        (str(LLAMA.folder), "generate"),
        (str(MODELS / "t5"), "generate"),
        (str(MODELS / "moonshine"), "transcribe"),
    ],
)
def test_models_of_other_senses_name_their_command(model, command, capsys):
    assert f"onnxgen {command} {model}" in refused(capsys, 1, model, PHOTO)


def test_no_image_is_a_usage_error(capsys):
    assert "IMAGE" in refused(capsys, 2, VIT)


@pytest.mark.parametrize(("images", "lines"), [([PHOTO], 1), ([PHOTO, TINY, PAGE], 2)])
def test_stats_are_a_line_for_each_run(images, lines, capsys):
    assert main(["caption", VIT, *images, "--stats", "--batch-size", "2", *FEW]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == len(images)
    counts = re.findall(r"^(\d+) tokens, .* selection by numpy$", err, re.MULTILINE)
    assert len(counts) == lines == err.count("\n")
    assert sum(map(int, counts)) == 4 * len(images)


def test_help_shows_its_options(capsys):
    out = printed(capsys, "--help")
    for word in ("--prompt", "--question", "--fields", "--batch-size", "exit code is 1"):
        assert word in out


def test_a_closed_pipe_is_silent():
    read, write = os.pipe()
    process = start("caption", VIT, PHOTO, TINY, *FEW, stdout=write)
    os.close(write)
    os.close(read)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (141, b"")


def test_ctrl_c_ends_it_with_the_answers_so_far():
    process = start("caption", VIT, *[PHOTO] * 20_000, "--batch-size", "1", *FEW)
    head = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")
    lines = (head + rest).decode().splitlines()
    assert set(lines) == {lines[0]}
