"""Faults of other runtimes in what is bound, fed, shared and kept from step to step."""

import ctypes
import gc
import json
import platform
import shutil

import numpy as np
import onnx
import onnxruntime
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxgen
from onnxgen.errors import DeviceError, OnnxgenError
from onnxgen.graph.decoder import DecoderGraph, Logits, Mode
from onnxgen.runtime import session as sessions
from onnxgen.runtime.binding import Binding
from onnxgen.runtime.caches import GrowingCache, InPlaceCache, right_padded
from onnxgen.runtime.decoder import DecoderModel
from onnxgen.runtime.device import Device
from onnxgen.runtime.embeddings import Embedder
from onnxgen.runtime.feeds import feeds
from onnxgen.runtime.session import Cancel, Engine, Session
from tests.fixture_models import FIXTURES, FixtureModel, decode, found, padded

EVERY = found("handmade") + found("models")
ONE = np.ones(1, np.int64)


def fixture(name):
    return FixtureModel(FIXTURES / name)


def of(fixtures):
    return pytest.mark.parametrize("fixture", fixtures, ids=lambda f: f.name)


# -- devices and options -----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_session_that_fell_back_to_another_provider_is_refused(monkeypatch):
    """known problem L11: ONNX Runtime itself goes on without the provider that was asked for."""
    asked = [("CUDAExecutionProvider", {}), "CPUExecutionProvider"]
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("needs a build without CUDA")
    monkeypatch.setattr(sessions, "_providers", lambda *_: asked)
    with pytest.raises(DeviceError, match="fell back to CPUExecutionProvider"):
        Session(FIXTURES / "handmade/gqa_values/model.onnx", Engine("cuda"))


class Gpu:
    """ONNX Runtime as far as the choice of providers asks it."""

    @staticmethod
    def get_available_providers():
        return ["CUDAExecutionProvider", "CPUExecutionProvider"]

    @staticmethod
    def preload_dlls():
        pass


def test_sessions_on_cuda_grow_by_what_they_need_and_capture_nothing():
    """known problems P3, C10"""
    (name, options), _ = sessions._providers(Gpu, "cuda", 1)
    assert name == "CUDAExecutionProvider"
    assert options == {"device_id": 1, "arena_extend_strategy": "kSameAsRequested"}
    assert Cancel().options().get_run_config_entry("gpu_graph_id") == "-1"
    assert not sessions._options(onnxruntime, None, True).enable_mem_pattern


def test_threads_of_several_sessions_do_not_turn_while_they_wait():
    """known problem P10"""
    others = [o for o in gc.get_objects() if isinstance(o, Session)]  # of other tests
    model = onnxgen.load(FIXTURES / "models/smolvlm", threads=2)
    case = json.loads((FIXTURES / "models/smolvlm/expected.json").read_text())["cases"][0]
    image = FIXTURES / "images" / case["images"][0]
    model.generate(case["prompt"], images=[image], max_new_tokens=2)
    held = [o for o in gc.get_objects() if isinstance(o, Session) and o not in others]
    several = [s for s in held if s.name in {"vision_encoder.onnx", "embed_tokens.onnx"}]
    assert len(several) >= 2
    for session in [*several, model.model.first]:
        options = session.ort.get_session_options()
        assert options.get_session_config_entry("session.force_spinning_stop") == "1"
    for session in [model.model.first, model.model.later]:
        assert session.ort.get_session_options().intra_op_num_threads == 2


# -- what is bound -----------------------------------------------------------------------------


