"""What torch's CPU generator draws, without torch: a Mersenne Twister and what is made of it."""

from functools import lru_cache

import numpy as np

from onnxgen.generation.protocol import Ints


def words(seed: int, count: int) -> Ints:
    """The first ``count`` 32-bit outputs for ``seed``, of which torch takes the low 32 bits."""
    source = np.random.RandomState(seed & 0xFFFFFFFF)
    return source.randint(0, 1 << 32, size=count, dtype=np.uint64).astype(np.int64)


@lru_cache(maxsize=4)  # 8 MB each for a watermark; its key is the caller's
def permutation(seed: int, length: int) -> Ints:
    """``torch.randperm(length)``."""
    return _first_of_permutation(seed, length, length)


@lru_cache(maxsize=64)
def first_of_permutation(seed: int, length: int, count: int) -> Ints:
    """``torch.randperm(length)[:count]``."""
    return _first_of_permutation(seed, length, count)


def _first_of_permutation(seed: int, length: int, count: int) -> Ints:
    order = list(range(length))
    for place, target in enumerate(_targets(seed, length, count).tolist()):
        order[place], order[target] = order[target], order[place]
    return np.array(order[:count], np.int64)


def in_first_of_permutation(token: int, seed: int, length: int, count: int) -> bool:
    """Whether ``token`` is in :func:`first_of_permutation`, without making it."""
    targets = _targets(seed, length, count)
    place, swap = token, 0  # where the token is before which swap
    while place < len(targets):
        # It stays until an earlier place fetches it, for good, or until the turn of its own place.
        if targets[place] == place or (targets[swap:place] == place).any():
            return True
        place, swap = int(targets[place]), place + 1
    return bool((targets[swap:] == place).any())


def _targets(seed: int, length: int, count: int) -> Ints:
    """With which place, itself or a later one, each of the first ``count`` places is swapped."""
    count = min(count, length - 1)
    places = np.arange(count)
    return places + words(seed, count) % (length - places)
