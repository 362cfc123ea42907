"""``onnxgen inspect``: what the files and graphs of a model say, for a person to read."""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from onnxgen.cli import options, output

if TYPE_CHECKING:
    from onnxgen.graph.decoder import DecoderGraph
    from onnxgen.graph.shapes import CacheSlot
    from onnxgen.tasks.inspection import File, Inspection, Session, Tensor

EPILOG = """\
Reads graphs without their weights and starts no ONNX Runtime. The exit code is 1 for a model that
cannot run; what could be found is shown all the same.

Letters in shapes: B rows of a batch, P tokens in the cache.

examples:
  onnxgen inspect ./my-export
  onnxgen inspect ./my-export:q4 --json
"""

# What an input of each role takes.
ROLES: Mapping[str, str] = {
    "ids": "token ids",
    "embeds": "embeddings, made by embed_tokens",
    "per_layer_inputs": "embeddings of each layer, made by embed_tokens",
    "mask": "attention mask",
    "positions": "positions",
    "token_types": "token types, all 0",
    "use_cache": "whether there is a cache",
    "keep": "how many positions get logits",
    "cache_position": "positions in the cache",
    "encoder_states": "what an encoder made",
    "encoder_mask": "mask of the encoder's states",
    "last_index": "each row's last valid row of the cache",
    "total_length": "tokens in the cache and new ones",
    "past_length": "tokens in the cache",
    "write_index": "where each row writes into the cache",
    "row_length": "each row's tokens",
    "features": "features of what is encoded",
    "cross_cache": "cache of the encoder's states, made in the first step",
    "cache": "cache",
    "state": "state",
    "unused": "not read",
}
COVERS = {
    "full": "of every position",
    "last": "of the last column only",
    "rank2": "of the last column only, without an axis for it",
}

Rows = Iterator[tuple[str, str]]  # label and text, of one section


def add_parser(commands: options.Commands) -> None:
    """Adds this command to the program."""
    parser = commands.add_parser(
        "inspect",
        usage="%(prog)s MODEL [options]",
        help="say how a model works, or why it cannot run",
        description="Says what a model's files and graphs say: how it runs, or why it cannot.",
        epilog=EPILOG,
    )
    options.add_model(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--no-rewrites", action="store_true", help="say how the graph works as it came"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carries the command out."""
    import onnxgen

    found = onnxgen.inspect(
        args.model, rewrites=not args.no_rewrites, **options.model_arguments(args)
    )
    if args.json:
        output.json_line(found.to_json())
    else:
        output.line(render(found))
    return 0 if found.runs else 1


def render(found: "Inspection") -> str:
    """The whole report."""
    sections = [("Files", _files(found))]
    sections += [(f"Graph: {session.role}", _graph(session)) for session in found.sessions]
    if found.decoder is not None:
        sections += [("Cache", _cache(found.decoder)), ("Batches", _batches(found.decoder))]
    sections += [("Capacity", _capacity(found)), ("Text", _text(found))]
    lines = [found.source, *_verdict(found)]
    for title, rows in sections:
        lines += ["", title, *(f"  {label:11}  {text}".rstrip() for label, text in rows)]
    return "\n".join(lines)


def _verdict(found: "Inspection") -> Iterator[str]:
    error = found.refusal
    if error is None:
        yield f"  runs: {found.task}"
        return
    yield f"  does not run: {error.found}"
    if error.wanted:
        yield f"  wanted: {error.wanted}"
    if error.do:
        yield f"  to do: {error.do}"


def _files(found: "Inspection") -> Rows:
    yield "folder", f"{found.folder} ({found.layout} layout)"
    choice = len(found.variants) > len({variant.role for variant in found.variants})
    table: list[tuple[str, ...]] = []
    for variant in found.variants:
        mark = "*" if choice and variant.chosen else ""
        table.append((variant.role, variant.dtype, mark, *_file(variant.graph)))
        table += [("", "", "", *_file(part), "external data") for part in variant.parts]
    for number, text in enumerate(_aligned(table)):
        yield "" if number else "graphs", text
    if choice:
        yield "taken (*)", found.dtype_reason or "as asked"


def _file(file: "File") -> tuple[str, str]:
    size = "not here" if file.bytes is None else output.size(file.bytes)
    return file.name, f"{size:>9}"


def _aligned(table: Sequence[tuple[str, ...]]) -> list[str]:
    """The rows of a table as lines; a column that is empty in all of them is left out."""
    columns = [column for column in zip_longest(*table, fillvalue="") if any(column)]
    widths = [max(map(len, column)) for column in columns]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in zip(*columns, strict=True)
    ]