def doubling(path):
    """``y = 2 x`` of any length."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["b", "n"]) for n in "xy")
    two = numpy_helper.from_array(np.float32(2), "two")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "two"], ["y"])], "g", [x], [y], [two])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    return Session(path)


@pytest.mark.parametrize("step", [2, 1, -1], ids=["gaps", "whole", "backwards"])
def test_arrays_with_gaps_and_arrays_let_go_are_fed_as_they_were(step, tmp_path):
    """known problem P8"""
    binding = Binding(doubling(tmp_path / "m.onnx"), Device())
    for columns in (500, 3, 500):
        whole = np.random.default_rng(columns).normal(size=(4, 2 * columns)).astype(np.float32)
        expected = 2 * whole[:, ::step]
        binding.write("x", whole[:, ::step])
        whole[:] = np.nan
        del whole
        gc.collect()
        trash = [np.full((4, columns), np.nan, np.float32) for _ in range(50)]
        binding.allocate("y")
        binding.run(Cancel())
        np.testing.assert_array_equal(binding.fetch("y").numpy(), expected)
        del trash


class Seen:
    """Notes what bindings are told from here on."""

    def __init__(self, monkeypatch):
        self.written, self.filled, self.allocated, self.bound = [], [], [], []
        for name, notes in {
            "write": self.written, "fill": self.filled, "allocate": self.allocated
        }.items():  # fmt: skip
            self._note(monkeypatch, name, notes)
        bind = Binding._bind

        def really(binding, call, name, *rest):
            before = binding._bound.get(name)
            bind(binding, call, name, *rest)
            if binding._bound[name] is not before:
                self.bound.append(name)

        monkeypatch.setattr(Binding, "_bind", really)

    @staticmethod
    def _note(monkeypatch, name, notes):
        plain = getattr(Binding, name)

        def noted(binding, port, *rest):
            notes.append((port, *rest))
            return plain(binding, port, *rest)

        monkeypatch.setattr(Binding, name, noted)

    def clear(self):
        for notes in (self.written, self.filled, self.allocated, self.bound):
            notes.clear()

    def names(self, notes):
        return {note if isinstance(note, str) else note[0] for note in notes}


CACHED = [f for f in EVERY if f.facts()["decoder"].slots]


@of(CACHED)
def test_caches_are_never_fed_from_the_host(fixture, monkeypatch):
    """known problems P11, P13: past and present stay where they are; only small inputs are fed."""
    seen, model = Seen(monkeypatch), fixture.model()
    for rows in ([1], [0, 1]):
        decoder = model.start(40)
        decoder.step(*padded([fixture.prompts[i] for i in rows]))
        for _ in range(3):
            decoder.step(np.full((len(rows), 1), 5), np.ones(len(rows), np.int64))
    caches = {slot.input for slot in model.graph.slots}
    assert not caches & seen.names(seen.written)
    assert caches <= seen.names(seen.bound)
    assert not seen.names(seen.allocated) & {slot.output for slot in model.graph.slots}


@of([f for f in CACHED if f.facts()["decoder"].mode is Mode.IN_PLACE])
def test_buffers_in_place_are_bound_once(fixture, monkeypatch):
    """known problem P9"""
    model = fixture.model()
    decoder = model.start(40)
    for _ in range(3):
        decoder.step(ONE[:, None], ONE)
    seen = Seen(monkeypatch)
    for _ in range(10):
        decoder.step(ONE[:, None], ONE)
    kept = {s.input for s in model.graph.caches} | {s.output for s in model.graph.caches}
    assert not kept & seen.names(seen.bound)


@of([f for f in CACHED if f.facts()["decoder"].mode in {Mode.APPEND, Mode.GROW}])
def test_a_step_reads_one_token_and_all_that_was_before(fixture, monkeypatch):
    """known problem C15: a past that is empty in each step would be as wrong as it is slow."""
    model, seen = fixture.model(), []
    cache = next(s for s in model.graph.slots if s.seq_axis is not None)
    read, run = Binding.read, Session.run
    shapes = {}

    def reading(binding, name, elem_type, shape, *rest):
        shapes[name] = tuple(shape)
        read(binding, name, elem_type, shape, *rest)

    def running(session, *rest):
        seen.append(shapes.get(cache.input, (0,) * 9)[cache.seq_axis])
        run(session, *rest)

    decoder = model.start(40)
    if model.later is model.first and model.cross is None:
        assert model.extends in {True, False}  # tried before the counting begins
    monkeypatch.setattr(Binding, "read", reading)
    monkeypatch.setattr(Session, "run", running)
    prompt = fixture.prompts[2]
    tokens = decoder.step(*padded([prompt])).argmax(-1)
    seen.clear()
    for step in range(6):
        assert tokens.tolist() == [fixture.greedy[2][step]]
        tokens = decoder.step(tokens[:, None], ONE).argmax(-1)
    steps = [columns for columns in seen if columns]  # embeddings are runs, too
    assert steps[-1] == len(prompt) + 5
    assert sorted(set(steps)) == [len(prompt) + i for i in range(6)]


@pytest.mark.parametrize("name", ["num_logits_to_keep", "num_logits_to_keep_1d"])
def test_one_column_of_logits_is_asked_for_where_one_is_read(name, monkeypatch):
    """known problem P6"""
    own = fixture(f"handmade/{name}")
    seen, model = Seen(monkeypatch), own.model()
    keep, logits = model.graph.inputs["keep"].name, model.graph.logits.name
    for prompt in (own.prompts[3], own.prompts[0]):
        model.start(40).step(*padded([prompt] * 2))
    asked = [values for port, values, *_ in seen.written if port == keep]
    assert [int(np.ravel(values)[0]) for values in asked] == [1, 1]
    assert {shape[1] for port, _, shape, *_ in seen.filled if port == logits} == {1}
    seen.clear()
    model.start(40).step(*padded([own.prompts[3], own.prompts[3][:9]]))  # of unequal length: all
    assert {shape[1] for port, _, shape, *_ in seen.filled if port == logits} == {17}


# -- buffers that are shared -------------------------------------------------------------------


def poison(memory):
    memory.array((memory.nbytes,), 1)[:] = 0xFF  # NaN as a float of any width


# Where the graph itself masks a buffer's free rows, they have to be zeros; so they are made.
GQA = [
    f
    for f in CACHED
    if f.facts()["decoder"].operators.get("GroupQueryAttention") and not f.facts()["decoder"].states
]


@of(GQA)
def test_what_lies_behind_the_valid_rows_reaches_no_result(fixture, monkeypatch):
    """known problem C6"""
    share, grow = InPlaceCache.__init__, GrowingCache.__init__

    def shared(cache, *given):
        share(cache, *given)
        for memory in cache._buffers.values():
            poison(memory)

    def growing(cache, *given):
        grow(cache, *given)
        for pair in cache._pairs:
            poison(pair.past)
            poison(pair.present)

    monkeypatch.setattr(InPlaceCache, "__init__", shared)
    monkeypatch.setattr(GrowingCache, "__init__", growing)
    for order in [(2, 0, 1), (0, 3)]:
        batch = decode(fixture.model(), [fixture.prompts[i] for i in order], 32)
        assert batch == [fixture.greedy[i] for i in order]


def by_hand(model, past, tokens, before):
    """One run with past and present apart: logits (V,) and presents by their inputs' names."""
    graph = model.graph
    layout = right_padded(np.array([tokens]), np.array([len(tokens)]), np.array([before]))
    fed = dict(feeds(graph, layout, False)) | past
    names = [graph.logits.name, *(slot.output for slot in graph.slots)]
    logits, *presents = model.first.ort.run(names, fed)
    return logits[0, -1], {s.input: p for s, p in zip(graph.slots, presents, strict=True)}


