"""``onnxgen generate``: what a model makes of a text, or of each line of a file."""

import argparse
import sys
from pathlib import Path
from typing import Any

from onnxgen.cli import answers, options, output
from onnxgen.errors import OptionError

OWN = ("src_lang", "tgt_lang", "task", "prefix")
EPILOG = """\
examples:
  onnxgen generate ./my-export "Once upon a time" --max-new-tokens 100
  echo "Once upon a time" | onnxgen generate ./my-export
  onnxgen generate ./my-export -f prompts.txt --json > answers.jsonl
  onnxgen generate ./my-export "1, 2, 3," -o eos_token_id=[0,2] --stats
  onnxgen generate ./my-nllb "Good day." --src-lang eng_Latn --tgt-lang fra_Latn
"""


def add_parser(commands: options.Commands) -> None:
    """Adds this command to the program."""
    parser = commands.add_parser(
        "generate",
        usage="%(prog)s MODEL [PROMPT] [options]",
        help="continue, translate or summarise a text",
        description="Continues a text, as it is: no chat template. Encoder-decoders translate, "
        "summarise or whatever they were trained for. The answer streams to stdout.",
        epilog=EPILOG,
    )
    options.add_model(parser)
    parser.add_argument(
        "prompt",
        metavar="PROMPT",
        nargs="?",
        help="the text; - or none reads stdin, without its last line break",
    )
    parser.add_argument(
        "-f",
        "--file",
        metavar="FILE",
        help="a prompt a line (- is stdin), run as one batch; one answer a line, in which \\n "
        "stands for a line break unless --json keeps it exact",
    )
    group = parser.add_argument_group("encoder-decoders")
    group.add_argument("--src-lang", metavar="CODE", help="language of the text")
    group.add_argument("--tgt-lang", metavar="CODE", help="language of the answer")
    group.add_argument(
        "--task", metavar="NAME", help="one of config.json's task_specific_params: summarization"
    )
    group.add_argument(
        "--prefix", metavar="TEXT", help="what stands before each text (default: config.json's)"
    )
    options.add_run(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carries the command out."""
    keywords = options.generation_arguments(args)
    prompts = _prompts(args)
    request = _model(args, keywords).request(prompts, None, keywords)
    streams = args.file is None and answers.may_stream(args, request)
    if streams:
        answers.stream(request)
    else:
        answers.finish(request)
    results = [answer for answers_ in request.results() for answer in answers_]
    for result in [] if streams else results:
        if args.json:
            output.json_line(answers.as_json(result))
        else:
            output.line(result.text if args.file is None else output.on_one_line(result.text))
    if args.stats:
        output.note(answers.statistics(results, request.selection))
    return 0


def _model(args: argparse.Namespace, keywords: dict[str, Any]) -> Any:
    """The model; its task's own options are added to ``keywords``."""
    model = options.load(args)
    own = {name: getattr(args, name) for name in OWN if getattr(args, name) is not None}
    for part, command in (("processor", "caption"), ("extractor", "transcribe")):
        if hasattr(model, part):
            options.refuse_task(args, "text", command)
    if own and not hasattr(model, "encoder"):
        name = next(iter(own)).replace("_", "-")
        raise OptionError(f"--{name} for a model without an encoder", do="leave it out")
    keywords.update(own)
    return model


def _prompts(args: argparse.Namespace) -> list[str]:
    """The prompts; OptionError if there are none, or two places that give some."""
    if args.file is None:
        return [_one_prompt(args.prompt)]
    if args.prompt is not None:
        raise OptionError("both PROMPT and --file are given", do="give one of them")
    name = "stdin" if args.file == "-" else args.file
    text = output.read_stdin() if args.file == "-" else _text(args.file).removesuffix("\n")
    lines = text.split("\n")
    if "" in lines:
        number = lines.index("") + 1
        raise OptionError(f"line {number} of {name} is empty", wanted="a prompt in each line")
    return lines


def _one_prompt(prompt: str | None) -> str:
    if prompt is None and sys.stdin.isatty():
        raise OptionError(
            "there is no prompt",
            wanted="a PROMPT, or a text on stdin",
            do='onnxgen generate MODEL "a text"',
        )
    return output.read_stdin() if prompt in (None, "-") else prompt


def _text(name: str) -> str:
    try:
        return Path(name).read_text("utf-8")
    except OSError as error:
        raise OptionError(f"{name} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"{name} is no text", wanted="UTF-8") from error
