"""What the symbolic dims of a graph's inputs count, by their names.

Letters: B batch, S new tokens, P past, T encoded tokens, C channels and E edge of a picture.
"""

from collections.abc import Mapping

# A word in a dim's name -> its letter; N is P+S.
WORDS = {
    "batch": "B", "past": "P", "encoder": "T", "total": "N", "seq": "S",
    "channel": "C", "height": "E", "width": "E",
}  # fmt: skip
USUAL = {"C": 3, "E": 32}


def size_of(dim: int | str | None, sizes: Mapping[str, int]) -> int:
    """The size for a dim that may be a sum, like ``past_sequence_length + 1``."""
    if isinstance(dim, int):
        return dim
    known, total = USUAL | dict(sizes), 0
    for part in (dim or "1").split("+"):
        word = part.strip()
        letters = [letter for name, letter in WORDS.items() if name in word]
        if letters and letters[0] == "N":
            total += known["P"] + known["S"]
            continue
        total += known[letters[0]] if letters else int(word) if word.isdigit() else known["S"]
    return total
