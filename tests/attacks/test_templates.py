"""Each hostile chat template ends as its line in cases.json says, soon, and tells no content.

The bombs are tried with small limits, so that their end comes early; with ONNXGEN_ATTACKS=full in
the environment the real limits hold.
"""

import json
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

import onnxgen
from onnxgen.errors import ChatTemplateError, OnnxgenError, OptionError
from onnxgen.text import budget
from onnxgen.text.chat_template import ChatTemplate
from scripts.attacks.templates import source
from tests.cli.running import LLAMA, run
from tests.fixture_models import FIXTURES

PLACE = FIXTURES / "attacks" / "templates"
CASES = {case["name"]: case for case in json.loads((PLACE / "cases.json").read_text())}
ENDS = 10  # seconds
SECRET = "xyzzy plugh"
MESSAGES = [{"role": "user", "content": SECRET}]
SMALL = {"MAX_SECONDS": 0.5, "MAX_CHARS": 2**18, "MAX_BYTES": 2**23}


@pytest.fixture(autouse=True)
def _limits(monkeypatch):
    if os.environ.get("ONNXGEN_ATTACKS") != "full":
        for name, value in SMALL.items():
            monkeypatch.setattr(budget, name, value)


def template_of(name: str) -> str:
    path = PLACE / f"{name}.jinja"
    return path.read_bytes().decode() if path.exists() else source(name)


@pytest.mark.parametrize("name", CASES)
def test_an_attack(name):
    text, must = template_of(name), CASES[name]["must"]
    variables = {"size": budget.MAX_CHARS * 7 // 8} if "size" in text else {}
    began = time.monotonic()
    if must == "ChatTemplateError":
        with pytest.raises(ChatTemplateError) as caught:
            ChatTemplate({"default": text}).render(MESSAGES, variables=variables)
        told = str(caught.value)
        assert len(told) < 500
        assert not any(word in told for word in SECRET.split())
    else:
        output = ChatTemplate({"default": text}).render(MESSAGES, variables=variables)
        assert output.strip() == ("" if must == "shows nothing" else "done")
    assert time.monotonic() - began < ENDS


class Trap(str):
    """A text with a method of its own."""

    def tofile(self, path: str) -> None:
        Path(path).write_text("written")


@pytest.mark.parametrize("value", [np.zeros(3), Path(), object(), {1, 2}, b"bytes", 1j, len])
def test_only_plain_values_get_in(value):
    template = ChatTemplate({"default": "{{ messages }}{{ tools }}{{ documents }}{{ x }}"})
    for given in (
        {"messages": [{"role": "user", "content": value}]},
        {"messages": [{"role": "user", "content": [{"type": "image", "image": [value]}]}]},
        {"messages": MESSAGES, "tools": [{"a": value}]},
        {"messages": MESSAGES, "documents": [{"a": value}]},
        {"messages": MESSAGES, "variables": {"x": value}},
    ):
        with pytest.raises(OptionError):
            template.render(**given)


def test_a_texts_own_methods_do_not_get_in(tmp_path):
    path = tmp_path / "x"
    template = ChatTemplate({"default": "{{ messages[0].content.tofile('" + str(path) + "') }}"})
    with pytest.raises(ChatTemplateError):
        template.render([{"role": "user", "content": Trap("a")}])
    assert not path.exists()


STORED = [
    5, ["a"], [5], [{"name": 5, "template": "x"}], [{"name": ["a"], "template": "x"}],
    {"default": 5}, [{"name": "default"}], [[1, 2]],
]  # fmt: skip


@pytest.mark.parametrize("stored", STORED, ids=str)
def test_templates_that_are_not_stored_as_such(stored, tmp_path):
    folder = Path(shutil.copytree(LLAMA.folder, tmp_path / "model"))
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": stored}))
    with pytest.raises(OnnxgenError):
        onnxgen.load(folder).generate(MESSAGES, max_new_tokens=1)


BOMB, ESCAPE = "doubles-shown", "stored-format"


@pytest.mark.parametrize("name", [BOMB, ESCAPE, "tells-content"])
def test_every_place_that_renders(name, tmp_path):
    """The Python call, a batch, the command line and inspect: none is forgotten."""
    folder = Path(shutil.copytree(LLAMA.folder, tmp_path / "model"))
    (folder / "chat_template.jinja").write_text(template_of(name))
    model = onnxgen.load(folder)
    for prompt in (MESSAGES, [MESSAGES, MESSAGES]):
        with pytest.raises(ChatTemplateError):
            model.generate(prompt, max_new_tokens=1)
    with pytest.raises(ChatTemplateError):
        model.tokenizer.apply_chat_template(MESSAGES)
    for words in (["chat", str(folder), "-m", SECRET], ["chat", str(folder), "-m", "-"]):
        code, _, told = run(*words, stdin=SECRET)
        assert code == 1
        assert "chat template" in told
        assert SECRET.split()[0] not in told
        assert "Traceback" not in told
    assert run("inspect", str(folder))[0] == 0
