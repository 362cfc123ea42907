"""Tokens to words; expectations are the oracle's notes, or on paper."""

import pytest

from onnxgen.audio.transcript import Segment, SpeechTokens, Word
from onnxgen.audio.words import Heard, heard, in_order, split_words, to_words, with_words


class Vocabulary:
    """Tokens with the bytes given, numbered from 0; 90 ends text, 100 is <|0.00|>."""

    def __init__(self, *tokens):
        self.tokens = [token.encode() if isinstance(token, str) else token for token in tokens]
        self.ids = list(range(len(tokens)))
        self.speech = SpeechTokens(90, 100, self.decode)

    def decode(self, ids):
        return b"".join(self.tokens[i] for i in ids).decode(errors="replace")


def words_of(*tokens, language="en"):
    vocabulary = Vocabulary(*tokens)
    pieces = split_words(vocabulary.ids, vocabulary.decode, language)
    covered = [i for piece in pieces for i in range(piece.start, piece.stop)]
    assert covered == vocabulary.ids
    return [piece.text for piece in pieces]


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ([" Hel", "lo", " wor", "ld"], [" Hello", " world"]),
        (["Hel", "lo"], ["Hello"]),
        ([' "', " Hello", ",", ",", " world", "!", '"', " x"], [' " Hello,,', ' world!"', " x"]),
        ([" (", "a", ")", "."], [" (a)."]),
        ([" (", " a", ")", "."], [" ( a)."]),
        ([" it", "'", "s"], [" it", "'s"]),  # punctuation begins a word,
        ([" 3", "%", "x"], [" 3", "%x"]),  # which goes on after it,
        ([" 3", "%", "!", " x"], [" 3", "%!", " x"]),  # and not all of it is appended
        (["¿", " que", "?"], ["¿", " que?"]),  # an opening mark has a space before it
        ([" ¿", "que", "?"], [" ¿que?"]),
        ([" a ", ",", " b"], [" a ", ",", " b"]),  # nothing is appended to a space
        ([], []),
    ],
)
def test_words_with_spaces(tokens, words):
    assert words_of(*tokens) == words


@pytest.mark.parametrize("language", ["zh", "ja", "th", "lo", "my", "yue"])
def test_words_of_languages_without_spaces(language):
    assert words_of("東京", "は", "、", " x", "y", language=language) == ["東京", "は、", " x", "y"]
    assert words_of("東京", "は", "、", " x", "y", language=None) == ["東京は、", " xy"]


def test_characters_over_several_tokens():
    smile = "😀".encode()
    assert words_of(smile[:2], smile[2:3], smile[3:], "x", language="ja") == ["😀", "x"]
    assert words_of(" a", smile[:1], smile[1:], " b") == [" a😀", " b"]


def test_broken_characters():
    # The first is broken in the whole text too, so it stands alone.
    assert words_of(b"\xff", "a", language="ja") == ["\ufffd", "a"]
    # A start of a character that nothing completes is one U+FFFD, its second token is no more.
    assert words_of(" a", b"\xf0\x9f", b"\x98") == [" a\ufffd"]
    assert words_of(b"\xf0\x9f", b"\x98", language="ja") == ["\ufffd"]


def test_what_spells_nothing_is_no_word():
    vocabulary = Vocabulary("", " a", "", " b")
    pieces = split_words(vocabulary.ids, vocabulary.decode, "en")
    assert [tuple(piece) for piece in pieces] == [(" a", 1, 3), (" b", 3, 4)]


def test_tokens_begin_where_the_one_before_ends():
    assert heard([7, 8, 9], [0.5, 0.754, 1.0], [0.1, 0.2, 0.3], offset=2.0) == [
        Heard(7, 2.0, 2.5, 0.1),
        Heard(8, 2.5, 2.75, 0.2),
        Heard(9, 2.75, 3.0, 0.3),
    ]
    assert heard([7, 8], None) == [Heard(7), Heard(8)]


def test_words_have_the_times_of_their_tokens():
    vocabulary = Vocabulary(" Hel", "lo", ",", " x")
    spoken = [
        Heard(0, 1.0, 1.2, 0.5),
        Heard(1, 1.2, 1.5, 0.7),
        Heard(95, 1.5, 1.6, 0.0),  # no text
        Heard(2, 1.6, 1.7, 0.9),
        Heard(101, 1.7, 1.8, 0.0),
        Heard(3, 1.8, 2.0),
    ]
    first, second = to_words(spoken, vocabulary.speech, "en")
    assert first == Word(" Hello,", 1.0, 1.7, pytest.approx(0.7))
    assert second == Word(" x", 1.8, 2.0, None)


def test_a_segment_with_its_words():
    vocabulary = Vocabulary(" a", " b")
    segment = Segment(30.0, 32.0, " a b", (100, 0, 1, 200))
    found = with_words(segment, [30.1, 30.5, 31.0, 31.5], vocabulary.speech, "en")
    assert found.words == (Word(" a", 30.1, 30.5), Word(" b", 30.5, 31.0))
    assert (found.text, found.tokens) == (segment.text, segment.tokens)
    # Without a timestamp the first word begins with the segment.
    segment = Segment(30.0, 32.0, " a b", (0, 1))
    found = with_words(segment, [30.5, 31.0], vocabulary.speech, "en", [0.25, 0.75])
    assert found.words == (Word(" a", 30.0, 30.5, 0.25), Word(" b", 30.5, 31.0, 0.75))


def test_times_never_go_back_nor_beyond_the_audio():  # known problems A6, A7
    words = [Word(" a", 0.5, 1.4), Word(" b", 1.2, 1.3), Word(" c", 1.5, 2.5)]
    ordered = in_order(words, 0.6, 2.0)
    assert [(w.start, w.end) for w in ordered] == [(0.6, 1.4), (1.4, 1.4), (1.5, 2.0)]
