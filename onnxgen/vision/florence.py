"""Florence-2's tasks: the question that stands for each, and what its answers mean.

A prompt names a task (``<OD>``), some with an input behind it (``<OPEN_VOCABULARY_DETECTION>dog``);
the model was trained on the English question for it. Its answers mix words with places:
``<loc_N>``, N from 0 to 999, is the N-th thousandth of the image's width or height. Questions and
reading are those of transformers 4.57's ``Florence2Processor``.

Answers must be decoded with their special tokens, as ``<loc_N>`` may be one of them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxgen.errors import ModelFileError, OptionError
from onnxgen.vision.pictures import PROCESSOR, section

_QUESTIONS = {
    "<OCR>": "What is the text in the image?",
    "<OCR_WITH_REGION>": "What is the text in the image, with regions?",
    "<CAPTION>": "What does the image describe?",
    "<DETAILED_CAPTION>": "Describe in detail what is shown in the image.",
    "<MORE_DETAILED_CAPTION>": "Describe with a paragraph what is shown in the image.",
    "<OD>": "Locate the objects with category name in the image.",
    "<DENSE_REGION_CAPTION>": "Locate the objects in the image, with their descriptions.",
    "<REGION_PROPOSAL>": "Locate the region proposals in the image.",
}
_QUESTIONS_WITH_INPUT = {
    "<CAPTION_TO_PHRASE_GROUNDING>": "Locate the phrases in the caption: {}",
    "<REFERRING_EXPRESSION_SEGMENTATION>": "Locate {} in the image with mask",
    "<REGION_TO_SEGMENTATION>": "What is the polygon mask of region {}",
    "<OPEN_VOCABULARY_DETECTION>": "Locate {} in the image.",
    "<REGION_TO_CATEGORY>": "What is the region {}?",
    "<REGION_TO_DESCRIPTION>": "What does the region {} describe?",
    "<REGION_TO_OCR>": "What text is in the region {}?",
}
TASKS = (*_QUESTIONS, *_QUESTIONS_WITH_INPUT)

# What the answer to a task holds; to any other it is text alone.
_TEXT, _OCR, _PHRASES, _NAMED_BOXES, _BOXES, _POLYGONS, _EITHER = range(7)
_ANSWERS = {
    "<OCR_WITH_REGION>": _OCR,
    "<OD>": _NAMED_BOXES,
    "<DENSE_REGION_CAPTION>": _NAMED_BOXES,
    "<CAPTION_TO_PHRASE_GROUNDING>": _PHRASES,
    "<REFERRING_EXPRESSION_SEGMENTATION>": _POLYGONS,
    "<REGION_TO_SEGMENTATION>": _POLYGONS,
    "<OPEN_VOCABULARY_DETECTION>": _EITHER,
    "<REGION_PROPOSAL>": _BOXES,
}

_LOC = r"<loc_(\d+)>"
_QUAD = r"(.+?)" + 8 * _LOC
_BOX = re.compile(4 * _LOC)
_PIECE = r"(?:<loc_\d+>|<sep>|<poly>|</poly>)"
_PHRASE_AND_BOXES = re.compile(r"[^<]+(?:<loc_\d+>){4,}")
_BOXES_ALONE = re.compile(r"(?:<loc_\d+>){4,}")
_PHRASE_AND_PIECES = re.compile(f"[^<]+{_PIECE}{{4,}}")
_PIECES_ALONE = re.compile(f"{_PIECE}{{4,}}")
# A phrase may hold no line break but at its start: one that does is passed over.
_PHRASE = re.compile(r"\s*(.*?)(?=<loc_|<poly>)")
_POLYGON_GROUP = re.compile(r"<poly>(.*?)</poly>")
_POLYGON = re.compile(r"((?:<loc_\d+>)+)(?:<sep>|$)")

_BINS = 1000
_LARGEST = 10**10  # far outside of any image; keeps the arithmetic finite

Answer = str | dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class Reading:
    """What processor_config.json says about reading answers.

    Attributes:
        quad: the pattern of a text and its eight numbers.
        least_area: quads that cover a smaller part of the image are dropped.
        banned: phrases that are nothing to ground.
    """

    quad: re.Pattern[str] = re.compile(_QUAD)
    least_area: float = 0.0
    banned: frozenset[str] = field(default_factory=frozenset)


def reading(configs: Mapping[str, Any]) -> Reading:
    """The :class:`Reading` in ``post_processor_config`` of processor_config.json.

    Raises:
        ModelFileError: a field has a wrong value.
    """
    place = (PROCESSOR, "post_processor_config")
    ocr = section(configs, *place, "ocr")
    pattern = ocr.get("PATTERN") or _QUAD
    area = ocr.get("AREA_THRESHOLD") or 0.0
    banned = section(configs, *place, "phrase_grounding").get("banned_grounding_tokens") or []
    where = " ".join(place)
    if not isinstance(area, int | float):
        raise ModelFileError(f"{where}: AREA_THRESHOLD is {area!r}"[:200], wanted="a number")
    if not isinstance(banned, list) or not all(isinstance(phrase, str) for phrase in banned):
        raise ModelFileError(f"{where}: banned_grounding_tokens", wanted="a list of phrases")
    try:
        quad = re.compile(pattern)
    except (re.error, TypeError) as error:
        raise ModelFileError(f"{where}: PATTERN: {error}", wanted="a pattern") from error
    if quad.groups != 9:
        raise ModelFileError(f"{where}: PATTERN has {quad.groups} groups", wanted="9")
    return Reading(quad, float(area), frozenset(banned))


def task_of(prompt: str) -> str | None:
    """The task that ``prompt`` names; None for a question of the user's own."""
    return next((task for task in TASKS if task in prompt), None)


