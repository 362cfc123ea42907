"""Each crafted tokenizer, and each wrong use of a sound one, ends as its line in cases.json says.

What panics, hangs or aborts in the library itself would take the test run along, so the files are
tried in a process of their own, all in one.
"""

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from onnxgen import errors
from onnxgen.text.stream import TextStream
from onnxgen.text.tokenizer import Tokenizer
from tests.fixture_models import FIXTURES
from tests.text.goldens import load, model_files

PLACE = FIXTURES / "attacks" / "tokenizers"
CASES = {case["name"]: case for case in json.loads((PLACE / "cases.json").read_text())}
FILES = [name for name in CASES if (PLACE / f"{name}.json").exists()]
SECRET = "xyzzy"


def use(folder: Path) -> None:
    tokenizer = Tokenizer.from_files(model_files(folder))
    tokenizer.encode(f"ab {SECRET} é")
    tokenizer.encode("a" * 40 + "!")
    tokenizer.decode([0])
    stream = TextStream(tokenizer)
    stream.push(0)
    stream.finish()


def tried(folder: Path) -> list[str]:
    """How the use of the tokenizer in ``folder`` ends: the error's class and its text."""
    try:
        use(folder)
    except BaseException as error:  # a PanicException must be seen as well
        return [type(error).__name__, str(error)]
    return ["runs", ""]


@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    """Name of a file to how it ended; in a process whose memory and time are bounded."""
    place = tmp_path_factory.mktemp("tokenizers")
    for name in FILES:
        (place / name).mkdir()
        shutil.copy(PLACE / f"{name}.json", place / name / "tokenizer.json")
    program = (
        "import json, resource, sys; from pathlib import Path\n"
        "from tests.attacks.test_tokenizers import tried\n"
        "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
        "for folder in sorted(Path(sys.argv[1]).iterdir()):\n"
        "    print(json.dumps([folder.name, *tried(folder)]), flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(place)],
        cwd=FIXTURES.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: (error, text) for name, error, text in found}


@pytest.mark.parametrize("name", FILES)
def test_a_crafted_file(ends, name):
    error, text = ends[name]
    assert error == CASES[name]["must"]
    assert "to do" in text or "wanted" in text
    assert SECRET not in text


def refused(function, *values) -> None:
    for value in values:
        with pytest.raises(errors.TokenizerError) as caught:
            function(value)
        assert repr(value) not in str(caught.value)


def escaped(tmp_path: Path) -> None:
    text = (PLACE / "normalizer-doubles.json").read_text()
    for plain, hidden in (("normalizer", r"\u006eormalizer"), ("Replace", r"R\u0065place")):
        (tmp_path / "tokenizer.json").write_text(text.replace(f'"{plain}"', f'"{hidden}"'))
        refused(lambda folder: Tokenizer.from_files(model_files(folder)), tmp_path)


def beyond(_tmp_path: Path) -> None:
    for name in ("gpt2", "llama", "bert", "t5"):
        tokenizer = load(name)
        for token in (tokenizer.vocab_size, 2**32 - 1):
            assert isinstance(tokenizer.decode([token]), str)
            stream = TextStream(tokenizer)
            assert stream.push(token) + stream.finish() == tokenizer.decode([token])


def decoded(*values):
    return lambda _tmp_path: refused(lambda value: load("gpt2").decode([value]), *values)


def encoded(*values):
    return lambda _tmp_path: refused(load("gpt2").encode, *values)


DONE = {
    "id-negative": decoded(-1),
    "id-over-32-bits": decoded(2**32, 2**70),
    "id-no-number": decoded("secret", None, 1.5, float("nan")),
    "id-beyond-vocabulary": beyond,
    "text-no-unicode": encoded("secret \ud800"),
    "text-no-text": encoded(None, b"secret", 5),
    "text-of-a-megabyte": lambda _tmp_path: load("gpt2").encode("a" * 2**20),
    "escaped-names": escaped,
}


@pytest.mark.parametrize("name", [name for name in CASES if name not in FILES])
def test_a_wrong_use(name, tmp_path):
    DONE[name](tmp_path)


def test_another_thread_goes_on_after_a_panic(tmp_path):
    shutil.copy(PLACE / "strip-both.json", tmp_path / "tokenizer.json")
    assert tried(tmp_path)[0] == "TokenizerError"
    results: list[list[int]] = []
    thread = threading.Thread(target=lambda: results.append(load("gpt2").encode("Hi")))
    thread.start()
    thread.join()
    assert results == [load("gpt2").encode("Hi")]
