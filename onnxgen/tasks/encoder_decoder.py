"""What the tasks of encoder-decoders share: their sessions, and where the decoder begins.

Letters: B rows of the batch, T tokens of the longest row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxgen.errors import CapacityError, OptionError
from onnxgen.files import ModelFiles
from onnxgen.generation.config import GenerationConfig
from onnxgen.graph.encoder import EncoderGraph
from onnxgen.runtime.decoder import DecoderModel
from onnxgen.runtime.embeddings import embedder_of
from onnxgen.runtime.encoder import EncoderModel
from onnxgen.runtime.rewriting import decoders
from onnxgen.runtime.session import PLAIN, Engine
from onnxgen.tasks.asking import Extras, Functions, asked
from onnxgen.tasks.defaults import generation_defaults, graph_config
from onnxgen.tasks.request import Request
from onnxgen.text.tokenizer import Tokenizer


class EncoderDecoder:
    """An encoder and the decoder that attends to it.

    Several threads may generate with one object at once.
    """

    def __init__(self, files: ModelFiles, engine: Engine = PLAIN) -> None:
        self.files, engine = files, replace(engine, alone=False)
        # First, so that the sessions get the memory that parsing it leaves behind.
        self._tokenizer = Tokenizer.of(files)
        # Before the decoder, whose weights are more than checking an encoder's rewrites takes.
        self.encoder = EncoderModel(EncoderGraph.load(files.graphs["encoder"]), engine)
        config = graph_config(files)
        facts = decoders(files.graphs, config, engine)
        self.embedder = embedder_of(files.graphs, facts["decoder"], engine)
        self.model = DecoderModel(
            facts["decoder"],
            engine,
            later=facts.get("decoder_with_past"),
            embedder=self.embedder,
            encoded=True,
        )
        self.defaults = generation_defaults(files)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer; TokenizerError if it has none."""
        return self._tokenizer or Tokenizer.from_files(self.files)

    @property
    def capacity(self) -> int | None:
        """How many tokens the decoder can position, its prompt included; None if any number."""
        return self.model.graph.capacity.rows

    def ask(
        self,
        prompts: Sequence[Sequence[int]],
        config: GenerationConfig,
        functions: Functions,
        extras: Extras,
    ) -> Request:
        """A request for what follows the decoder's ``prompts``."""
        return Request(self.model, self._tokenizer, prompts, config, functions, self._room, extras)

    def _merged(
        self,
        config: GenerationConfig | None,
        keywords: Mapping[str, Any],
        own: Sequence[str],
        task: Mapping[str, Any],
    ) -> tuple[GenerationConfig, Functions]:
        """The options of a call.

        ``own`` names the task's own keywords; the options of ``task`` go before the model's file.
        """
        return asked({**self.defaults, **task}, config, keywords, own)

    def _room(self, prompt_length: int) -> int:
        """New tokens that may follow a decoder's prompt; CapacityError for one too long."""
        bound = self.capacity
        if bound is None:
            return 1 << 40
        if prompt_length > bound:
            raise CapacityError(
                f"the decoder's prompt has {prompt_length} tokens",
                wanted=f"at most {bound}",
                do="shorten it",
            )
        return bound - prompt_length + 1

    def starts(self, config: GenerationConfig, count: int) -> list[int]:
        """The token that begins each row: decoder_start_token_id, else bos_token_id."""
        start = config.decoder_start_token_id
        if start is None:
            start = self._start_of_files()
        if start is None:
            start = config.bos_token_id
        if start is None:
            raise OptionError(
                "nothing says which token the decoder starts with",
                wanted="decoder_start_token_id or bos_token_id in generation_config.json",
                do="give decoder_start_token_id",
            )
        starts = list(start) if isinstance(start, list | tuple) else [start] * count
        if len(starts) != count:
            raise OptionError(
                f"decoder_start_token_id lists {len(starts)} ids for {count} prompts",
                wanted="one id, or one for each prompt",
            )
        return starts

    def _start_of_files(self) -> int | None:
        """decoder_start_token_id of config.json, which counts where generation_config has none."""
        config = self.files.json("config.json")
        for part in (config, config.get("decoder")):
            if isinstance(part, Mapping) and isinstance(part.get("decoder_start_token_id"), int):
                return int(part["decoder_start_token_id"])
        return None

    def decoder_prompts(
        self, given: Any, config: GenerationConfig, count: int, *, whole: bool = False
    ) -> list[list[int]]:
        """The decoder's prompt of each row, from ``decoder_input_ids`` if there are any.

        The start token is put before a row that does not begin with it, unless rows are ``whole``.
        """
        starts = self.starts(config, count)
        if given is None:
            return [[start] for start in starts]
        rows = given.tolist() if hasattr(given, "tolist") else list(given)
        if rows and not isinstance(rows[0], list | tuple):
            rows = [rows] * count
        if len(rows) != count or not all(rows):
            raise OptionError(
                f"decoder_input_ids has {len(rows)} rows for {count} inputs",
                wanted="a list of ids, or one for each input, none empty",
            )
        prompts = [self.checked("decoder_input_ids", row) for row in rows]
        each = zip(prompts, starts, strict=True)
        return [row if whole or row[0] == start else [start, *row] for row, start in each]

    def checked(self, name: str, row: Sequence[Any]) -> list[int]:
        """The ids of an option ``name``; OptionError for one beyond the vocabulary."""
        try:
            ids, width = [int(token) for token in row], self.model.vocab_size
        except (TypeError, ValueError) as error:
            raise OptionError(f"{name} holds {row!r}"[:200], wanted="token ids") from error
        if bad := [token for token in ids if not 0 <= token < width]:
            raise OptionError(f"{name} holds {bad[0]}", wanted=f"ids from 0 to {width - 1}")
        return ids


def padded_right(rows: Sequence[Sequence[int]], pad: int) -> tuple[NDArray[np.int64], Any]:
    """Ids as one array (B,T) with ``pad`` behind the shorter rows, and their mask (B,T)."""
    longest = max(map(len, rows))
    ids = np.full((len(rows), longest), pad, np.int64)
    mask = np.zeros((len(rows), longest), np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)], mask[index, : len(row)] = row, 1
    return ids, mask
