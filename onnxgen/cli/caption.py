"""``onnxgen caption``: what a model reads in images."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from onnxgen.cli import answers, options, output
from onnxgen.errors import ImageError, InputNotFoundError, OptionError

UNREADABLE = (ImageError, InputNotFoundError)
EPILOG = """\
One image prints its text alone, several print a line each behind the file's name. An image that
cannot be read is told of on stderr, the others are done all the same, and the exit code is 1.

examples:
  onnxgen caption Xenova/vit-gpt2-image-captioning photo.jpg
  onnxgen caption Xenova/trocr-base-printed scans/*.png --json > lines.jsonl
  onnxgen caption ./donut-receipts receipt.png --prompt "<s_cord-v2>" --fields
  onnxgen caption ./donut-docvqa page.png --question "What is the total?"
  onnxgen caption ./my-smolvlm *.jpg --prompt "What is in this picture?"
  onnxgen caption ./my-qwen2-vl --image before.png --image after.png --prompt "What changed?"
"""


def add_parser(commands: options.Commands) -> None:
    """Adds this command to the program."""
    parser = commands.add_parser(
        "caption",
        usage="%(prog)s MODEL IMAGE [IMAGE ...] [options]",
        help="describe or read images",
        description="Describes images, reads the text in them, or answers about documents.",
        epilog=EPILOG,
    )
    options.add_model(parser)
    parser.add_argument(
        "images", metavar="IMAGE", nargs="*", help="a file; - reads one image from stdin"
    )
    parser.add_argument(
        "--image",
        dest="together",
        action="append",
        default=[],
        metavar="IMAGE",
        help="an image of one prompt that shows several; may be repeated",
    )
    parser.add_argument(
        "--prompt",
        metavar="TEXT",
        help="what to ask, of models that take text and images; how each answer begins (task "
        "tokens), of others",
    )
    parser.add_argument("--question", metavar="TEXT", help="what to ask about each document")
    parser.add_argument(
        "--fields", action="store_true", help="print a document model's answer as JSON fields"
    )
    parser.add_argument(
        "--batch-size", type=_count, default=8, metavar="N", help="images at once (default: 8)"
    )
    options.add_run(parser)
    parser.set_defaults(run=run)


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Carries the command out."""
    keywords = options.generation_arguments(args)
    if [*args.images, *args.together].count("-") > 1:
        raise OptionError("stdin is named twice", do="give - once")
    if bool(args.images) == bool(args.together):
        raise OptionError(
            "images both in one prompt and each in its own" if args.images else "no image is named",
            wanted="IMAGE ..., or --image IMAGE for those of one prompt",
        )
    model = options.load(args)
    if hasattr(model, "vision"):
        return _see(args, model, keywords)
    if args.together:
        raise OptionError(
            f"{args.model} takes one image at a time", do="name the images without --image"
        )
    keywords |= {name: getattr(args, name) for name in ("prompt", "question")}
    if not hasattr(model, "processor"):
        command = "transcribe" if hasattr(model, "extractor") else "generate"
        options.refuse_task(args, "images", command)
    if len(args.images) == 1:
        return _one(args, model, keywords)
    failed = 0
    for names, request in _batches(args, model, keywords):
        if isinstance(request, UNREADABLE):
            failed += 1
            output.report_of(names[0], request)
            continue
        results = request.results()
        for name, answer in zip(names, results, strict=True):
            _print(args, model, name, answer)
        if args.stats:
            _tell(request, results)
    return int(failed > 0)


def _see(args: argparse.Namespace, model: Any, keywords: dict[str, Any]) -> int:
    """Models that take text and images: one prompt for each image, or one for all together."""
    asked = args.question if args.question is not None else args.prompt
    if args.fields and not hasattr(model, "to_json"):
        raise OptionError(f"--fields with {args.model}", wanted="a model that answers in fields")
    failed = 0
    shown = [args.together] if args.together else [[name] for name in args.images]
    for names in shown:
        try:
            prompt, own = model.about([_source(name) for name in names], asked)
            request = model.request([prompt], None, keywords | own)
        except UNREADABLE as error:
            if len(shown) == 1:
                raise
            failed += 1
            output.report_of(names[0], error)
            continue
        _answer(args, model, ", ".join(names), request, alone=len(shown) == 1)
    return int(failed > 0)


def _one(args: argparse.Namespace, model: Any, keywords: dict[str, Any]) -> int:
    """A single image, streamed where its text is settled token by token."""
    request = model.request([_source(args.images[0])], None, keywords)
    _answer(args, model, args.images[0], request, alone=True)
    return 0


def _answer(args: argparse.Namespace, model: Any, name: str, request: Any, *, alone: bool) -> None:
    """The answer of a request with one prompt; one ``alone`` may be streamed."""
    if alone and answers.may_stream(args, request) and not args.fields:
        answers.stream(request)
    else:
        answers.finish(request)
        _print(args, model, name, request.results()[0], alone)
    if args.stats:
        _tell(request, request.results())


def _tell(request: Any, results: Sequence[list[Any]]) -> None:
    """One line on a run, to stderr."""
    every = [answer for found in results for answer in found]
    output.note(answers.statistics(every, request.selection))


def _batches(
    args: argparse.Namespace, model: Any, keywords: dict[str, Any]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The names of each batch with its finished request; of one that fails, with its error."""
    from tqdm import tqdm

    from onnxgen.vision.loading import load

    with tqdm(total=len(args.images), unit="image", leave=False, disable=None) as bar:
        for start in range(0, len(args.images), args.batch_size):
            names, readable = args.images[start : start + args.batch_size], []
            for name in names:
                try:
                    readable.append((name, load(_source(name))))
                except UNREADABLE as error:
                    yield (name,), error
            for together, request in _requests(model, readable, keywords) if readable else ():
                if not isinstance(request, UNREADABLE):
                    with answers.interruptible(request.cancel):
                        for _ in request.steps():
                            pass
                yield together, request
            bar.update(len(names))


def _requests(
    model: Any, images: Sequence[tuple[str, Any]], keywords: dict[str, Any]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """One request for all, or one for each where they do not fit the model together."""
    request: Any
    try:
        request = model.request([image for _, image in images], None, keywords)
    except UNREADABLE as error:
        if len(images) > 1:
            for one in images:
                yield from _requests(model, [one], keywords)
            return
        request = error
    yield tuple(name for name, _ in images), request


def _source(name: str) -> Any:
    """A path, or stdin, of which no more is read than an image can need."""
    return sys.stdin.buffer if name == "-" else name


def _print(
    args: argparse.Namespace, model: Any, name: str, found: list[Any], alone: bool = False
) -> None:
    for answer in found:
        fields = model.to_json(answer) if args.fields else None
        if args.json:
            told = {"image": name, **answers.as_json(answer)}
            output.json_line(told if fields is None else {**told, "fields": fields})
            continue
        text = output.json_text(fields) if args.fields else answer.text
        output.line(text if alone else f"{name}\t{output.on_one_line(text)}")