def _graph(session: "Session") -> Rows:
    yield "file", session.graph
    opsets = ", ".join(f"{domain} {version}" for domain, version in session.opsets.items())
    yield "exporter", f"{session.producer or 'unsaid'} (opsets: {opsets})"
    weights = [f"{dtype} {output.size(size)}" for dtype, size in session.weights.items()]
    yield "weights", ", ".join(weights) or "none"
    if session.rewrites:
        made = [f"{count} x {about}" for about, count in session.rewrites.items()]
        yield "rewritten", f"{', '.join(made)}; checked when it loads"
    for number, (about, reasons) in enumerate(session.not_rewritten.items()):
        told = [f"{count} x {why}" if count > 1 else why for why, count in reasons.items()]
        yield "" if number else "as it came", f"no {about}: {', '.join(told)}"
    for number, text in enumerate(_tensors(session.inputs)):
        yield "" if number else "inputs", text
    for number, text in enumerate(_tensors(session.outputs)):
        yield "" if number else "outputs", text


def _tensors(tensors: "Sequence[Tensor]") -> list[str]:
    """A line for each, but one for all that differ in the number of their layer only."""
    alike: dict[tuple[str, str, str], list[Tensor]] = {}
    for tensor in tensors:
        alike.setdefault(_pattern(tensor), []).append(tensor)
    table = []
    for (name, dtype, dims), members in alike.items():
        first, several = members[0], len(members) > 1
        role = ROLES.get(first.role, first.role)
        shape = dims if several else _dims(first.shape)
        count = f"{len(members)} times" if several else ""
        table.append((name if several else first.name, f"{dtype} [{shape}]", count, role))
    return _aligned(table)


def _pattern(tensor: "Tensor") -> tuple[str, str, str]:
    """Name, dtype and dims, with N for the number of the layer in names of tensors and sizes."""
    shape = [_numbered(dim) if isinstance(dim, str) else dim for dim in tensor.shape]
    return _numbered(tensor.name), tensor.dtype, _dims(shape)


def _numbered(name: str) -> str:
    return re.sub(r"\d+", "N", name)


def _dims(shape: Sequence[int | str | None]) -> str:
    return ", ".join("?" if dim is None else str(dim) for dim in shape)


def _cache(decoder: "DecoderGraph") -> Rows:
    yield "mode", f"{decoder.mode}: {decoder.reason}"
    operators = ", ".join(f"{count} {name}" for name, count in decoder.operators.items())
    plain = decoder.operators.keys() == {"Softmax"}
    yield "attention", f"plain operators ({operators})" if plain else operators
    kinds = {"caches": decoder.caches, "states": decoder.states, "cross": decoder.cross}
    for title, slots in kinds.items():
        for number, text in enumerate(_layers(slots)):
            yield "" if number else title, text
    if decoder.caches:
        size = output.size(1000 * decoder.bytes_per_token())
        yield "memory", f"{size} per row and 1,000 tokens"
    if decoder.states:
        size = output.size(sum(slot.row_bytes(0) for slot in decoder.states))
        yield "" if decoder.caches else "memory", f"{size} of states per row"


