"""The NumPy reference of the hand-written graphs, against closed forms and against the graphs."""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from scripts.handmade import reference  # noqa: E402
from scripts.handmade.weights import Layer, Spec, make_weights  # noqa: E402

FIXTURES = ROOT / "fixtures" / "handmade"
RNG = np.random.default_rng(7)


def test_rotation_turns_the_plane_by_the_position():
    turned = reference.rotate(np.array([[1.0, 0.0]] * 3), np.array([0, 1, 2]))
    np.testing.assert_allclose(turned, [[1, 0], [np.cos(1), np.sin(1)], [np.cos(2), np.sin(2)]])


def test_rotation_pairs_halves_and_slows_down_along_them():
    x = np.array([[0.0, 2.0, 0.0, 1.0]])  # the second of two pairs: 2 + 1i
    turned = reference.rotate(x, np.array([5]))
    want = (2 + 1j) * np.exp(5j / 10)  # base 100, half the way: a tenth of the first angle
    np.testing.assert_allclose(turned, [[0, want.real, 0, want.imag]])


def test_scores_of_rotated_vectors_hang_on_their_distance_alone():
    q, k = RNG.standard_normal((2, 1, 8))
    near = reference.rotate(q, np.array([7])) @ reference.rotate(k, np.array([3])).T
    far = reference.rotate(q, np.array([40])) @ reference.rotate(k, np.array([36])).T
    np.testing.assert_allclose(near, far)


def test_equal_scores_average_what_came_before():
    value = np.array([[3.0], [5.0], [10.0], [2.0]])
    nothing = np.zeros((4, 2))
    np.testing.assert_allclose(reference.attention(nothing, nothing, value), [[3], [4], [6], [5]])


def test_a_window_counts_the_token_itself():
    value = np.array([[3.0], [5.0], [10.0], [2.0]])
    nothing = np.zeros((4, 2))
    windowed = reference.attention(nothing, nothing, value, window=2)
    np.testing.assert_allclose(windowed, [[3], [4], [7.5], [6]])


def test_scores_are_divided_by_the_root_of_the_width():
    query = np.full((2, 4), np.log(3.0) / 2)  # times a key of ones over 2: log 3
    key = np.array([[1.0] * 4, [0.0] * 4])
    mixed = reference.attention(query, key, np.array([[1.0], [0.0]]))
    np.testing.assert_allclose(mixed, [[1], [3 / 4]])


def test_a_slope_of_log_two_halves_the_weight_with_each_token():
    nothing, value = np.zeros((3, 2)), np.array([[1.0], [10.0], [100.0]])
    mixed = reference.attention(nothing, nothing, value, slope=np.log(2))
    np.testing.assert_allclose(mixed[2], (100 + 10 / 2 + 1 / 4) / (1 + 1 / 2 + 1 / 4))


def test_slopes_are_those_of_the_paper():
    np.testing.assert_array_equal(reference.slopes(8), [1 / 2**n for n in range(1, 9)])
    np.testing.assert_array_equal(reference.slopes(4), [1 / 4, 1 / 16, 1 / 64, 1 / 256])


def test_the_filter_is_a_convolution_with_its_taps_reversed():
    x, taps = RNG.standard_normal((9, 2)), RNG.standard_normal((2, 3))
    got = reference.causal_filter(x, taps)
    for channel in range(2):
        want = np.convolve(x[:, channel], taps[channel, ::-1])[:9]
        np.testing.assert_allclose(got[:, channel], want)


def test_the_recurrence_equals_its_unrolled_sum():
    query, key = RNG.standard_normal((2, 6, 4))
    value, decay = RNG.standard_normal((6, 3)), RNG.uniform(0.2, 0.9, 6)
    want = np.zeros((6, 3))
    for t in range(6):
        for j in range(t + 1):
            want[t] += np.prod(decay[j + 1 : t + 1]) * (query[t] @ key[j]) / 2 * value[j]
    np.testing.assert_allclose(reference.recurrence(query, key, value, decay), want)


