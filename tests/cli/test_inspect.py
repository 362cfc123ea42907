"""``onnxgen inspect`` and the facts behind it."""

import json
import os
import shutil

import pytest

import onnxgen
from onnxgen.cli import main
from onnxgen.errors import OnnxgenError
from onnxgen.generation.config import GenerationConfig
from tests.cli.running import LLAMA, python
from tests.fixture_models import FIXTURES, found

EOS = json.loads((LLAMA.folder / "generation_config.json").read_text())["eos_token_id"]

HANDMADE = found("handmade")
ITEM = {"float32": 4, "float16": 2}


def facts_of(fixture) -> dict:
    return onnxgen.inspect(fixture.folder, rewrites=False).to_json()


def by_layer(facts: dict, kind: str) -> list[dict]:
    """The caches of keys, or of values; those that hold both are both."""
    caches = [c for c in facts["decoder"]["caches"] if c["kind"] != kind]
    return sorted(caches, key=lambda cache: cache["layer"])


@pytest.mark.parametrize("fixture", HANDMADE, ids=lambda f: f.name)
def test_facts_are_those_that_a_graph_was_built_with(fixture):
    facts, truth = facts_of(fixture), fixture.expected["facts"]
    decoder = facts["decoder"]
    keys, values = by_layer(facts, "value"), by_layer(facts, "key")
    assert facts["runs"]
    assert decoder["mode"] == truth["mode"]
    assert decoder["batch"]["ragged"] == truth["ragged"]
    assert decoder["logits"]["covers"] == truth["logits"]
    assert decoder["logits"]["vocab_size"] == 97
    assert facts["capacity"]["graph"] == truth["capacity"]
    config = json.loads((fixture.folder / "config.json").read_text())["max_position_embeddings"]
    assert facts["capacity"]["config"] == config
    assert facts["capacity"]["tokens"] == min(truth["capacity"] or config, config)
    assert len(decoder["states"]) == truth["states"]
    assert [cache["layer"] for cache in keys] == truth["layer_indices"]
    if fixture.folder.name in {"packed_key_value", "static_scatter"}:  # heads have no own axis
        assert {(cache["heads"], cache["head_size"]) for cache in keys} == {(None, 16)}
    else:
        assert [cache["heads"] for cache in keys] == truth["heads"]
        assert [cache["head_size"] for cache in keys] == truth["key_size"]
        assert [cache["head_size"] for cache in values] == truth["value_size"]
    assert {cache["dtype"] for cache in keys} == {truth["cache_dtype"]} - {None}
    slots = decoder["caches"] + decoder["states"]
    pairs = dict(truth["pairs"])
    assert {slot["input"]: slot["output"] for slot in slots} == pairs
    axes = zip(pairs, truth["batch_axis"], truth["seq_axis"], strict=True)
    assert {c["input"]: (c["batch_axis"], c["sequence_axis"]) for c in decoder["caches"]} == {
        past: (batch, seq) for past, batch, seq in axes if seq is not None
    }
    (session,) = [s for s in facts["sessions"] if s["role"] == "decoder"]
    assert [tensor["name"] for tensor in session["inputs"]] == truth["inputs"]
    assert all(tensor["role"] for tensor in session["inputs"])


@pytest.mark.parametrize("fixture", HANDMADE, ids=lambda f: f.name)
def test_memory_of_1000_tokens_is_that_of_heads_and_sizes(fixture):
    truth = fixture.expected["facts"]
    per_layer = zip(truth["heads"], truth["key_size"], truth["value_size"], strict=True)
    numbers = sum(heads * (key + value) for heads, key, value in per_layer)
    expected = 1000 * numbers * ITEM.get(truth["cache_dtype"], 0)
    assert facts_of(fixture)["decoder"]["cache_bytes_per_1000_tokens"] == expected


@pytest.mark.parametrize("folder", sorted((FIXTURES / "handmade/refused").iterdir()), ids=str)
def test_the_verdict_is_that_of_load(folder):
    refused = None
    try:
        onnxgen.load(folder)
    except OnnxgenError as error:
        refused = error
    inspection = onnxgen.inspect(folder)
    assert inspection.runs == (refused is None)
    assert str(inspection.refusal) == str(refused)


