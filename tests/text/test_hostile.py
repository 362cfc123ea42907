"""Crafted tokenizers and templates end in our errors, and the process goes on."""

import json
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest

from onnxgen.errors import ChatTemplateError, ModelFileError, OnnxgenError, TokenizerError
from onnxgen.text import budget, rendering
from onnxgen.text.chat_template import ChatTemplate
from onnxgen.text.stream import TextStream
from onnxgen.text.tokenizer import Tokenizer
from tests.text.goldens import load, model_files

HELLO = [{"role": "user", "content": "Hello"}]
BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
UNIGRAM = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]}
SEQUENCE_A = {"Sequence": {"id": "A", "type_id": 0}}
SEQUENCE_B = {"Sequence": {"id": "B", "type_id": 0}}


def write(folder: Path, model: dict, **parts: object) -> Path:
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model} | parts))
    return folder


def template(*single: dict) -> dict:
    pair = [SEQUENCE_A, SEQUENCE_B]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": {}}


# Each makes tokenizers 0.22 or 0.23 panic, which is no Exception, at the step named.
PANICS = {
    "a normalizer's table is cut off": (
        "load",
        UNIGRAM,
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
    ),
    "a normalizer's table is empty": (
        "load",
        UNIGRAM,
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}},
    ),
    "a special token has no id": (
        "encode",
        BPE,
        {"post_processor": template({"SpecialToken": {"id": "X", "type_id": 0}}, SEQUENCE_A)},
    ),
    "a single text is the second": ("encode", BPE, {"post_processor": template(SEQUENCE_B)}),
    "pieces of no length": ("encode", BPE, {"pre_tokenizer": {"type": "FixedLength", "length": 0}}),
    "more is stripped than there is": (
        "decode",
        BPE,
        {"decoder": {"type": "Strip", "content": "a", "start": 5, "stop": 5}},
    ),
    "both ends are the same character": (
        "decode",
        BPE,
        {"decoder": {"type": "Strip", "content": "a", "start": 1, "stop": 1}},
    ),
}


def use(folder: Path) -> None:
    tokenizer = Tokenizer.from_files(model_files(folder))
    tokenizer.encode("ab")
    tokenizer.decode([0])


@pytest.mark.parametrize("name", PANICS)
def test_panics_are_our_errors(tmp_path, name):
    step, model, parts = PANICS[name]
    folder = write(tmp_path, model, **parts)
    with pytest.raises(TokenizerError, match=rf"failed to {step} .*PanicException"):
        use(folder)
    results = []
    thread = threading.Thread(target=lambda: results.append(load("gpt2").encode("Hi")))
    thread.start()
    thread.join()
    assert results == [load("gpt2").encode("Hi")]


def test_a_panic_while_streaming(tmp_path):
    """Strip alone is decoded token by token by the library itself."""
    _, model, parts = PANICS["both ends are the same character"]
    stream = TextStream(Tokenizer.from_files(model_files(write(tmp_path, model, **parts))))
    assert stream.push(1) == "b"
    with pytest.raises(TokenizerError, match="failed to decode"):
        stream.push(0)


@pytest.mark.parametrize(
    "parts",
    [
        {
            "truncation": {
                "direction": "Right",
                "max_length": 1,
                "strategy": "LongestFirst",
                "stride": 5,
            }
        },
        {
            "padding": {
                "strategy": {"Fixed": 10**15},
                "direction": "Right",
                "pad_to_multiple_of": 0,
                "pad_id": 0,
                "pad_type_id": 0,
                "pad_token": "<pad>",
            }
        },
    ],
    ids=["truncation", "padding"],
)
def test_what_is_cleared_does_no_harm(tmp_path, parts):
    tokenizer = Tokenizer.from_files(model_files(write(tmp_path, BPE, **parts)))
    assert tokenizer.encode("abab") == [2, 2]


