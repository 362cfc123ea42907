"""What a call asks of a request: options, the caller's functions, what a task adds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxgen.errors import OptionError
from onnxgen.generation import config as options
from onnxgen.generation.config import GenerationConfig
from onnxgen.generation.processors import PrefixFunction
from onnxgen.generation.sampling import Sampler
from onnxgen.generation.sequences import Processor
from onnxgen.generation.stopping import Criterion
from onnxgen.runtime.encoder import Encoding
from onnxgen.runtime.scene import Scene
from onnxgen.runtime.session import Cancel
from onnxgen.runtime.watch import Watch
from onnxgen.tasks.cache import Cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Functions:
    """What a caller brings beside options.

    ``logits_processor``: functions ``f(ids (L,), scores (V,)) -> scores``, or pairs of a function
    that makes a state of ``(prompt, new ids newest first, V)`` and one of ``(scores, state)``.
    ``stopping_criteria``: functions ``f(ids (L,)) -> bool`` that end a row.
    ``prefix_allowed_tokens_fn(prompt number, ids (L,))``: the ids that may follow.
    ``negative_prompt_ids``: for guidance, ids for each prompt.
    ``cache``: of an earlier answer, see :class:`Cache`.
    ``proposer(ids (L,))``: ids that may follow, to be tried in one run of the model.
    ``assistant_model``: a smaller model of the same tokenizer, which guesses what follows.
    ``cancel``: a switch that ends the call from another thread, see :class:`onnxgen.Cancel`.
    """

    logits_processor: Sequence[Any] = ()
    stopping_criteria: Sequence[Criterion] = ()
    prefix_allowed_tokens_fn: PrefixFunction | None = None
    negative_prompt_ids: Sequence[Sequence[int]] | None = None
    cache: Cache | None = None
    proposer: Callable[[Any], Any] | None = None
    assistant_model: Any = None
    cancel: Cancel | None = None

    def __post_init__(self) -> None:
        """OptionError for what cannot be called, and for a cache that is none."""
        for name in ("logits_processor", "stopping_criteria"):
            if not isinstance(getattr(self, name), list | tuple):
                raise _no_function(name, getattr(self, name), "a list of functions")
        for name in ("prefix_allowed_tokens_fn", "proposer"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise _no_function(name, getattr(self, name), "a function")
        for each in self.stopping_criteria:
            if not callable(each):
                raise _no_function("stopping_criteria", each, "a list of functions")
        if not isinstance(self.cache, Cache | None):
            raise _no_function("cache", self.cache, "the cache of an earlier answer")
        if not isinstance(self.cancel, Cancel | None):
            raise OptionError(f"cancel is a {type(self.cancel).__name__}", wanted="onnxgen.Cancel")


def _no_function(name: str, value: Any, wanted: str) -> OptionError:
    return OptionError(f"{name} is or holds a {type(value).__name__}", wanted=wanted)


FUNCTIONS = tuple(Functions.__dataclass_fields__)


def asked(
    defaults: Mapping[str, Any],
    config: GenerationConfig | None,
    keywords: Mapping[str, Any],
    own: Sequence[str] = (),
) -> tuple[GenerationConfig, Functions]:
    """What a call's ``config`` and ``keywords`` ask for, over a model's ``defaults``.

    ``own`` names keywords of the task itself, which are left to it.
    """
    functions = Functions(**{n: keywords[n] for n in FUNCTIONS if keywords.get(n) is not None})
    known = (*FUNCTIONS, *own)
    rest = {name: value for name, value in keywords.items() if name not in known}
    return options.merge(defaults, config, rest, known), functions


@dataclass(frozen=True, slots=True)
class Source:
    """What the encoder gets: how to encode it, and its ids for each prompt if it is made of ids."""

    encode: Callable[[Cancel], Encoding]
    ids: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What a task adds to its requests.

    ``rules`` are its own processors, ``watch`` is filled while the request runs, ``sampler`` takes
    the place of the one that the options ask for, and ``heat`` is a temperature that told
    log-probabilities leave out. ``scene`` gives the images of the prompts, of which a kept cache
    holds the first tokens already; ``never`` are ids that stand for images, and are not
    guessed; ``keys`` stand for the tokens of the one prompt where a cache
    compares them, as one image token is like another.
    """

    source: Source | None = None
    rules: Sequence[Processor] = ()
    watch: Watch | None = None
    sampler: Sampler | None = None
    heat: float = 1.0
    scene: Callable[[Cancel, int], Scene | None] | None = None
    never: frozenset[int] = frozenset()
    keys: Sequence[int] | None = None


NOTHING = Extras()
