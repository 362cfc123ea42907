"""Transcripts as files, against what openai-whisper's own writers make of them."""

import json
from pathlib import Path

import pytest

from onnxgen.audio.subtitles import FORMATS, Layout, render
from onnxgen.audio.transcript import Segment, Transcript, Word
from onnxgen.errors import OptionError

GOLDENS = Path(__file__).parents[2] / "fixtures" / "audio" / "subtitles.json"
CASES = json.loads(GOLDENS.read_text(encoding="utf-8"))


def transcript(result):
    """A transcript from a result of openai-whisper's."""
    segments = []
    for fields in result["segments"]:
        words = fields.get("words")
        if words is not None:
            words = tuple(
                Word(word["word"], word["start"], word["end"], word["probability"])
                for word in words
            )
        rest = {k: v for k, v in fields.items() if k not in ("id", "tokens", "words")}
        segments.append(Segment(**rest, tokens=tuple(fields["tokens"]), words=words))
    return Transcript(result["text"], tuple(segments), result["language"])


def said(*segments, **fields):
    return Transcript("".join(segment.text for segment in segments), segments, **fields)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["txt", "vtt", "srt", "tsv"])
def test_files_are_those_of_openai_whisper(case, name):
    assert render(transcript(case["transcript"]), name) == case["files"][name]


@pytest.mark.parametrize("case", CASES)
def test_json_is_that_of_openai_whisper_with_letters_as_they_are(case):
    theirs = json.dumps(json.loads(case["files"]["json"]), ensure_ascii=False)
    assert render(transcript(case["transcript"]), "json") == theirs


@pytest.mark.parametrize(
    ("case", "layout"), [(case, layout) for case in CASES for layout in case["layouts"]]
)
@pytest.mark.parametrize("name", ["vtt", "srt"])
def test_layouts_are_those_of_openai_whisper(case, layout, name):
    found = render(transcript(case["transcript"]), name, Layout(**layout["options"]))
    assert found == layout["files"][name]


def test_the_goldens_hold_what_they_should():
    options = [layout["options"] for case in CASES for layout in case["layouts"]]
    assert len({json.dumps(one) for one in options}) == 10
    texts = "".join(case["files"]["vtt"] for case in CASES)
    assert "\n01:00:" in texts  # an hour, and no hour
    assert "\n00:0" in texts
    assert " -> signs" in texts
    assert any(not case["transcript"]["segments"] for case in CASES)


def test_arrows_in_words_do_not_break_a_cue():
    words = (Word(" a", 0.0, 1.0), Word(" -->", 1.0, 2.0), Word(" b", 2.0, 3.0))
    text = render(said(Segment(0.0, 3.0, " a --> b", words=words)), "vtt")
    assert text == "WEBVTT\n\n00:00.000 --> 00:03.000\na -> b\n\n"


def test_blank_lines_and_line_breaks_do_not_break_files():
    one = said(Segment(0.0, 1.5, " a\n \nb\tc"))
    assert render(one, "srt") == "1\n00:00:00,000 --> 00:00:01,500\na\nb\tc\n\n"
    assert render(one, "tsv") == "start\tend\ttext\n0\t1500\ta   b c\n"


def test_an_open_end_is_where_the_next_segment_or_the_audio_ends():
    segments = (Segment(0.0, None, " a"), Segment(2.0, 3.0, " b"), Segment(3.5, None, " c"))
    assert render(said(*segments, duration=4.25), "tsv").splitlines()[1:] == [
        "0\t2000\ta",
        "2000\t3000\tb",
        "3500\t4250\tc",
    ]
    assert render(said(*segments), "tsv").endswith("3500\t3500\tc\n")


def test_a_transcript_without_times_is_one_cue():
    one = said(Segment(None, None, " a"), duration=61.0)
    assert render(one, "srt") == "1\n00:00:00,000 --> 00:01:01,000\na\n\n"


def test_a_segment_without_words_stays_among_others():
    segments = (
        Segment(0.0, 1.0, " a", words=(Word(" a", 0.0, 1.0),)),
        Segment(1.0, 2.0, " b c", words=()),
        Segment(2.0, 3.0, " ", words=()),
    )
    text = render(said(*segments), "vtt")
    assert text == "WEBVTT\n\n00:00.000 --> 00:01.000\na\n\n00:01.000 --> 00:02.000\nb c\n\n"


def test_what_is_not_known_is_not_in_the_json():
    words = (Word(" é", 0.0, 1.0),)
    one = said(
        Segment(0.0, None, " é", (7,), words), Segment(1.0, 2.0, "", words=()), language="fr"
    )
    assert render(one, "json") == (
        '{"text": " é", "segments": [{"id": 0, "start": 0.0, "end": null, "text": " é", '
        '"tokens": [7], "words": [{"word": " é", "start": 0.0, "end": 1.0}]}, '
        '{"id": 1, "start": 1.0, "end": 2.0, "text": "", "tokens": [], "words": []}], '
        '"language": "fr"}'
    )


def test_a_segment_in_another_language_says_so():
    segments = (Segment(0.0, 1.0, " a", language="en"), Segment(1.0, 2.0, " b", language="fr"))
    found = json.loads(render(said(*segments, language="en"), "json"))
    assert [segment.get("language") for segment in found["segments"]] == [None, "fr"]


def test_a_long_pause_is_from_one_start_to_the_next():
    words = (Word(" a", 0.0, 0.5), Word(" b", 3.0, 4.0), Word(" c", 6.1, 6.2))
    layout = Layout(max_line_width=20, max_line_count=2)
    text = render(said(Segment(0.0, 6.2, " a b c", words=words)), "vtt", layout)
    assert text == "WEBVTT\n\n00:00.000 --> 00:04.000\na b\n\n00:06.100 --> 00:06.200\nc\n\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_line_width": 0}, "max_line_width is 0"),
        ({"max_words_per_line": True}, "max_words_per_line is True"),
        ({"max_line_count": 2}, "without max_line_width"),
        (
            {"max_line_width": 9, "max_line_count": 2, "max_words_per_line": 3},
            "with max_line_count",
        ),
    ],
)
def test_layouts_that_make_no_sense(options, message):
    with pytest.raises(OptionError, match=message):
        Layout(**options)


def test_what_cannot_be_rendered():
    one = said(Segment(0.0, 1.0, " a"))
    with pytest.raises(OptionError, match="did you mean 'srt'"):
        render(one, "sert")
    with pytest.raises(OptionError, match="no times of words"):
        render(one, "srt", Layout(highlight_words=True))
    with pytest.raises(OptionError, match="given for txt"):
        render(one, "txt", Layout())
    assert FORMATS == ("txt", "vtt", "srt", "tsv", "json")
