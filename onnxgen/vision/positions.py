"""Positions of text, images and videos on three axes, as Qwen2-VL and Qwen2.5-VL rotate them.

Text has the same position on the axes time, rows and columns, and counts on by one. An image or a
video at offset o has the positions (o + time, o + row, o + column) of its merged grid, and what
follows counts on from the largest of them. The rules are those of transformers 4.57's
``get_rope_index`` for one row without padding; a pad's position is of no meaning and up to the
caller.

Letters: S tokens of a row, K tokens of one image or video.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxgen.errors import ImageError, OptionError
from onnxgen.vision.pictures import count, section

CONFIG = "config.json"
Grid = tuple[int, int, int]  # (time, rows, columns) of patches before merging


@dataclass(frozen=True, slots=True)
class Rules:
    """What the positions of a model depend on, as config.json says.

    Attributes:
        image_token, video_token: the ids that stand for one row of features each.
        vision_start: the id before the first token of an image or video.
        merge: how many patches are merged, along rows and along columns.
        tokens_per_second: positions on the axis of time for a second of video; None if each time
            step of the grid counts one, whatever it lasts (Qwen2-VL).
    """

    image_token: int
    video_token: int
    vision_start: int
    merge: int
    tokens_per_second: int | None


def rules(configs: Mapping[str, Any]) -> Rules:
    """The rules in config.json of ``configs`` (config files by name); silent fields by class.

    Raises:
        ModelFileError: a field has a wrong value.
    """
    whole, vision = section(configs, CONFIG), section(configs, CONFIG, "vision_config")

    def token(name: str, default: int) -> int:
        return count(whole.get(name, default), f"{CONFIG}: {name}", least=0, most=2**31)

    def number(name: str, default: int) -> int:
        return count(vision.get(name, default), f"{CONFIG}: vision_config.{name}")

    timed = "tokens_per_second" in vision or "2_5" in str(whole.get("model_type"))
    return Rules(
        image_token=token("image_token_id", 151655),
        video_token=token("video_token_id", 151656),
        vision_start=token("vision_start_token_id", 151652),
        merge=number("spatial_merge_size", 2),
        tokens_per_second=number("tokens_per_second", 4) if timed else None,
    )


def positions(
    tokens: Sequence[int] | np.ndarray,
    rules: Rules,
    images: Sequence[Grid] = (),
    videos: Sequence[Grid] = (),
    seconds: Sequence[float] | None = None,
) -> tuple[np.ndarray, int]:
    """The positions (3, S) int64 of one row's prompt, and its delta.

    The axes are time, rows, columns. The token at index i >= S, generated later, has the position
    i + delta on all three: the largest position so far, plus one. Where a batch is padded on the
    left, i counts without the pads.

    An image is expected for each ``vision_start`` that an image token follows, a video likewise;
    the first one begins at the row's first such token. Other image tokens count as text.

    Args:
        tokens: (S,), at least one.
        rules: see :func:`rules`.
        images: the grid of each image, in the order of the row.
        videos: the grid of each video.
        seconds: how long one time step of each video lasts, 1 if None. Cut down to whole seconds,
            as transformers does.

    Raises:
        ImageError: the tokens need more grids than given, or fewer tokens than a grid has.
        OptionError: no tokens, or ``seconds`` has another length or is no number.
    """
    ids = np.asarray(tokens)  # (S,)
    if ids.ndim != 1 or ids.size == 0 or ids.dtype.kind not in "iu":
        raise OptionError(f"tokens of shape {ids.shape}, {ids.dtype}", wanted="integers (S,)")
    steps = _video_steps(rules, videos, seconds)
    result = np.empty((3, ids.size), np.int64)
    done = following = 0  # tokens that have a position; the next text's position
    for start, grid, step in _parts(ids, rules, images, videos, steps):
        block = _block(grid, rules.merge, step)  # (3, K)
        end = start + block.shape[1]
        if end > ids.size:
            raise ImageError(
                f"an image or video of {block.shape[1]} tokens begins at token {start} of "
                f"{ids.size}",
                wanted="as many tokens as its grid has",
                do="expand the prompt by the same images",
            )
        offset = following + start - done
        result[:, done:start] = np.arange(following, offset)
        result[:, start:end] = block + offset
        done, following = end, int(block.max(initial=-1)) + offset + 1
    result[:, done:] = np.arange(following, following + ids.size - done)
    return result, int(result.max()) + 1 - ids.size


def _video_steps(
    rules: Rules, videos: Sequence[Grid], seconds: Sequence[float] | None
) -> list[int]:
    """How far one time step of each video counts."""
    if seconds is None:
        seconds = [1.0] * len(videos)
    if len(seconds) != len(videos):
        raise OptionError(f"seconds for {len(seconds)} videos", wanted=f"{len(videos)}")
    if not all(isinstance(s, int | float) and 0 <= s < math.inf for s in seconds):
        raise OptionError(f"seconds are {list(seconds)}"[:200], wanted="numbers, 0 or more")
    if rules.tokens_per_second is None:
        return [1] * len(videos)
    return [int(second) * rules.tokens_per_second for second in seconds]


def _parts(
    ids: np.ndarray,
    rules: Rules,
    images: Sequence[Grid],
    videos: Sequence[Grid],
    video_steps: Sequence[int],
) -> Iterator[tuple[int, Grid, int]]:
    """The images and videos of ``ids`` (S,): first token, grid, length of a time step."""
    image_step = 1 if rules.tokens_per_second is None else 0
    kinds = (
        (rules.image_token, "images", [(grid, image_step) for grid in images]),
        (rules.video_token, "videos", list(zip(videos, video_steps, strict=True))),
    )
    marked = ids[1:][ids[:-1] == rules.vision_start]  # what stands behind each vision_start
    left = [int((marked == token).sum()) for token, _, _ in kinds]
    used = [0, 0]
    cursor = 0
    while any(left):
        starts = [
            _index(ids, token, cursor) if left[kind] else ids.size
            for kind, (token, _, _) in enumerate(kinds)
        ]
        kind = int(starts[1] <= starts[0])
        _, name, given = kinds[kind]
        if used[kind] == len(given) or starts[kind] == ids.size:
            raise ImageError(
                f"the prompt's tokens need other {name} than the {len(given)} given",
                wanted="a grid for each, and its tokens side by side",
                do="expand the prompt by the same images",
            )
        grid, step = given[used[kind]]
        left[kind] -= 1
        used[kind] += 1
        yield starts[kind], grid, step
        cursor = starts[kind] + math.prod(_merged(grid, rules.merge))


def _index(ids: np.ndarray, token: int, start: int) -> int:
    """Where ``token`` first is in ``ids`` (S,) from ``start`` on; S if nowhere."""
    found = np.flatnonzero(ids[start:] == token)
    return start + int(found[0]) if found.size else ids.size


def _block(grid: Grid, merge: int, step: int) -> np.ndarray:
    """The positions (3, K) of an image or video at offset 0, in the order of its features."""
    block = np.indices(_merged(grid, merge)).reshape(3, -1)  # (3, K)
    block[0] *= step
    return block


def _merged(grid: Grid, merge: int) -> Grid:
    time, rows, columns = grid
    return time, rows // merge, columns // merge
