"""Which processors a configuration asks for, in transformers' order.

Letters: R rows, L ids so far, V vocabulary.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from onnxgen.errors import OptionError
from onnxgen.generation import processors, warpers
from onnxgen.generation.config import GenerationConfig
from onnxgen.generation.protocol import Floats, Ints
from onnxgen.generation.sequences import Processor, Sequences
from onnxgen.generation.watermark import watermark

# Of a row: (ids (L,), scores (V,)) -> scores (V,).
RowFunction = Callable[[Ints, Floats], Any]
# Of a row: (prompt, new ids with the newest first, V) -> state, and (scores (V,), state) -> scores.
StatePair = tuple[Callable[[list[int], list[int], int], Any], Callable[[Floats, Any], Any]]

# A value, the value at which it does nothing, and what makes a processor of it.
_Entry = tuple[Any, Any, Callable[[Any], Processor]]


def build(
    config: GenerationConfig,
    *,
    sampling: bool,
    beams: int,
    stop_ids: frozenset[int],
    vocab_size: int,
    custom: Sequence[RowFunction | StatePair] = (),
    task: Sequence[Processor] = (),
    prefix_allowed_tokens_fn: processors.PrefixFunction | None = None,
    encoder_has_ids: bool = True,
) -> list[Processor]:
    """The processors that ``config`` asks for, but for guidance, which needs a second decoder.

    ``config`` is complete: defaults are filled in, and None is off. The task's own processors and
    then the caller's act after those of the configuration, before temperature and what follows.
    ``encoder_has_ids`` is False where an encoder got features instead of ids. OptionError for a
    value without meaning.
    """
    before = [
        *_of_ids(config, stop_ids, vocab_size, encoder_has_ids),
        *_of_place(config, stop_ids, vocab_size, prefix_allowed_tokens_fn),
    ]
    after = _of_chance(config, beams, len(stop_ids)) if sampling else []
    end: list[_Entry] = [
        (config.watermarking_config, None, partial(watermark, vocab_size=vocab_size)),
        (_flag("renormalize_logits", config), False, lambda _: warpers.renormalize()),
    ]
    own = [adapted(each) for each in custom]
    return [*_made(before), *task, *own, *_made(after), *_made(end)]


def _of_ids(
    config: GenerationConfig, stop_ids: frozenset[int], vocab: int, encoder_has_ids: bool
) -> list[_Entry]:
    """What hangs on which ids came before."""
    encoder_penalty = config.encoder_repetition_penalty
    encoder_size = config.encoder_no_repeat_ngram_size
    if not encoder_has_ids:
        if _acts(encoder_penalty, 1.0) or _acts(encoder_size, 0):
            warnings.warn(
                "encoder_repetition_penalty and encoder_no_repeat_ngram_size do nothing: "
                "the encoder gets no ids",
                stacklevel=4,
            )
        encoder_penalty = encoder_size = None
    # Those that transformers has not stand behind the ones that they are nearest to.
    return [
        (config.sequence_bias, None, lambda v: processors.sequence_bias(v, vocab)),
        (config.logit_bias, None, lambda v: processors.logit_bias(v, vocab)),
        (encoder_penalty, 1.0, processors.encoder_repetition_penalty),
        (config.repetition_penalty, 1.0, processors.repetition_penalty),
        (config.presence_penalty, 0, processors.presence_penalty),
        (config.frequency_penalty, 0, processors.frequency_penalty),
        (config.no_repeat_ngram_size, 0, processors.no_repeat_ngram),
        (encoder_size, 0, processors.encoder_no_repeat_ngram),
        (config.bad_words_ids, None, lambda v: processors.bad_words(v, stop_ids, vocab)),
    ]


def _of_place(
    config: GenerationConfig,
    stop_ids: frozenset[int],
    vocab: int,
    prefix_function: processors.PrefixFunction | None,
) -> list[_Entry]:
    """What hangs on how far the row is, and what does not change."""
    least, forced_bos = config.min_length, config.forced_bos_token_id
    if config.min_new_tokens is not None:
        if _acts(least, 0):
            warnings.warn("min_new_tokens is given, so min_length does nothing", stacklevel=4)
        least = None
    begin = partial(
        processors.suppress_at_begin, vocab_size=vocab, after_bos=forced_bos is not None
    )
    decay = config.exponential_decay_length_penalty
    return [
        (least, 0, lambda v: processors.min_length(v, stop_ids, vocab)),
        (config.min_new_tokens, 0, lambda v: processors.min_new_tokens(v, stop_ids, vocab)),
        (prefix_function, None, processors.prefix_constrained),
        (forced_bos, None, lambda v: processors.forced_bos(v, vocab)),
        (config.forced_eos_token_id, None, lambda v: processors.forced_eos(v, vocab)),
        (_flag("remove_invalid_values", config), False, lambda _: processors.remove_invalid()),
        (decay, None, lambda v: processors.exponential_decay(v, stop_ids, vocab)),
        (config.suppress_tokens, None, lambda v: processors.suppress(v, vocab)),
        (config.begin_suppress_tokens, None, begin),
    ]


def _of_chance(config: GenerationConfig, beams: int, stops: int) -> list[_Entry]:
    """What only sampling knows."""
    # All stop tokens may be taken by beams that end, and one must remain to go on with.
    keep = max(stops, 1) + 1 if beams > 1 else 1
    return [
        (config.temperature, 1.0, warpers.temperature),
        (config.top_k, 0, partial(warpers.top_k, keep=keep)),
        (config.top_p, 1.0, partial(warpers.top_p, keep=keep)),
        (config.min_p, None, partial(warpers.min_p, keep=keep)),
        (config.typical_p, 1.0, partial(warpers.typical, keep=keep)),
        (config.epsilon_cutoff, 0.0, partial(warpers.epsilon, keep=keep)),
        (config.eta_cutoff, 0.0, partial(warpers.eta, keep=keep)),
    ]


def _made(entries: Iterable[_Entry]) -> Iterator[Processor]:
    return (make(value) for value, off, make in entries if _acts(value, off))


def _acts(value: Any, off: Any) -> bool:
    """Whether an option does anything; a bool where a number belongs is left to be refused."""
    if value is None or off is None:
        return value is not None
    return isinstance(value, bool) != isinstance(off, bool) or bool(value != off)


def _flag(name: str, config: GenerationConfig) -> bool | None:
    value = getattr(config, name)
    if value is not None and not isinstance(value, bool):
        raise OptionError(f"{name} is {value!r}", wanted="true or false")
    return value


def adapted(custom: RowFunction | StatePair) -> Processor:
    """A processor of what a caller wrote for one row.

    Either ``f(ids (L,), scores (V,)) -> scores (V,)``, or a pair: ``state(prompt, new ids with the
    newest first, V)`` and ``process(scores (V,), state) -> scores (V,)``. Both get copies.
    OptionError for what is neither, and for what returns no scores.
    """
    if callable(custom):
        function = custom

        def process(seqs: Sequences, scores: Floats) -> None:
            for i, row in enumerate(scores):
                row[:] = _scores(function(seqs.row(i).copy(), row.copy()), len(row))

        return process
    if not isinstance(custom, tuple | list) or len(custom) != 2 or not all(map(callable, custom)):
        raise OptionError(
            f"a logits processor is a {type(custom).__name__}",
            wanted="a function of ids and scores, or a pair of functions: state and process",
        )
    state_of, process_with = custom

    def process_by_state(seqs: Sequences, scores: Floats) -> None:
        for i, row in enumerate(scores):
            ids, start = seqs.row(i).tolist(), int(seqs.prompt_lengths[i])
            state = state_of(ids[:start], ids[start:][::-1], len(row))
            row[:] = _scores(process_with(row.copy(), state), len(row))

    return process_by_state


def _scores(returned: Any, vocab: int) -> Floats:
    """What a caller's function returned, as an array (V,)."""
    array = np.asarray(returned)
    if array.shape != (vocab,) or array.dtype.kind not in "fiu":
        what = "None" if returned is None else f"{array.dtype} {array.shape}"
        raise OptionError(
            f"a logits processor returned {what}", wanted=f"scores, floats of shape ({vocab},)"
        )
    with np.errstate(over="ignore"):
        return array.astype(np.float32)
