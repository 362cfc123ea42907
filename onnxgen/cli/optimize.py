"""``onnxgen optimize``: writes a model's graphs as they run here."""

import argparse
from pathlib import Path

from onnxgen.cli import options, output

EPILOG = """\
Loading rewrites graphs in memory each time; the folder that this writes has them rewritten, for
other programs too. Weights are copied.

examples:
  onnxgen optimize ./my-export ./my-export-fast
  onnxgen optimize owner/name:q4 ./fast --accuracy-level 4
"""


def add_parser(commands: options.Commands) -> None:
    """Adds this command to the program."""
    parser = commands.add_parser(
        "optimize",
        usage="%(prog)s MODEL OUT [options]",
        help="write a model with its graphs rewritten",
        description="Writes a model to a new folder, its graphs rewritten to run faster.",
        epilog=EPILOG,
    )
    options.add_model(parser)
    parser.add_argument("out", metavar="OUT", type=Path, help="the folder to write, new or empty")
    parser.add_argument(
        "--accuracy-level",
        type=int,
        choices=[4],
        metavar="N",
        help="4: products with weights of 4 or 8 bits round their activations to 8 bits",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carries the command out."""
    from onnxgen.files import resolve
    from onnxgen.runtime.session import Engine
    from onnxgen.tasks.optimizing import optimize

    files = resolve(args.model, **options.model_arguments(args))
    with output.waiting(f"rewriting {args.model}"):
        told = optimize(files, args.out, Engine(rounds=args.accuracy_level == 4))
    width = max(map(len, told))
    for name, about in told.items():
        output.line(f"{name:{width}}  {about or 'as it came'}")
    return 0
