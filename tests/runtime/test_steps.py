"""Every cache mode gives the tokens of the reference: alone, in batches, in pieces, reordered."""

import threading

import numpy as np
import onnx
import pytest

from onnxgen.errors import CancelledError, CapacityError, UnsupportedModelError
from onnxgen.generation.loop import Clock, Row, greedy, run
from onnxgen.graph.decoder import DecoderGraph
from onnxgen.runtime import group as runtime
from onnxgen.runtime.decoder import DecoderModel
from onnxgen.runtime.group import Group
from tests.fixture_models import FixtureModel, decode, found, padded

FIXTURE_MODELS = found("handmade") + found("models")
COUNT = 32

every_model = pytest.mark.parametrize("fixture", FIXTURE_MODELS, ids=lambda f: f.name)


@every_model
def test_alone(fixture):  # known problems L8, L10, C7, C8, C19
    model = fixture.model()
    for prompt, tokens in zip(fixture.prompts, fixture.greedy, strict=True):
        assert decode(model, [prompt], COUNT) == [tokens]


@every_model
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (3, 1, 3)], ids=str)
def test_ragged_batch_equals_single_runs(fixture, order):  # known problems C3, C4, C26
    batch = decode(fixture.model(), [fixture.prompts[i] for i in order], COUNT)
    assert batch == [fixture.greedy[i] for i in order]


def feed(decoder, rows, columns=1):
    """Feeds ``rows`` in pieces of ``columns`` tokens; the last logits of each row."""
    tokens, lengths = padded(rows)
    last = [None] * len(rows)
    for start in range(0, tokens.shape[1], columns):
        counts = np.clip(lengths - start, 0, columns)
        logits = decoder.step(tokens[:, start : start + columns], counts).copy()
        for row in np.flatnonzero((counts > 0) & (lengths <= start + columns)):
            last[row] = logits[row]
    return np.stack(last)


@every_model
@pytest.mark.parametrize("columns", [1, 3, 8])
def test_prompt_in_pieces(fixture, columns):  # known problems C26, S23
    """Ragged pieces, too: rows that have ended get no token while others go on."""
    rows = [fixture.prompts[i] + fixture.greedy[i] for i in (2, 0, 1)]
    model = fixture.model()
    pieces = feed(model.start(80 if model.graph.capacity.rows is None else 60), rows, columns)
    whole = [model.start(60).step(*padded([row]))[0].copy() for row in rows]
    np.testing.assert_allclose(pieces, whole, atol=tolerance(fixture))


def tolerance(fixture: FixtureModel) -> float:
    """Half precision rounds; quantised kernels compute one token and several in other ways."""
    graph = fixture.facts()["decoder"]
    if fixture.expected.get("dtype") in {"int4", "q8", "q4"}:
        return 1.5
    return 2e-2 if any(s.dtype == "float16" for s in graph.slots) else 2e-4


@every_model
def test_all_logits_equal_those_step_by_step(fixture):
    rows = [fixture.prompts[i] for i in (1, 2)]
    model = fixture.model()
    every = model.start(40).step_all(*padded(rows))
    for row, prompt in enumerate(rows):
        decoder = model.start(40)
        single = [decoder.step(np.array([[t]]), np.ones(1, np.int64))[0].copy() for t in prompt]
        np.testing.assert_allclose(every[row, : len(prompt)], single, atol=tolerance(fixture))


@every_model
def test_reordered_rows_go_on_as_what_they_were(fixture):
    """Rows swapped, doubled and dropped in mid-sequence, as beams do."""
    model, half = fixture.model(), COUNT // 2
    rows = [fixture.prompts[i] + fixture.greedy[i][:half] for i in (0, 1, 2)]
    decoder = model.start(60)
    decoder.step(*padded(rows))
    picked = [2, 0, 2, 1]
    decoder.reorder(picked)
    tokens = np.array([[fixture.greedy[i][half]] for i in picked])
    for step in range(half + 1, COUNT):
        logits = decoder.step(tokens, np.ones(len(picked), np.int64))
        tokens = logits.argmax(-1)[:, None]
        assert tokens[:, 0].tolist() == [fixture.greedy[i][step] for i in picked]


@every_model
def test_rewound_rows_forget(fixture):
    model = fixture.model()
    rows = [fixture.prompts[i] for i in (2, 1)]
    decoder = model.start(60)
    decoder.step(*padded([[*row, 5, 7, 9] for row in rows]))
    keep = np.array([len(row) - 1 for row in rows])
    if not model.graph.rewinds:
        with pytest.raises(UnsupportedModelError, match="states"):
            decoder.rewind(keep)
        return
    decoder.rewind(keep)
    logits = decoder.step(np.array([[row[-1]] for row in rows]), np.ones(2, np.int64))
    for step in range(8):
        assert logits.argmax(-1).tolist() == [fixture.greedy[i][step] for i in (2, 1)]
        logits = decoder.step(logits.argmax(-1)[:, None], np.ones(2, np.int64))


@every_model
def test_long_prompts_run_in_bounded_pieces(fixture, monkeypatch):  # known problem P6
    monkeypatch.setattr(runtime, "LOGITS_BYTES", 0)  # the smallest pieces there are
    prompts = [fixture.prompts[i] + fixture.greedy[i][:20] for i in (3, 1)]
    expected = [fixture.greedy[i][20:] for i in (3, 1)]
    assert decode(fixture.model(), prompts, COUNT - 20) == expected


def model_named(name):
    return next(f for f in FIXTURE_MODELS if f.name == f"handmade/{name}")