def question(prompt: str) -> str:
    """The English question for ``prompt``; itself if it names no task.

    Raises:
        OptionError: an input beside a task that takes none.
    """
    task = task_of(prompt)
    if task is None:
        return prompt
    if task in _QUESTIONS:
        if prompt != task:
            raise OptionError(
                f"the prompt has more than {task}",
                wanted="this task alone: it takes no input",
                do=f"tasks with an input are {', '.join(_QUESTIONS_WITH_INPUT)}",
            )
        return _QUESTIONS[task]
    return _QUESTIONS_WITH_INPUT[task].format(prompt.replace(task, "").strip())


def parse(
    answer: str, task: str | None, size: tuple[int, int], reading: Reading | None = None
) -> Answer:
    """What ``answer`` says: text, or a dict of lists with places in pixels.

    A box is [left, top, right, bottom], a quad four corners [x, y, ...] from the text's first on,
    a polygon [x, y, ...], all in whole pixels. What fits no pattern is passed over. By task:

    - objects, dense regions, proposals, phrases: ``bboxes`` and ``labels``, one label a box;
    - text with regions: ``quad_boxes`` and ``labels``;
    - segmentation: ``polygons``, for each instance a list of polygons, and ``labels``;
    - open vocabulary: ``bboxes``, ``bboxes_labels``, ``polygons`` and ``polygons_labels``;
    - all others, and None: the text.

    Args:
        answer: decoded with special tokens.
        task: see :func:`task_of`.
        size: (rows, columns) of the original image.
        reading: see :func:`reading`.

    Raises:
        OptionError: ``size`` is no size.
    """
    kind = _ANSWERS.get(task or "", _TEXT)
    if kind == _TEXT:
        return answer.replace("<s>", "").replace("</s>", "").strip()
    if len(size) != 2 or not all(isinstance(side, int) and side > 0 for side in size):
        raise OptionError(f"size is {size!r}"[:200], wanted="(rows, columns) of the image")
    reading = reading or Reading()
    text = answer.replace("<s>", "").replace("</s>", "").replace("<pad>", "")
    if kind == _OCR:
        return _columns(_quads(text, size, reading), "quad_boxes", "labels")
    if kind == _POLYGONS:
        return _columns(_polygons(text, size, _PIECES_ALONE), "polygons", "labels")
    if kind == _EITHER:
        with_polygons = "<poly>" in answer
        polygons = _polygons(text, size, _PHRASE_AND_PIECES) if with_polygons else iter(())
        boxes = iter(()) if with_polygons else _boxes(text, size, _PHRASE_AND_BOXES)
        return _columns(boxes, "bboxes", "bboxes_labels") | _columns(
            polygons, "polygons", "polygons_labels"
        )
    pattern = _BOXES_ALONE if kind == _BOXES else _PHRASE_AND_BOXES
    banned = reading.banned if kind == _PHRASES else frozenset()
    return _columns(_boxes(text, size, pattern, banned), "bboxes", "labels")


def _columns(
    found: Iterator[tuple[list[Any], str]], places: str, labels: str
) -> dict[str, list[Any]]:
    """Pairs of a place and a label as two lists."""
    pairs = list(found)
    return {places: [place for place, _ in pairs], labels: [label for _, label in pairs]}


def _quads(text: str, size: tuple[int, int], reading: Reading) -> Iterator[tuple[list[int], str]]:
    """Each text with its quad."""
    for content, *bins in reading.quad.findall(text):
        quad = _pixels(bins, size)
        x, y = quad[0::2], quad[1::2]
        # Without the side from the last corner to the first, as transformers has it.
        sides = (x[i] * y[i + 1] - x[i + 1] * y[i] for i in range(3))
        if reading.least_area > 0 and abs(sum(sides)) / 2 < size[0] * size[1] * reading.least_area:
            continue
        yield quad, content.strip()


def _boxes(
    text: str,
    size: tuple[int, int],
    pattern: re.Pattern[str],
    banned: frozenset[str] = frozenset(),
) -> Iterator[tuple[list[int], str]]:
    """Each box in what ``pattern`` finds, with the phrase before it; one may have several."""
    for part in pattern.findall(text):
        phrase = _PHRASE.match(part)
        if phrase is None or phrase[0].strip() in banned:
            continue
        label = phrase[0].strip().encode("ascii", "ignore").decode("ascii")
        for bins in _BOX.findall(part):
            yield _pixels(bins, size), label


def _polygons(
    text: str, size: tuple[int, int], pattern: re.Pattern[str]
) -> Iterator[tuple[list[list[int]], str]]:
    """The polygons of each instance in what ``pattern`` finds, with the phrase before them."""
    for part in pattern.findall(text):
        phrase = _PHRASE.match(re.sub(r"^<loc_\d+>", "", part))
        if phrase is None:
            continue
        grouped = "<poly>" in part and "</poly>" in part
        for instance in _POLYGON_GROUP.findall(part) if grouped else [part]:
            bins = [re.findall(_LOC, polygon) for polygon in _POLYGON.findall(instance)]
            if bins:
                yield [_pixels(b[: len(b) // 2 * 2], size) for b in bins], phrase[0].strip()


def _pixels(bins: Sequence[str], size: tuple[int, int]) -> list[int]:
    """Pairs of ``bins`` (x, y) as pixels: the middle of each, cut down, in 32 bits."""
    rows, columns = size
    steps = (np.float32(columns / _BINS), np.float32(rows / _BINS))
    numbers = [int(digits) if len(digits) <= 10 else _LARGEST for digits in bins]
    return [
        int((np.float32(number) + np.float32(0.5)) * steps[i % 2])
        for i, number in enumerate(numbers)
    ]
