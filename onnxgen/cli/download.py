"""``onnxgen download``: brings a model's files to this disk and lists them."""

import argparse

from onnxgen.cli import options, output

EPILOG = """\
Only the files of one dtype are downloaded, into the cache that all clients of the Hub share
(HF_HOME moves it). Files that are there already are not asked for again.

examples:
  onnxgen download onnx-community/Qwen3-0.6B-ONNX:q4
  onnxgen download onnx-community/Qwen3-0.6B-ONNX --revision main --json
"""


def add_parser(commands: options.Commands) -> None:
    """Adds this command to the program."""
    parser = commands.add_parser(
        "download",
        usage="%(prog)s MODEL [options]",
        help="fetch a model's files and list them",
        description="Fetches the files of a model and lists them: the folder, then each file.",
        epilog=EPILOG,
    )
    options.add_model(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carries the command out."""
    from onnxgen.files import resolve

    files = resolve(args.model, **options.model_arguments(args))
    sizes = {
        path.relative_to(files.folder).as_posix(): path.stat().st_size for path in files.files()
    }
    if args.json:
        output.json_line(
            {
                "model": files.source,
                "folder": str(files.folder),
                "layout": files.layout,
                "dtypes": dict(files.dtypes),
                "dtype_reason": files.chosen,
                "files": [{"name": name, "bytes": size} for name, size in sizes.items()],
                "bytes": sum(sizes.values()),
            }
        )
        return 0
    if files.chosen:
        output.note(f"onnxgen: {files.chosen}")
    output.line(str(files.folder))
    width = max(map(len, sizes))
    for name, size in sizes.items():
        output.line(f"  {name:{width}}  {output.size(size):>10}")
    output.line(f"  {f'{len(sizes)} files':{width}}  {output.size(sum(sizes.values())):>10}")
    return 0