def test_capacity_is_refused_beyond_the_rotary_table():  # known problem C1
    model = model_named("gqa_values").model()
    with pytest.raises(CapacityError, match="64"):
        model.start(65)


@pytest.mark.parametrize("name", ["gqa_values", "concat_positions", "no_cache"])
def test_steps_beyond_the_capacity_are_refused(name):  # known problem C21
    decoder = model_named(name).model().start(4)
    decoder.step(np.ones((1, 4), np.int64), np.array([4]))
    with pytest.raises(CapacityError, match="4"):
        decoder.step(np.ones((1, 1), np.int64), np.array([1]))


@pytest.mark.parametrize("name", ["gqa_values", "concat_positions"])
def test_cancelled_decoder_stops_and_its_model_goes_on(name):
    fixture = model_named(name)
    model = fixture.model()
    decoder = model.start(8)
    decoder.step(np.ones((1, 1), np.int64), np.array([1]))
    thread = threading.Thread(target=decoder.cancel)
    thread.start()
    thread.join()
    with pytest.raises(CancelledError):
        decoder.step(np.ones((1, 1), np.int64), np.array([1]))
    assert decode(model, fixture.prompts[:1], COUNT) == fixture.greedy[:1]


def test_caches_are_no_longer_than_asked_for():  # known problem P1
    """The capacity asked for, not the 64 rows of the table, decides on the buffers."""
    model = model_named("gqa_values").model()
    decoder = model.start(10)
    decoder.step(np.ones((2, 3), np.int64), np.array([3, 2]))
    (group,) = decoder._groups
    sizes = {memory.nbytes for memory in group.cache._buffers.values()}
    rows, heads, length, width, item = 2, 2, 10, 16, 4
    assert sizes == {rows * heads * length * width * item}


@every_model
def test_more_room_leaves_the_rows_as_they_were(fixture):
    model, half = fixture.model(), COUNT // 2
    rows = [fixture.prompts[i] + fixture.greedy[i][:half] for i in (0, 1)]
    decoder = model.start(max(map(len, rows)))
    tokens = decoder.step(*padded(rows)).argmax(-1)
    decoder.reserve(max(map(len, rows)) + half)
    for step in range(half, COUNT - 1):
        assert tokens.tolist() == [fixture.greedy[i][step] for i in (0, 1)]
        tokens = decoder.step(tokens[:, None], np.ones(2, np.int64)).argmax(-1)


@every_model
def test_a_short_row_may_go_on_long_after_a_long_one_ended(fixture):
    """Each row within the capacity, but padding on the left and the answer together beyond it."""
    model, count = fixture.model(), 24
    rows = [
        Row(0, fixture.prompts[3], 2, frozenset()),
        Row(1, fixture.prompts[0], count, frozenset()),
    ]
    decoder = model.start(max(len(row.prompt) + row.budget - 1 for row in rows))
    for _ in run(decoder, rows, greedy, Clock()):
        pass
    assert rows[1].tokens == fixture.greedy[0][:count]


@every_model
def test_the_smallest_request(fixture):
    assert decode(fixture.model(), fixture.prompts[:1], 1) == [fixture.greedy[0][:1]]
    assert decode(fixture.model(), fixture.prompts[:1], 2) == [fixture.greedy[0][:2]]


@pytest.mark.parametrize("name", ["concat_positions", "gqa_values"])
def test_graphs_for_a_batch_of_one_run_row_by_row(name, tmp_path):
    fixture = model_named(name)
    proto = onnx.load(fixture.folder / "model.onnx")
    for value in [*proto.graph.input, *proto.graph.output]:
        value.type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(proto, tmp_path / "model.onnx")
    model = DecoderModel(DecoderGraph.load(tmp_path / "model.onnx"))
    assert decode(model, fixture.prompts[:3], COUNT) == fixture.greedy[:3]
    decoder = model.start(60)
    tokens = decoder.step(*padded(fixture.prompts[:2])).argmax(-1)
    picked = [1, 0, 1]
    decoder.reorder(picked)
    for step in range(8):
        tokens = tokens[picked] if step == 0 else tokens
        assert tokens.tolist() == [fixture.greedy[i][step] for i in picked]
        tokens = decoder.step(tokens[:, None], np.ones(3, np.int64)).argmax(-1)


@pytest.mark.parametrize(("lengths", "columns"), [([20, 4], [20, 4]), ([20, 5], [20])], ids=str)
def test_much_padding_is_not_run(lengths, columns, monkeypatch):
    """8 and 7.5 columns of padding a row in place; alone or together the tokens are the same."""
    model, ran = model_named("gqa_values").model(), []
    forward = Group.forward

    def record(self, tokens, *rest):
        ran.append(tokens.shape[1])
        return forward(self, tokens, *rest)

    prompts = [list(range(4, 4 + length)) for length in lengths]
    alone = [decode(model, [prompt], COUNT)[0] for prompt in prompts]
    monkeypatch.setattr(Group, "forward", record)
    assert decode(model, prompts, COUNT) == alone
    assert [count for count in ran if count > 1] == columns


@every_model
@pytest.mark.parametrize("rows", [[1], [1, 2]], ids=str)
def test_a_step_without_tokens_changes_nothing(fixture, rows):
    decoder = fixture.model().start(60)
    tokens = decoder.step(*padded([fixture.prompts[i] for i in rows])).argmax(-1)
    decoder.step(np.full((len(rows), 1), 7), np.zeros(len(rows), np.int64))
    for step in range(4):
        assert tokens.tolist() == [fixture.greedy[i][step] for i in rows]
        tokens = decoder.step(tokens[:, None], np.ones(len(rows), np.int64)).argmax(-1)
