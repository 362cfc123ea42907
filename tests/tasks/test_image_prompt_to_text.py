"""Florence-2: tokens, texts and what the answers say are transformers', alone and batched."""

import pytest

import onnxgen
from tests.tasks.vision_language import FIXTURES, IMAGES, load, told

FOLDER = "florence-2"
CASES = {case["name"]: case for case in told(FOLDER)["cases"]}


def keywords(case):
    given = dict(case["options"])
    if case["images"]:
        given["images"] = IMAGES / case["images"][0]
    return given


@pytest.mark.parametrize("name", CASES)
def test_answers_are_those_of_transformers(name):
    case, model = CASES[name], load(FOLDER)
    request = model.request([case["prompt"]], None, keywords(case))
    assert request.asked[0].ids == case["input_ids"]
    for _ in request.steps():
        pass
    ((answer,),) = request.results()
    assert list(answer.tokens) == case["tokens"]
    assert answer.text == case["text"]
    assert answer.parsed == (case.get("parsed") if case["images"] else None)


@pytest.mark.parametrize("batch", ["batch", "batch_beams"])
def test_a_batch_is_its_rows(batch):
    rows, model = told(FOLDER)[batch], load(FOLDER)
    answers = model.generate(
        [row["prompt"] for row in rows],
        images=[IMAGES / row["images"][0] for row in rows],
        **rows[0]["options"],
    )
    assert [list(answer.tokens) for answer in answers] == [row["tokens"] for row in rows]


def test_a_stream_is_the_whole_answer():
    case = CASES["objects"]
    pieces = list(load(FOLDER).stream(case["prompt"], **keywords(case)))
    assert [piece.token for piece in pieces] == case["tokens"]


def test_rows_with_and_without_an_image_together():
    shown, bare = CASES["objects"], CASES["text only"]
    answers = load(FOLDER).generate(
        [bare["prompt"], shown["prompt"]],
        images=[[], [IMAGES / shown["images"][0]]],
        **shown["options"],
    )
    assert [list(answer.tokens) for answer in answers] == [bare["tokens"], shown["tokens"]]


def test_an_image_is_seen_once():
    model = onnxgen.load(FIXTURES / "models" / FOLDER, threads=1)
    for task in ("<CAPTION>", "<OD>", "<OCR_WITH_REGION>"):
        model.generate(task, images=IMAGES / "photo.jpg", max_new_tokens=2)
    assert model.features.passes == 1


WRONG = {
    "two images": ("<OD>", {"images": [IMAGES / "photo.jpg"] * 2}, "2 images"),
    "no image file": ("<OD>", {"images": "nowhere.png"}, "nowhere.png"),
    "a task with an input it does not take": ("<OD> cat", {"images": IMAGES / "photo.jpg"}, "more"),
    "a chat": ([{"role": "user", "content": "Hi"}], {}, "no text"),
    "an unknown option": ("<OD>", {"image": IMAGES / "photo.jpg"}, "no option 'image'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input(name):
    prompt, given, words = WRONG[name]
    with pytest.raises(onnxgen.OnnxgenError, match=words):
        load(FOLDER).generate(prompt, **given)
