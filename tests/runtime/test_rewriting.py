"""Rewritten graphs: what is rewritten, and that one that computes something else does not run."""

import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import load_external_data_for_model

import onnxgen
from onnxgen import wire
from onnxgen.graph import rewrites
from onnxgen.graph.rewrites import rewrite
from onnxgen.runtime.rewriting import checked, prepared
from onnxgen.runtime.session import Engine, Model
from tests.fixture_models import FIXTURES, FixtureModel

MODELS = FIXTURES / "models"

# Graph -> how many places of each kind are rewritten: two attentions a layer and branch of a
# decoder, one of an encoder; the targets of four reshapes around each.
COUNTS = {
    "whisper/encoder_model.onnx": {"attention": 2},
    "whisper/decoder_model_merged.onnx": {"branches": 1, "attention": 8},
    "whisper-en/decoder_with_past_model.onnx": {"attention": 4},
    # What attention gave to the words' times is an output: the two layers' cross-attention stays.
    "whisper-timestamped/decoder_model_merged.onnx": {"attention": 4},
    "bart/encoder_model.onnx": {"attention": 2},
    "marian/decoder_model_merged.onnx": {"branches": 1, "attention": 8},  # a bias behind the head
    # On the CPU its nodes compute in float32, and round what leaves a branch.
    "bart-fp16/decoder_model_merged_fp16.onnx": {"branches": None},
    "t5-q8/decoder_model_merged_quantized.onnx": {"tables": 2, "branches": 1},
    "llama/model.onnx": {"group_query": 2, "rotary": 2, "counts": 2},
    "granite/model.onnx": {"group_query": 2},
    "qwen3/model.onnx": {"group_query": 2, "rotary": 2},  # normalised heads
    "phi3/model.onnx": {"group_query": 2},  # packed projections
    "gpt_bigcode/model.onnx": {"group_query": 2},  # one head of keys for all
    "gpt_neox/model.onnx": {"group_query": 2},
    "mistral/model.onnx": {"group_query": 2},  # a window
    "smolvlm/onnx/decoder_model_merged.onnx": {"group_query": 2},  # embeddings go in
    "llava/onnx/decoder_model_merged.onnx": {"group_query": 2},
    "llava-onevision/onnx/decoder_model_merged.onnx": {"group_query": 2},
    # positions of three axes
    "qwen2-vl/onnx/decoder_model_merged.onnx": {"group_query": 2, "rotary": 2},
    "opt/model.onnx": {"group_query": 2, "rotary": None},  # a mask of numbers, positions embedded
    # Positions come from the length of the cache.
    "gemma3_text/model.onnx": {"group_query": 3, "rotary": 3},
    "../handmade/concat_no_positions_rope/model.onnx": {"group_query": 2},
    "../handmade/concat_learned_positions_from_past/model.onnx": {"group_query": 2},
    "bloom/model.onnx": {"group_query": None},
    "llama-pair/decoder_with_past_model.onnx": {"group_query": 2},
    "genai-llama/model.onnx": {"last_logits": 1, "counts": 2},
    "genai-lfm2/model.onnx": {"counts": 1},  # one layer of two is no attention
    "../handmade/gqa_host/model.onnx": {"counts": None},  # they are inputs already
}
PAST_LENGTH = [
    "models/gemma3_text",
    "handmade/concat_no_positions_rope",
    "handmade/concat_learned_positions_from_past",
]
# What takes samples, and what takes pictures: each has sizes that its names do not tell.
SIZED = {
    "moonshine/encoder_model.onnx": {"reshapes": 6},  # some hundred samples make a frame
    "trocr/encoder_model.onnx": {"reshapes": 4, "attention": 1},  # a table for pictures of 32 x 32
    "donut/encoder_model.onnx": {"reshapes": 12, "attention": 2},  # windows
}
# The operator takes no bias (B,1,1,T) for several queries, nor one that spreads over the keys.
NOT_CHECKED = {
    "smolvlm/onnx/vision_encoder.onnx": "Input 'attention_bias' dimension 2",
    "moonshine/decoder_model_merged.onnx": "Input 'attention_bias' dimension 3",
}


@pytest.mark.parametrize("name", COUNTS)
def test_what_is_rewritten(name):
    found = rewrite(MODELS / name)
    counts = {kind: len(sites) for kind, sites in found.sites.items()}
    assert {kind: counts.get(kind) for kind in COUNTS[name]} == COUNTS[name]
    operators = [node.op_type for _, node in found.draft.scope.nodes("MultiHeadAttention")]
    assert len(operators) == counts.get("attention", 0)
    load_external_data_for_model(found.draft.model, str(found.draft.folder))
    whole = found.draft.model.SerializeToString()
    onnxruntime.InferenceSession(whole, providers=["CPUExecutionProvider"])


