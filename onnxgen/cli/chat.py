"""``onnxgen chat``: a conversation by the model's chat template, in the terminal or in one shot."""

import argparse
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from onnxgen.cli import answers, options, output
from onnxgen.errors import ChatTemplateError, OnnxgenError, OptionError, UnsupportedModelError

if TYPE_CHECKING:
    from onnxgen.tasks.cache import Cache
    from onnxgen.tasks.request import Request
    from onnxgen.tasks.text_generation import TextGeneration

COMMANDS = {
    "/help": "show these commands",
    "/image FILE": "show an image with the next message",
    "/clear": "forget the conversation (the system message stays)",
    "/exit": "end; so does Ctrl-D",
}
HELP = "\n".join(f"  {name:12} {does}" for name, does in COMMANDS.items())

EPILOG = f"""\
Without -m, each line of stdin is a message; a terminal gets a prompt, and these commands:
{HELP}
Ctrl-C stops an answer, and at the prompt the program.

examples:
  onnxgen chat ./my-export
  onnxgen chat ./my-export -m "What is the capital of France?"
  onnxgen chat ./my-smolvlm --image photo.jpg -m "What is on the left?" -m "And behind it?"
  git diff | onnxgen chat ./my-export -s "Describe the change in one sentence." -m -
"""


def add_parser(commands: options.Commands) -> None:
    """Adds this command to the program."""
    parser = commands.add_parser(
        "chat",
        usage="%(prog)s MODEL [-m TEXT] [options]",
        help="talk with a chat model",
        description="Talks with a chat model, by its own template.",
        epilog=EPILOG,
    )
    options.add_model(parser)
    parser.add_argument(
        "-m",
        "--message",
        dest="messages",
        action="append",
        default=[],
        metavar="TEXT",
        help="answer this and end; - reads stdin; several are answered one after the other",
    )
    parser.add_argument(
        "--image",
        dest="images",
        action="append",
        default=[],
        metavar="FILE",
        help="show an image with the first message; may be repeated",
    )
    parser.add_argument("-s", "--system", metavar="TEXT", help="the system message")
    options.add_run(parser)
    parser.set_defaults(run=run)


@dataclass
class Chat:
    """A conversation: what was said, and how answers are made and shown."""

    model: "TextGeneration"
    keywords: dict[str, Any]
    args: argparse.Namespace
    messages: list[dict[str, Any]] = field(default_factory=list)
    images: list[str] = field(default_factory=list)  # to be shown with the next message
    cache: "Cache | None" = None  # what the last answer left behind

    def clear(self) -> None:
        """Forgets everything but the system message."""
        system = self.args.system
        self.messages = [] if system is None else [{"role": "system", "content": system}]
        self.images = []

    def show(self, names: list[str]) -> None:
        """Has images be part of the next message; ImageError if one cannot be read."""
        if names and not hasattr(self.model, "vision"):
            raise UnsupportedModelError(
                f"{self.args.model} has no vision_encoder.onnx",
                wanted="a model that sees",
                do="leave images out",
            )
        from onnxgen.vision.loading import load

        for name in names:
            load(name)
        self.images += names

    def ask(self, text: str) -> None:
        """Answers ``text``. What was said of an answer that Ctrl-C cut short is kept."""
        content: Any = text
        if self.images:
            parts = [{"type": "image", "image": name} for name in self.images]
            content = [*parts, {"type": "text", "text": text}]
        question = {"role": "user", "content": content}
        request = self._request([*self.messages, question])
        said: list[str] = []
        try:
            streams = answers.may_stream(self.args, request)
            if not streams:
                answers.finish(request)
                said.append(request.results()[0][0].text)
            else:
                answers.stream(request, said)
        finally:
            if answer := "".join(said):
                self.messages += [question, {"role": "assistant", "content": answer}]
                self.images = []
        results = request.results()[0]
        if self.args.json:
            output.json_line(answers.as_json(results[0]))
        elif not streams:
            output.line(results[0].text)
        if self.args.stats:
            output.note(answers.statistics(results, request.selection))

    def _request(self, messages: list[dict[str, Any]]) -> "Request":
        """The next turn; it goes on with the cache of the last one where one row does."""
        from onnxgen.tasks.cache import Cache

        names = ("num_beams", "num_return_sequences", "guidance_scale")
        keywords = self.keywords
        if not any(name in keywords for name in names):
            self.cache = self.cache or Cache()
            keywords = keywords | {"cache": self.cache}
        return self.model.request([messages], None, keywords)


def run(args: argparse.Namespace) -> int:
    """Carries the command out."""
    keywords = options.generation_arguments(args)
    texts = _messages(args.messages)
    model = options.load(args)
    if hasattr(model, "encoder"):
        kinds = {"processor": "caption", "extractor": "transcribe"}
        command = next((c for part, c in kinds.items() if hasattr(model, part)), "generate")
        options.refuse_task(args, "chats", command)
    if model.tokenizer.chat_template is None:
        raise ChatTemplateError(
            f"{args.model} has no chat template",
            wanted="a chat model",
            do="use `onnxgen generate` to continue a text",
        )
    chat = Chat(model, keywords, args)
    chat.clear()
    chat.show(args.images)
    if texts:
        for text in texts:
            chat.ask(text)
    elif sys.stdin.isatty():
        _converse(chat)
    else:
        for line in output.stdin_lines():
            chat.ask(line.removesuffix("\n"))
    return 0


def _messages(given: list[str]) -> list[str]:
    if given.count("-") > 1:
        raise OptionError("stdin is asked for twice", do="give -m - once")
    return [output.read_stdin() if text == "-" else text for text in given]


def _converse(chat: Chat) -> None:
    """Asks at the terminal and answers until the user ends it."""
    with suppress(ImportError):
        import readline  # noqa: F401 - gives input() a history and editing
    output.note("Type a message, or /help. Ctrl-D ends, Ctrl-C stops an answer.")
    while True:
        try:
            text = _input().strip()
        except EOFError:
            output.note("")
            return
        except KeyboardInterrupt:
            output.note("")
            raise
        if text == "/exit":
            return
        if text == "/clear":
            chat.clear()
        elif text.startswith("/image "):
            _try(chat.show, [text.removeprefix("/image ").strip()])
        elif text == "/help":
            output.note(HELP)
        elif text.startswith("/") and " " not in text:
            near = get_close_matches(text, [name.split()[0] for name in COMMANDS], n=1)
            output.note(f"no command {text}; " + (f"did you mean {near[0]}?" if near else "/help"))
        elif text:
            _try(chat.ask, text)


def _try(act: Callable[[Any], None], given: Any) -> None:
    try:
        act(given)
    except KeyboardInterrupt:
        return
    except OnnxgenError as error:  # a message too many must not end the conversation
        output.report(error)


def _input() -> str:
    """A line from the terminal, after a prompt that never mixes with answers in a file."""
    if sys.stdout.isatty():
        return input("> ")
    sys.stderr.write("> ")
    sys.stderr.flush()
    return input()
