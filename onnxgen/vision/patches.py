"""Qwen2-VL's and Qwen2.5-VL's images: resized to whole patches, cut up, one row for each patch.

An image is resized to sides that are multiples of the merged patch, in about its proportion, with
a number of pixels between two bounds. A patch spans several frames: an image is repeated in time,
a video's last frame is where it runs short. Rows come in groups that are merged to one token.

Letters: F frames of H rows and W columns; P patches of all times, V values of one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxgen.errors import ImageError, ModelFileError, OptionError
from onnxgen.vision import levels, resizing
from onnxgen.vision.fields import FILE, of_class
from onnxgen.vision.kinds import BICUBIC, CLIP_MEAN, CLIP_STD, defaults
from onnxgen.vision.loading import MAX_PIXELS, check_limit
from onnxgen.vision.pictures import (
    PROCESSOR,
    Configs,
    Picture,
    Pictures,
    VisionProcessor,
    check_tokens,
    count,
    fill,
    image_fields,
    load_all,
    section,
    token,
)
from onnxgen.vision.settings import flag, numbers, resampling

if TYPE_CHECKING:
    from PIL.Image import Image

VIDEO = "video_preprocessor_config.json"
_IMAGE_BOUNDS = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280}
_VIDEO_BOUNDS = {"shortest_edge": 28 * 28 * 128, "longest_edge": 28 * 28 * 768}
_MOST_SLENDER = 200
_MOST_LEAST = 1 << 24  # pixels that a small image is made larger to; Qwen's own most is 12,845,056


def smart_size(height: int, width: int, factor: int, least: int, most: int) -> tuple[int, int]:
    """The (H, W) that a picture of (``height``, ``width``) is resized to: multiples of ``factor``.

    Each side is rounded, halves to even numbers; where the product is not between ``least`` and
    ``most``, the picture is scaled in proportion first. As transformers' ``smart_resize``, whose
    sides may be 0 too if ``least`` is.

    Raises:
        ImageError: one side is more than 200 times the other.
    """
    if max(height, width) / min(height, width) > _MOST_SLENDER:
        raise ImageError(
            f"a picture of {height} x {width}",
            wanted=f"one side at most {_MOST_SLENDER} times the other",
            do="give a part of it",
        )
    sides = round(height / factor) * factor, round(width / factor) * factor
    if math.prod(sides) > most:
        scale = math.sqrt(height * width / most)
        return (
            max(factor, math.floor(height / scale / factor) * factor),
            max(factor, math.floor(width / scale / factor) * factor),
        )
    if math.prod(sides) < least:
        scale = math.sqrt(least / (height * width))
        return (
            math.ceil(height * scale / factor) * factor,
            math.ceil(width * scale / factor) * factor,
        )
    return sides


class Patches(VisionProcessor):
    """Qwen2VLImageProcessor, and the places in the prompt of Qwen's processors.

    The feeds are ``pixel_values`` (P, V) float32 and ``image_grid_thw`` (images, 3) int64; for
    videos ``pixel_values_videos`` and ``video_grid_thw``.

    Attributes:
        placeholder: the token in the prompt for an image.
        video_placeholder: that for a video.
        add_special_tokens: the tokenizer adds its own to the expanded prompt.
    """

    add_special_tokens = True

    def __init__(self, configs: Configs, *, max_pixels: int = MAX_PIXELS) -> None:
        """See :func:`onnxgen.vision.vlm.processor`.

        ``video_preprocessor_config.json``, or ``video_processor`` in processor_config.json, is for
        videos; without it the file of the images is.
        """
        check_limit(max_pixels)
        self._max_pixels = max_pixels
        fields = image_fields(configs)
        video = section(configs, VIDEO) or section(configs, PROCESSOR, "video_processor")
        self._image_steps = _read(fields, _IMAGE_BOUNDS)
        self._video_steps = _read(video or fields, _VIDEO_BOUNDS)
        self.placeholder = token(configs, "image_token", "<|image_pad|>")
        self.video_placeholder = token(configs, "video_token", "<|video_pad|>")

    def __call__(self, images: Sequence[Any]) -> Pictures:
        """The patches of all images, one after the other; see :class:`VisionProcessor`."""
        clips = [[image] for image in load_all(images, self._max_pixels)]
        return _pictures(clips, self._image_steps, "pixel_values", "image_grid_thw")

    def videos(self, videos: Sequence[Sequence[Any]]) -> Pictures:
        """The patches of videos, each a list of frames in order, every one used.

        A frame is as an image; all are resized as the first one is.

        Raises:
            ImageError: a video without frames, or a frame that is no image or of no fitting form.
            InputNotFoundError: no file of this name.
        """
        clips = [load_all(frames, self._max_pixels) for frames in videos]
        if not clips:
            raise ImageError("no videos", wanted="at least one")
        return _pictures(clips, self._video_steps, "pixel_values_videos", "video_grid_thw")

    def seconds(self, fps: float) -> float:
        """How long one time step of a video's grid lasts if it has ``fps`` frames a second."""
        if not 0 < fps < math.inf:
            raise OptionError(f"{fps} frames a second", wanted="a number above 0")
        return self._video_steps.time / fps

    def expand(self, text: str, pictures: Sequence[Picture], videos: Sequence[Picture] = ()) -> str:
        """``text`` with as many tokens as there are merged patches in each place.

        Raises:
            ImageError: more or fewer places than ``pictures``, or than ``videos``.
        """
        for place, given in ((self.placeholder, pictures), (self.video_placeholder, videos)):
            text = fill(text, place, [place * picture.tokens for picture in given])
        return text


