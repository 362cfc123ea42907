"""What a request's speculative decoding is made of: who guesses, and at what price."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from onnxgen.errors import OptionError
from onnxgen.generation.config import GenerationConfig
from onnxgen.generation.proposers import Called, DraftModel, PromptLookup, Proposer, SameChance
from onnxgen.generation.sampling import Sampler
from onnxgen.generation.sequences import Processor
from onnxgen.generation.speculative import Speculation
from onnxgen.graph.decoder import Logits
from onnxgen.runtime.decoder import DecoderModel
from onnxgen.runtime.session import Cancel

# What each further token adds to a run of the model, in runs of one token: products with weights
# of few bits are more work than reading, others are not.
PRICE, PRICE_OF_FEW_BITS = 0.08, 0.36
NGRAM, DRAFTED = 2, 20  # transformers' defaults


@dataclass(frozen=True, slots=True)
class Guesses:
    """Who guesses: one of prompt lookup, a function, and an assistant, a loaded text model."""

    lookup: int | None
    ngram: int | None
    function: Callable[..., Any] | None
    assistant: Any

    @classmethod
    def of(cls, config: GenerationConfig, proposer: Any, assistant: Any) -> "Guesses | None":
        """What a request's options ask for; None for plain decoding."""
        lookup = config.prompt_lookup_num_tokens
        asked = [what for what in (lookup, proposer, assistant) if what is not None]
        if not asked:
            if config.max_matching_ngram_size is not None:
                raise OptionError(
                    "max_matching_ngram_size without prompt_lookup_num_tokens", do="give both"
                )
            return None
        if len(asked) > 1:
            raise OptionError(
                "several who guess",
                wanted="one of prompt_lookup_num_tokens, proposer and assistant_model",
            )
        if proposer is not None and not callable(proposer):
            raise OptionError(f"proposer is a {type(proposer).__name__}", wanted="f(ids) -> ids")
        return cls(lookup, config.max_matching_ngram_size, proposer, assistant)

    def check(self, model: DecoderModel, tokenizer: Any, unfit: Sequence[str]) -> None:
        """OptionError where speculation cannot be carried out; ``unfit`` names what excludes it."""
        reasons = list(unfit)
        if not model.graph.rewinds:
            reasons.append("a graph whose cache cannot forget")
        if model.graph.logits_kind is not Logits.FULL or not model.extends:
            reasons.append("a graph that gives the logits of one token a run")
        if reasons:
            raise OptionError(f"speculative decoding with {reasons[0]}", do="leave one of them out")
        if self.assistant is None:
            return
        draft = getattr(self.assistant, "model", None)
        if not isinstance(draft, DecoderModel) or draft.cross is not None:
            raise OptionError(
                f"assistant_model is a {type(self.assistant).__name__}",
                wanted="a text generation model, as onnxgen.load gives it",
            )
        if not draft.graph.rewinds:
            raise OptionError("an assistant whose cache cannot forget", do="take another one")
        if tokenizer is None or tokenizer.backend.get_vocab() != (
            self.assistant.tokenizer.backend.get_vocab()
        ):
            raise OptionError("an assistant with other tokens", wanted="one of the same tokenizer")

    @contextmanager
    def speculation(
        self,
        model: DecoderModel,
        *,
        prompt: Sequence[int],
        capacity: int,
        processors: Sequence[Processor],
        sampler: Sampler | None,
        never: Collection[int],
        cancel: Cancel,
    ) -> Iterator[Speculation]:
        """The speculation of one request, whose draft ``cancel`` ends too; closed at the end."""
        price = PRICE_OF_FEW_BITS if model.graph.few_bits else PRICE
        if self.assistant is None:
            yield Speculation(self._own(), price=price, never=never)
            return
        draft = self.assistant.model
        bound = draft.graph.capacity.rows
        steps = draft.start(capacity if bound is None else min(capacity, bound), cancel=cancel)
        begin = SameChance(
            processors,
            sampler,
            prompt=prompt,
            max_length=capacity + 1,
            vocab_size=model.vocab_size,
        )
        try:
            proposer = DraftModel(steps, begin, vocab_size=model.vocab_size, most=DRAFTED)
            yield Speculation(proposer, price=price, never=never)
        finally:
            steps.close()

    def _own(self) -> Proposer:
        """The proposer of one that needs no model."""
        if self.function is not None:
            return Called(self.function)
        return PromptLookup(self.ngram or NGRAM, self.lookup or 1)