def is_plain(graph):
    """Whether :func:`by_hand` can feed it."""
    floats = {s.dtype for s in graph.slots} == {"float32"}
    full = graph.logits_kind is Logits.FULL and "keep" not in graph.inputs
    return graph.mode is Mode.IN_PLACE and floats and full and "ids" in graph.inputs


@of([f for f in GQA if is_plain(f.facts()["decoder"])] + [fixture("handmade/mha_past_length")])
def test_a_shared_buffer_holds_what_separate_ones_do(fixture):
    """known problems C11, C12: where a present lands, what it holds, what follows from it."""
    model, room = fixture.model(), 24
    decoder = model.start(room)
    past = {s.input: np.zeros(s.shape(1, room), s.dtype) for s in model.graph.slots}
    prompt, before = fixture.prompts[2], 0
    for tokens in [prompt, *([t] for t in fixture.greedy[2][:8])]:
        logits = decoder.step(*padded([tokens]))[0]
        expected, past = by_hand(model, past, tokens, before)
        before += len(tokens)
        np.testing.assert_allclose(logits, expected, atol=1e-4)
        (group,) = decoder._groups
        for slot in model.graph.caches:
            memory = group.cache._buffers[slot.input]
            held = memory.array(slot.shape(1, room), 4).view(np.float32)
            valid = (slice(None),) * slot.seq_axis + (slice(before),)
            np.testing.assert_allclose(held[valid], past[slot.input][valid], atol=1e-5)


def test_a_thousand_answers_by_shared_buffers_are_one_answer():
    """known problems C12, S33"""
    own = fixture("handmade/mha_past_length")
    model = own.model()
    for i in range(1000):
        row = 1 + i % 2
        assert decode(model, [own.prompts[row]], 3) == [own.greedy[row][:3]]


# -- graphs that differ ------------------------------------------------------------------------


def test_a_defective_reshape_is_told_by_its_name(tmp_path):
    """known problem L8: a shape of rank 2 for the keys' normalisation."""
    own = fixture("handmade/gqa_values")
    proto = onnx.load(own.folder / "model.onnx")
    graph = proto.graph
    node = next(n for n in graph.node if n.op_type == "GroupQueryAttention")
    key = node.input[1]
    graph.initializer.append(numpy_helper.from_array(np.array([0], np.int64), "front"))
    made = [
        helper.make_node("Shape", [key], ["k_dims"]),
        helper.make_node("Unsqueeze", ["k_dims", "front"], ["k_dims_wrong"]),
        helper.make_node("Reshape", [key, "k_dims_wrong"], ["k_normed"], name="/k_norm/Reshape"),
    ]
    at = list(graph.node).index(node)
    nodes = [*graph.node[:at], *made, *graph.node[at:]]
    node.input[1] = "k_normed"
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.save(proto, tmp_path / "model.onnx")
    with pytest.raises(OnnxgenError, match=r"(?s)/k_norm/Reshape.*export"):
        onnxgen.load(tmp_path / "model.onnx").generate([1, 2, 3], max_new_tokens=2)


