"""The command line itself: help, usage errors, and that neither imports anything heavy."""

import resource

import pytest

from onnxgen import __version__
from onnxgen.cli import main
from tests.cli.running import python

COMMANDS = ["generate", "chat", "transcribe", "caption", "inspect", "download"]
HEAVY = ["numpy", "onnx", "onnxruntime", "tokenizers", "huggingface_hub", "jinja2", "tqdm"]


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["generate", "--help"], ["bogus"]])
def test_help_imports_nothing_heavy(words):
    code = f"""
import sys
from onnxgen.cli import main
main({words})
print(sorted(set({HEAVY}) & set(sys.modules)), file=sys.stderr)
"""
    _, _, err = python(code)
    assert err.splitlines()[-1] == "[]"


def test_help_is_quick():
    def seconds():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        code, out, _ = python("from onnxgen.cli import main; main(['--help'])")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert (code, "generate" in out) == (0, True)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(3)) < 0.3


def test_help_shows_every_command_and_examples(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for word in (*COMMANDS, "examples:", "owner/name"):
        assert word in out


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_examples(command, capsys):
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: onnxgen {command} MODEL")
    assert f"  onnxgen {command} " in out or f"| onnxgen {command} " in out


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"onnxgen {__version__}\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "COMMAND"),
        (["generte", "m"], "did you mean generate?"),
        (
            ["xyzzy"],
            "there are generate, chat, transcribe, caption, inspect, bench, optimize, download",
        ),
        (["generate"], "MODEL"),
        (["generate", "m", "p", "--max-new-token", "3"], "did you mean --max-new-tokens?"),
        (["generate", "m", "p", "--max-new-token=3"], "did you mean --max-new-tokens?"),
        (["generate", "m", "p", "--max-new", "3"], "there is no option --max-new"),
        (["generate", "m", "p", "--tmperature", "3"], "did you mean --temperature?"),
        (["inspect", "m", "--temperature", "3"], "see onnxgen inspect --help"),
        (["generate", "m", "two", "words"], "one argument too many: 'words'"),
        (["generate", "m", "p", "--threads", "many"], "invalid int value: 'many'"),
        (["generate", "m", "p", "-o", "top_k"], "'top_k' is not KEY=VALUE"),
        (["generate", "m", "p", "--dtype", "decoder=,x=q4"], "is not NAME=DTYPE"),
        (["--hlp"], "did you mean --help?"),
        (["--json", "inspect", "m"], "onnxgen inspect ... --json"),
    ],
)
def test_usage_errors_help(words, says, capsys):
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err.splitlines()[-1]
    assert err.startswith("usage: onnxgen")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-o", "max_new_token=3"], "did you mean 'max_new_tokens'?"),
        (["-o", "max_new_tokens=0"], "max_new_tokens is 0"),
        (["--max-new-tokens", "0"], "max_new_tokens is 0"),
        (["--max-new-tokens", "3", "-o", "max_new_tokens=3"], "max_new_tokens is given twice"),
        (["-o", "eos_token_id=[1,-2]"], "eos_token_id is [1, -2]"),
        (["-o", "eos_token_id=two"], "eos_token_id is 'two'"),
        (["-f", "prompts.txt"], "both PROMPT and --file"),
    ],
)
def test_options_are_checked_before_the_model_is_looked_for(words, says, capsys):
    assert main(["generate", "no-such-model", "p", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("onnxgen: error: ")
    assert says in err


def test_the_command_line_has_every_option_of_the_library():
    from onnxgen.cli import options
    from onnxgen.generation.config import OPTIONS

    listed = ["do_sample", *options.SWITCHES, *options.VALUES]
    assert len(listed) == len(set(listed))
    assert set(listed) == OPTIONS