def test_what_has_neither_attention_nor_a_cache_is_left_alone():
    path = MODELS / "smolvlm/onnx/embed_tokens.onnx"
    assert not rewrite(path).sites
    assert prepared(path) == path


@pytest.mark.parametrize("name", SIZED)
def test_sizes_that_no_name_tells_are_found(name):
    found = checked(MODELS / name)
    assert {kind: len(sites) for kind, sites in found.sites.items()} == SIZED[name]


@pytest.mark.parametrize("name", NOT_CHECKED)
def test_what_cannot_be_checked_is_left_out_alone(name):
    found = checked(MODELS / name)
    assert "reshapes" in found.sites
    assert "attention" not in found.sites
    ((reason, count),) = found.left["attention to MultiHeadAttention"].items()
    assert reason.startswith(f"it cannot be checked: {NOT_CHECKED[name]}")
    assert count == len(rewrite(MODELS / name).sites["attention"])


# Why no attention becomes GroupQueryAttention, from how these models are defined.
REASONS = {
    # Both are prefix language models: a prompt's tokens see those behind them, too.
    "gemma3/onnx/decoder_model_merged.onnx": (
        "the mask comes from other inputs than a mask of padding"
    ),
    "paligemma/onnx/decoder_model_merged.onnx": (
        "the mask shows other keys than causality, padding and a window do"
    ),
    "deepseek_v3/model.onnx": "keys and values differ in size",
    "falcon-alibi/model.onnx": "keys are turned before they are cached",
    "falcon/model.onnx": "attention weights are used for more than a product with values",
    "llama-fp16/model.onnx": "weights of half precision round otherwise in another order",
    "whisper/decoder_model_merged.onnx": "the graph has branches",
    "../handmade/shared_layer/model.onnx": "several attentions share a cache",
}


@pytest.mark.parametrize("name", REASONS)
def test_why_attention_is_left_alone(name):
    found = rewrite(MODELS / name)
    assert found.left["attention to GroupQueryAttention"] == {REASONS[name]: 1}


# Why a mask stays that attention counts its valid rows by, from how these graphs were written.
MASKS_KEPT = {
    "gqa_mask_length": "valid rows are not the sum of a mask",
    "gqa_past_length": "valid rows are not the sum of a mask",
    "gqa_positions": "valid rows are not the sum of a mask",
    "gqa_total_from_values": "the total is not the mask's length",
}


@pytest.mark.parametrize("name", MASKS_KEPT)
def test_why_a_mask_is_kept(name):
    found = rewrite(FIXTURES / "handmade" / name / "model.onnx")
    assert found.left["valid rows counted outside"] == {MASKS_KEPT[name]: 1}


def test_a_mask_that_something_else_reads_stays_beside_the_counts():
    graph = rewrite(FIXTURES / "handmade/gqa_bias/model.onnx").graph(Path("model.onnx"))
    assert {"attention_mask", "seqlens_k", "total_sequence_length"} <= set(graph.inputs)


@pytest.mark.parametrize("name", ["llama", "genai-llama"])
def test_counts_take_the_place_of_the_mask(name):
    graph = rewrite(MODELS / name / "model.onnx").graph(Path("model.onnx"))
    assert "ReduceSum" not in {node.op_type for node in graph.scope.graph.node}
    assert "attention_mask" not in graph.inputs
    assert graph.inputs["seqlens_k"].dtype == "int32"
    assert graph.inputs["total_sequence_length"].shape == ()


@pytest.mark.parametrize("name", ["cohere", "gpt_neox", "phi3"])  # the last two turn a part
def test_why_a_rotary_embedding_is_kept(name):
    found = rewrite(MODELS / name / "model.onnx")
    reason = "heads are turned in part, by pairs or by other angles"
    assert found.left["rotary embedding to RotaryEmbedding"] == {reason: 2}


def test_halves_that_are_exchanged_are_found_out(tmp_path):
    """``[-x1, x2]``: alike in structure, and no rotation."""
    model = onnx.load(MODELS / "llama/model.onnx")
    makers = {node.output[0]: node for node in model.graph.node}
    for node in model.graph.node:
        negated = makers.get(node.input[0]) if node.op_type == "Concat" else None
        if negated is not None and negated.op_type == "Neg":
            negated.input[0], node.input[1] = node.input[1], negated.input[0]
    onnx.save(model, tmp_path / "model.onnx")
    assert "rotary" in rewrite(tmp_path / "model.onnx").sites
    with pytest.warns(UserWarning, match="runs without rotary embedding to RotaryEmbedding"):
        found = checked(tmp_path / "model.onnx")
    assert "rotary" not in found.sites
    assert "group_query" in found.sites


