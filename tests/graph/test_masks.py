"""Which keys masks show, told from masks that are written down here, operator by operator."""

from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper

from onnxgen.graph.rewrites.editing import Draft, UnfitError
from onnxgen.graph.rewrites.masks import MORE, padding_of, stripped, window_of

# ``distance`` (S,T) counts the places from a query back to a key; ``shown`` (S,T) is the rule.
GRAPH = """
<ir_version: 9, opset_import: ["" : 18]>
masks (int64[batch, sequence] ids, int64[batch, total_sequence] attention_mask)
  => (bool[b, one_head, s, t] mask) {{
  zero = Constant<value = int64 {{0}}>()
  one = Constant<value = int64 {{1}}>()
  last = Constant<value = int64[1] {{1}}>()
  heads = Constant<value = int64[2] {{1, 2}}>()
  new_dims = Shape(ids)
  new = Gather(new_dims, one)
  total_dims = Shape(attention_mask)
  total = Gather(total_dims, one)
  past = Sub(total, new)
  keys = Range(zero, total, one)
  places = Range(past, total, one)
  queries = Unsqueeze(places, last)
  distance = Sub(queries, keys)
  before = GreaterOrEqual(distance, zero)
  {rule}
  valid = Cast<to = 9>(attention_mask)
  padding = Unsqueeze(valid, heads)
  mask = And(shown, padding)
}}
"""
CAUSAL = "shown = Identity(before)"
WINDOW = """size = Constant<value = int64 {{{}}}>()
  near = Less(distance, size)
  shown = And(before, near)"""
CHUNKS = """size = Constant<value = int64 {{4}}>()
  query_chunk = Div(queries, size)
  key_chunk = Div(keys, size)
  same = Equal(query_chunk, key_chunk)
  shown = And(before, same)"""
PREFIX = """size = Constant<value = int64 {{3}}>()
  early = Less(keys, size)
  shown = Or(before, early)"""
BOTH_WAYS = "shown = Equal(distance, distance)"
STRICT = "shown = Greater(distance, zero)"
# Rows and columns of a table of all places, as GPT-2's.
TABLE = """rows = Gather(table, places)
  end = Unsqueeze(total, start)
  shown = Slice(rows, start, end, last)"""


def draft(rule, table=None):
    model = onnx.parser.parse_model(GRAPH.format(rule=rule.replace("{{", "{").replace("}}", "}")))
    if table is not None:
        start = numpy_helper.from_array(np.zeros(1, np.int64), "start")
        model.graph.initializer.extend([numpy_helper.from_array(table, "table"), start])
    return Draft(model, Path())


@pytest.mark.parametrize("size", [1, 2, 5, 7, 64, 100, 4096])
def test_a_window(size):
    found = draft(WINDOW.format(size))
    assert window_of(found, "mask", "attention_mask") == size


def test_no_window():
    assert window_of(draft(CAUSAL), "mask", "attention_mask") is None
    # A number that says "no bound", as some configs have it.
    assert window_of(draft(WINDOW.format(10**9)), "mask", "attention_mask") is None


@pytest.mark.parametrize("rule", [CHUNKS, PREFIX, BOTH_WAYS, STRICT])
def test_other_masks(rule):
    with pytest.raises(UnfitError, match=MORE):
        window_of(draft(rule), "mask", "attention_mask")


@pytest.mark.parametrize("window", [None, 16, 70])
def test_a_table_of_places(window):
    distance = np.arange(128)[:, None] - np.arange(128)
    table = (distance >= 0) & (distance < (window or 128))
    assert window_of(draft(TABLE, table), "mask", "attention_mask") == window


def test_what_the_mask_comes_from():
    scope = draft(CAUSAL).scope
    assert padding_of(scope, "mask") == "attention_mask"
    with pytest.raises(UnfitError, match="other inputs"):
        padding_of(scope, "shown")  # of shapes alone


def test_masks_of_a_layer_lead_to_the_one_of_all():
    model = onnx.parser.parse_model("""
    <ir_version: 9, opset_import: ["" : 18]>
    layer (bool[b, h, s, t] mask, float[b, h, s, t] bias, int64[one] length)
      => (float[b, h, s, t] numbers, float[b, h, s, t] tail, float[b, h, s, t] head) {
      shown = Constant<value = float {0}>()
      hidden = Constant<value = float {-3.4e38}>()
      mild = Constant<value = float {-1}>()
      start = Constant<value = int64[1] {0}>()
      axis = Constant<value = int64[1] {3}>()
      cut = Slice(mask, start, length, axis)
      numbers = Where(cut, shown, hidden)
      head = Slice(bias, start, length, axis)
      tail = Where(mask, shown, mild)
    }""")
    scope = Draft(model, Path()).scope
    assert stripped(scope, "numbers") == "mask"
    assert stripped(scope, "head") == "bias"
    assert stripped(scope, "tail") == "tail"
