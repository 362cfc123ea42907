"""Options that several commands share, and what they become in a call of the library."""

import argparse
import json
from typing import TYPE_CHECKING, Any

from onnxgen.cli import output
from onnxgen.errors import OptionError

if TYPE_CHECKING:
    from onnxgen.tasks.text_generation import TextGeneration

Commands = Any  # what ArgumentParser.add_subparsers returns has no public type


def add_model(parser: argparse.ArgumentParser) -> None:
    """MODEL, and how to get its files."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a folder, an .onnx file or a Hub repository owner/name, with an optional :dtype",
    )
    group = parser.add_argument_group("the model's files")
    group.add_argument(
        "--dtype",
        type=_dtype,
        metavar="NAME",
        help="fp32, fp16, q8, q4, q4f16, ...; or one for each graph: decoder=q4,embed_tokens=fp16",
    )
    group.add_argument("--revision", metavar="NAME", help="branch, tag or commit of a repository")
    group.add_argument(
        "--token", help="for private repositories; otherwise HF_TOKEN or the saved one is used"
    )
    group.add_argument(
        "--offline",
        action="store_true",
        default=None,
        help="use cached files, ask for nothing over the network",
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """How to run and what to generate."""
    group = parser.add_argument_group("running")
    group.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (default: cpu)")
    group.add_argument(
        "--threads", type=int, metavar="N", help="threads within an operator (default: all cores)"
    )
    group = parser.add_argument_group("generation")
    group.add_argument(
        "--max-new-tokens", type=int, metavar="N", help="end an answer after N tokens"
    )
    group.add_argument(
        "-o",
        "--option",
        dest="options",
        action="append",
        default=[],
        type=_assignment,
        metavar="KEY=VALUE",
        help="any option of transformers' GenerationConfig, the value in JSON or as bare text; "
        "may be repeated",
    )
    group = parser.add_argument_group("output")
    group.add_argument(
        "--no-stream", action="store_true", help="print an answer when it is complete"
    )
    group.add_argument(
        "--json", action="store_true", help="print one JSON object for each answer, nothing else"
    )
    group.add_argument(
        "--stats", action="store_true", help="speed and memory on stderr, one line for each run"
    )


def _dtype(text: str) -> str | dict[str, str]:
    """``q4``, or a map written ``decoder=q4,embed_tokens=fp16``."""
    if "=" not in text:
        return text
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(name and equals and dtype for name, equals, dtype in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=DTYPE,NAME=DTYPE")
    return {name: dtype for name, _, dtype in pairs}


def _assignment(text: str) -> tuple[str, Any]:
    """``KEY=VALUE``; a value that is no JSON is a text."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def model_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """The keywords with which the library finds the model's files."""
    return {name: getattr(args, name) for name in ("dtype", "revision", "token", "offline")}


def generation_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """The keywords of a generation. OptionError before anything slow is begun."""
    from onnxgen.generation.config import merge

    given = list(args.options)
    if args.max_new_tokens is not None:
        given.append(("max_new_tokens", args.max_new_tokens))
    keywords = dict(given)
    if len(keywords) < len(given):
        names = [name for name, _ in given]
        twice = next(name for name in names if names.count(name) > 1)
        raise OptionError(f"{twice} is given twice", do="give it once")
    merge({}, None, keywords)
    return keywords


def load(args: argparse.Namespace) -> "TextGeneration":
    """The model, with a word on stderr if that takes long."""
    import onnxgen

    with output.waiting(f"loading {args.model}"):
        model = onnxgen.load(
            args.model, device=args.device, threads=args.threads, **model_arguments(args)
        )
    if model.files.chosen:
        output.note(f"onnxgen: {model.files.chosen}")
    return model
