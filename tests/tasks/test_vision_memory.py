"""What an answer to an image holds at its peak: its features twice, and one set of logits.

The features are made by the vision encoder and stand in the prompt's embeddings; no third copy is
needed. The model here is one whose features are large and all else is small, so that the peak of
the process tells how often they are there.

Letters: B rows, S new tokens, T tokens in the cache with them, R features, H hidden size, D head
size, V vocabulary.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxgen.graph.decoder import DecoderGraph, Mode

ROOT = Path(__file__).resolve().parents[2]
LLAVA = ROOT / "fixtures" / "models" / "llava"
SIDE = 24  # pixels, each a patch of its own: R = 576, as many as LLaVA's
R, H, D, V = SIDE * SIDE, 24_576, 8, 4_096
KNOWN = 342  # tokens of LLaVA's tokenizer; the rest of V is never the most likely
PLACES = 1_024  # that the decoder can position
NEW = 24

FEATURES = R * H * 4  # bytes
# Beside what the bound counts: Pillow and the vision session, which come with the first image,
# attention's scores (S,T) a few times, and what allocators keep; some 15 MB together.
SLACK = 32 << 20

CHILD = """
import json, sys
from pathlib import Path
import onnxgen
from onnxgen.tasks.pictured import Features

def memory(name):
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split(name + ":")[1].split()[0])

folder, image, new, held = sys.argv[1], sys.argv[2], int(sys.argv[3]), []
if sys.argv[4:]:  # holds the features once more
    made = Features.of
    def of(self, *arguments):
        held.append(made(self, *arguments))
        held.append(held[0].copy())
        return held[0]
    Features.of = of
model = onnxgen.load(folder, threads=1)
options = {"max_new_tokens": new, "eos_token_id": None, "do_sample": False}
model.generate("What is in this picture?", **options)
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = memory("VmRSS")
prompt = "<image>What is in this picture?"
answer = model.generate(prompt, images=[image], **options)
peak = memory("VmHWM")
read = model.request([prompt], None, {"images": [image], **options})
print(json.dumps({
    "rise": peak - before,
    "tokens": len(answer.tokens),
    "prompt": len(read._prompts[0]),
}))
"""


def weight(name, *shape, scale=1.0):
    rng = np.random.default_rng(len(name))
    values = rng.normal(0, scale, shape).astype(np.float32)
    return numpy_helper.from_array(values, name)


def integers(name, *values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def port(name, *shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def save(path, nodes, inputs, outputs, constants):
    graph = helper.make_graph(nodes, path.stem, inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def embed_tokens(path):
    """A narrow table, widened by a product: (V,D) and (D,H) instead of (V,H)."""
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["narrow"]),  # (B,S,D)
        helper.make_node("MatMul", ["narrow", "widen"], ["inputs_embeds"]),
    ]
    ids = port("input_ids", "batch_size", "sequence_length", kind=TensorProto.INT64)
    out = port("inputs_embeds", "batch_size", "sequence_length", H)
    save(path, nodes, [ids], [out], [weight("table", V, D), weight("widen", D, H)])


def vision_encoder(path):
    """The mean of each pixel's colours, H times."""
    nodes = [
        helper.make_node("ReduceMean", ["pixel_values", "colours"], ["grey"], keepdims=1),
        helper.make_node("Reshape", ["grey", "rows"], ["row"]),  # (B,R,1)
        helper.make_node("Expand", ["row", "wide"], ["image_features"]),
    ]
    pixels = port("pixel_values", "num_images", 3, SIDE, SIDE)
    out = port("image_features", "num_images", R, H)
    constants = [integers("colours", 1), integers("rows", -1, R, 1), integers("wide", 1, 1, H)]
    save(path, nodes, [pixels], [out], constants)