def test_why_a_pair_of_graphs_is_left_alone():
    found = rewrite(MODELS / "llama-pair/decoder_with_past_model.onnx", shares=False)
    reason = "only a decoder of one graph, on the CPU, shares its buffer"
    assert found.left["attention to GroupQueryAttention"] == {reason: 1}
    encoder = rewrite(MODELS / "whisper-en/encoder_model.onnx", shares=False)
    assert "attention to GroupQueryAttention" not in encoder.left


@pytest.mark.parametrize("name", PAST_LENGTH)
@pytest.mark.parametrize("options", [{}, {"prefill_chunk_size": 3}], ids=str)
def test_positions_from_the_length_of_the_cache(name, options):
    """Of a shared buffer the mask tells it, which is the longest row's for all: rows stay apart."""
    model, fixture = onnxgen.load(FIXTURES / name), FixtureModel(FIXTURES / name)
    assert model.model.graph.mode == "in_place"
    assert not model.model.graph.ragged
    options = {"eos_token_id": None, "do_sample": False, "max_new_tokens": 32, **options}
    for order in [(1,), (0, 1, 2), (3, 1, 3)]:
        answers = model.generate([fixture.prompts[i] for i in order], **options)
        assert [list(answer.tokens) for answer in answers] == [fixture.greedy[i] for i in order]


def test_a_length_that_is_cut_from_the_shape_is_found(tmp_path):
    """``Shape(start=2, end=3)``, as torch.export writes it."""
    model = onnx.load(MODELS / "gemma3_text/model.onnx")
    (shape,) = [n for n in model.graph.node if n.op_type == "Shape" and "past" in n.input[0]]
    (gather,) = [n for n in model.graph.node if n.input and n.input[0] == shape.output[0]]
    shape.attribute.extend([helper.make_attribute("start", 2), helper.make_attribute("end", 3)])
    gather.op_type = "Squeeze"
    del gather.input[1:]
    del gather.attribute[:]
    onnx.save(model, tmp_path / "model.onnx")
    assert len(checked(tmp_path / "model.onnx").sites["group_query"]) == 3


@pytest.mark.parametrize("name", PAST_LENGTH)
def test_tokens_are_taken_back_where_the_mask_tells_the_past(name):
    model, fixture = onnxgen.load(FIXTURES / name), FixtureModel(FIXTURES / name)
    options = {"eos_token_id": None, "max_new_tokens": 32, "prompt_lookup_num_tokens": 4}
    for prompt, tokens in zip(fixture.prompts, fixture.greedy, strict=True):
        assert list(model.generate(prompt, do_sample=False, **options).tokens) == tokens


def test_every_decoder_that_keeps_its_softmax_says_why():
    """All fixtures with a cache, whichever rewrite would have taken it away."""
    silent = []
    for path in sorted(MODELS.rglob("*.onnx")):
        found = rewrite(path)
        kept = [node for _, node in found.draft.scope.nodes("Softmax")]
        if kept and sum(sum(reasons.values()) for reasons in found.left.values()) < len(kept):
            silent.append(str(path.relative_to(MODELS)))
    assert not silent