@dataclass(frozen=True, slots=True)
class _Steps:
    """What is done to a clip: an image, or the frames of a video."""

    do_resize: bool
    resample: int  # Pillow's number
    least: int  # pixels
    most: int
    patch: int  # rows, and columns, of a patch
    time: int  # frames of a patch
    merge: int  # patches along a side that become one token
    levels: np.ndarray  # (3, 256), see onnxgen.vision.levels

    def cut(self, frames: Sequence[Image]) -> tuple[np.ndarray, tuple[int, int, int]]:
        """The patches (P, V) float32 of ``frames``, and how many there are by time, row, column.

        A patch holds all its frames and pixels of red, then of green, then of blue.
        """
        values = self._values(frames)  # (F, 3, H, W)
        count, channels, height, width = values.shape
        times = -(-count // self.time)
        whole = np.minimum(np.arange(times * self.time), count - 1)  # the last frame again
        grid = (times, height // self.patch, width // self.patch)
        block = self.merge * self.patch
        # (F, 3, H, W) -> time, frame, channel, and of rows and of columns: block, patch, pixel
        down, across = ((side // block, self.merge, self.patch) for side in values.shape[2:])
        split = values[whole].reshape(times, self.time, channels, *down, *across)
        ordered = split.transpose(0, 3, 6, 4, 7, 2, 1, 5, 8)  # the pixels of a patch come last
        return ordered.reshape(math.prod(grid), -1), grid  # (P, V)

    def _values(self, frames: Sequence[Image]) -> np.ndarray:
        """(F, 3, H, W) float32 of ``frames``, all of the size that the first one is brought to."""
        block = self.merge * self.patch
        size = frames[0].height, frames[0].width
        if self.do_resize:
            if self.least > self.most:
                raise ModelFileError(
                    f"{FILE}: min_pixels is {self.least}, max_pixels {self.most}",
                    wanted="min_pixels of no more than max_pixels",
                )
            size = smart_size(*size, block, self.least, self.most)
            frames = [resizing.resize(frame, size, self.resample) for frame in frames]
        others = [frame for frame in frames if (frame.height, frame.width) != size]
        if others or size[0] % block or size[1] % block:
            wrong = (*others, frames[0])[0]
            raise ImageError(
                f"a picture of {wrong.height} x {wrong.width}, and the file says not to resize",
                wanted=f"one size, and sides that are multiples of {block}",
            )
        check_tokens(math.prod(size) // block**2)
        if math.prod(size) * self.time > resizing.MAX_PIXELS:
            raise ImageError(
                f"{self.time} frames of {size[0]} x {size[1]}, which make one patch in time",
                wanted=f"at most {resizing.MAX_PIXELS} pixels",
                do=f"check the sizes in {FILE}, or give a smaller image",
            )
        return levels.look_up(self.levels, frames)


def _pictures(
    clips: Sequence[Sequence[Image]], steps: _Steps, values_name: str, grids_name: str
) -> Pictures:
    """The patches of all ``clips`` one after the other, and the grid of each, by these names."""
    cut = [steps.cut(frames) for frames in clips]
    feeds = {
        values_name: np.concatenate([rows for rows, _ in cut]),  # (P, V)
        grids_name: np.array([grid for _, grid in cut], np.int64),  # (clips, 3)
    }
    pictures = (
        Picture(len(rows) // steps.merge**2, grid, (frames[0].height, frames[0].width))
        for frames, (rows, grid) in zip(clips, cut, strict=True)
    )
    return Pictures(feeds, tuple(pictures))


def _read(config: Mapping[str, Any], bounds: dict[str, int]) -> _Steps:
    """The steps that ``config`` says; ``bounds`` where it has none.

    ``size`` counts, as in transformers 5 and in the fast class; the slow one of 4.57 overwrites it
    with its default, which min_pixels and max_pixels, written beside it, mend.
    """
    parts = {"patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
    pixels = {"min_pixels": None, "max_pixels": None}
    clip = {"image_mean": CLIP_MEAN, "image_std": CLIP_STD}
    fields = of_class(config, defaults(bounds, BICUBIC, **clip, **parts, **pixels))
    values = fields.values
    size = values["size"]
    if not isinstance(size, Mapping) or not bounds.keys() <= size.keys():
        raise ModelFileError(f"{FILE}: size is {size!r}"[:200], wanted=" and ".join(bounds))
    least, most = values["min_pixels"], values["max_pixels"]
    least = size["shortest_edge"] if least is None else least
    most = size["longest_edge"] if most is None else most
    do_resize = flag(fields, "do_resize")
    patch, time, merge = (count(values[name], f"{FILE}: {name}", most=1000) for name in parts)
    return _Steps(
        do_resize=do_resize,
        resample=resampling(fields) if do_resize else 0,
        least=count(least, f"{FILE}: min_pixels", least=0, most=_MOST_LEAST),
        most=count(most, f"{FILE}: max_pixels", most=2**40),
        patch=patch,
        time=time,
        merge=merge,
        levels=levels.table(*numbers(fields)),
    )
