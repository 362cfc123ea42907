"""``onnxgen bench``: how fast a text model is on this machine."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxgen.cli import answers, options, output
from onnxgen.errors import MissingPackageError, OptionError

if TYPE_CHECKING:
    from onnxgen.tasks.benching import Speed

EPILOG = """\
Prompts are random tokens, the same in each run; decoding is greedy and ends at no stop token. Each
line has medians. Speeds are tokens a second of all rows together.

examples:
  onnxgen bench ./my-export
  onnxgen bench ./my-export --prompt-tokens 128 1000 4000 --rows 1 8 --threads 2
  onnxgen bench ./my-export --json > speeds.jsonl
  onnxgen bench ./my-export --plot speeds.png       # pip install 'onnxgen[plot]'
"""
HEAD = ("prompt", "rows", "first token", "prompt tok/s", "decode tok/s", "p50", "p90", "p99 ms")


def add_parser(commands: options.Commands) -> None:
    """Adds this command to the program."""
    parser = commands.add_parser(
        "bench",
        usage="%(prog)s MODEL [options]",
        help="measure how fast a text model is",
        description="Measures first-token time and decoding speed of a text model.",
        epilog=EPILOG,
    )
    options.add_model(parser)
    parser.add_argument(
        "--prompt-tokens", type=int, nargs="+", default=[128, 1000], metavar="N",
        help="lengths of prompts (default: 128 1000)",
    )  # fmt: skip
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[1], metavar="N",
        help="how many prompts run together (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--new-tokens", type=int, default=64, metavar="N", help="of each answer (default: 64)"
    )
    parser.add_argument(
        "--repeats", type=int, default=3, metavar="N", help="runs after a first (default: 3)"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw a picture, .png or .svg")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options.add_running(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carries the command out."""
    from onnxgen.tasks.benching import measure

    if args.plot is not None:
        _pyplot()
    model = options.load(args)
    if not hasattr(model, "score") or hasattr(model, "vision"):
        raise OptionError(f"{args.model} is no text model", wanted="a decoder of text alone")
    if not args.json:
        output.line("  ".join(f"{title:>12}" for title in HEAD))
    found = []
    for speed in measure(model, args.prompt_tokens, args.rows, args.new_tokens, args.repeats):
        found.append(speed)
        output.json_line(asdict(speed)) if args.json else output.line(_row(speed))
    peak = answers.peak_memory()
    if args.json:
        output.json_line({"model": args.model, "peak_memory_bytes": peak})
    elif peak:
        output.line(f"peak memory {output.size(peak)}")
    if args.plot is not None:
        _draw(found, args.plot, args.model)
    return 0


def _row(speed: "Speed") -> str:
    cells = [str(speed.prompt_tokens), str(speed.rows), f"{speed.first_token_ms:.1f} ms",
             f"{speed.prompt_speed:.1f}", f"{speed.decode_speed:.1f}",
             *(f"{step:.2f}" for step in speed.step_ms)]  # fmt: skip
    return "  ".join(f"{cell:>12}" for cell in cells)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise MissingPackageError(
            "matplotlib is not installed", wanted="it, for --plot", do="pip install 'onnxgen[plot]'"
        ) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _draw(found: "list[Speed]", path: Path, title: str) -> None:
    """Decoding speed over the context, and the first token's time over the prompt."""
    from onnxgen.files.whole import whole

    pyplot = _pyplot()
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for rows in dict.fromkeys(speed.rows for speed in found):
        own = sorted((s for s in found if s.rows == rows), key=lambda s: s.prompt_tokens)
        lengths = [speed.prompt_tokens for speed in own]
        label = f"{rows} row{'s' * (rows > 1)}"
        left.plot(lengths, [speed.decode_speed for speed in own], marker="o", label=label)
        right.plot(lengths, [speed.first_token_ms for speed in own], marker="o", label=label)
    left.set(xlabel="tokens in the prompt", ylabel="decoded tokens a second", ylim=(0, None))
    right.set(xlabel="tokens in the prompt", ylabel="first token, ms", ylim=(0, None))
    left.legend()
    figure.suptitle(title)
    try:
        with whole(path) as part:
            figure.savefig(part, format=path.suffix[1:] or None)
    except (OSError, ValueError) as error:
        raise OptionError(
            f"{path} cannot be written: {error}", wanted=".png, .svg or .pdf"
        ) from error
    finally:
        pyplot.close(figure)
