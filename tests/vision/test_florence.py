"""Florence-2's questions, and its answers read into places, worked out on paper."""

import pytest

from onnxgen.errors import ModelFileError, OptionError
from onnxgen.vision.florence import Reading, parse, question, reading, task_of

# 1000 rows, 2000 columns: place n is the pixel n of a column, 2 n + 1 of a row.
SIZE = (1000, 2000)


def locs(*numbers):
    return "".join(f"<loc_{number}>" for number in numbers)


def test_questions():
    assert question("<OD>") == "Locate the objects with category name in the image."
    assert question("<OPEN_VOCABULARY_DETECTION> a dog ") == "Locate a dog in the image."
    region = locs(1, 2, 3, 4)
    wanted = f"What text is in the region {region}?"
    assert question(f"<REGION_TO_OCR>{region}") == wanted
    assert question("How many?") == "How many?"
    with pytest.raises(OptionError, match="takes no input"):
        question("<OD>dogs")


def test_tasks():
    assert task_of("<MORE_DETAILED_CAPTION>") == "<MORE_DETAILED_CAPTION>"
    assert task_of("<REGION_TO_OCR>x") == "<REGION_TO_OCR>"
    assert task_of("<OCR>") == "<OCR>"
    assert task_of("OCR") is None


def test_text():
    for task in ("<CAPTION>", "<OCR>", "<REGION_TO_CATEGORY>", "<FOO>", None):
        assert parse("</s><s>a dog </s>", task, SIZE) == "a dog"
    assert parse(f"dog{locs(1)}", None, (0, 0)) == f"dog{locs(1)}"


def test_objects():
    answer = f"</s><s>a dog{locs(0, 0, 10, 999)}{locs(1, 2, 3, 4)}café{locs(5, 6, 7, 8)}</s>"
    assert parse(answer, "<OD>", SIZE) == {
        "bboxes": [[1, 0, 21, 999], [3, 2, 7, 4], [11, 6, 15, 8]],
        "labels": ["a dog", "a dog", "caf"],
    }


def test_proposals():
    answer = f"<s>{locs(0, 0, 1, 1)}{locs(2, 2, 3, 3)}"
    assert parse(answer, "<REGION_PROPOSAL>", SIZE) == {
        "bboxes": [[1, 0, 3, 1], [5, 2, 7, 3]],
        "labels": ["", ""],
    }


def test_phrases():
    answer = f"it{locs(1, 1, 1, 1)}A dog{locs(0, 0, 1, 1)}"
    everything = parse(answer, "<CAPTION_TO_PHRASE_GROUNDING>", SIZE)
    assert everything["labels"] == ["it", "A dog"]
    kept = parse(answer, "<CAPTION_TO_PHRASE_GROUNDING>", SIZE, Reading(banned=frozenset(["it"])))
    assert kept == {"bboxes": [[1, 0, 3, 1]], "labels": ["A dog"]}


def test_text_with_regions():
    answer = f"Hi you{locs(0, 0, 9, 0, 9, 9, 0, 9)} x{locs(0, 0, 1, 0, 1, 1, 0, 1)}"
    first, second = [1, 0, 19, 0, 19, 9, 1, 9], [1, 0, 3, 0, 3, 1, 1, 1]
    wanted = {"quad_boxes": [first, second], "labels": ["Hi you", "x"]}
    assert parse(answer, "<OCR_WITH_REGION>", SIZE) == wanted
    # 18 x 9 pixels and 2 x 1, of 2 million.
    large = parse(answer, "<OCR_WITH_REGION>", SIZE, Reading(least_area=5e-6))
    assert large == {"quad_boxes": [first], "labels": ["Hi you"]}


def test_segmentation():
    answer = f"<s>{locs(0, 0, 1, 1, 2, 2, 3)}<sep>{locs(4, 4)}</s>"
    assert parse(answer, "<REGION_TO_SEGMENTATION>", SIZE) == {
        "polygons": [[[1, 0, 3, 1, 5, 2], [9, 4]]],
        "labels": [""],
    }


def test_open_vocabulary():
    boxes = parse(f"dog{locs(0, 0, 1, 1)}", "<OPEN_VOCABULARY_DETECTION>", SIZE)
    nothing = {"polygons": [], "polygons_labels": []}
    assert boxes == {"bboxes": [[1, 0, 3, 1]], "bboxes_labels": ["dog"]} | nothing
    answer = f"dog<poly>{locs(0, 0, 1, 1)}</poly><poly>{locs(2, 2)}<sep>{locs(3, 3)}</poly>"
    assert parse(answer, "<OPEN_VOCABULARY_DETECTION>", SIZE) == {
        "bboxes": [],
        "bboxes_labels": [],
        "polygons": [[[1, 0, 3, 1]], [[5, 2], [7, 3]]],
        "polygons_labels": ["dog", "dog"],
    }


@pytest.mark.parametrize("answer", ["", "dog", locs(1, 2, 3), f"dog{locs(1, 2, 3)}", "<loc_>" * 4])
def test_answers_without_a_place(answer):
    assert parse(answer, "<OD>", SIZE) == {"bboxes": [], "labels": []}
    assert parse(answer, "<OCR_WITH_REGION>", SIZE) == {"quad_boxes": [], "labels": []}


def test_absurd_numbers_do_no_harm():
    for digits in (11, 400, 5000):
        made = parse(f"dog{locs('9' * digits, 1, 1, 1)}", "<OD>", SIZE)
        assert made["bboxes"][0][1:] == [1, 3, 1]


@pytest.mark.parametrize("size", [(0, 3), (3, -1), (1, 2, 3), (1.5, 2)])
def test_wrong_sizes(size):
    with pytest.raises(OptionError):
        parse("a", "<OD>", size)


def test_readings_of_files():
    assert reading({}) == Reading()
    config = {
        "ocr": {"AREA_THRESHOLD": 0.5},
        "phrase_grounding": {"banned_grounding_tokens": ["it"]},
    }
    made = reading({"processor_config.json": {"post_processor_config": config}})
    assert made.least_area == 0.5
    assert made.banned == {"it"}


@pytest.mark.parametrize(
    "config",
    [
        {"ocr": {"PATTERN": "("}},
        {"ocr": {"PATTERN": "(.)"}},
        {"ocr": {"PATTERN": 3}},
        {"ocr": {"AREA_THRESHOLD": "x"}},
        {"phrase_grounding": {"banned_grounding_tokens": "it"}},
        {"phrase_grounding": 3},
    ],
)
def test_wrong_readings(config):
    with pytest.raises(ModelFileError):
        reading({"processor_config.json": {"post_processor_config": config}})
