"""The demo model's builder: a miniature GGUF file, and the same decoder written in NumPy."""

import json
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from gguf import GGMLQuantizationType, GGUFWriter, TokenType
from gguf.quants import dequantize, quantize
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

sys.path.insert(0, str(Path(__file__).parents[2]))
from scripts.demo_model.__main__ import build

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD, FEED_FORWARD = 64, 2, 4, 2, 16, 96
CONTEXT, ROPE_BASE, EPSILON = 40, 500.0, 1e-5
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ hello", "Ġ 1", "1 2"]
TOKENS = [*SPECIAL, *sorted(ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in MERGES)]
Q4_1, Q8_0 = GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0


def random_weights(untied):
    """A checkpoint's weights: large enough that every part of the graph moves the logits."""
    rng = np.random.default_rng(7)
    weights = {"token_embd": rng.normal(size=(len(TOKENS), HIDDEN))}
    if untied:
        weights["output"] = rng.normal(size=(len(TOKENS), HIDDEN))
    for layer in range(LAYERS):
        for name, rows, columns in (
            ("attn_q", HEADS * HEAD, HIDDEN),
            ("attn_k", KV_HEADS * HEAD, HIDDEN),
            ("attn_v", KV_HEADS * HEAD, HIDDEN),
            ("attn_output", HIDDEN, HEADS * HEAD),
            ("ffn_gate", FEED_FORWARD, HIDDEN),
            ("ffn_up", FEED_FORWARD, HIDDEN),
            ("ffn_down", HIDDEN, FEED_FORWARD),
        ):
            # Off-centre, so that blocks have minimums which no zero point could stand for.
            weights[f"blk.{layer}.{name}"] = rng.normal(0.03, 0.2, size=(rows, columns))
        weights[f"blk.{layer}.attn_norm"] = rng.uniform(0.5, 1.5, HIDDEN)
        weights[f"blk.{layer}.ffn_norm"] = rng.uniform(0.5, 1.5, HIDDEN)
    weights["output_norm"] = rng.uniform(0.5, 1.5, HIDDEN)
    return {name: values.astype(np.float32) for name, values in weights.items()}


