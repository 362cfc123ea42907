"""What a GGUF file says about a Llama-like model: its sizes and its weights as float32 arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, ReaderTensor
from gguf.quants import dequantize
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]


@dataclass(frozen=True)
class Sizes:
    """The sizes of a Llama-like decoder."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    feed_forward: int
    context: int
    rope_base: float
    norm_epsilon: float


@dataclass(frozen=True)
class Blocks:
    """A matrix (N,K) in blocks of 32 along K: weight = scale · code + minimum, code in 0…15."""

    codes: NDArray[np.uint8]  # (N, K/32, 32)
    scales: FloatArray  # (N, K/32)
    minimums: FloatArray  # (N, K/32)

    @classmethod
    def stack(cls, parts: Sequence["Blocks"]) -> "Blocks":
        """One matrix whose rows are those of all ``parts``."""
        return cls(
            np.concatenate([part.codes for part in parts]),
            np.concatenate([part.scales for part in parts]),
            np.concatenate([part.minimums for part in parts]),
        )


class GgufModel:
    """A GGUF file of the architecture ``llama``; the tensors stay on disk until asked for."""

    def __init__(self, path: str | Path) -> None:
        self._reader = GGUFReader(path)
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        self.sizes = self._read_sizes()

    def field(self, name: str, default: Any = None) -> Any:
        """The value of a metadata field, or ``default``; a ValueError if there is neither."""
        found = self._reader.get_field(name)
        if found is not None:
            return found.contents()
        if default is None:
            raise ValueError(f"the GGUF file has no field {name!r}")
        return default

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def tensor(self, name: str) -> FloatArray:
        """A tensor as float32 values: (rows, columns), or (size,) for a vector."""
        stored = self._stored(name)
        return dequantize(stored.data, stored.tensor_type).astype(np.float32, copy=False)

    def blocks(self, name: str) -> Blocks:
        """A matrix of type Q4_1 as it is stored, in the order of rows that a checkpoint has.

        GGUF keeps the rows of queries and keys in another order: of each head's two halves, which
        rotary embedding turns against each other, it takes one row in turn.
        """
        stored = self._stored(name)
        if stored.tensor_type != GGMLQuantizationType.Q4_1:
            raise ValueError(f"tensor {name!r} is of type {stored.tensor_type.name}, wanted Q4_1")
        blocks = _read_q4_1(stored.data)
        heads = {"attn_q": self.sizes.heads, "attn_k": self.sizes.kv_heads}.get(name.split(".")[-2])
        if heads is None:
            return blocks
        rows = np.arange(len(blocks.codes)).reshape(heads, -1, 2).swapaxes(1, 2).ravel()
        return Blocks(blocks.codes[rows], blocks.scales[rows], blocks.minimums[rows])

    def _stored(self, name: str) -> ReaderTensor:
        if name not in self:
            raise ValueError(f"the GGUF file has no tensor {name!r}")
        return self._tensors[name]

    def _read_sizes(self) -> Sizes:
        architecture = self.field("general.architecture")
        if architecture != "llama":
            raise ValueError(f"the GGUF file holds a {architecture!r} model, wanted 'llama'")

        def number(name: str, default: Any = None) -> Any:
            return self.field(f"llama.{name}", default)

        hidden, heads = number("embedding_length"), number("attention.head_count")
        head = number("attention.key_length", hidden // heads)
        rotated = number("rope.dimension_count", head)
        if (
            rotated != head
            or "rope_freqs.weight" in self
            or number("rope.scaling.type", "none") != "none"
        ):
            raise ValueError("the GGUF file asks for partial or scaled rotary embedding")
        return Sizes(
            vocabulary=len(self.field("tokenizer.ggml.tokens")),
            hidden=hidden,
            layers=number("block_count"),
            heads=heads,
            kv_heads=number("attention.head_count_kv", heads),
            head=head,
            feed_forward=number("feed_forward_length"),
            context=number("context_length"),
            rope_base=number("rope.freq_base", 10000.0),
            norm_epsilon=number("attention.layer_norm_rms_epsilon"),
        )


def _read_q4_1(rows: NDArray[np.uint8]) -> Blocks:
    """Takes rows of blocks (N, K/32·20) apart: scale and minimum in float16, then 32 codes."""
    blocks = rows.reshape(len(rows), -1, 20)  # (N, K/32·20) -> (N, K/32, 20)
    halves = blocks[..., :4].copy().view(np.float16).astype(np.float32)  # (N, K/32, 2)
    packed = blocks[..., 4:]  # byte j holds the codes j and j + 16
    codes = np.concatenate([packed & 15, packed >> 4], axis=-1)  # (N, K/32, 32)
    return Blocks(codes, halves[..., 0], halves[..., 1])
