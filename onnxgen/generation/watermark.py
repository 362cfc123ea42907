"""Green-list watermark: a mark in the choice of tokens that who has the key can find.

The ids before a token choose a part of the vocabulary ("green") that gets a bonus. All is drawn as
torch's CPU generator draws it, so that transformers' detector knows the text.

Letters: R rows, L ids so far, V vocabulary, C context ids.
"""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onnxgen.errors import OptionError
from onnxgen.generation.checks import number, share, whole
from onnxgen.generation.protocol import Floats, Ints
from onnxgen.generation.sequences import Processor, Sequences
from onnxgen.generation.synth_id import synth_id
from onnxgen.generation.torch_random import (
    first_of_permutation,
    in_first_of_permutation,
    permutation,
)

_TABLE = 1_000_003  # ids of the fixed permutation that selfhash hashes with
_CANDIDATES = 40  # how many of the best tokens selfhash looks at

_GREEN_LIST = ("greenlist_ratio", "bias", "hashing_key", "seeding_scheme", "context_width")
_SYNTH_ID = (
    "ngram_len", "keys", "context_history_size", "sampling_table_size", "sampling_table_seed",
    "skip_first_ngram_calls", "debug_mode",
)  # fmt: skip


def watermark(config: Any, vocab_size: int) -> Processor:
    """The processor of a ``watermarking_config``: SynthID's where it has ``keys``, else this one.

    ``config`` is a dict with the names of transformers' two classes of configuration.
    """
    if not isinstance(config, Mapping):
        raise OptionError(
            f"watermarking_config is a {type(config).__name__}",
            wanted=f"a dict of {', '.join(_GREEN_LIST)}, or of {', '.join(_SYNTH_ID)}",
        )
    is_synth_id = "keys" in config or "ngram_len" in config
    names = _SYNTH_ID if is_synth_id else _GREEN_LIST
    for name in config:
        if name not in names:
            raise OptionError.unknown(str(name), names, "watermarking_config")
    if not is_synth_id:
        return green_list(vocab_size, **config)
    if not {"keys", "ngram_len"} <= set(config):
        raise OptionError("watermarking_config has only one of keys and ngram_len", do="give both")
    return synth_id(**config)


def green_list(
    vocab_size: int,
    *,
    greenlist_ratio: float = 0.25,
    bias: float = 2.0,
    hashing_key: int = 15485863,
    seeding_scheme: str = "lefthash",
    context_width: int = 1,
) -> Processor:
    """Adds ``bias`` to ``greenlist_ratio`` of the vocabulary.

    ``lefthash``: the last id chooses which. ``selfhash``: each of the 40 best tokens looks whether
    it is in a list of its own, that it chooses with the ``context_width`` - 1 ids before it.
    """
    size = int(vocab_size * share("greenlist_ratio", greenlist_ratio))
    bonus = np.float32(number("the bias of watermarking_config", bias, -1e6, 1e6))
    key = whole("hashing_key", hashing_key)
    width = whole("context_width", context_width, least=1)
    if key >= 1 << 63:
        raise OptionError(f"hashing_key is {key}", wanted="a whole number below 2^63")

    def left_hash(ids: Ints, row: Floats) -> Ints:
        return first_of_permutation(_seed(key * int(ids[-1])), vocab_size, size)

    def self_hash(ids: Ints, row: Floats) -> Ints:
        return _self_hash(ids, row, size, key, width)

    schemes: dict[str, Callable[[Ints, Floats], Ints]] = {
        "lefthash": left_hash,
        "selfhash": self_hash,
    }
    if seeding_scheme not in schemes:
        raise OptionError(f"seeding_scheme is {seeding_scheme!r}", wanted=" or ".join(schemes))
    green = schemes[seeding_scheme]

    def process(seqs: Sequences, scores: Floats) -> None:
        for i, row in enumerate(scores):
            ids = seqs.row(i)
            if len(ids) >= width:
                row[green(ids, row)] += bonus
            else:
                warnings.warn(f"no watermark before there are {width} ids", stacklevel=2)

    return process


def _self_hash(ids: Ints, row: Floats, size: int, key: int, width: int) -> Ints:
    count = min(_CANDIDATES, len(row))
    best = np.argpartition(-row, count - 1)[:count]
    table = permutation(_seed(key), _TABLE)
    before = table[ids[len(ids) - width + 1 :] % _TABLE] + 1  # (C-1,)
    green = []
    for token in best.tolist():
        own = table[token % _TABLE] + 1
        seed = int((np.int64(key) * np.append(before, own) * own).min())  # wraps around in int64
        if in_first_of_permutation(token, _seed(seed), len(row), size):
            green.append(token)
    return np.array(green, np.int64)


def _seed(value: int) -> int:
    return value % (2**64 - 1)
