"""The command line: which commands there are, and usage errors that help.

Imports nothing but the standard library, so that ``--help`` answers at once.
"""

import argparse
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from onnxgen import __version__
from onnxgen.cli import bench, caption, chat, download, generate, inspect, optimize, transcribe

COMMANDS = (generate, chat, transcribe, caption, inspect, bench, optimize, download)

EPILOG = """\
MODEL is a folder, an .onnx file or a Hub repository owner/name, each with an optional :dtype
(fp32, fp16, q8, q4, q4f16, ...).

examples:
  onnxgen generate ./my-export "The capital of France is" --max-new-tokens 20
  onnxgen chat onnx-community/Qwen3-0.6B-ONNX:q4
  onnxgen transcribe onnx-community/whisper-base interview.mp3
  onnxgen caption Xenova/vit-gpt2-image-captioning photo.jpg
  onnxgen inspect ./my-export
  onnxgen COMMAND --help
"""


class Parser(argparse.ArgumentParser):
    """A parser that takes no abbreviations and keeps the line breaks of its texts."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def option_strings(self) -> list[str]:
        """Every spelling of every option."""
        return [text for action in self._actions for text in action.option_strings]

    def refuse(self, extras: Sequence[str]) -> NoReturn:
        """Ends with a usage error about arguments that this command does not take."""
        unknown = [extra.partition("=")[0] for extra in extras if extra.startswith("-")]
        if not unknown:
            self.error(f"one argument too many: {extras[0]!r} (quote a text that has spaces)")
        name = unknown[0]
        near = get_close_matches(name, self.option_strings(), n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}?" if near else f"see {self.prog} --help"
        self.error(f"there is no option {name}; {self._by_key(name) or hint}")

    def _by_key(self, name: str) -> str:
        """How to give an option of a generation that has no name of its own here."""
        from onnxgen.generation.config import OPTIONS

        key = name.lstrip("-").replace("-", "_")
        takes_keys = any(action.dest == "options" for action in self._actions)
        return f"write -o {key}=VALUE" if takes_keys and key in OPTIONS else ""


def build() -> tuple[Parser, dict[str, Parser]]:
    """The parser of the program, and those of its commands by name."""
    parser = Parser(
        prog="onnxgen",
        description="Generate with exported ONNX models: the graph says how.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"onnxgen {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands)
    return parser, commands.choices


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The options of the command that ``argv`` calls; ``run`` among them carries it out.

    SystemExit after help (0) or a usage error (2), both printed.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    parser, commands = build()
    if not words or words[0] in parser.option_strings():
        return parser.parse_args(words)
    if words[0].startswith("-"):
        if behind := [word for word in words if word in commands]:
            parser.error(f"options stand behind the command: onnxgen {behind[0]} ... {words[0]}")
        parser.refuse(words[:1])
    if words[0] not in commands:
        near = get_close_matches(words[0], commands, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(commands)}"
        parser.error(f"there is no command {words[0]!r}; {hint}")
    # Not by way of the parser of the program: it would take an optional argument for absent when
    # options stand before it.
    command = commands[words[0]]
    args, extras = command.parse_known_intermixed_args(words[1:])
    if extras:
        command.refuse(extras)
    return args