def test_data_in_another_folder_is_named_as_the_reason(tmp_path):
    source = MODELS / "whisper"
    (tmp_path / "data").mkdir()
    onnx_path = tmp_path / "encoder_model.onnx"
    model = onnx.load(source / "encoder_model.onnx")
    onnx.save(model, onnx_path, save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").rename(tmp_path / "data" / "w.bin")
    (tmp_path / "w.bin").symlink_to(tmp_path / "data" / "w.bin")
    found = rewrite(onnx_path)
    assert not found.sites
    assert found.left == {"rewrites": {"its data lies in another folder": 1}}


def test_attention_in_half_precision_is_left_alone():
    found = rewrite(MODELS / "bart-fp16/decoder_model_merged_fp16.onnx")
    assert "attention" not in found.sites


@pytest.mark.parametrize("name", COUNTS)
def test_the_check_accepts_what_is_right(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(prepared(MODELS / name), Model)


def test_the_second_graph_of_a_pair_keeps_its_growing_cache():
    model = onnxgen.load(MODELS / "llama-pair")
    assert model.model.graph.mode == "append"
    assert onnxgen.load(MODELS / "llama").model.graph.mode == "in_place"


def test_nothing_is_rewritten_if_that_is_asked():
    path = MODELS / "whisper/encoder_model.onnx"
    assert prepared(path, Engine(rewrites=False)) == path


def test_a_wrong_rewrite_is_found_out(monkeypatch):
    """A scale that is off by half: the graph runs without it, and a warning says so."""
    fuse = rewrites.attention.fuse

    def wrong(draft):
        sites = fuse(draft)
        for nodes in draft._replaced.values():
            for node in nodes:
                for attribute in node.attribute:
                    if attribute.name == "scale":
                        attribute.f *= 1.5
        return sites

    kept = [r for r in rewrites.REWRITES if r.name != "attention"]
    broken = rewrites.Rewrite("attention", "attention, broken", wrong)
    monkeypatch.setattr(rewrites, "REWRITES", (*kept, broken))
    path = MODELS / "whisper/encoder_model.onnx"
    with pytest.warns(UserWarning, match="runs without attention, broken: it gives other values"):
        about = prepared(path).about
    assert about.endswith(" x shapes written down")
    assert "attention" not in about


def test_weights_are_referred_to_where_they_lie(tmp_path):
    path = MODELS / "whisper/decoder_model_merged.onnx"
    model = onnx.ModelProto.FromString(wire.refer(path, path.name))
    outside = [t for t in model.graph.initializer if t.data_location == TensorProto.EXTERNAL]
    assert outside
    load_external_data_for_model(model, str(path.parent))
    whole = {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    for tensor in model.graph.initializer:
        assert np.array_equal(numpy_helper.to_array(tensor), whole[tensor.name]), tensor.name


def test_links_of_a_hub_cache_are_followed(tmp_path):  # known problem L2
    """A snapshot's files are links to blobs with other names; ONNX Runtime takes none outside."""
    blobs, snapshot = (tmp_path / "models--o--n" / name for name in ("blobs", "snapshots/c"))
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    source = MODELS / "whisper"
    for file in source.iterdir():
        blob = blobs / f"b{file.name}".replace(".", "")
        blob.write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(Path("../../blobs") / blob.name)
    assert isinstance(prepared(snapshot / "encoder_model.onnx"), Model)
    wave = np.zeros(16_000, np.float32)
    answers = [
        onnxgen.load(folder).generate(wave, max_new_tokens=4, language="en").segments
        for folder in (source, snapshot)
    ]
    assert answers[0] == answers[1]


def _tied(path: Path, kind: type, rows: int = 40, width: int = 32) -> np.ndarray:
    """A head that is the transposed table of 8 bits, as a quantiser leaves it, and its floats."""
    random = np.random.default_rng(0)
    low, high = (0, 256) if kind is np.uint8 else (-128, 128)
    table = random.integers(low, high, (rows, width)).astype(kind)
    zero = kind(131 if kind is np.uint8 else 3)
    nodes = [
        helper.make_node("Transpose", ["table"], ["turned"], perm=[1, 0]),
        helper.make_node("DequantizeLinear", ["turned", "scale", "zero"], ["floats"]),
        helper.make_node("MatMul", ["x", "floats"], ["y"]),
    ]
    constants = {"table": table, "scale": np.float32(0.02), "zero": np.array(zero, kind)}
    graph = helper.make_graph(
        nodes,
        "head",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "sequence", width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "sequence", rows])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return (table.astype(np.float32) - np.float32(zero)) * np.float32(0.02)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_a_table_of_8_bits_in_blocks(tmp_path, kind):  # known problem P7
    """Activations of 8 bits in blocks of 32: each is off by half of a 127th of its block's largest
    at most, so is a product by that times the weights' absolute sum."""
    path = tmp_path / "head.onnx"
    floats = _tied(path, kind)  # (N,K)
    found = rewrite(path, rounds=True)
    assert set(found.sites) == {"blocks"}
    model = found.draft.model.SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).standard_normal((2, 3, 32)).astype(np.float32)
    (y,) = session.run(None, {"x": x})
    bound = np.abs(x).max() / 127 / 2 * np.abs(floats).sum(axis=1)  # (N,)
    assert (np.abs(y - x @ floats.T) <= 1.01 * bound + 1e-4).all()
    assert np.abs(y - x @ floats.T).max() > 0 or kind is np.uint8


def test_a_table_of_8_bits_is_made_floats_once(tmp_path):
    path = tmp_path / "head.onnx"
    floats = _tied(path, np.uint8)
    found = rewrite(path)
    assert set(found.sites) == {"tables"}
    assert found.config == {"session.disable_quant_qdq": "1"}
    options = onnxruntime.SessionOptions()
    for key, value in found.config.items():
        options.add_session_config_entry(key, value)
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    model = found.draft.model.SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    x = np.eye(32, dtype=np.float32)[None]
    assert np.allclose(session.run(None, {"x": x})[0][0], floats.T, atol=1e-6)
    left = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert "DequantizeLinear" not in left


@pytest.mark.parametrize("given", [3, 0, "4", True])
def test_wrong_accuracy_levels(given):
    with pytest.raises(onnxgen.OnnxgenError, match="accuracy_level"):
        onnxgen.load(MODELS / "llama-tjs", accuracy_level=given)


def test_accuracy_level_without_rewrites():
    with pytest.raises(onnxgen.OnnxgenError, match="nothing may be rewritten"):
        onnxgen.load(MODELS / "llama-tjs", accuracy_level=4, rewrites=False)
