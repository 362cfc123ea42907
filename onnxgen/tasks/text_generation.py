"""Text generation: prompts or chats in, answers out, whole or as a stream."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from numbers import Integral
from typing import Any, cast, overload

from onnxgen.errors import CapacityError, OptionError, TokenizerError
from onnxgen.files import ModelFiles
from onnxgen.generation import config as options
from onnxgen.generation.config import GenerationConfig
from onnxgen.generation.loop import Clock, Row, greedy, run
from onnxgen.generation.results import Generation, Piece, Step
from onnxgen.graph.decoder import DecoderGraph
from onnxgen.runtime.decoder import Decoder, DecoderModel
from onnxgen.runtime.embeddings import Embedder
from onnxgen.tasks.defaults import context_length, generation_defaults, graph_config
from onnxgen.text.stream import TextStream
from onnxgen.text.tokenizer import Tokenizer

Message = Mapping[str, Any]
# A text, a chat, or token ids.
Prompt = str | Sequence[Message] | Sequence[int]


class TextGeneration:
    """A decoder-only language model with its tokenizer.

    Several threads may generate with one object at once.
    """

    def __init__(
        self, files: ModelFiles, *, device: str = "cpu", threads: int | None = None
    ) -> None:
        self.files = files
        config = graph_config(files)
        graphs = {role: path for role, path in files.graphs.items() if role.startswith("decoder")}
        facts = {role: DecoderGraph.load(path, config) for role, path in graphs.items()}
        embed = files.graphs.get("embed_tokens")
        needs_embeds = embed is not None and "embeds" in facts["decoder"].inputs
        self.model = DecoderModel(
            facts["decoder"],
            later=facts.get("decoder_with_past"),
            embedder=Embedder(embed, device=device, threads=threads)
            if embed is not None and needs_embeds
            else None,
            device=device,
            threads=threads,
        )
        self.defaults = generation_defaults(files)
        self._context = context_length(files)
        self._tokenizer: Tokenizer | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer; TokenizerError if it has none."""
        if self._tokenizer is None:
            self._tokenizer = Tokenizer.from_files(self.files)
        return self._tokenizer

    @property
    def capacity(self) -> int | None:
        """How many tokens a sequence may have, None if neither graph nor config sets a bound."""
        bounds = [self.model.graph.capacity.rows, self._context]
        return min((b for b in bounds if b is not None), default=None)

    @overload
    def generate(
        self,
        prompt: str | Sequence[Message] | Sequence[int],
        *,
        config: GenerationConfig | None = None,
        **keywords: Any,
    ) -> Generation: ...
    @overload
    def generate(
        self,
        prompt: Sequence[str] | Sequence[Sequence[Message]] | Sequence[Sequence[int]],
        *,
        config: GenerationConfig | None = None,
        **keywords: Any,
    ) -> list[Generation]: ...
    def generate(
        self, prompt: Any, *, config: GenerationConfig | None = None, **keywords: Any
    ) -> Generation | list[Generation]:
        """Answers a prompt, or each of a list of prompts.

        A prompt is a text, a chat (a list of messages with ``role`` and ``content``, rendered by
        the model's template) or a list of token ids. ``keywords`` are the options of
        :class:`GenerationConfig`.

        Raises:
            OptionError: an unknown option or a wrong value.
            CapacityError: a prompt longer than the model can take.
            TokenizerError, ChatTemplateError: no usable tokenizer or template.
        """
        prompts, several = as_list(prompt)
        request = self.request(prompts, config, keywords)
        for _ in request.steps():
            pass
        results = request.results()
        return results if several else results[0]

    def stream(
        self, prompt: Any, *, config: GenerationConfig | None = None, **keywords: Any
    ) -> Iterator[Piece]:
        """Like :meth:`generate`, as pieces while they come; those of a list carry their row.

        The pieces of a row joined are its whole text. Wrong input raises here, not at the first
        piece.
        """
        prompts, _ = as_list(prompt)
        return self.request(prompts, config, keywords).pieces()

    def request(
        self,
        prompts: Sequence[Prompt],
        config: GenerationConfig | None,
        keywords: Mapping[str, Any],
    ) -> "Request":
        """A checked request, ready to run; its caches are made, so run or close it."""
        merged = options.merge(self.defaults, config, keywords)
        stop = options.stop_ids(merged)
        rows = []
        for index, prompt in enumerate(prompts):
            ids = self.encode(prompt)
            budget = min(options.new_tokens(merged, len(ids)), self._room(len(ids)))
            rows.append(Row(index, ids, budget, stop))
        # The last token of a row is returned but never fed.
        longest = max(len(row.prompt) + row.budget - 1 for row in rows)
        return Request(rows, self.model.start(longest), self._text())

    def encode(self, prompt: Prompt) -> list[int]:
        """The token ids of a prompt of any kind; OptionError for an empty one."""
        if isinstance(prompt, str):
            ids = self.tokenizer.encode(prompt)
        elif _is_chat(prompt):
            text = self.tokenizer.apply_chat_template(list(prompt), add_generation_prompt=True)
            ids = self.tokenizer.encode(text, add_special_tokens=False)
        else:
            ids = [int(token) for token in cast(Sequence[int], prompt)]
            width = self.model.vocab_size
            if bad := [i for i in ids if not 0 <= i < width]:
                raise OptionError(
                    f"the prompt holds the token id {bad[0]}", wanted=f"ids from 0 to {width - 1}"
                )
        if not ids:
            raise OptionError(
                "the prompt is empty", wanted="at least one token", do="give a text to continue"
            )
        return ids

    def _room(self, prompt_length: int) -> int:
        """New tokens that may follow a prompt; CapacityError for a prompt that is too long."""
        bound, switch = self.capacity, self.model.graph.capacity.switch
        if switch is not None and prompt_length <= switch:
            bound = min(switch, bound or switch)
        if bound is None:
            return 1 << 40
        if prompt_length > bound:
            raise CapacityError(
                f"the prompt has {prompt_length} tokens",
                wanted=f"at most {bound}",
                do="shorten it, or take a model with a longer context",
            )
        return bound - prompt_length + 1

    def _text(self) -> Tokenizer | None:
        try:
            return self.tokenizer
        except TokenizerError:
            return None  # prompts of token ids need none


