"""Writes a Llama-like decoder as an ONNX graph that computes exactly what the GGUF file says.

The graph takes ``input_ids`` (B,S), ``attention_mask`` (B,T) and each layer's keys and values
(B,H,P,D); it gives ``logits`` (B,S,V) and the keys and values (B,H,T,D). GroupQueryAttention counts
the mask and rotates the heads by position itself, so positions are no input.

The layers keep their 4-bit codes. A block of 32 weights is ``scale · code + minimum``, while the
operator MatMulNBits computes with ``scale · (code - 8)``; what is missing, the same number for all
weights of a block, is multiplied with the sum of the block's 32 inputs and added.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, save

from .gguf_weights import Blocks, GgufModel, Sizes

PAGE = 4096  # tensors start on pages, so that they can be mapped into memory


def write_decoder(model: GgufModel, folder: Path) -> None:
    """Writes ``model.onnx`` and ``model.onnx.data`` into ``folder``, one weight at a time."""
    with (folder / "model.onnx.data").open("wb") as data:
        save(_Decoder(model, data).build(), folder / "model.onnx")


class _Decoder:
    """The graph while it grows: each method adds nodes and returns the names of their outputs."""

    def __init__(self, model: GgufModel, data: IO[bytes]) -> None:
        self.model, self.sizes, self.data = model, model.sizes, data
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.sums: dict[str, str] = {}  # of the blocks of an output, by its name

    def build(self) -> ModelProto:
        lengths, tables = self.lengths(), self.rotary_tables()
        table = self.weight("token_embd.weight")
        hidden, added = self.node("Gather", [table, "input_ids"], ["token_embd.output"]), ""
        for layer in range(self.sizes.layers):
            hidden, normed = self.norm(hidden, added, f"blk.{layer}.attn_norm")
            attended = self.attention(normed, layer, lengths, tables)
            hidden, normed = self.norm(hidden, attended, f"blk.{layer}.ffn_norm")
            added = self.feed_forward(normed, layer)
        _, normed = self.norm(hidden, added, "output_norm")
        head = self.weight("output.weight") if "output.weight" in self.model else table
        self.fused("FusedMatMul", [normed, head], ["logits"], transB=1)  # (B,S,K) -> (B,S,V)
        inputs, outputs = _borders(self.sizes)
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.initializers)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def node(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], **extra: Any) -> str:
        """Adds a node, named after its first output; returns that output."""
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=outputs[0], **extra))
        return outputs[0]

    def fused(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], **extra: Any) -> str:
        return self.node(kind, inputs, outputs, domain="com.microsoft", **extra)

    def constant(self, name: str, array: NDArray[Any]) -> str:
        """Appends ``array`` to the data file, and a tensor that points there to the graph."""
        self.data.write(bytes(-self.data.tell() % PAGE))
        place = {"location": "model.onnx.data", "offset": self.data.tell(), "length": array.nbytes}
        self.data.write(np.ascontiguousarray(array).data)
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = TensorProto(name=name, data_type=kind, dims=array.shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
        self.initializers.append(tensor)
        return name

    def weight(self, name: str) -> str:
        return self.constant(name, self.model.tensor(name))

    def numbers(self, name: str, values: list[int]) -> str:
        """A small constant that stays in the graph's own file, where shapes are read."""
        self.initializers.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
        return name

    def lengths(self) -> list[str]:
        """The index of each row's last token (B,1), and T: what GroupQueryAttention asks for."""
        one = self.numbers("one", [1])
        counts = self.node("ReduceSum", ["attention_mask", one], ["mask.counts"])  # (B,T) -> (B,1)
        last = self.node("Sub", [counts, one], ["mask.last"])
        total = self.node("Shape", ["attention_mask"], ["mask.total"], start=1)
        return [
            self.node("Cast", [last], ["last_index"], to=TensorProto.INT32),
            self.node("Cast", [total], ["total_length"], to=TensorProto.INT32),
        ]

    def rotary_tables(self) -> list[str]:
        """Cosine and sine of each position's angles (positions, D/2)."""
        powers = np.arange(0, self.sizes.head, 2) / self.sizes.head
        angles = np.outer(np.arange(self.sizes.context), self.sizes.rope_base**-powers)
        return [
            self.constant("cos_cache", np.cos(angles).astype(np.float32)),
            self.constant("sin_cache", np.sin(angles).astype(np.float32)),
        ]

    def norm(self, hidden: str, added: str, name: str) -> tuple[str, str]:
        """Adds ``added`` to the residual stream; returns the stream and its normed form (B,S,K)."""
        normed, stream, epsilon = f"{name}.output", f"{name}.stream", self.sizes.norm_epsilon
        scale = self.weight(f"{name}.weight")
        if not added:
            self.node("SimplifiedLayerNormalization", [hidden, scale], [normed], epsilon=epsilon)
            return hidden, normed
        inputs, outputs = [hidden, added, scale], [normed, "", "", stream]
        self.fused("SkipSimplifiedLayerNormalization", inputs, outputs, epsilon=epsilon)
        return stream, normed

    def attention(self, hidden: str, layer: int, lengths: list[str], tables: list[str]) -> str:
        name = f"blk.{layer}.attn"
        blocks = Blocks.stack([self.model.blocks(f"{name}_{part}.weight") for part in "qkv"])
        heads = self.linear(hidden, f"{name}_qkv", blocks)  # (B,S,D·(heads + 2·kv_heads))
        past = [f"past_key_values.{layer}.{kind}" for kind in ("key", "value")]
        present = [f"present.{layer}.{kind}" for kind in ("key", "value")]
        attended = self.fused(
            "GroupQueryAttention",
            [heads, "", "", *past, *lengths, *tables],
            [f"{name}.output", *present],
            num_heads=self.sizes.heads,
            kv_num_heads=self.sizes.kv_heads,
            do_rotary=1,
        )
        return self.stored_linear(attended, f"{name}_output")

    def feed_forward(self, hidden: str, layer: int) -> str:
        name = f"blk.{layer}.ffn"
        gate = self.stored_linear(hidden, f"{name}_gate")
        up = self.stored_linear(hidden, f"{name}_up")
        sigmoid = self.node("Sigmoid", [gate], [f"{name}_gate.sigmoid"])
        silu = self.node("Mul", [gate, sigmoid], [f"{name}_gate.silu"])
        gated = self.node("Mul", [silu, up], [f"{name}.gated"])
        return self.stored_linear(gated, f"{name}_down")

    def stored_linear(self, hidden: str, name: str) -> str:
        return self.linear(hidden, name, self.model.blocks(f"{name}.weight"))

    def linear(self, hidden: str, name: str, blocks: Blocks) -> str:
        """``hidden`` (B,S,K) times the matrix ``blocks`` (N,K): (B,S,N)."""
        rows, count, size = blocks.codes.shape
        packed = blocks.codes[..., 0::2] | blocks.codes[..., 1::2] << 4  # (N, K/32, 16)
        codes = self.constant(f"{name}.codes", packed)
        scales = self.constant(f"{name}.scales", blocks.scales)
        offsets = self.constant(f"{name}.offsets", (blocks.minimums + 8 * blocks.scales).T)
        scaled = self.fused(
            "MatMulNBits",
            [hidden, codes, scales],
            [f"{name}.scaled"],
            N=rows,
            K=count * size,
            bits=4,
            block_size=size,
            accuracy_level=1,  # with inputs in float32, not rounded to 8 bits
        )
        sums = self.block_sums(hidden)
        offset = self.node("MatMul", [sums, offsets], [f"{name}.offset"])  # (B,S,K/32) -> (B,S,N)
        return self.node("Add", [scaled, offset], [f"{name}.output"])

    def block_sums(self, hidden: str) -> str:
        """Sums of 32 values each: (B,S,K) -> (B,S,K/32)."""
        if not self.sums:
            self.numbers("blocks", [0, 0, -1, 32])
            self.numbers("last_axis", [-1])
        if hidden not in self.sums:
            blocks = self.node("Reshape", [hidden, "blocks"], [f"{hidden}.blocks"])
            outputs = [f"{hidden}.sums"]
            self.sums[hidden] = self.node("ReduceSum", [blocks, "last_axis"], outputs, keepdims=0)
        return self.sums[hidden]


def _borders(sizes: Sizes) -> tuple[list[ValueInfoProto], list[ValueInfoProto]]:
    """The inputs and the outputs of the graph."""
    make, integer, real = helper.make_tensor_value_info, TensorProto.INT64, TensorProto.FLOAT
    batch, new, total = "batch_size", "sequence_length", "total_sequence_length"
    inputs = [
        make("input_ids", integer, [batch, new]),
        make("attention_mask", integer, [batch, total]),
    ]
    outputs = [make("logits", real, [batch, new, sizes.vocabulary])]
    for layer in range(sizes.layers):
        for kind in ("key", "value"):
            past, present = f"past_key_values.{layer}.{kind}", f"present.{layer}.{kind}"
            heads, head = sizes.kv_heads, sizes.head
            inputs.append(make(past, real, [batch, heads, "past_sequence_length", head]))
            outputs.append(make(present, real, [batch, heads, total, head]))
    return inputs, outputs
