"""Tables that tokens are looked up in, read from the file instead."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import onnxgen
from onnxgen.cli import main
from onnxgen.graph.rewrites import embeddings, rewrite
from onnxgen.runtime.embeddings import FileEmbedder, reader_of
from onnxgen.runtime.rewriting import decoders
from onnxgen.runtime.session import Engine
from tests.fixture_models import FIXTURES

ROWS, COLUMNS = 64, 50  # H, V: of 12,800 bytes, so that the file's table is referred to
MODELS = FIXTURES / "models"
IDS = np.array([[3, 49, 0], [7, 7, 1]])


@pytest.fixture(autouse=True)
def small_tables_too(monkeypatch):
    monkeypatch.setattr(embeddings, "LEAST", 0)


def node(op_type: str, inputs: str, output: str, **told: object) -> NodeProto:
    return helper.make_node(op_type, inputs.split(), [output], **told)


TURN = node("Transpose", "table", "turned", perm=[1, 0])
LOOK = node("Gather", "turned input_ids", "hidden")
HEAD = node("MatMul", "hidden table", "logits")


def saved(
    folder: Path,
    *nodes: NodeProto,
    dtype=np.float32,
    shape=(ROWS, COLUMNS),
    ids="input_ids",
    more=(),
) -> Path:
    """A model of a table, ids and logits."""
    table = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(table.dtype)
    inputs = [helper.make_tensor_value_info(ids, TensorProto.INT64, ["B", "S"])]
    inputs += [helper.make_tensor_value_info(name, kind, ["B", "S", ROWS]) for name in more]
    logits = helper.make_tensor_value_info("logits", kind, ["B", "S", "V"])
    graph = helper.make_graph(
        nodes, "g", inputs, [logits], [numpy_helper.from_array(table, "table")]
    )
    opsets = [helper.make_opsetid("", 18)]
    onnx.save_model(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "m.onnx")
    return folder / "m.onnx"


def run(model: bytes, **feeds: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("turn", [TURN, node("Transpose", "table", "turned")], ids=["said", "not"])
def test_the_graph_takes_the_columns_of_its_ids(tmp_path, turn, dtype):
    path = saved(tmp_path, turn, LOOK, HEAD, dtype=dtype)
    found = rewrite(path, feeds=True)
    assert list(found.sites) == ["embeddings"]
    assert [port.name for port in found.draft.model.graph.input] == ["inputs_embeds"]
    assert [n.op_type for n in found.draft.model.graph.node] == ["MatMul"]
    fed = reader_of(found.draft.table).take(IDS)  # (B,S,H)
    onnx.external_data_helper.load_external_data_for_model(found.draft.model, str(tmp_path))
    after = run(found.draft.model.SerializeToString(), inputs_embeds=fed)
    assert np.array_equal(after, run(path.read_bytes(), input_ids=IDS))


ROW = node("Gather", "table input_ids", "hidden")
SAME_HEAD = [node("Transpose", "table", "turned"), node("MatMul", "hidden turned", "logits")]
NO_HEAD = [node("Mul", "hidden hidden", "logits")]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("head", [SAME_HEAD, NO_HEAD], ids=["tied", "alone"])
def test_the_graph_takes_the_rows_of_its_ids(tmp_path, head, dtype):
    path = saved(tmp_path, ROW, *head, dtype=dtype, shape=(COLUMNS, ROWS))
    found = rewrite(path, feeds=True)
    assert list(found.sites) == ["embeddings"]
    assert [port.name for port in found.draft.model.graph.input] == ["inputs_embeds"]
    assert [n.op_type for n in found.draft.model.graph.node] == [n.op_type for n in head]
    fed = reader_of(found.draft.table).take(IDS)  # (B,S,H)
    onnx.external_data_helper.load_external_data_for_model(found.draft.model, str(tmp_path))
    after = run(found.draft.model.SerializeToString(), inputs_embeds=fed)
    assert np.array_equal(after, run(path.read_bytes(), input_ids=IDS))


def test_it_is_left_to_those_who_feed_it(tmp_path):
    assert not rewrite(saved(tmp_path, TURN, LOOK, HEAD)).sites


SUM = node("Add", "product more", "logits")
PRODUCT = node("MatMul", "hidden table", "product")
STAYS = {
    "ids are read for more": (TURN, LOOK, PRODUCT, node("Cast", "input_ids", "cast", to=1),
                              node("ReduceSum", "cast", "more"), SUM),
    "the turned table is, too": (TURN, LOOK, PRODUCT, node("ReduceSum", "turned", "more"), SUM),
    "ids are read for more, rows": (ROW, node("Cast", "input_ids", "cast", to=1),
                                    node("ReduceSum", "cast", "more"),
                                    node("Mul", "hidden more", "logits")),
    "rows of another axis": (node("Gather", "table input_ids", "hidden", axis=1),
                             node("ReduceSum", "hidden", "logits")),
    "rows are the result": (node("Gather", "table input_ids", "logits"),),
    "the table is computed": (node("Abs", "table", "turned"), LOOK, HEAD),
    "the table is for ids alone": (TURN, node("Gather", "turned input_ids", "logits")),
    "another axis": (TURN, node("Gather", "turned input_ids", "hidden", axis=1),
                     node("ReduceSum", "hidden table", "logits")),
    "as it is": (node("Transpose", "table", "turned", perm=[0, 1]), LOOK, HEAD),
}  # fmt: skip


@pytest.mark.parametrize("name", STAYS)
def test_what_stays(tmp_path, name):
    assert not rewrite(saved(tmp_path, *STAYS[name]), feeds=True).sites


@pytest.mark.parametrize(
    "told", [{"dtype": np.float64}, {"ids": "words"}, {"more": ["inputs_embeds"]}], ids=str
)
def test_what_of_other_inputs_and_types_stays(tmp_path, told):
    look = node("Gather", f"turned {told.get('ids', 'input_ids')}", "hidden")
    assert not rewrite(saved(tmp_path, TURN, look, HEAD, **told), feeds=True).sites


def test_small_tables_stay(tmp_path, monkeypatch):
    path = saved(tmp_path, TURN, LOOK, HEAD)
    monkeypatch.setattr(embeddings, "LEAST", ROWS * COLUMNS * 4)
    assert rewrite(path, feeds=True).sites
    monkeypatch.setattr(embeddings, "LEAST", ROWS * COLUMNS * 4 + 1)
    assert not rewrite(path, feeds=True).sites


TURNED = ["genai-llama", "genai-llama-pruned", "genai-llama-int8kv", "genai-lfm2"]
AS_ROWS = ["llama", "llama-fp16", "llama-nocache", "gemma3_text", "gpt_neox"]
PROMPTS = [[5, 9, 12, 40], [7], [40, 41, 42, 5, 6, 7, 8, 9, 10, 11]]


@pytest.mark.parametrize("name", TURNED + AS_ROWS)
@pytest.mark.parametrize(
    "options",
    [{}, {"num_beams": 3}, {"do_sample": True, "seed": 1}, {"prefill_chunk_size": 2}],
    ids=str,
)
def test_tokens_are_those_of_the_graph_as_it_came(name, options):
    own, plain = (onnxgen.load(MODELS / name, rewrites=choice) for choice in (True, False))
    assert isinstance(own.model.embedder, FileEmbedder)
    answers = [model.generate(PROMPTS, max_new_tokens=12, **options) for model in (own, plain)]
    assert [one.tokens for one in answers[0]] == [one.tokens for one in answers[1]]
    single = own.generate(PROMPTS[0], max_new_tokens=12, **options)
    assert single.tokens == answers[1][0].tokens or "do_sample" in options


def test_inspect_tells_of_it_and_optimize_leaves_it(tmp_path, capsys):
    told = onnxgen.inspect(MODELS / "genai-llama")
    assert told.runs
    assert told.sessions[0].rewrites["embeddings read from the file"] == 1
    assert main(["optimize", str(MODELS / "genai-llama"), str(tmp_path / "out")]) == 0
    assert "embeddings" not in capsys.readouterr().out
    written = onnx.load(tmp_path / "out/model.onnx", load_external_data=False)
    assert "input_ids" in [port.name for port in written.graph.input]
    assert onnxgen.inspect(tmp_path / "out").runs


def test_on_another_device_the_table_stays():
    files = {"decoder": MODELS / "genai-llama/model.onnx"}
    assert "embeds" in decoders(files, {})["decoder"].inputs
    assert "ids" in decoders(files, {}, Engine("cuda"))["decoder"].inputs