@dataclass(slots=True)
class Request:
    """One run of a batch: rows, the decoder that steps them, and the clock."""

    rows: list[Row]
    decoder: Decoder
    tokenizer: Tokenizer | None
    clock: Clock | None = None

    def steps(self) -> Iterator[Step]:
        """Runs to the end; frees the caches then, or when closed or failing."""
        self.clock = Clock()
        with closing(self.decoder):
            yield from run(self.decoder, self.rows, greedy, self.clock)

    def pieces(self) -> Iterator[Piece]:
        """Runs to the end, a piece of text for each token."""
        streams = [TextStream(self.tokenizer) if self.tokenizer else None for _ in self.rows]
        for step in self.steps():
            ended = zip(step.rows, step.tokens, step.finish_reasons, strict=True)
            for index, token, reason in ended:
                stream, text = streams[index], ""
                if stream is not None:
                    text = stream.push(token)
                    text += stream.finish() if reason else ""
                yield Piece(text, token, index, reason)

    def results(self) -> list[Generation]:
        """The answers, once the steps are done."""
        assert self.clock is not None
        return [self._result(row, self.clock) for row in self.rows]

    def _result(self, row: Row, clock: Clock) -> Generation:
        text = self.tokenizer.decode(row.tokens) if self.tokenizer else ""
        timings = clock.timings(len(row.tokens))
        reason = row.finish_reason or "length"
        return Generation(text, tuple(row.tokens), reason, len(row.prompt), timings)


def _is_chat(prompt: Any) -> bool:
    return isinstance(prompt, Sequence) and bool(prompt) and isinstance(prompt[0], Mapping)


def as_list(prompt: Any) -> tuple[list[Prompt], bool]:
    """Prompts as a list, and whether they came as one; OptionError for what is no prompt."""
    if hasattr(prompt, "tolist"):  # an array of ids
        prompt = prompt.tolist()
    if isinstance(prompt, str) or _is_chat(prompt):
        return [prompt], False
    if isinstance(prompt, Sequence) and prompt and not isinstance(prompt, bytes):
        if all(isinstance(part, Integral) for part in prompt):
            return [prompt], False
        if all(isinstance(part, str) or _is_ids_or_chat(part) for part in prompt):
            return list(prompt), True
    raise OptionError(
        f"a prompt of type {type(prompt).__name__}" + ("" if prompt else ", which is empty"),
        wanted="a text, a list of messages, a list of token ids, or a list of such prompts",
    )


def _is_ids_or_chat(part: Any) -> bool:
    return isinstance(part, Sequence) and all(isinstance(p, Integral | Mapping) for p in part)
