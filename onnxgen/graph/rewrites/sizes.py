"""What the symbolic dims of a graph's inputs count, by their names.

Letters: B batch, S new tokens, P past, T encoded tokens.
"""

from collections.abc import Mapping

# A word in a dim's name -> its letter; N is P+S.
WORDS = {"batch": "B", "past": "P", "encoder": "T", "total": "N", "seq": "S"}


def size_of(dim: int | str | None, sizes: Mapping[str, int]) -> int:
    """The size for a dim that may be a sum, like ``past_sequence_length + 1``."""
    if isinstance(dim, int):
        return dim
    total = 0
    for part in (dim or "1").split("+"):
        word = part.strip()
        kinds = [kind for known, kind in WORDS.items() if known in word]
        if kinds and kinds[0] == "N":
            total += sizes["P"] + sizes["S"]
            continue
        total += sizes[kinds[0]] if kinds else int(word) if word.isdigit() else sizes["S"]
    return total
