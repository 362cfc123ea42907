"""A cache that one answer leaves behind and the next goes on with."""

import numpy as np

from onnxgen.runtime.decoder import Decoder, DecoderModel
from onnxgen.runtime.session import Cancel


class Cache:
    """Keeps the decoder of a finished answer for a prompt that begins with the same tokens.

    Give one object to successive requests (``cache=``): each takes up what its prompt has in
    common with what is kept, token by token, and keeps what it leaves behind. What the graph
    cannot forget (states) starts over where the tokens part. For one row at a time.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []  # those that the decoder holds
        self._decoder: Decoder | None = None

    def holds(self, model: DecoderModel, capacity: int) -> bool:
        """Whether there is room for ``capacity`` tokens on ``model`` already."""
        decoder = self._decoder
        return decoder is not None and decoder.model is model and decoder.capacity >= capacity

    def keep(self, decoder: Decoder, tokens: list[int]) -> None:
        """Keeps ``decoder``, which has been fed a beginning of ``tokens``."""
        self._decoder = decoder.detach()
        self.tokens = tokens[: int(self._decoder.lengths[0])]

    def resume(
        self,
        model: DecoderModel,
        prompt: list[int],
        capacity: int,
        chunk: int | None,
        cancel: Cancel | None = None,
    ) -> tuple[Decoder, int]:
        """A decoder for ``prompt``, and how many of its tokens it holds already.

        At least the last token of the prompt is left to feed: its logits are wanted. Nothing is
        kept until the decoder comes back, so a request that fails leaves an empty cache.
        """
        decoder, self._decoder = self._decoder, None
        tokens, self.tokens = self.tokens, []
        common = shared_prefix(tokens, prompt[:-1])
        fits = decoder is not None and decoder.model is model and common > 0
        if decoder is None or not fits or (common < len(tokens) and not model.graph.rewinds):
            return model.start(capacity, prefill_chunk_size=chunk, cancel=cancel), 0
        decoder.heed(cancel or Cancel())
        decoder.reserve(capacity)
        decoder.rewind(np.array([common]))
        return decoder, common


def shared_prefix(first: list[int], second: list[int]) -> int:
    """How many tokens both begin with."""
    for index, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return index
    return min(len(first), len(second))
