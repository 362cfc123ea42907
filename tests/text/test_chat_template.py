"""Chat templates render, byte for byte, what transformers 4.57.6 renders."""

import datetime
import enum
import json

import numpy as np
import pytest

from onnxgen.errors import ChatTemplateError, OptionError
from onnxgen.text import rendering
from onnxgen.text.chat_template import ChatTemplate
from onnxgen.text.tokenizer import Tokenizer
from tests.text import tool_functions
from tests.text.goldens import FIXTURES, golden, load, model_files

HELLO = [{"role": "user", "content": "Hello"}]


def source(name: str) -> str:
    return (FIXTURES / "templates" / name).read_bytes().decode()


def case_id(case: dict) -> str:
    return f"{case['template'].removesuffix('.jinja')}-{case['chat']}"


def render(case: dict) -> str:
    arguments = dict(case.get("arguments", {}))
    if "functions" in case:
        arguments["tools"] = [getattr(tool_functions, name) for name in case["functions"]]
    messages = golden("chats")["chats"][case["chat"]]
    before = json.dumps(messages)
    try:
        return load("llama").apply_chat_template(
            messages, chat_template=source(case["template"]), **arguments
        )
    finally:
        assert json.dumps(messages) == before


@pytest.fixture
def _fixed_time(monkeypatch):
    class Fixed(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2024, 2, 3, 4, 5, 6)

    monkeypatch.setattr(rendering, "datetime", Fixed)


RENDERED = [case for case in golden("renders") if "prompt" in case]
REFUSED = [case for case in golden("renders") if "error" in case]


@pytest.mark.usefixtures("_fixed_time")
@pytest.mark.parametrize("case", RENDERED, ids=case_id)
def test_renders_as_transformers(case):
    assert render(case) == case["prompt"]


@pytest.mark.parametrize("case", REFUSED, ids=case_id)
def test_refuses_what_transformers_refuses(case):
    with pytest.raises((ChatTemplateError, OptionError)) as caught:
        render(case)
    if case["error"] in ("TemplateError", "UndefinedError", "SecurityError"):
        assert case["message"] in caught.value.found
    if case["error"] not in ("ValueError", "SyntaxError"):
        assert " in line " in caught.value.found
    if case["error"] in ("TypeError", "ZeroDivisionError"):
        assert caught.value.found.endswith(case["error"])


def test_enough_cases():
    assert len({case["template"] for case in RENDERED}) >= 40
    assert len(REFUSED) >= 20


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\nb\n{{ missing.x }}", 3),
        ("{% for m in messages %}\n\n{{ raise_exception('no') }}\n{% endfor %}", 3),
        ("\n{% macro f() %}\n{{ 1 + 'a' }}\n{% endmacro %}\n{{ f() }}", 3),
        ("\n\n{% endif %}", 3),
    ],
)
def test_errors_name_the_line(text, line):
    with pytest.raises(ChatTemplateError, match=f"in line {line}: "):
        ChatTemplate({"default": text}).render(HELLO)


def test_errors_do_not_quote_messages():
    secret = [{"role": "user", "content": "my secret"}]
    for text in ("{{ messages[0].content | int + 'a' }}", "{{ 1 + messages[0].content }}"):
        with pytest.raises(ChatTemplateError) as caught:
            ChatTemplate({"default": text}).render(secret)
        assert "secret" not in str(caught.value)


# What is asked for, what the model has, what is chosen.
MANY = {"default": "{D}", "tool_use": "{T}", "rag": "{R}"}


@pytest.mark.parametrize(
    ("templates", "asked", "tools", "chosen"),
    [
        (MANY, None, False, "{D}"),
        (MANY, None, True, "{T}"),
        (MANY, "rag", True, "{R}"),
        (MANY, "{{ x }}", True, "{{ x }}"),
        ({"default": "{D}"}, None, True, "{D}"),
        ({"default": "{D}"}, "{{ x }}", False, "{{ x }}"),
        ({"tool_use": "{T}", "rag": "{R}"}, None, True, "{T}"),
        ({}, "{{ x }}", False, "{{ x }}"),
    ],
)
def test_choice(templates, asked, tools, chosen):
    assert ChatTemplate(templates).choose(asked, with_tools=tools) == chosen


@pytest.mark.parametrize(
    ("templates", "asked", "match"),
    [
        ({"tool_use": "{T}", "rag": "{R}"}, None, "no default"),
        (MANY, "ragg", "has the name 'ragg'"),
        ({}, None, "no chat template"),
    ],
)
def test_no_choice(templates, asked, match):
    with pytest.raises(ChatTemplateError, match=match):
        ChatTemplate(templates).choose(asked)


def write(folder, name, content):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


