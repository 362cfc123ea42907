"""Chunks of long audio and their text; expectations are the oracle's notes, or on paper."""

import pytest

from onnxgen.audio.merging import Part, join, merge, spans
from onnxgen.audio.transcript import SpeechTokens, Word
from onnxgen.audio.words import Heard
from onnxgen.errors import OptionError

# Text is below 90 (each token a word), <|0.00|> is 100, so that 150 is 1 s.
SPEECH = SpeechTokens(90, 100, lambda ids: "".join(f" {i}" for i in ids))


def at(seconds):
    """The timestamp of a time."""
    return 100 + round(seconds * 50)


def joined(*sequences):
    return [one.token for one in join([[Heard(i) for i in ids] for ids in sequences])]


def merged(parts, timestamps=True):
    return [(one.start, one.end, one.text) for one in merge(parts, SPEECH, timestamps=timestamps)]


@pytest.mark.parametrize(
    ("seconds", "strides"),
    [
        (31, [(30, 0, 5), (11, 5, 0)]),
        (55, [(30, 0, 5), (30, 5, 5), (15, 5, 0)]),
        (60, [(30, 0, 5), (30, 5, 5), (20, 5, 0)]),
        (30, [(30, 0, 0)]),
        (4, [(4, 0, 0)]),
        (0, []),
    ],
)
def test_chunks_and_their_strides(seconds, strides):
    found = spans(seconds * 16000, 16000, 30)
    assert [((b - a) / 16000, c / 16000, d / 16000) for a, b, c, d in found] == strides
    covered = {second for a, b, _, _ in found for second in range(a // 16000, b // 16000)}
    assert covered == set(range(seconds))


def test_strides_of_either_side():
    assert [tuple(span) for span in spans(12, 1, 10, (4, 0))] == [(0, 10, 0, 0), (6, 12, 4, 0)]
    assert [tuple(span) for span in spans(9, 1, 8, (2, 4))] == [(0, 8, 0, 4), (2, 9, 2, 0)]
    # The audio ends with the second chunk, so nothing is left for a third one, which begins at 8 s.
    assert [tuple(span) for span in spans(10, 1, 6, (2, 0))] == [(0, 6, 0, 0), (4, 10, 2, 0)]


@pytest.mark.parametrize(
    ("length", "stride"), [(10, 5), (10, (8, 2)), (10, (0, 10)), (10, (-1, 1)), (0, None)]
)
def test_strides_that_leave_nothing(length, stride):
    with pytest.raises(OptionError, match="strides"):
        spans(100, 16000, length, stride)


@pytest.mark.parametrize(
    ("sequences", "whole"),
    [
        ([[1, 2, 3, 4, 5], [4, 5, 6, 7]], [1, 2, 3, 4, 5, 6, 7]),
        ([[1, 2, 3, 9, 5, 6], [3, 4, 5, 6, 7, 8]], [1, 2, 3, 9, 5, 6, 7, 8]),
        ([[1, 2, 3], [3, 4, 5]], [1, 2, 3, 3, 4, 5]),  # one token is no overlap
        ([[1, 2, 3, 4, 5, 6], [3, 4, 8, 6, 7]], [1, 2, 3, 4, 8, 6, 7]),  # halves of each
        ([[1, 2, 1, 2], [1, 2, 1, 2, 3]], [1, 2, 1, 2, 3]),  # the longer of two that fit
        ([[1, 2], [], [3]], [1, 2, 3]),
        ([[], [1, 2]], [1, 2]),
        ([[1, 2, 3, 4]], [1, 2, 3, 4]),
        ([[5, 6], [5, 6]], [5, 6]),
        ([[5, 6], [5, 6], [5, 6]], [5, 6, 5, 6]),  # the third sees but the 6 behind the first seam
    ],
)
def test_overlaps(sequences, whole):
    assert joined(*sequences) == whole


def test_tokens_agree_only_if_the_left_is_not_later():
    left = [Heard(1, 0, 1), Heard(2, 1, 2), Heard(3, 2, 3)]
    right = [Heard(2, 1, 2), Heard(3, 2, 3), Heard(4, 3, 4)]
    assert [one.token for one in join([left, right])] == [1, 2, 3, 4]
    early = [Heard(2, 0, 1), Heard(3, 1, 2), Heard(4, 2, 3)]
    assert [one.token for one in join([left, early])] == [1, 2, 3, 2, 3, 4]
    # The same start and an earlier end is later too.
    early = [Heard(2, 1, 1.5), Heard(3, 2, 2.5), Heard(4, 3, 4)]
    assert [one.token for one in join([left, early])] == [1, 2, 3, 2, 3, 4]


def test_without_timestamps_all_is_one_segment():
    strides = (10, 0, 2), (10, 2, 2), (6, 2, 0)
    texts = [1, 2, 3, 4, 5], [4, 5, 6, 7, 8], [7, 8, 9]
    parts = [Part(ids, stride=stride) for ids, stride in zip(texts, strides, strict=True)]
    assert merged(parts, timestamps=False) == [(None, None, " 1 2 3 4 5 6 7 8 9")]


def test_without_timestamps_a_new_language_is_a_new_segment():
    parts = [
        Part([1, 2], stride=(10, 0, 2), language="en"),
        Part([1, 2, 3], stride=(10, 2, 2), language="fr"),
        Part([4], stride=(6, 2, 0)),
    ]
    found = merge(parts, SPEECH, timestamps=False)
    assert [(one.text, one.language) for one in found] == [(" 1 2", "en"), (" 1 2 3 4", "fr")]
    assert len(merge(parts, SPEECH, timestamps=True)) == 1


def test_special_tokens_are_no_text():
    (segment,) = merge([Part([95, 1, 90, 2])], SPEECH, timestamps=False)
    assert (segment.text, segment.tokens) == (" 1 2", (1, 2))
    assert merge([Part([95, 90])], SPEECH, timestamps=False) == []
    assert merge([], SPEECH, timestamps=True) == []


def test_timestamps_close_and_open_segments():
    tokens = [at(0), 1, 2, at(1.5), at(1.5), 3, at(4), at(5), 4, at(6.02)]
    assert merged([Part(tokens)]) == [(0.0, 1.5, " 1 2"), (1.5, 4.0, " 3"), (5.0, 6.02, " 4")]


def test_the_last_segment_may_stay_open():  # known problem A9
    assert merged([Part([at(0), 1, at(1), at(1), 2])]) == [(0.0, 1.0, " 1"), (1.0, None, " 2")]
    assert merged([Part([1, 2])]) == [(None, None, " 1 2")]
    # An opening timestamp that nothing follows is no segment.
    assert merged([Part([at(0), 1, at(1), at(1)])]) == [(0.0, 1.0, " 1")]


def test_what_is_in_the_right_stride_is_left_to_the_next_chunk():
    # 10 s with 2 s on either side; the second chunk begins at 6 s of the audio.
    parts = [
        Part([at(0), 1, 2, at(7), at(7), 3, 4, at(9.5)], stride=(10, 0, 2)),
        Part([at(1), 3, 4, at(3.5), at(3.5), 5, at(8)], stride=(8, 2, 0)),
    ]
    assert merged(parts) == [(0.0, 7.0, " 1 2"), (7.0, 9.5, " 3 4"), (9.5, 14.0, " 5")]


def test_the_last_timestamp_is_held_back_even_before_the_stride():
    parts = [
        Part([at(0), 1, 2, at(5)], stride=(10, 0, 2)),
        Part([at(2), 3, at(4)], stride=(8, 2, 0)),
    ]
    # The 5 s do not end the segment, and the 8 s are taken for the start of the next one.
    assert merged(parts) == [(0.0, 10.0, " 1 2 3")]


def test_a_time_in_the_left_stride_opens_nothing_while_text_is_held():
    inner = Part([at(1), 3, at(4)], stride=(8, 2, 0))
    assert merged([Part([1, 2], stride=(10, 0, 2)), inner]) == [(10.0, None, " 1 2 3")]
    assert merged([Part([], stride=(10, 0, 2)), inner]) == [(7.0, 10.0, " 3")]


def test_an_opening_time_without_text_is_forgotten_at_the_end_of_its_chunk():
    first = Part([at(0), 1, at(3), at(5)], stride=(10, 0, 0))
    second = Part([at(1), 2, at(4)], stride=(8, 0, 0))
    assert merged([first, second]) == [(0.0, 3.0, " 1"), (11.0, 14.0, " 2")]


def test_a_time_that_goes_back_is_the_next_window():
    single = [at(0), 1, at(20), at(2), 2, at(5)]
    assert merged([Part(single)]) == [(0.0, 20.0, " 1"), (32.0, 35.0, " 2")]
    # Behind a pair nothing was kept: the next window begins there.
    pair = [at(0), 1, at(20), at(20), at(0), 2, at(5)]
    assert merged([Part(pair)]) == [(0.0, 20.0, " 1"), (20.0, 25.0, " 2")]
    # Of a pair of unlike times the first counts, also if the next time goes back at once.
    odd = [at(0), 1, at(20), at(21), at(5), at(3), 2, at(6)]
    assert merged([Part(odd)]) == [(0.0, 20.0, " 1"), (21.0, 25.0, ""), (43.0, 46.0, " 2")]
    # Two windows later, 30 s and 20 s are behind.
    assert merged([Part([*single, *pair])])[2:] == [(60.0, 80.0, " 1"), (80.0, 85.0, " 2")]


def test_words_have_times_of_the_whole_audio():  # known problem A6
    parts = [
        Part([1, 2, 3, 4], [1.0, 2.0, 8.0, 9.0], (10, 0, 2), probabilities=[0.1, 0.2, 0.3, 0.4]),
        Part([3, 4, 5], [2.004, 3.0, 4.0], (8, 2, 0), probabilities=[0.5, 0.6, 0.7]),
    ]
    (segment,) = merge(parts, SPEECH, timestamps=True)
    assert segment.words == (
        Word(" 1", 0.0, 1.0, 0.1),
        Word(" 2", 1.0, 2.0, 0.2),
        Word(" 3", 2.0, 8.0, 0.3),
        Word(" 4", 8.0, 9.0, 0.6),
        Word(" 5", 9.0, 10.0, 0.7),
    )


@pytest.mark.parametrize("stride", [2, 3, 5, (4, 1)])
def test_words_do_not_depend_on_the_strides(stride):  # known problem A8
    """81 words of 0.8 s each; a chunk hears those that lie within it, by its own clock."""
    parts = []
    for start, stop, left, right in spans(65 * 100, 100, 30, stride):
        inside = [i for i in range(81) if start <= 80 * i and 80 * (i + 1) <= stop]
        ends = [0.8 * (i + 1) - start / 100 for i in inside]
        parts.append(Part(inside, ends, ((stop - start) / 100, left / 100, right / 100)))
    assert len(parts) > 2
    (segment,) = merge(parts, SPEECH, timestamps=True)
    assert [word.text for word in segment.words] == [f" {i}" for i in range(81)]
    for i, word in enumerate(segment.words):
        assert (word.start, word.end) == pytest.approx((0.8 * i, 0.8 * (i + 1)), abs=0.0101)