def decoder(path):
    """One causal attention of one head with a cache that grows, and a head of V."""
    batch, mask = "batch_size", "total_sequence_length"
    new, cache = (batch, "sequence_length"), (batch, 1, "past_sequence_length", D)
    inputs = [
        port("inputs_embeds", *new, H),
        port("attention_mask", batch, mask, kind=TensorProto.INT64),
        port("position_ids", *new, kind=TensorProto.INT64),
        port("past_key_values.0.key", *cache),
        port("past_key_values.0.value", *cache),
    ]
    outputs = [
        port("logits", *new, V),
        port("present.0.key", batch, 1, mask, D),
        port("present.0.value", batch, 1, mask, D),
    ]
    op = helper.make_node
    nodes = [
        op("MatMul", ["inputs_embeds", "project"], ["all"]),  # (B,S,3D)
        op("Split", ["all"], ["query", "key", "value"], axis=2, num_outputs=3),
        op("Gather", ["places", "position_ids"], ["place"]),
        op("Add", ["key", "place"], ["placed"]),
        op("Unsqueeze", ["query", "one"], ["queries"]),  # (B,1,S,D)
        op("Unsqueeze", ["placed", "one"], ["new_keys"]),
        op("Unsqueeze", ["value", "one"], ["new_values"]),
        op("Concat", ["past_key_values.0.key", "new_keys"], ["present.0.key"], axis=2),
        op("Concat", ["past_key_values.0.value", "new_values"], ["present.0.value"], axis=2),
        op("Shape", ["past_key_values.0.key"], ["past"], start=2, end=3),
        op("Shape", ["present.0.key"], ["total"], start=2, end=3),
        op("Squeeze", ["past", "zero"], ["first"]),
        op("Squeeze", ["total", "zero"], ["end"]),
        op("Range", ["nought", "end", "step"], ["columns"]),  # (T,)
        op("Range", ["first", "end", "step"], ["own"]),
        op("Unsqueeze", ["own", "one"], ["rows"]),  # (S,1)
        op("LessOrEqual", ["columns", "rows"], ["earlier"]),  # (S,T)
        op("Cast", ["attention_mask"], ["real"], to=TensorProto.BOOL),
        op("Unsqueeze", ["real", "middle"], ["shown"]),  # (B,1,1,T)
        op("And", ["earlier", "shown"], ["seen"]),
        op("Transpose", ["present.0.key"], ["keys"], perm=[0, 1, 3, 2]),
        op("MatMul", ["queries", "keys"], ["scores"]),  # (B,1,S,T)
        op("Where", ["seen", "scores", "never"], ["masked"]),
        op("Softmax", ["masked"], ["shares"], axis=-1),
        op("MatMul", ["shares", "present.0.value"], ["mixed"]),
        op("Squeeze", ["mixed", "one"], ["context"]),  # (B,S,D)
        op("MatMul", ["context", "head"], ["logits"]),
    ]
    head = numpy_helper.to_array(weight("head", D, V)).copy()
    head[:, KNOWN - 2 :] = 0  # neither the image token nor padding
    constants = [
        weight("project", H, 3 * D, scale=H**-0.5),
        weight("places", PLACES, D),
        numpy_helper.from_array(head, "head"),
        numpy_helper.from_array(np.float32(-1e9), "never"),
        *(integers(name, value) for name, value in {"zero": 0, "one": 1}.items()),
        integers("middle", 1, 2),
        *(numpy_helper.from_array(np.int64(n), s) for s, n in {"nought": 0, "step": 1}.items()),
    ]
    save(path, nodes, inputs, outputs, constants)


@pytest.fixture
def folder(tmp_path):
    """LLaVA's tokenizer and configs, with graphs of other sizes."""
    made = tmp_path / "model"
    shutil.copytree(LLAVA, made, ignore=shutil.ignore_patterns("expected.json", "onnx"))
    (made / "onnx").mkdir()
    embed_tokens(made / "onnx" / "embed_tokens.onnx")
    vision_encoder(made / "onnx" / "vision_encoder.onnx")
    decoder(made / "onnx" / "decoder_model_merged.onnx")
    text = {"hidden_size": H, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": D}
    text |= {"vocab_size": V, "num_hidden_layers": 1, "max_position_embeddings": PLACES}
    size = {"height": SIDE, "width": SIDE}
    edit(made / "config.json", text_config=text)
    edit(made / "preprocessor_config.json", crop_size=size, size={"shortest_edge": SIDE})
    edit(made / "processor_config.json", patch_size=1)
    return made


def edit(path, **fields):
    told = json.loads(path.read_text())
    for name, value in fields.items():
        told[name] = {**told[name], **value} if isinstance(value, dict) else value
    path.write_text(json.dumps(told))


def answer(folder, *words):
    image = ROOT / "fixtures" / "images" / "photo.jpg"
    command = [sys.executable, "-c", CHILD, str(folder), str(image), str(NEW), *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["tokens"] == NEW
    assert told["prompt"] > R
    return told


def bound(folder, prompt):
    """Bytes that an answer to a prompt of so many tokens may take beside those of the model."""
    weights = (folder / "onnx" / "vision_encoder.onnx").stat().st_size
    cache = 2 * 2 * (prompt + NEW) * D * 4  # keys and values, past and present
    logits = prompt * V * 4  # (1,S,V)
    return weights + cache + 2 * FEATURES + logits


linux = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="only Linux tells a peak that begins anew"
)


@linux
def test_an_answer_holds_the_features_twice_and_the_logits_once(folder):  # known problem P5
    graph = DecoderGraph.load(folder / "onnx" / "decoder_model_merged.onnx")
    assert graph.mode is Mode.APPEND
    assert SLACK < FEATURES  # a third copy of the features would show
    told = answer(folder)
    assert told["rise"] > FEATURES  # the peak was seen
    assert told["rise"] <= bound(folder, told["prompt"]) + SLACK


@linux
def test_features_that_are_held_once_more_are_seen(folder):
    told = answer(folder, "more")
    assert told["rise"] > bound(folder, told["prompt"]) + SLACK