NAMED = [{"name": "default", "template": "config"}, {"name": "x", "template": "x of config"}]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"tokenizer_config.json": {"chat_template": None}}, None),
        ({"tokenizer_config.json": {"chat_template": "config"}}, {"default": "config"}),
        (
            {"tokenizer_config.json": {"chat_template": NAMED}},
            {"default": "config", "x": "x of config"},
        ),
        (
            {"tokenizer_config.json": {"chat_template": NAMED}, "chat_template.jinja": "file"},
            {"default": "file"},
        ),
        (
            {
                "tokenizer_config.json": {"chat_template": NAMED},
                "chat_template.jinja": "file",
                "additional_chat_templates/tool_use.jinja": "tools",
            },
            {"default": "file", "tool_use": "tools"},
        ),
        (
            {
                "tokenizer_config.json": {"chat_template": NAMED},
                "additional_chat_templates/rag.jinja": "rag",
            },
            {"rag": "rag"},
        ),
        # chat_template.json belongs to processors, which tokenizers do not read
        (
            {
                "tokenizer_config.json": {"chat_template": "config"},
                "chat_template.json": {"chat_template": "processor"},
            },
            {"default": "config"},
        ),
        (
            {
                "tokenizer_config.json": {"chat_template": "config"},
                "chat_template.json": {"chat_template": "processor"},
                "preprocessor_config.json": {},
            },
            {"default": "processor"},
        ),
        (
            {
                "chat_template.json": {"chat_template": "processor"},
                "processor_config.json": {},
                "chat_template.jinja": "file",
            },
            {"default": "file"},
        ),
    ],
)
def test_where_templates_come_from(tmp_path, files, expected):
    for name, content in files.items():
        write(tmp_path, name, content)
    found = ChatTemplate.from_files(model_files(tmp_path))
    assert (found and found.templates) == expected


@pytest.mark.parametrize("stored", [3, [3], [{"name": "x"}], {"x": 1}, ["text"]])
def test_stored_in_a_wrong_form(tmp_path, stored):
    write(tmp_path, "tokenizer_config.json", {"chat_template": stored})
    with pytest.raises(ChatTemplateError, match="not stored as one"):
        ChatTemplate.from_files(model_files(tmp_path))


def test_model_without_template():
    with pytest.raises(ChatTemplateError, match="no chat template"):
        load("gpt2").apply_chat_template(HELLO)


def test_template_of_a_folder(tmp_path):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((FIXTURES / "tokenizers" / "llama" / name).read_bytes())
    write(tmp_path, "chat_template.jinja", "{{ bos_token }}{{ messages[0].content }}\n")
    tokenizer = Tokenizer.from_files(model_files(tmp_path))
    assert tokenizer.apply_chat_template(HELLO) == "<s>Hello"
    assert tokenizer.apply_chat_template(HELLO, bos_token="[B]") == "[B]Hello"


class Role(enum.StrEnum):
    USER = "user"


class Text(str):
    __slots__ = ()

    def upper(self):
        raise AssertionError("a method of the caller's type was called")


def test_only_plain_values_reach_a_template():
    text = ChatTemplate({"default": "{{ messages[0].content.upper() }}{{ messages[0].role }}"})
    assert text.render([{"role": Role.USER, "content": Text("hi")}]) == "HIuser"
    numbers = {"role": "user", "n": np.float64(0.5), "t": (1, True)}
    assert ChatTemplate({"default": "{{ messages[0] }}"}).render([numbers]) == (
        "{'role': 'user', 'n': 0.5, 't': [1, True]}"
    )


class Duck:
    messages = HELLO
    role = content = "x"


cycle: list = []
cycle.append(cycle)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        "Hello",
        None,
        {"role": "user", "content": "x"},
        ["Hello"],
        [HELLO],
        [Duck()],
        Duck(),
        [{"role": "user", "content": Duck()}],
        [{"role": "user", "content": np.zeros(2)}],
        [{"role": "user", "content": np.int64(2)}],
        [{"role": "user", "content": b"x"}],
        [{"role": "user", "content": {1, 2}}],
        [{"role": "user", "content": {1: 2}}],
        [{"role": "user", "content": cycle}],
        [{"role": "user", "content": len}],
    ],
)
def test_messages_that_are_no_plain_data(messages):
    with pytest.raises(OptionError):
        ChatTemplate({"default": "{{ messages }}"}).render(messages)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"add_generation_prompt": True, "continue_final_message": True}, "exclude each other"),
        ({"tools": [{"type": "function"}]}, "no use of tools"),
        ({"documents": [{"text": "x"}]}, "no use of documents"),
        ({"tools": [3]}, "a tool is a int"),
        ({"tools": [len]}, "a tool is a builtin"),
        ({"documents": ["x"]}, "no list of dicts"),
        ({"variables": {"enable_thinkin": True}}, "did you mean 'enable_thinking'"),
        ({"variables": {"unheard_of": True}}, "no option 'unheard_of'"),
        ({"variables": {"enable_thinking": Duck()}}, "holds a Duck"),
    ],
)
def test_arguments_that_have_no_effect(arguments, match):
    template = ChatTemplate({"default": "{{ messages }}{% if enable_thinking %}{% endif %}"})
    with pytest.raises(OptionError, match=match):
        template.render(HELLO, **arguments)


def test_arguments_that_are_empty():
    template = ChatTemplate({"default": "{{ messages[0].content }}"})
    assert template.render(HELLO, tools=[], documents=[]) == "Hello"


@pytest.mark.parametrize("content", [None, 3, [], [{"type": "image"}], [{"text": 3}]])
def test_nothing_to_continue(content):
    with pytest.raises(ChatTemplateError, match="no text to continue"):
        ChatTemplate({"default": "{{ messages }}"}).render(
            [{"role": "assistant", "content": content}], continue_final_message=True
        )