def test_a_decoder_of_empty_blocks_is_a_table_of_next_tokens():
    spec = Spec(vocab=4, hidden=4, layers=(Layer(0), Layer(1)), eos=3)
    weights = {name: np.zeros_like(value) for name, value in make_weights(spec).items()}
    weights["embed"], weights["norm"] = np.eye(4), np.ones(4)
    weights["head"] = np.eye(4)[[2, 0, 3, 1]]  # after 0 comes 2, after 2 comes 3, ...
    tokens, margins = reference.greedy(spec, weights, [0], 5)
    assert tokens == [2, 3, 1, 0, 2]
    np.testing.assert_allclose(margins, 2, rtol=1e-4)  # a unit row over its root mean square 1/2


KINDS = {
    "grouped heads": Spec(),
    "alibi": Spec(positions="alibi", norm="layer"),
    "learned": Spec(positions="learned", norm="layer"),
    "filter": Spec(layers=(Layer(0, "conv"), Layer(1))),
    "recurrence": Spec(layers=(Layer(0, "recurrent"), Layer(1))),
    "shared": Spec(layers=(Layer(0), Layer(1, "shared", source=0))),
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_token_sees_a_later_one(kind):
    spec = KINDS[kind]
    weights = make_weights(spec)
    short = reference.forward(spec, weights, [5, 3, 8])
    long = reference.forward(spec, weights, [5, 3, 8, 80, 1])
    np.testing.assert_allclose(long[:3], short)
    other = reference.forward(spec, weights, [6, 3, 8])
    assert np.abs(other[2] - short[2]).max() > 0.01  # and every token sees an earlier one


GRAPHS = {
    "concat_positions": Spec(),
    "concat_alibi": Spec(positions="alibi", norm="layer"),
    "packed_key_value": Spec(
        layers=(Layer(0, kv_heads=1), Layer(1, kv_heads=1)), positions="learned", norm="layer"
    ),
    "conv_state": Spec(layers=(Layer(0, "conv"), Layer(1, key_size=16, value_size=16))),
    "recurrent_state": Spec(layers=(Layer(0, "recurrent"), Layer(1, key_size=16, value_size=16))),
    "concat_window": Spec(layers=(Layer(0, window=5), Layer(1))),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_gives_the_logits_of_the_reference(name):
    """The weights are read from the graph; its caches are empty."""
    folder = FIXTURES / name
    stored = onnx.load(folder / "model.onnx").graph.initializer
    weights = {
        tensor.name.removeprefix("model.").removesuffix(".weight"): onnx.numpy_helper.to_array(
            tensor
        )
        for tensor in stored
    }
    weights = {n: w[:, 0] if n.endswith("filter") else w for n, w in weights.items()}
    ids = RNG.integers(0, 97, 23)
    want = reference.forward(GRAPHS[name], weights, ids.tolist())
    got = run_afresh(ort.InferenceSession(folder / "model.onnx"), ids)
    np.testing.assert_allclose(got, want, atol=1e-4)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_run_afresh_in_each_step_gives_the_expected_tokens(name):
    folder = FIXTURES / name
    expected = json.loads((folder / "expected.json").read_text())
    session = ort.InferenceSession(folder / "model.onnx")
    for prompt, tokens in zip(expected["prompts"], expected["greedy"], strict=True):
        ids = list(prompt)
        for _ in tokens:
            ids.append(int(run_afresh(session, np.array(ids))[-1].argmax()))
        assert ids[len(prompt) :] == tokens


def run_afresh(session: ort.InferenceSession, ids: np.ndarray) -> np.ndarray:
    """Logits (S, V) of ``ids`` (S,) with every cache empty and every state zero."""
    feeds = {
        "input_ids": ids[None],
        "attention_mask": np.ones((1, len(ids)), np.int64),
        "position_ids": np.arange(len(ids))[None],
    }
    feed = {}
    for value in session.get_inputs():
        sizes = {"batch_size": 1, "past_sequence_length": 0}
        dims = [sizes.get(dim, dim) for dim in value.shape]
        feed[value.name] = feeds[value.name] if value.name in feeds else np.zeros(dims, np.float32)
    return session.run(["logits"], feed)[0][0]