# tokenizers 0.23 aborts the whole process on the first of these, so each has one of its own.
PREFIXES = {
    "inside a character": {"prefix": "x", "vocab": {"a": 0, "é": 1, "aé": 2}, "merges": ["a é"]},
    "beyond the token": {"prefix": "######", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
    "merges as lists": {"prefix": "x", "vocab": {"a": 0, "é": 1, "aé": 2}, "merges": [["a", "é"]]},
}


@pytest.mark.parametrize("escaped", [False, True])
@pytest.mark.parametrize("name", PREFIXES)
def test_merges_without_their_prefix(tmp_path, name, escaped):
    model = {"type": "BPE", **PREFIXES[name]}
    text = json.dumps({"version": "1.0", "model": model})
    key = r"\u0063ontinuing_subword_prefix" if escaped else "continuing_subword_prefix"
    (tmp_path / "tokenizer.json").write_text(text.replace('"prefix"', f'"{key}"'))
    program = (
        "from tests.text.goldens import *; from onnxgen.errors import *; import sys\n"
        "try: Tokenizer.from_files(model_files(Path(sys.argv[1])))\n"
        "except TokenizerError as error: sys.exit(0 if 'merges' in str(error) else 2)\n"
        "sys.exit(1)"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=root, check=False)
    assert done.returncode == 0


def test_merges_with_their_prefix(tmp_path):
    model = {
        "type": "BPE",
        "continuing_subword_prefix": "##",
        "vocab": {"a": 0, "##b": 1, "ab": 2},
        "merges": ["a ##b"],
    }
    assert Tokenizer.from_files(model_files(write(tmp_path, model))).encode("ab") == [2]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "{}", '{"model": 3}', '{"model": {}}', "\0", "[" * 100_000, "{" * 10],
    ids=range(10),
)
def test_files_that_are_no_tokenizer(tmp_path, text):
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(TokenizerError, match="failed to load"):
        Tokenizer.from_files(model_files(tmp_path))


@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("text", ["", "[", "[]", "3", "[" * 100_000])
def test_configurations_that_are_none(tmp_path, name, text):
    write(tmp_path, BPE)
    (tmp_path / name).write_text(text)
    with pytest.raises((ModelFileError, TokenizerError)):
        Tokenizer.from_files(model_files(tmp_path))


def rendered(text: str, **variables: object) -> str:
    return ChatTemplate({"default": text}).render(HELLO, variables=variables)


ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.__class__ }}",
    "{{ ''['__class__'] }}",
    "{{ '' | attr('__class__') | attr('__mro__') }}",
    "{{ messages | map(attribute='__class__') | list }}",
    "{{ [''] | map('attr', '__class__') | list }}",
    "{{ '{0.__class__}'.format('') }}",
    "{{ '{0.__class__}' | format('') }}{{ 1 / 0 }}",
    "{% set f = '{0.__class__.__mro__}'.format %}{{ f(0) }}",
    "{{ ['{0.__class__}'.format] | map('call') | list }}",
    "{{ '{x.__class__}'.format_map({'x': 1}) }}",
    "{% set m = ['{0.__class__}'.format][0] %}{{ m('') }}",
    "{{ raise_exception.__globals__ }}",
    "{{ strftime_now.__globals__['__builtins__'] }}",
    "{{ strftime_now.__code__.co_consts }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ joiner.__init__.__globals__ }}",
    "{{ dict.__base__ }}",
    "{{ range.__class__ }}",
    "{{ self.__init__.__globals__ }}",
    "{{ self._TemplateReference__context }}",
    "{% set n = namespace() %}{{ n.__class__ }}",
    "{% set n = namespace(x=1) %}{{ n._Namespace__attrs }}",
    "{% macro f() %}{% endmacro %}{{ f._func.__globals__ }}",
    "{% macro f() %}{% endmacro %}{{ f.__call__.__globals__ }}",
    "{% for m in messages %}{{ loop.__init__.__globals__ }}{% endfor %}",
    "{% for m in messages %}{{ loop._iterator.gi_frame }}{% endfor %}",
    "{{ (messages | map('upper')).gi_frame.f_globals }}",
    "{{ lipsum.__globals__ }}",
    "{{ messages.append(1) }}",
    "{{ messages.clear() }}",
    "{{ messages[0].update({'role': 'x'}) }}",
    "{{ messages[0].pop('role') }}",
    "{% do messages.append(1) %}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{% extends 'x' %}",
]


