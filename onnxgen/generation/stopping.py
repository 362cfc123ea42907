"""When a row ends before its length: stop tokens, stop strings, criteria of the caller.

Letters: L ids of a row so far.
"""

from collections.abc import Callable, Sequence

from onnxgen.errors import OptionError
from onnxgen.generation.protocol import Ints

# Takes the ids (L,) of a row, prompt and newest token included; True ends the row.
Criterion = Callable[[Ints], bool]
TokenBytes = Callable[[int], bytes]


def stop_strings(stops: str | Sequence[str], token_bytes: TokenBytes) -> Criterion:
    """Ends a row whose text comes to contain one of ``stops``.

    Compared are the bytes of tokens, not decoded text, over prompt and answer: a stop string counts
    when it ends within the newest token; what overhangs on either side does no harm, and stays in
    the answer. That is transformers' rule, by bytes as of its version 5.
    """
    texts = [stops] if isinstance(stops, str) else stops
    if not isinstance(texts, list | tuple | set | frozenset):
        texts = []
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise OptionError(
            f"stop_strings is {stops!r}", wanted="texts of one character or more", do="leave it out"
        )
    patterns = [text.encode(errors="surrogatepass") for text in texts]
    longest = max(map(len, patterns))

    def ends(ids: Ints) -> bool:
        tail = b""
        newest = len(token_bytes(int(ids[-1])))
        for token in ids[: -longest - 1 : -1].tolist():  # from the newest back
            tail = token_bytes(token) + tail
            if len(tail) >= newest + longest:
                break
        start = len(tail) - newest
        return any(_ends_behind(tail, pattern, start) for pattern in patterns)

    return ends


def _ends_behind(text: bytes, pattern: bytes, start: int) -> bool:
    """Whether ``pattern`` occurs in ``text`` with its end behind ``start``."""
    return text.find(pattern, max(start - len(pattern) + 1, 0)) >= 0


def any_of(criteria: Sequence[Criterion]) -> Criterion | None:
    """One criterion that ends a row if any of ``criteria`` does; None if there are none."""
    if not criteria:
        return None
    return lambda ids: any(bool(criterion(ids)) for criterion in criteria)
