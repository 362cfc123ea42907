"""Imports every module that defines variants, so that the lists are whole."""

from . import append, borders, buffers, functions, gqa, layouts, refused, states

__all__ = ["append", "borders", "buffers", "functions", "gqa", "layouts", "refused", "states"]