@pytest.mark.parametrize("text", ESCAPES)
def test_templates_cannot_leave_the_sandbox(text):
    """Each is refused, or finds nothing: what is underscored counts as undefined."""
    try:
        output = rendered(text)
    except ChatTemplateError:
        return
    assert output in ("", "[Undefined]")


def test_blocked_attributes_are_undefined():
    assert rendered("{% set n = namespace(a=1) %}{{ n._Namespace__attrs is defined }}") == "False"
    assert rendered("{{ lipsum is defined }}{{ range is defined }}") == "FalseTrue"


LOOP = "{% for i in range(60) %}"
LONG = {
    "nested loops": (
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    ),
    "nested loops by length": (
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ loop.length }}{{ loop.last }}"
        "{% endfor %}{% endfor %}"
    ),
    "loops in a macro": (
        "{% macro f(n) %}{% for a in range(10) %}{{ f(n - 1) if n }}{% endfor %}{% endmacro %}"
        "{{ f(20) }}"
    ),
    "recursive loop": (
        "{% set n = namespace(l=[]) %}" + LOOP + "{% set n.l = [n.l, n.l] %}{% endfor %}"
        "{% for a in n.l recursive %}{{ loop(a) }}{% endfor %}"
    ),
    "joined iterator": (
        "{% set s = 'a' * 10**6 %}{{ range(99999) | map('replace', '', s) | map('string') | join }}"
    ),
    "many calls": "{% for i in range(99999) %}{{ range(99999) | list | length }}{% endfor %}",
}
LARGE = {
    "multiplied text": "{{ 'a' * 10**8 }}",
    "multiplied text, turned": "{{ 10**8 * 'a' }}",
    "multiplied list": "{{ ([0] * 10**8) | length }}",
    "multiplied constants": "{{ 'a' * 100000000 }}",
    "doubled by ~": (
        "{% set n = namespace(s='a') %}" + LOOP + "{% set n.s = n.s ~ n.s %}{% endfor %}"
    ),
    "doubled by +": (
        "{% set n = namespace(s='a') %}" + LOOP + "{% set n.s = n.s + n.s %}{% endfor %}"
    ),
    "doubled list": (
        "{% set n = namespace(s=[1]) %}" + LOOP + "{% set n.s = n.s + n.s %}{% endfor %}"
    ),
    "doubled by blocks": (
        "{% set n = namespace(s='a') %}{% for i in range(60) %}"
        "{% set t %}{{ n.s }}{{ n.s }}{% endset %}{% set n.s = t %}{% endfor %}"
    ),
    "doubled by a macro": (
        "{% macro d(s) %}{{ s }}{{ s }}{% endmacro %}{% set n = namespace(s='a') %}"
        "{% for i in range(60) %}{% set n.s = d(n.s) %}{% endfor %}"
    ),
    "doubled by join": (
        "{% set n = namespace(s='a') %}{% for i in range(60) %}"
        "{% set n.s = [n.s, n.s] | join %}{% endfor %}"
    ),
    "joined references": "{% set s = 'a' * 10**6 %}{{ ''.join([s] * 10**5) }}",
    "joined by much": "{{ range(99999) | join('a' * 10**6) }}",
    "replaced by much": "{{ ('a' * 10**6).replace('a', 'b' * 10**6) }}",
    "replaced by a filter": "{{ ('a' * 10**6) | replace('a', 'b' * 10**6) }}",
    "replaced nothing": "{{ ('a' * 10**6).replace('', 'b' * 10**6) }}",
    "translated": "{{ ('a' * 10**6).translate({97: 'b' * 10**6}) }}",
    "padded by a filter": "{{ 'a' | center(10**10) }}",
    "padded": "{{ 'a'.ljust(10**10) }}",
    "padded by name": "{{ 'a' | center(width=10**10) }}",
    "zeros": "{{ '1'.zfill(10**10) }}",
    "tabs": "{{ '\t'.expandtabs(10**10) }}",
    "indented": "{{ ('\n' * 10**6) | indent(10**6) }}",
    "indented by text": "{{ ('\n' * 10**6) | indent('x' * 10**6) }}",
    "wrapped": "{{ ('a' * 10**6) | wordwrap(1, wrapstring='b' * 10**6) }}",
    "indented JSON": "{{ [[1]] | tojson(indent=10**9) }}",
    "format": "{{ '{:1000000000}'.format(1) }}",
    "format nested": "{{ '{:{}}'.format(1, 10**10) }}",
    "format map": "{{ '{x:10000000000}'.format_map({'x': 1}) }}",
    "percent": "{{ '%1000000000d' % 1 }}",
    "percent star": "{{ '%*d' % (10**10, 1) }}",
    "format filter": "{{ '%1000000000d' | format(1) }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "product": ("{% set n = namespace(x=3) %}" + LOOP + "{% set n.x = n.x * n.x %}{% endfor %}"),
    "batch": "{{ [1] | batch(10**10, 0) | list }}",
    "slice": "{{ [1] | slice(10**10) | list }}",
    "much output": "{% set s = 'a' * 10**6 %}{% for i in range(99) %}{{ s }}{% endfor %}",
}