def stored_rows(name, matrix):
    """Rows as llama.cpp stores them: row d of a head's first half next to row d of its second."""
    heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(name.split(".")[-1])
    if heads is None:
        return matrix
    order = [
        h * HEAD + half * HEAD // 2 + d
        for h in range(heads)
        for d in range(HEAD // 2)
        for half in (0, 1)
    ]
    return matrix[order]


def write_gguf(path, weights, architecture="llama"):
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_rope_dimension_count(HEAD)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([TokenType.CONTROL] * 3 + [TokenType.NORMAL] * (len(TOKENS) - 3))
    writer.add_token_merges(MERGES)
    for role, token in (("bos", 1), ("eos", 2), ("unk", 0), ("pad", 2)):
        getattr(writer, f"add_{role}_token_id")(token)
    writer.add_chat_template("{{ messages }}")
    for name, values in weights.items():
        if values.ndim == 1:
            writer.add_tensor(f"{name}.weight", values)
            continue
        kind = Q4_1 if name.startswith("blk") else Q8_0
        writer.add_tensor(
            f"{name}.weight", quantize(stored_rows(name, values), kind), raw_dtype=kind
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def rounded(weights):
    """The weights after their quantisation, in float64."""
    result = {}
    for name, values in weights.items():
        kind = Q4_1 if name.startswith("blk") else Q8_0
        kept = values if values.ndim == 1 else dequantize(quantize(values, kind), kind)
        result[name] = kept.astype(np.float64)
    return result


def reference(weights, ids):
    """Logits (S,V) of one sequence: the Llama decoder as its paper and PyTorch have it."""
    hidden = weights["token_embd"][ids]  # (S,K)
    angles = np.outer(np.arange(len(ids)), ROPE_BASE ** (-np.arange(0, HEAD, 2) / HEAD))
    cos, sin = np.cos(angles), np.sin(angles)  # (S,D/2)

    def norm(x, scale):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + EPSILON) * scale

    def heads(x, count):
        return x.reshape(len(ids), count, HEAD).swapaxes(0, 1)  # (S,H·D) -> (H,S,D)

    def rotated(x):
        first, second = x[..., : HEAD // 2], x[..., HEAD // 2 :]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)

    future = np.triu(np.full((len(ids), len(ids)), -np.inf), 1)
    for layer in range(LAYERS):
        part = {name.split(".")[-1]: w for name, w in weights.items() if f"blk.{layer}." in name}
        x = norm(hidden, part["attn_norm"])
        query = rotated(heads(x @ part["attn_q"].T, HEADS))
        key = rotated(heads(x @ part["attn_k"].T, KV_HEADS)).repeat(HEADS // KV_HEADS, 0)
        value = heads(x @ part["attn_v"].T, KV_HEADS).repeat(HEADS // KV_HEADS, 0)
        scores = np.exp(query @ key.swapaxes(1, 2) / np.sqrt(HEAD) + future)  # (H,S,S)
        mixed = scores / scores.sum(-1, keepdims=True) @ value
        hidden = hidden + mixed.swapaxes(0, 1).reshape(len(ids), -1) @ part["attn_output"].T
        x = norm(hidden, part["ffn_norm"])
        gate = x @ part["ffn_gate"].T
        hidden = hidden + (gate / (1 + np.exp(-gate)) * (x @ part["ffn_up"].T)) @ part["ffn_down"].T
    return norm(hidden, weights["output_norm"]) @ weights.get("output", weights["token_embd"]).T


def run(session, ids, mask, cache=None):
    """Logits (B,S,V) and the cache for the next run."""
    names = [node.name for node in session.get_inputs()][2:]
    cache = cache or [np.zeros((len(ids), KV_HEADS, 0, HEAD), np.float32) for _ in names]
    feeds = {"input_ids": ids, "attention_mask": mask, **dict(zip(names, cache, strict=True))}
    logits, *cache = session.run(None, feeds)
    return logits, cache


@pytest.fixture(scope="module", params=[False, True], ids=["tied", "untied"])
def weights(request):
    return random_weights(request.param)


@pytest.fixture(scope="module")
def folder(weights, tmp_path_factory):
    path = tmp_path_factory.mktemp("demo")
    write_gguf(path / "mini.gguf", weights)
    build(path / "mini.gguf", path / "model")
    return path / "model"


@pytest.fixture(scope="module")
def session(folder):
    return ort.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])


IDS = np.random.default_rng(3).integers(0, len(TOKENS), size=(2, 24))


def test_logits_are_those_of_the_stored_weights(weights, session):
    logits, _ = run(session, IDS, np.ones_like(IDS))
    expected = np.stack([reference(rounded(weights), row) for row in IDS])
    np.testing.assert_allclose(logits, expected, atol=2e-4 * np.abs(expected).max())


def test_steps_with_the_cache_give_the_logits_of_one_run(weights, session):
    expected = np.stack([reference(rounded(weights), row) for row in IDS])
    cache, start = None, 0
    for stop in range(9, 25):
        mask = np.ones((2, stop), np.int64)
        logits, cache = run(session, IDS[:, start:stop], mask, cache)
        bound = 2e-4 * np.abs(expected).max()
        np.testing.assert_allclose(logits, expected[:, start:stop], atol=bound)
        start = stop


def test_the_mask_counts_each_rows_tokens(weights, session):
    lengths = (24, 15)
    mask = (np.arange(24) < np.array(lengths)[:, None]).astype(np.int64)
    logits, _ = run(session, IDS, mask)
    for row, length in enumerate(lengths):
        expected = reference(rounded(weights), IDS[row, :length])
        bound = 2e-4 * np.abs(expected).max()
        np.testing.assert_allclose(logits[row, :length], expected, atol=bound)


def test_weights_lie_in_the_data_file_alone_and_once(folder):
    graph = onnx.load(folder / "model.onnx", load_external_data=False).graph
    floats = [t for t in graph.initializer if t.data_type != onnx.TensorProto.INT64]
    assert all(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in floats)
    places = [{entry.key: entry.value for entry in tensor.external_data} for tensor in floats]
    assert {place["location"] for place in places} == {"model.onnx.data"}
    spans = sorted((int(p["offset"]), int(p["offset"]) + int(p["length"])) for p in places)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert spans[-1][1] == (folder / "model.onnx.data").stat().st_size


def test_tokenizer_merges_cuts_digits_and_keeps_special_tokens(folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    encoded = tokenizer.encode("<|im_start|>hello hello 12<|im_end|>")
    assert encoded.tokens == ["<|im_start|>", "hello", "Ġhello", "Ġ", "1", "2", "<|im_end|>"]
    assert encoded.ids == [TOKENS.index(token) for token in encoded.tokens]
    assert tokenizer.decode(encoded.ids) == "hello hello 12"


@pytest.mark.parametrize(
    "text", ["", " a  b\n\n", "½ é 漢字 🦀\t", "don't I'll\r\n", "0x1F <|im_end|"]
)
def test_tokenizer_gives_every_text_back(folder, text):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_configuration_files(folder, weights):
    config = json.loads((folder / "config.json").read_text())
    assert config["max_position_embeddings"] == CONTEXT
    assert config["tie_word_embeddings"] == ("output" not in weights)
    generation = json.loads((folder / "generation_config.json").read_text())
    assert generation == {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    text = json.loads((folder / "tokenizer_config.json").read_text())
    assert text["chat_template"] == "{{ messages }}"
    assert [text[f"{role}_token"] for role in ("bos", "eos", "unk")] == [
        SPECIAL[i] for i in (1, 2, 0)
    ]


def test_a_file_of_another_kind_is_refused_and_leaves_no_model(tmp_path, weights):
    write_gguf(tmp_path / "other.gguf", weights, architecture="gpt2")
    with pytest.raises(ValueError, match="'gpt2' model, wanted 'llama'"):
        build(tmp_path / "other.gguf", tmp_path / "model")
    write_gguf(tmp_path / "short.gguf", {k: v for k, v in weights.items() if "ffn_up" not in k})
    with pytest.raises(ValueError, match=r"no tensor 'blk\.0\.ffn_up\.weight'"):
        build(tmp_path / "short.gguf", tmp_path / "model")
    assert not (tmp_path / "model").exists()
