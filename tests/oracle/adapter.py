"""onnxgen's processors under the names and with the tensors of transformers.generation.

Runs transformers' own tests against them, from a checkout at the version of the oracle:

    python -m tests.oracle.adapter CHECKOUT/tests/generation/test_logits_process.py [pytest options]

Letters: R rows, L ids so far, V vocabulary.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers.generation
from transformers.generation import logits_process

from onnxgen.generation import processors, warpers, watermark
from onnxgen.generation.sequences import Processor, Sequences

ANY_VOCABULARY = 1 << 40  # to check options before the vocabulary is known


class Adapted:
    """A processor of onnxgen's that is called as transformers' are."""

    def __init__(
        self,
        make: Callable[[int], Processor],
        *,
        prompt: int | None = None,
        limit: int = 1 << 40,
        encoder: torch.Tensor | None = None,
        beams: int | None = None,
        skip: int = 0,
        filler: float = -np.inf,
    ):
        make(ANY_VOCABULARY)
        self.make, self.prompt, self.limit, self.beams = make, prompt, limit, beams
        self.encoder = None if encoder is None else torch.atleast_2d(encoder).tolist()
        self.skip, self.filler = skip, filler

    def __call__(self, input_ids: torch.Tensor | None, scores: torch.Tensor) -> torch.Tensor:
        """New scores (R,V) from ``scores`` (R,V) and ``input_ids`` (R,L)."""
        rows = [[0]] * len(scores) if input_ids is None else input_ids[:, self.skip :].tolist()
        beams = self.beams or len(rows) // len(self.encoder or rows)
        seqs = Sequences(
            rows, [self.limit] * len(rows), [i // beams for i in range(len(rows))], self.encoder
        )
        if self.prompt is not None:
            seqs.prompt_lengths[:] = self.prompt
        before = scores.to(torch.float32).numpy()
        after = before.copy()
        self.make(scores.shape[-1])(seqs, after)
        after[np.isneginf(after) & ~np.isneginf(before)] = self.filler
        return torch.from_numpy(after).to(scores.dtype)


def _ids(ids: Any) -> list[int]:
    return np.atleast_1d(np.array(ids)).tolist()


def _warper(make: Callable[..., Processor]) -> Callable[..., Adapted]:
    def build(value, filter_value=-np.inf, min_tokens_to_keep=1, device=None):
        return Adapted(lambda v: make(value, min_tokens_to_keep), filler=filter_value)

    names = {"top_k", "top_p", "min_p", "mass", "epsilon"}

    def called(*args, **kwargs):
        named = [kwargs.pop(name) for name in names & set(kwargs)]
        return build(*named, *args, **kwargs)

    return called


def _prefix(function, num_beams):
    def allowed(batch, ids):
        return torch.as_tensor(function(batch, torch.from_numpy(ids))).tolist()

    return Adapted(lambda v: processors.prefix_constrained(allowed), beams=num_beams)


def _encoder_ngram(encoder_ngram_size, encoder_input_ids):
    return Adapted(
        lambda v: processors.encoder_no_repeat_ngram(encoder_ngram_size), encoder=encoder_input_ids
    )


def _encoder_penalty(penalty, encoder_input_ids):
    return Adapted(
        lambda v: processors.encoder_repetition_penalty(penalty), encoder=encoder_input_ids
    )


NAMES: dict[str, Callable[..., Adapted]] = {
    "SequenceBiasLogitsProcessor": lambda sequence_bias: Adapted(
        lambda v: processors.sequence_bias(sequence_bias, v)
    ),
    "EncoderRepetitionPenaltyLogitsProcessor": _encoder_penalty,
    "RepetitionPenaltyLogitsProcessor": lambda penalty, prompt_ignore_length=None: Adapted(
        lambda v: processors.repetition_penalty(penalty), skip=prompt_ignore_length or 0
    ),
    "NoRepeatNGramLogitsProcessor": lambda ngram_size: Adapted(
        lambda v: processors.no_repeat_ngram(ngram_size)
    ),
    "EncoderNoRepeatNGramLogitsProcessor": _encoder_ngram,
    "NoBadWordsLogitsProcessor": lambda bad_words_ids, eos_token_id=(): Adapted(
        lambda v: processors.bad_words(bad_words_ids, _ids(eos_token_id), v)
    ),
    "MinLengthLogitsProcessor": lambda min_length, eos_token_id, device=None: Adapted(
        lambda v: processors.min_length(min_length, _ids(eos_token_id), v)
    ),
    "MinNewTokensLengthLogitsProcessor": (
        lambda prompt_length_to_skip, min_new_tokens, eos_token_id, device=None: Adapted(
            lambda v: processors.min_new_tokens(min_new_tokens, _ids(eos_token_id), v),
            prompt=prompt_length_to_skip,
        )
    ),
    "PrefixConstrainedLogitsProcessor": _prefix,
    "ForcedBOSTokenLogitsProcessor": lambda bos_token_id: Adapted(
        lambda v: processors.forced_bos(bos_token_id, v)
    ),
    "ForcedEOSTokenLogitsProcessor": lambda max_length, eos_token_id, device=None: Adapted(
        lambda v: processors.forced_eos(_ids(eos_token_id), v), limit=max_length
    ),
    "InfNanRemoveLogitsProcessor": lambda: Adapted(lambda v: processors.remove_invalid()),
    "ExponentialDecayLengthPenalty": (
        lambda exponential_decay_length_penalty, eos_token_id, input_ids_seq_length: Adapted(
            lambda v: processors.exponential_decay(
                exponential_decay_length_penalty, _ids(eos_token_id), v
            ),
            prompt=input_ids_seq_length,
        )
    ),
    "SuppressTokensLogitsProcessor": lambda suppress_tokens, device=None: Adapted(
        lambda v: processors.suppress(suppress_tokens, v)
    ),
    "SuppressTokensAtBeginLogitsProcessor": (
        lambda begin_suppress_tokens, begin_index, device=None: Adapted(
            lambda v: processors.suppress_at_begin(begin_suppress_tokens, v), prompt=begin_index
        )
    ),
    "TemperatureLogitsWarper": lambda temperature: Adapted(
        lambda v: warpers.temperature(temperature)
    ),
    "TopKLogitsWarper": _warper(warpers.top_k),
    "TopPLogitsWarper": _warper(warpers.top_p),
    "MinPLogitsWarper": _warper(warpers.min_p),
    "TypicalLogitsWarper": _warper(warpers.typical),
    "EpsilonLogitsWarper": _warper(warpers.epsilon),
    "EtaLogitsWarper": _warper(warpers.eta),
    "WatermarkLogitsProcessor": lambda vocab_size, device=None, **options: Adapted(
        lambda v: watermark.green_list(vocab_size, **options)
    ),
    "LogitNormalization": lambda: Adapted(lambda v: warpers.renormalize()),
}


def main(arguments: list[str]) -> int:
    """Runs pytest on the file named first, with these names in place of transformers'."""
    for name, build in NAMES.items():
        for module in (transformers, transformers.generation, logits_process):
            if hasattr(module, name):
                setattr(module, name, build)
    return pytest.main(["-o", "addopts=", "-p", "no:cacheprovider", *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