@pytest.mark.parametrize("name", LONG)
def test_long_work_ends(name, monkeypatch):
    monkeypatch.setattr(budget, "MAX_STEPS", 50_000)
    monkeypatch.setattr(budget, "MAX_SECONDS", 0.5)
    with pytest.raises(
        ChatTemplateError, match=r"takes too much in line 1: more than .* (s|bytes)"
    ):
        rendered(LONG[name])


@pytest.mark.parametrize("name", LARGE)
def test_large_values_are_not_made(name):
    tracemalloc.start()
    with pytest.raises(ChatTemplateError, match=r"characters or items|huge number|indent"):
        rendered(LARGE[name])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * budget.MAX_CHARS


@pytest.mark.parametrize(
    "text",
    [
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{{ range(10**9) | list }}",
    ],
)
def test_what_python_and_jinja_bound_themselves(text):
    with pytest.raises(ChatTemplateError, match=r"RecursionError|OverflowError"):
        rendered(text)


def test_real_limits_leave_room():
    """A long chat with much text in it stays far below the limits."""
    messages = [{"role": "user", "content": "word " * 200}] * 1000
    words = "{% for word in m.content.split() %}{{ word ~ ' ' }}{% endfor %}"
    text = "{% for m in messages %}" + words + "{% endfor %}"
    assert len(ChatTemplate({"default": text}).render(messages)) == 1000 * 1000


def test_a_template_that_is_too_long():
    text = "x" * (rendering.MAX_TEMPLATE_CHARS + 1) + "{{ messages }}"
    with pytest.raises(ChatTemplateError, match="characters"):
        rendered(text)


def test_deep_nesting():
    for text in ("(" * 5000 + ")" * 5000, "[" * 5000, "{% if 1 %}" * 3000):
        with pytest.raises(ChatTemplateError):
            rendered("{{ messages" + text + " }}")


def test_budget_is_per_rendering_and_thread(monkeypatch):
    monkeypatch.setattr(budget, "MAX_STEPS", 5000)
    loop = "{% for a in range(3000) %}{% endfor %}done"
    failures = []

    def run():
        try:
            for _ in range(20):
                assert rendered(loop) == "done"
        except (AssertionError, OnnxgenError) as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