def test_embeddings_of_each_layer_are_fed_in_every_step(tmp_path):
    """known problem L9: half an embedding comes as ``per_layer_inputs``, two quarters of it."""
    own = fixture("handmade/inputs_embeds")
    shutil.copytree(own.folder, tmp_path / "m")
    proto = onnx.load(own.folder / "model.onnx")
    embeds = next(v for v in proto.graph.input if v.name == "inputs_embeds")
    width = embeds.type.tensor_type.shape.dim[2].dim_value
    for node in proto.graph.node:
        node.input[:] = ["all" if name == "inputs_embeds" else name for name in node.input]
    layers = helper.make_tensor_value_info(
        "per_layer_inputs", TensorProto.FLOAT, ["batch_size", "sequence_length", 2, width]
    )
    proto.graph.input.append(layers)
    proto.graph.initializer.append(numpy_helper.from_array(np.array([2], np.int64), "layers"))
    nodes = [
        helper.make_node("ReduceSum", ["per_layer_inputs", "layers"], ["rest"], keepdims=0),
        helper.make_node("Add", ["inputs_embeds", "rest"], ["all"]),
        *proto.graph.node,
    ]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    onnx.save(proto, tmp_path / "m/model.onnx")

    table = onnx.load(own.folder / "embed_tokens.onnx")
    output = table.graph.output[0].name
    for node in table.graph.node:
        node.output[:] = ["whole" if name == output else name for name in node.output]
    constants = {"half": np.float32(0.5), "quarter": np.float32(0.25)}
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    pair = numpy_helper.from_array(np.array([1, 1, 2, 1], np.int64), "twice")
    table.graph.initializer.extend([*tensors, pair])
    table.graph.initializer.append(numpy_helper.from_array(np.array([2], np.int64), "axis"))
    table.graph.node.extend([
        helper.make_node("Mul", ["whole", "half"], [output]),
        helper.make_node("Mul", ["whole", "quarter"], ["part"]),
        helper.make_node("Unsqueeze", ["part", "axis"], ["one"]),
        helper.make_node("Tile", ["one", "twice"], ["per_layer_inputs"]),
    ])  # fmt: skip
    table.graph.output.append(layers)
    onnx.save(table, tmp_path / "m/embed_tokens.onnx")

    model = DecoderModel(
        DecoderGraph.load(tmp_path / "m/model.onnx"),
        embedder=Embedder(tmp_path / "m/embed_tokens.onnx"),
    )
    assert "per_layer_inputs" in model.graph.inputs
    for prompt, tokens in zip(own.prompts, own.greedy, strict=True):
        assert decode(model, [prompt], 32) == [tokens]
    assert decode(model, own.prompts, 32) == own.greedy


# known problem C14
def test_graphs_that_take_one_token_behind_a_cache_go_on_one_by_one():
    """Several fail in its kernels; a second turn is fed token by token then."""
    own = fixture("models/genai-llama-mha")
    model = own.model()
    assert not model.extends
    decoder = model.start(60)
    decoder.step(*padded([own.prompts[1]]))
    later = [*own.greedy[1][:6], 9, 8, 7]
    logits = decoder.step(*padded([later]))[0].copy()
    fresh = model.start(60).step(*padded([[*own.prompts[1], *later]]))[0]
    np.testing.assert_allclose(logits, fresh, atol=2e-2)  # half precision


# -- memory ------------------------------------------------------------------------------------


def resident():
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # what is free but not given back is no leak
    return psutil.Process().memory_info().rss


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="its allocator can be trimmed")
@pytest.mark.parametrize("name", ["models/gemma3_text", "models/llama-tjs"])
def test_caches_of_ever_new_lengths_leave_no_memory_behind(name):
    """known problem P2: 50 answers behind prompts of 100 to 700 tokens, 700 at first."""
    model = fixture(name).model()
    random = np.random.default_rng(0)

    def answer(length):
        decoder = model.start(length + 2)
        decoder.step(random.integers(3, 90, (1, length)), np.array([length]))
        for _ in range(2):
            decoder.step(ONE[:, None] * 5, ONE)
        decoder.close()

    for length in [700, *random.integers(100, 700, 10).tolist()]:
        answer(length)
    before = resident()
    for length in random.integers(100, 700, 50).tolist():
        answer(length)
    assert resident() - before < 4 << 20
