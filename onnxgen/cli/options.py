"""Options that several commands share, and what they become in a call of the library."""

import argparse
import json
import re
from math import inf
from typing import Any, NoReturn

from onnxgen.cli import output
from onnxgen.errors import OptionError, UnsupportedModelError

Commands = Any  # what ArgumentParser.add_subparsers returns has no public type


# The options of a generation. Listed here, since the command line is read before anything heavy is
# imported; a test holds the list equal to GenerationConfig's.
SWITCHES = (
    "renormalize_logits", "remove_invalid_values", "output_scores", "logprobs", "use_cache",
)  # fmt: skip
HELP = {
    "max_new_tokens": ("N", "end an answer after N tokens"),
    "seed": ("N", "make sampling repeatable"),
    "temperature": ("T", "flatten (above 1) or sharpen (below) the distribution"),
    "top_k": ("K", "draw from the K best tokens only"),
    "top_p": ("P", "draw from the best tokens that hold the share P of the probability"),
    "min_p": ("P", "leave out tokens below the share P of the best one's probability"),
    "num_beams": ("N", "search with N beams"),
    "num_return_sequences": ("N", "give N answers"),
    "repetition_penalty": ("X", "divide the scores of tokens that were there before by X"),
    "stop_strings": ("TEXT", "end an answer that comes to contain TEXT, or one of a JSON list"),
}
VALUES = (
    *HELP, "max_length", "min_length", "min_new_tokens", "max_time", "eos_token_id", "bos_token_id",
    "pad_token_id", "decoder_start_token_id", "seeds", "rng", "typical_p", "epsilon_cutoff",
    "eta_cutoff", "length_penalty", "early_stopping", "guidance_scale", "sequence_bias",
    "logit_bias", "presence_penalty", "frequency_penalty", "encoder_repetition_penalty",
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
    "forced_bos_token_id", "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens",
    "exponential_decay_length_penalty", "watermarking_config", "top_logprobs",
    "prefill_chunk_size", "prompt_lookup_num_tokens", "max_matching_ngram_size",
)  # fmt: skip
FLOATS = frozenset({
    "temperature", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "guidance_scale",
    "repetition_penalty", "encoder_repetition_penalty", "presence_penalty", "frequency_penalty",
    "length_penalty",
})  # fmt: skip


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


def add_run(parser: argparse.ArgumentParser, *, short: bool = True) -> None:
    """How to run and what to generate; ``short``: -o is --option."""
    add_running(parser)
    add_generation(parser, short=short)


def add_running(parser: argparse.ArgumentParser) -> None:
    """How to run."""
    group = parser.add_argument_group("running")
    group.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (default: cpu)")
    group.add_argument(
        "--threads", type=int, metavar="N", help="threads within an operator (default: all cores)"
    )
    group.add_argument(
        "--selection",
        metavar="HOW",
        help="choose tokens by a graph where the logits are (onnx) or on the host (numpy); "
        "default: onnx on cuda, numpy on cpu",
    )
    group.add_argument(
        "--accuracy-level",
        type=int,
        metavar="N",
        help="4: products with weights of 4 or 8 bits round their activations to 8 bits, faster "
        "and less exact",
    )
    group.add_argument(
        "--memory-limit",
        type=_bytes,
        metavar="SIZE",
        help="the most that caches and logits of a request may take, 4GB for instance, or off "
        "(default: what is free)",
    )
    group.add_argument(
        "--no-rewrites",
        action="store_true",
        help="run graphs as they came, not rewritten in memory to be faster",
    )
    group.add_argument(
        "--no-huge-pages",
        action="store_true",
        help="leave weights on small pages: loads sooner, runs slower",
    )


def add_generation(parser: argparse.ArgumentParser, *, short: bool = True) -> None:
    """What to generate, and how it is told; ``short``: -o is --option."""
    group = parser.add_argument_group(
        "generation", "the options of transformers' GenerationConfig, and a few of onnxgen's own"
    )
    for name in SWITCHES:
        flag = "--" + name.replace("_", "-")
        group.add_argument(flag, action=argparse.BooleanOptionalAction, help=argparse.SUPPRESS)
    for name in VALUES:
        flag, told = "--" + name.replace("_", "-"), HELP.get(name)
        metavar, text = told or ("VALUE", argparse.SUPPRESS)
        group.add_argument(flag, type=_value, metavar=metavar, help=text)
    group.add_argument(
        "--do-sample",
        action=argparse.BooleanOptionalAction,
        help="draw tokens instead of taking the best",
    )
    group.add_argument(
        *(["-o"] if short else []),
        "--option",
        dest="options",
        action="append",
        default=[],
        type=_assignment,
        metavar="KEY=VALUE",
        help="any other option, the value in JSON or as bare text; may be repeated. Each is also "
        "an option of its own: --option top_p=0.9 is --top-p 0.9",
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


def _bytes(text: str) -> float:
    """``800MB``, ``4GB``, a bare number of bytes; infinity for ``off``."""
    if text == "off":
        return inf
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(|k|M|G|T)B?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a size, such as 4GB, nor off")
    return float(found[1]) * 1000.0 ** " kMGT".index(found[2] or " ")


def _value(text: str) -> Any:
    """A value in JSON, or a bare text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _assignment(text: str) -> tuple[str, Any]:
    """``KEY=VALUE``; a value that is no JSON is a text."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return name, _value(value)


def model_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """The keywords with which the library finds the model's files."""
    return {name: getattr(args, name) for name in ("dtype", "revision", "token", "offline")}


def generation_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """The keywords of a generation. OptionError before anything slow is begun."""
    from onnxgen.generation.config import merge

    own = ("do_sample", *SWITCHES, *VALUES)
    given = [(name, getattr(args, name)) for name in own if getattr(args, name) is not None]
    given += args.options
    # The library wants a float where transformers does; a person may leave out the point.
    given = [(n, float(v) if n in FLOATS and type(v) is int else v) for n, v in given]
    keywords = dict(given)
    if len(keywords) < len(given):
        names = [name for name, _ in given]
        twice = next(name for name in names if names.count(name) > 1)
        raise OptionError(f"{twice} is given twice", do="give it once")
    merge({}, None, keywords)
    return keywords


def load(args: argparse.Namespace) -> Any:
    """The model, with a word on stderr if that takes long."""
    import onnxgen

    with output.waiting(f"loading {args.model}"):
        model = onnxgen.load(
            args.model,
            device=args.device,
            threads=args.threads,
            selection=args.selection,
            rewrites=not args.no_rewrites,
            huge_pages=not args.no_huge_pages,
            accuracy_level=args.accuracy_level,
            memory_limit=args.memory_limit,
            **model_arguments(args),
        )
    if model.files.chosen:
        output.note(f"onnxgen: {model.files.chosen}")
    return model


def refuse_task(args: argparse.Namespace, wanted: str, command: str) -> NoReturn:
    """Ends with the error that the model is none of the command's."""
    raise UnsupportedModelError(
        f"{args.model} is no model for {wanted}", do=f"use: onnxgen {command} {args.model}"
    )
