"""Text generation: prompts or chats in, answers out, whole or as a stream."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from onnxgen.errors import CapacityError, OptionError, UnsupportedModelError
from onnxgen.files import ModelFiles
from onnxgen.generation.config import GenerationConfig
from onnxgen.generation.results import Generation, Piece
from onnxgen.runtime.decoder import DecoderModel
from onnxgen.runtime.embeddings import embedder_of
from onnxgen.runtime.rewriting import decoders
from onnxgen.runtime.session import PLAIN, Engine
from onnxgen.tasks.asking import asked
from onnxgen.tasks.defaults import context_length, generation_defaults, graph_config
from onnxgen.tasks.prompts import (
    Message,
    Prompt,
    as_list,
    checked_ids,
    holds_images,
    is_chat,
)
from onnxgen.tasks.request import Request
from onnxgen.tasks.scoring import Score, score
from onnxgen.text.tokenizer import Tokenizer


class TextGeneration:
    """A decoder-only language model with its tokenizer.

    Several threads may generate with one object at once.
    """

    def __init__(self, files: ModelFiles, engine: Engine = PLAIN) -> None:
        self.files = files
        # First, so that the sessions get the memory that parsing it leaves behind.
        self._tokenizer = Tokenizer.of(files)
        config = graph_config(files)
        facts = decoders(files.graphs, config, engine)
        self.model = DecoderModel(
            facts["decoder"],
            engine,
            later=facts.get("decoder_with_past"),
            embedder=embedder_of(files.graphs, facts["decoder"], engine),
        )
        self.defaults = generation_defaults(files)
        self._context = context_length(files)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer; TokenizerError if it has none."""
        return self._tokenizer or Tokenizer.from_files(self.files)

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
        :class:`GenerationConfig` and what :class:`onnxgen.tasks.request.Functions` lists. With
        ``num_return_sequences`` above 1 each prompt has a list of answers.

        Raises:
            OptionError: an unknown option or a wrong value.
            CapacityError: a prompt longer than the model can take.
            TokenizerError, ChatTemplateError: no usable tokenizer or template.
        """
        prompts, several = as_list(prompt)
        answers = self.request(prompts, config, keywords).answers()
        return answers if several else answers[0]

    def stream(
        self, prompt: Any, *, config: GenerationConfig | None = None, **keywords: Any
    ) -> Iterator[Piece]:
        """Like :meth:`generate`, as pieces while they come; those of a list carry their row.

        The pieces of a row joined are its whole text. Wrong input raises here, not at the first
        piece.
        """
        prompts, _ = as_list(prompt)
        return self.request(prompts, config, keywords).pieces()

    def score(self, text: Prompt, continuation: str | Sequence[int] | None = None) -> Score:
        """How likely ``continuation`` is behind the prompt ``text``, token by token.

        Without one, how likely ``text`` itself is from its second token on. A continuation that is
        a text is encoded by itself. OptionError where there is nothing to score.
        """
        ids = self.encode(text)
        if continuation is None:
            context, scored = ids[:1], ids[1:]
        elif isinstance(continuation, str):
            context = ids
            scored = self.tokenizer.encode(continuation, add_special_tokens=False)
        else:
            context, scored = ids, self.encode(continuation)
        if not scored:
            raise OptionError("there is no token to score", wanted="one behind the first at least")
        self._room(len(ids))
        return score(self.model, context, scored)

    def request(
        self,
        prompts: Sequence[Prompt],
        config: GenerationConfig | None,
        keywords: Mapping[str, Any],
    ) -> Request:
        """A checked request, ready to run."""
        if keywords.get("images") is not None or any(holds_images(p) for p in prompts):
            raise UnsupportedModelError(
                f"{self.files.source} has no vision_encoder.onnx",
                wanted="the sessions of a model that sees: vision_encoder, embed_tokens, decoder",
                do="leave images out, or download the repository with all of its sessions",
            )
        merged, functions = asked(self.defaults, config, keywords)
        ids = [self.encode(prompt) for prompt in prompts]
        return Request(self.model, self._tokenizer, ids, merged, functions, self._room)

    def encode(self, prompt: Prompt) -> list[int]:
        """The token ids of a prompt of any kind; OptionError for an empty one."""
        if isinstance(prompt, str):
            ids = self.tokenizer.encode(prompt)
        elif is_chat(prompt):
            text = self.tokenizer.apply_chat_template(list(prompt), add_generation_prompt=True)
            ids = self.tokenizer.encode(text, add_special_tokens=False)
        else:
            ids = checked_ids("the prompt", prompt, self.model.vocab_size)
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
