import pytest

from onnxgen import chunked
from onnxgen.errors import OptionError


@pytest.mark.parametrize(
    ("count", "size", "first", "lengths"),
    [
        (5, 2, False, [2, 2, 1]),  # known problem S11
        (5, 2, True, [1, 2, 2]),
        (1, 3, True, [1]),
        (0, 3, True, []),
        (4, 4, False, [4]),
        (4098, 4096, True, [1, 4096, 1]),
    ],
)
def test_chunks_are_an_exact_partition(count, size, first, lengths):
    chunks = list(chunked(range(count), size, first_at_once=first))
    assert [len(chunk) for chunk in chunks] == lengths
    assert [piece for chunk in chunks for piece in chunk] == list(range(count))


def test_a_chunk_comes_as_soon_as_it_is_full():
    taken = []
    source = (taken.append(i) or i for i in range(5))
    chunks = chunked(source, 2)
    assert (next(chunks), taken) == ([0], [0])
    assert (next(chunks), taken) == ([1, 2], [0, 1, 2])


@pytest.mark.parametrize("size", [0, -1, 1.5, "2"])
def test_a_size_below_one_is_refused_at_once(size):
    with pytest.raises(OptionError, match="size"):
        chunked([], size)