@pytest.mark.parametrize("fixture", HANDMADE, ids=lambda f: f.name)
def test_what_runs_by_inspection_loads(fixture):
    onnxgen.load(fixture.folder)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("cache_without_present", "past_key_values.0.key"),
        ("encoder_only", "last_hidden_state"),
        ("rank4_logits", "rank 4"),
        ("string_cache", "string"),
    ],
)
def test_a_model_that_cannot_run_is_shown_with_the_reason(name, reason, capsys):
    folder = str(FIXTURES / "handmade/refused" / name)
    assert main(["inspect", folder]) == 1
    out, err = capsys.readouterr()
    verdict = out.splitlines()[1]
    assert verdict.startswith("  does not run: ")
    assert reason in verdict
    assert "  to do: " in out
    assert "input_ids" in out  # found all the same
    assert err == ""
    assert main(["inspect", folder, "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert (facts["runs"], facts["decoder"]) == (False, None)
    assert reason in facts["refusal"]["found"]
    assert facts["refusal"]["do"]
    assert facts["sessions"][0]["inputs"]


def test_embeddings_without_the_graph_that_makes_them(tmp_path):
    shutil.copy(FIXTURES / "handmade/inputs_embeds/model.onnx", tmp_path)
    shutil.copy(FIXTURES / "handmade/inputs_embeds/config.json", tmp_path)
    inspection = onnxgen.inspect(tmp_path)
    assert "embeddings" in inspection.refusal.found
    with pytest.raises(type(inspection.refusal), match="embeddings"):
        onnxgen.load(tmp_path)


def lines_of(folder, capsys, code: int = 0) -> list[str]:
    assert main(["inspect", str(folder)]) == code
    out, err = capsys.readouterr()
    assert err == ""
    return out.splitlines()


def test_the_report_of_a_whole_model(capsys):
    lines = lines_of(LLAMA.folder, capsys)
    assert lines[:2] == [str(LLAMA.folder), "  runs: text-generation"]
    sections = [line for line in lines if line and not line.startswith(" ")]
    titles = ["Files", "Graph: decoder", "Cache", "Batches", "Capacity", "Text"]
    assert sections[1:] == titles
    rows = {line[2:13].strip(): line[15:] for line in lines[2:] if line[2:13].strip()}
    config = json.loads((LLAMA.folder / "config.json").read_text())
    heads, layers = config["num_key_value_heads"], config["num_hidden_layers"]
    size = config["hidden_size"] // config["num_attention_heads"]
    kept = f"key and value float32 [B, {heads}, P, {size}], {heads} heads of {size}"
    assert rows["caches"] == f"layers 0-{layers - 1}: {kept}"
    assert rows["memory"] == f"{2 * layers * heads * size * 4:.1f} kB per row and 1,000 tokens"
    assert rows["mode"].startswith("in_place: GroupQueryAttention writes into a shared buffer")
    assert rows["rewritten"].startswith(f"{layers} x attention to GroupQueryAttention")
    assert main(["inspect", str(LLAMA.folder), "--no-rewrites"]) == 0
    out = capsys.readouterr().out
    assert "append: Concat appends to the cache" in out
    assert "rewritten" not in out
    assert "as it came" not in rows
    assert rows["rows"].startswith("any number, unequal lengths together: ")
    assert rows["by config"] == str(config["max_position_embeddings"])
    assert rows["exporter"].startswith("pytorch ")
    assert rows["tokenizer"] == f"{config['vocab_size']} tokens"
    assert rows["chat"] == "template: default"
    assert f"eos_token_id={EOS}" in rows["generation"]
    told = "of as many positions as num_logits_to_keep asks for"
    assert rows["logits"] == f"float32 for {config['vocab_size']} tokens, {told}"
    bytes_in_kb = (LLAMA.folder / "model.onnx").stat().st_size / 1000
    assert rows["graphs"].split() == ["decoder", "fp32", "model.onnx", f"{bytes_in_kb:.1f}", "kB"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("mixed_heads", ["layer 0: key and value float32 [B, 2, P, 16], 2 heads of 16"]),
        ("mixed_heads", ["layer 3: key and value float32 [B, 1, P, 32], 1 head of 32"]),
        ("gqa_window", ["layer 0: ", "window 5", "layer 1: "]),
        ("k_ne_v", ["key float32 [B, 2, P, 8], 2 heads of 8; value float32 [B, 2, P, 12]"]),
        ("transposed_key", ["key float32 [B*4, 8, P], 4 heads of 8"]),
        ("packed_past", ["[2, B, 4, P, 8], 4 heads of 8"]),
        ("static_scatter", ["64 tokens by its shape", "64: "]),
        ("conv_state", ["layer 0: conv float32 [B, 32, 3]", "384 B of states per row"]),
        ("conv_state", ["equal lengths together: padding would leak into the states"]),
        ("external_data", ["model.onnx_data_1", "external data"]),
        ("num_logits_to_keep", ["of as many positions as num_logits_to_keep asks for"]),
        ("pruned_logits", ["of the last column only"]),
        ("no_cache", ["none: the graph has no cache inputs"]),
        ("inputs_embeds", ["Graph: embed_tokens", "embeddings, made by embed_tokens"]),
        ("gqa_past_length", ["grow: GroupQueryAttention counts the cache's own length"]),
        ("gqa_values", ["2 GroupQueryAttention", "problem", "no tokenizer.json"]),
    ],
)
def test_the_report_shows(name, shown, capsys):
    text = "\n".join(lines_of(FIXTURES / "handmade" / name, capsys))
    assert [part for part in shown if part not in text] == []


def test_dtypes_and_which_would_be_taken(capsys):
    folder = FIXTURES / "models/llama-tjs"
    facts = onnxgen.inspect(folder).to_json()
    dtypes = [variant["dtype"] for variant in facts["variants"]]
    assert len(dtypes) > 1
    assert [v["dtype"] for v in facts["variants"] if v["chosen"]] == ["fp32"]
    assert facts["dtype_reason"]
    text = "\n".join(lines_of(folder, capsys))
    assert f"taken (*)    {facts['dtype_reason']}" in text
    other = next(dtype for dtype in dtypes if dtype != "fp32")
    text = "\n".join(lines_of(f"{folder}:{other}", capsys))
    assert "taken (*)    as asked" in text


def test_sizes_of_external_data_are_those_of_the_files():
    folder = FIXTURES / "handmade/external_data"
    (variant,) = onnxgen.inspect(folder).variants
    sizes = {path.name: path.stat().st_size for path in folder.glob("model.onnx*")}
    assert {f.name: f.bytes for f in (variant.graph, *variant.parts)} == sizes
    assert variant.bytes == sum(sizes.values())


def test_weights_are_counted_but_not_read(tmp_path):
    folder = shutil.copytree(FIXTURES / "handmade/external_data", tmp_path / "model")
    parts = list(folder.glob("model.onnx_data*"))
    expected = sum(part.stat().st_size for part in parts)
    for part in parts:
        size = part.stat().st_size
        part.write_bytes(b"")
        os.truncate(part, size)  # nothing but zeros
    (session,) = onnxgen.inspect(folder).sessions
    assert session.weights["float32"] == pytest.approx(expected, rel=0.01)


def test_a_chat_template_that_fails_is_told(tmp_path, capsys):
    folder = shutil.copytree(LLAMA.folder, tmp_path / "model")
    (folder / "chat_template.jinja").write_text("{{ raise_exception('never') }}")
    text = "\n".join(lines_of(folder, capsys))
    assert "problem      the chat template refused" in text


def test_what_ends_an_answer_is_shown_as_a_token(capsys):
    facts = facts_of(LLAMA)
    vocabulary = json.loads((LLAMA.folder / "tokenizer.json").read_text())["model"]["vocab"]
    (token,) = [token for token, number in vocabulary.items() if number == EOS]
    assert facts["text"]["stop_tokens"] == [{"id": EOS, "token": token}]
    assert f"stops at     {EOS} {token}" in lines_of(LLAMA.folder, capsys)[-2]


def test_generation_defaults_are_options_of_a_generation():
    generation = facts_of(LLAMA)["generation"]
    file = json.loads((LLAMA.folder / "generation_config.json").read_text())
    assert generation == {k: v for k, v in file.items() if k in GenerationConfig.__slots__}


def test_it_starts_no_onnxruntime():
    code, _, err = python(f"""
import sys
from onnxgen.cli import main
code = main(["inspect", {str(LLAMA.folder)!r}])
print("onnxruntime" in sys.modules, file=sys.stderr)
sys.exit(code)
""")
    assert (code, err) == (0, "False\n")


def test_why_a_graph_is_not_rewritten(capsys):
    assert main(["inspect", str(FIXTURES / "models" / "falcon-alibi")]) == 0
    lines = capsys.readouterr().out.splitlines()
    reason = "keys are turned before they are cached"
    assert f"  as it came   no attention to GroupQueryAttention: {reason}" in lines
    assert main(["inspect", str(FIXTURES / "models" / "falcon-alibi"), "--json"]) == 0
    (session,) = json.loads(capsys.readouterr().out)["sessions"]
    assert session["not_rewritten"]["attention to GroupQueryAttention"] == {reason: 1}
