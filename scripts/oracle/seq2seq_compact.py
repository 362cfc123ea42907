"""Makes graphs of many tiny nodes smaller: what nodes and the values between them are called."""

import string
from pathlib import Path

import onnx

from . import graphs

DIGITS = string.digits + string.ascii_letters


def compact(path: Path) -> None:
    """Drops the names of nodes, and shortens those of values that are neither given nor told.

    Names are half of a file whose weights are a few kB. One name gets one short name wherever it
    is used, so bodies of an If still see what they see.
    """
    model = onnx.load(path)
    every = list(graphs.graphs(model.graph))
    told = {value.name for graph in every for value in (*graph.input, *graph.output)}
    short = dict[str, str]()
    for graph in every:
        for node in graph.node:
            node.ClearField("name")
            for name in node.output:
                if name and name not in told:
                    short.setdefault(name, number(len(short)))
    for graph in every:
        for node in graph.node:
            node.input[:] = [short.get(name, name) for name in node.input]
            node.output[:] = [short.get(name, name) for name in node.output]
        for value in graph.value_info:
            value.name = short.get(value.name, value.name)
    path.write_bytes(model.SerializeToString(deterministic=True))


def number(value: int) -> str:
    """A short name that no exporter gives."""
    text = ""
    while value or not text:
        value, digit = divmod(value, len(DIGITS))
        text = DIGITS[digit] + text
    return "." + text
