"""``kill -9`` at any moment: the next run goes on, and no half file is taken for a whole one."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from onnxgen.errors import ModelNotFoundError
from onnxgen.files import resolve
from onnxgen.files.whole import whole
from tests.audio.sounds import pcm16, tone
from tests.cli.running import ENDLESS, ROOT, Z, run, start
from tests.fake_hub import FakeHub
from tests.fixture_models import FIXTURES

MODELS = FIXTURES / "models"
KILLED = -signal.SIGKILL


def contents(folder: Path) -> dict[str, bytes]:
    """All files in a folder but for hidden ones."""
    names = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    shown = (name for name in names if not any(part.startswith(".") for part in name.parts))
    return {name.as_posix(): (folder / name).read_bytes() for name in shown}


# -- downloads -----------------------------------------------------------------------------------


@pytest.mark.timeout(240)
def test_a_download_that_is_killed_goes_on(tmp_path):
    """Killed four times, each when some more bytes have come; offline, half of it is nothing."""
    rng = random.Random(5)
    files = {path.name: path.read_bytes() for path in (MODELS / "llama").iterdir()}
    del files["expected.json"]
    total = sum(len(files[n]) for n in ("model.onnx", "tokenizer.json", "config.json"))
    with FakeHub() as hub:
        hub.commit("owner/name", files)
        env = {
            "HF_ENDPOINT": hub.endpoint,
            "HF_HOME": str(tmp_path),
            "HF_HUB_OFFLINE": "0",
            "NO_PROXY": "127.0.0.1",
        }
        hub.pace = 0.3
        for moment in sorted(rng.uniform(0, total / 4) for _ in range(4)):
            hub.sent = 0
            process = start("download", "owner/name", env=env)
            while hub.sent <= moment and process.poll() is None:
                time.sleep(0.005)
            process.kill()
            process.communicate()
            assert process.returncode == KILLED, "it was done before"
            with pytest.raises(ModelNotFoundError):
                resolve("owner/name", offline=True, cache_dir=tmp_path / "hub")
        hub.pace = 0.0
        code, out, err = run("download", "owner/name", "--json", env=env)
    assert code == 0, err
    folder = Path(json.loads(out)["folder"])
    for one in json.loads(out)["files"]:
        assert (folder / one["name"]).read_bytes() == files[one["name"]]
    found = resolve("owner/name", offline=True, cache_dir=tmp_path / "hub")
    assert {"model.onnx", "tokenizer.json"} <= {path.name for path in found.files()}


# -- results -------------------------------------------------------------------------------------

# The command, in a process that kills itself in the middle of its n-th write of a kind.
DYING = """
import os, shutil, signal, sys
from pathlib import Path
import onnx
from onnxgen.cli import main

left = int(sys.argv[1])

def half(write, cut):
    def dying(*arguments, **keywords):
        global left
        left -= 1
        if left <= 0:
            write(*cut(*arguments), **keywords)
            os.kill(os.getpid(), signal.SIGKILL)
        return write(*arguments, **keywords)
    return dying

def copy_half(source, target):
    Path(target).write_bytes(Path(source).read_bytes()[: Path(source).stat().st_size // 2])

def save_half(model, path, **keywords):
    Path(path).write_bytes(model.SerializeToString()[:1000])

text = Path.write_text
Path.write_text = half(text, lambda path, data, *more: (path, data[: len(data) // 2], *more))
copy, save = shutil.copyfile, onnx.save_model
shutil.copyfile = half(lambda *a, **k: (copy_half if left <= 0 else copy)(*a, **k), lambda *a: a)
onnx.save_model = half(lambda *a, **k: (save_half if left <= 0 else save)(*a, **k), lambda *a: a)
sys.exit(main(sys.argv[2:]))
"""


def dying(number: int, *words: str) -> int:
    """The exit code of a process that dies in its ``number``-th write."""
    done = subprocess.run(
        [sys.executable, "-c", DYING, str(number), *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.returncode


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recordings")
    for number in range(3):
        sound = tone(0.4 + number / 10, hertz=300 + 200 * number)
        (folder / f"{number}.wav").write_bytes(pcm16(sound))
    return sorted(str(path) for path in folder.iterdir())


@pytest.mark.parametrize("number", random.Random(3).sample(range(1, 16), 3))
def test_transcripts_are_whole_or_not_there(number, recordings, tmp_path):
    words = ["transcribe", str(MODELS / "moonshine"), *recordings, "-f", "all"]
    words += ["--max-new-tokens", "4"]
    out = tmp_path / "killed"
    assert run(*words, "-o", str(tmp_path / "whole"))[0] == 0
    expected = contents(tmp_path / "whole")
    assert len(expected) == 15
    assert dying(number, *words, "-o", str(out)) == KILLED
    left = contents(out)
    assert len(left) == number - 1
    assert left.items() <= expected.items()
    assert run(*words, "-o", str(out))[0] == 0
    assert contents(out) == expected
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("number", [1, 2, 4])
def test_an_optimized_model_is_whole_or_not_there(number, tmp_path):
    words = ["optimize", str(MODELS / "llama")]
    out = tmp_path / "killed"
    assert run(*words, str(tmp_path / "whole"))[0] == 0
    expected = contents(tmp_path / "whole")
    assert dying(number, *words, str(out)) == KILLED
    assert not out.exists()
    assert [path.name for path in tmp_path.iterdir() if path.name != "whole"] == [".killed.part"]
    assert run(*words, str(out))[0] == 0
    assert contents(out) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed", "whole"]


def test_lines_of_json_are_whole_but_for_the_last(tmp_path):
    """A reader drops what has no line break: the next run writes the file anew."""
    rng = random.Random(1)
    prompts = tmp_path / "images"
    image = str(MODELS / "vit-gpt2/images/0.png")
    words = ["caption", str(MODELS / "vit-gpt2"), *[image] * 400, "--json", "--batch-size", "1"]
    prompts = tmp_path / "out.jsonl"
    with prompts.open("wb") as target:
        process = start(*words, stdout=target)
        while prompts.stat().st_size < rng.uniform(1_000, 20_000) and process.poll() is None:
            time.sleep(0.002)
        process.kill()
        process.communicate()
    assert process.returncode == KILLED
    *lines, _ = prompts.read_text().split("\n")
    assert lines
    assert all(json.loads(line)["image"] == image for line in lines)


def test_a_stream_that_is_killed_has_said_what_it_made():
    process = start("generate", str(MODELS / "bloom"), Z, *ENDLESS, "--memory-limit", "off")
    first = process.stdout.read(5)
    process.kill()
    process.communicate()
    assert len(first) == 5


def test_a_file_appears_when_all_of_it_is_there(tmp_path):
    path = tmp_path / ("a" * 250 + ".txt")
    path.write_text("before")

    def interrupted():
        with whole(path) as part:
            part.write_text("half")
            assert path.read_text() == "before"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == "before"
    with whole(path) as part:
        part.write_text("after")
    assert path.read_text() == "after"


def test_links_are_written_through_and_devices_directly(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("before")
    link.symlink_to(target)
    with whole(link) as part:
        part.write_text("after")
    assert link.is_symlink()
    assert target.read_text() == "after"
    with whole(Path(os.devnull)) as part:
        assert part == Path(os.devnull)
