"""Which configurations choose their tokens where the logits are, and by what steps.

Letters: B rows, V vocabulary.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxgen.generation.beams import BeamOptions
from onnxgen.generation.config import GenerationConfig
from onnxgen.generation.sequences import Sequences
from onnxgen.runtime import selection_graph as steps
from onnxgen.runtime.selection_graph import SelectionSpec, SelectionStep

Bools = NDArray[np.bool_]
Flag = Callable[[Sequences], Bools]

# Options that the graph has no steps for, each with the value that switches it off.
HOST_ONLY: Mapping[str, Any] = {
    "guidance_scale": 1.0,
    "encoder_repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "remove_invalid_values": False,
    "exponential_decay_length_penalty": None,
    "watermarking_config": None,
    "output_scores": False,
}
HOST_ONLY_WARPERS: Mapping[str, Any] = {
    "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0
}  # fmt: skip
# With top-k or top-p so many of the best reach the host, which draws among them; a step that
# leaves more open to a row is chosen there as a whole.
DRAWN_FROM = 1024


@dataclass(frozen=True, slots=True)
class Plan:
    """A selection graph's spec, and for each flag of its steps the rows (B,) that it is set for."""

    spec: SelectionSpec
    flags: Mapping[str, Flag]

    def inputs(self, seqs: Sequences) -> dict[str, Any]:
        """What a selector is to know of the rows, as its keywords."""
        flags = {name: flag(seqs) for name, flag in self.flags.items()}
        return {"ids": seqs.ids, "lengths": seqs.lengths, "flags": flags}


def why_not(config: GenerationConfig, others: Sequence[str] = ()) -> str | None:
    """The option of the complete ``config`` that only the host can carry out; None if none is.

    ``others`` are names of what acts on scores beside it, which the host can only.
    """
    if others:
        return others[0]
    for name, off in HOST_ONLY.items():
        if getattr(config, name) not in (None, off):
            return name
    if config.do_sample:
        for name, off in HOST_ONLY_WARPERS.items():
            if getattr(config, name) not in (None, off):
                return name
    if any(len(ids) > 1 for ids, _ in _pairs(config.sequence_bias)):
        return "sequence_bias with several ids"
    if any(len(word) > 1 for word in config.bad_words_ids or ()):
        return "bad_words_ids with several ids"
    return None


def plan(
    config: GenerationConfig,
    *,
    stop_ids: frozenset[int],
    vocab_size: int,
    beam_options: BeamOptions | None = None,
) -> Plan:
    """How the selection graph carries out ``config``, which is checked and has no :func:`why_not`.

    The steps are those of :func:`onnxgen.generation.pipeline.build`, in its order.
    """
    flags: dict[str, Flag] = {}
    found = tuple(_steps(config, stop_ids, vocab_size, beam_options is not None, flags))
    sampling = bool(config.do_sample)
    told = config.top_logprobs or 0
    if beam_options is not None:
        spec = SelectionSpec(
            steps=found,
            draws=sampling,
            candidates=min(beam_options.candidates, beam_options.num_beams * vocab_size),
            logprobs=bool(config.logprobs),
            beams=beam_options.num_beams,
        )
        return Plan(spec, flags)
    narrow = sampling and any(isinstance(s, steps.TopK | steps.TopP | steps.MinP) for s in found)
    top_k = next((s.count for s in found if isinstance(s, steps.TopK)), vocab_size)
    drawn_from = min(top_k + steps.TIES, DRAWN_FROM, vocab_size)
    spec = SelectionSpec(
        steps=found,
        draws=sampling and not narrow,
        candidates=max(drawn_from if narrow else 0, told),
        logprobs=bool(config.logprobs) or told > 0,
    )
    return Plan(spec, flags)


def _steps(
    config: GenerationConfig,
    stop_ids: frozenset[int],
    vocab: int,
    beams: bool,
    flags: dict[str, Flag],
) -> Iterator[SelectionStep]:
    """The steps that ``config`` asks for; notes in ``flags`` when those with a flag act."""
    single = {ids[0]: float(bias) for ids, bias in _pairs(config.sequence_bias)}
    for biases in (single, config.logit_bias or {}):
        if biases:
            yield steps.Bias(tuple((int(i), float(bias)) for i, bias in biases.items()))
    if config.repetition_penalty not in (None, 1.0):
        yield steps.Repetition(float(config.repetition_penalty))
    bad = {word[0] for word in config.bad_words_ids or ()} - stop_ids
    if bad:
        yield steps.Ban(tuple(sorted(bad)))
    yield from _of_place(config, tuple(sorted(i for i in stop_ids if i < vocab)), flags)
    if config.do_sample:
        yield from _of_chance(config, max(len(stop_ids), 1) + 1 if beams else 1)
    if config.renormalize_logits:
        yield steps.Renormalise()


def _of_place(
    config: GenerationConfig, stop_ids: tuple[int, ...], flags: dict[str, Flag]
) -> Iterator[SelectionStep]:
    """What hangs on how far the row is, and what does not change."""
    least, new = config.min_length or 0, config.min_new_tokens
    if new is None and least:
        flags["early"] = lambda seqs: seqs.lengths < least
    elif new:
        flags["early"] = lambda seqs: seqs.lengths - seqs.prompt_lengths < new
    if "early" in flags:
        yield steps.Ban(stop_ids, "early")
    bos = config.forced_bos_token_id
    if bos is not None:
        flags["first"] = lambda seqs: seqs.lengths == 1
        yield steps.Force((int(bos),), "first")
    if config.forced_eos_token_id is not None:
        flags["last"] = lambda seqs: seqs.lengths == seqs.max_lengths - 1
        yield steps.Force(_ids(config.forced_eos_token_id), "last")
    if config.suppress_tokens:
        yield steps.Ban(_ids(config.suppress_tokens))
    if config.begin_suppress_tokens:
        late = bos is not None
        flags["begin"] = lambda seqs: (
            seqs.lengths == seqs.prompt_lengths + (late & (seqs.prompt_lengths <= 1))
        )
        yield steps.Ban(_ids(config.begin_suppress_tokens), "begin")


def _of_chance(config: GenerationConfig, keep: int) -> Iterator[SelectionStep]:
    """What only sampling knows."""
    if config.temperature not in (None, 1.0):
        yield steps.Temperature(float(config.temperature))
    if config.top_k not in (None, 0):
        yield steps.TopK(max(int(config.top_k), keep))
    if config.top_p not in (None, 1.0):
        yield steps.TopP(float(config.top_p), keep)
    if config.min_p is not None:
        yield steps.MinP(float(config.min_p), keep)


def _pairs(biases: Any) -> list[tuple[Any, Any]]:
    """The entries of either form of ``sequence_bias``."""
    return list(biases.items() if isinstance(biases, Mapping) else biases or ())


def _ids(ids: Any) -> tuple[int, ...]:
    return (int(ids),) if isinstance(ids, int | np.integer) else tuple(map(int, ids))
