"""Windows to segments; expectations are the oracle's notes, or the rule on paper."""

import pytest

from onnxgen.audio.segments import split
from onnxgen.audio.transcript import SpeechTokens

# Text is below 90, <|0.00|> is 100: 150 is 1 s, 200 is 2 s.
SPEECH = SpeechTokens(90, 100, lambda ids: "".join(f" {i}" for i in ids))


def cut(tokens, frames=3000, offset=0.0):
    segments, advance = split(tokens, SPEECH, frames, offset)
    return [(s.start, s.end, list(s.tokens)) for s in segments], advance


@pytest.mark.parametrize(
    ("tokens", "frames", "segments", "advance"),
    [
        # The last pair is kept, what is behind it is not.
        ([100, 1, 2, 150, 150, 3], 3000, [(0, 1, [100, 1, 2, 150, 150])], 100),
        (
            [100, 1, 150, 150, 2, 200, 200, 3],
            3000,
            [(0, 1, [100, 1, 150]), (1, 2, [150, 2, 200, 200])],
            200,
        ),
        ([100, 1, 150, 160, 2], 3000, [(0, 1, [100, 1, 150, 160])], 100),
        # A single timestamp at the end: nothing is said behind it.
        (
            [100, 1, 2, 150, 150, 3, 4, 200],
            3000,
            [(0, 1, [100, 1, 2, 150]), (1, 2, [150, 3, 4, 200])],
            3000,
        ),
        ([100, 1, 150, 160, 2, 200], 500, [(0, 1, [100, 1, 150]), (1.2, 2, [160, 2, 200])], 500),
        # No pair: one segment to its last timestamp, or to the window's end.
        ([100, 1, 2], 777, [(0, 7.76, [100, 1, 2])], 777),
        ([100, 1, 200], 3000, [(0, 2, [100, 1, 200])], 3000),
        ([1, 200, 3], 3000, [(0, 2, [1, 200, 3])], 3000),
        ([1, 2], 3000, [(0, 30, [1, 2])], 3000),
        ([150], 3000, [(0, 1, [150])], 3000),
        ([], 3000, [(0, 30, [])], 3000),
    ],
)
def test_cuts(tokens, frames, segments, advance):  # known problems A5, A9
    assert cut(tokens, frames) == (segments, advance)


def test_times_count_from_the_start_of_the_audio():
    segments, advance = cut([150, 1, 200, 200, 2], offset=30.0)
    assert (segments, advance) == ([(31, 32, [150, 1, 200, 200])], 200)
    assert cut([1], 100, offset=30.0) == ([(30, 31, [1])], 100)


def test_text_before_the_first_timestamp_begins_with_the_window():
    assert cut([1, 150, 150, 2], offset=30.0)[0] == [(30, 31, [1, 150, 150])]


def test_segments_have_their_text():
    segments, _ = split([100, 1, 2, 95, 150, 150, 3, 200], SPEECH, 3000)
    assert [segment.text for segment in segments] == [" 1 2", " 3"]


@pytest.mark.parametrize("tokens", [[100, 100], [1, 100, 100, 2], [100, 1, 100, 100]])
def test_a_pair_that_goes_nowhere_does_not_stop_the_clock(tokens):
    segments, advance = cut(tokens)
    assert advance == 3000
    assert segments[-1][:2] == (0, 0)


def test_a_pair_behind_the_audio_ends_it():  # known problem A5
    assert cut([100, 1, 1000, 1000, 2], frames=400)[1] == 400