def _layers(slots: "Sequence[CacheSlot]") -> list[str]:
    """The layers with equal caches together: which they are, and what each keeps."""
    layers: dict[int, list[CacheSlot]] = {}
    for slot in slots:
        layers.setdefault(slot.layer, []).append(slot)
    alike: dict[str, list[int]] = {}
    for layer, own in sorted(layers.items()):
        alike.setdefault(_kept(own), []).append(layer)
    return [
        f"layer{'s' if len(numbers) > 1 else ''} {_ranges(numbers)}: {text}"
        for text, numbers in alike.items()
    ]


def _kept(slots: "Sequence[CacheSlot]") -> str:
    """What one layer keeps; key and value together where they are alike."""
    kinds: dict[str, list[str]] = {}
    for slot in slots:
        kinds.setdefault(_slot(slot), []).append(slot.kind.replace("_", " and "))
    return "; ".join(f"{' and '.join(names)} {text}" for text, names in kinds.items())


def _slot(slot: "CacheSlot") -> str:
    from onnxgen.tasks.inspection import heads, letters

    text = f"{slot.dtype} [{_dims(letters(slot))}]"
    if slot.seq_axis is None:
        return text
    number, size = heads(slot)
    if number is not None:
        text += f", {number} head{'s' if number > 1 else ''} of {size}"
    if slot.window:
        text += f", window {slot.window:,}"
    return text + (f", {slot.fixed_length:,} tokens by its shape" if slot.fixed_length else "")


def _ranges(numbers: Sequence[int]) -> str:
    """``[0, 1, 2, 5]`` as ``0-2, 5``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _batches(decoder: "DecoderGraph") -> Rows:
    if decoder.fixed_batch:
        yield "rows", f"{decoder.fixed_batch} at a time, by the shape of its input"
    elif decoder.ragged:
        yield "rows", f"any number, unequal lengths together: {decoder.ragged_reason}"
    else:
        yield "rows", f"any number, equal lengths together: {decoder.ragged_reason}"
    if decoder.step_size:
        yield "new tokens", f"{decoder.step_size} at a time, by the shape of its input"
    covers = COVERS[str(decoder.logits_kind)]
    if "keep" in decoder.inputs:
        covers = f"of as many positions as {decoder.inputs['keep'].name} asks for"
    vocab = f"{decoder.vocab_size:,}" if decoder.vocab_size else "an unsaid number of"
    yield "logits", f"{decoder.logits.dtype} for {vocab} tokens, {covers}"


def _capacity(found: "Inspection") -> Rows:
    if found.decoder is not None:
        most = found.capacity
        yield "a sequence", f"{most:,} tokens, prompt and answer" if most else "no limit"
        graph = found.decoder.capacity
        yield "by graph", f"{graph.rows:,}: {graph.reason}" if graph.rows else graph.reason
        if graph.switch:
            yield "", f"a prompt within {graph.switch:,} tokens must end there: tables switch"
    yield "by config", f"{found.context:,}" if found.context else "no bound"


def _text(found: "Inspection") -> Rows:
    text = found.text
    if text.vocab_size is not None:
        yield "tokenizer", f"{text.vocab_size:,} tokens"
        singles = {k: token for k, token in text.special_tokens.items() if isinstance(token, str)}
        if singles:
            named = [f"{key.removesuffix('_token')} {token}" for key, token in singles.items()]
            yield "special", ", ".join(named)
        names = ", ".join(text.chat_templates)
        yield "chat", f"template: {names}" if names else "no template: use `generate`"
    if text.problem is not None:
        yield "problem", text.problem.found
    if text.stop_tokens:
        stops = [f"{number} {token or ''}".rstrip() for number, token in text.stop_tokens.items()]
        yield "stops at", ", ".join(stops)
    defaults = [f"{name}={_short(value)}" for name, value in found.generation.items()]
    yield "generation", ", ".join(defaults) or "no defaults"


def _short(value: Any) -> str:
    if isinstance(value, list) and len(value) > 8:
        return f"[{', '.join(map(str, value[:4]))}, ... {len(value)} in all]"
    return str(value)
