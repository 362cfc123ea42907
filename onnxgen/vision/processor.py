"""Pictures to what a vision encoder takes, as the model's ``preprocessor_config.json`` says.

A picture is resized, cropped and framed in 8 bits by Pillow; see :mod:`onnxgen.vision.levels` for
the rest.

Letters: B pictures, H rows, W columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxgen.errors import ImageError
from onnxgen.vision import levels, resizing
from onnxgen.vision.loading import MAX_PIXELS, check_limit, load
from onnxgen.vision.settings import Settings, read

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True, slots=True)
class Processed:
    """Pictures ready for the graph, and their geometry.

    Attributes:
        pixel_values: (B, 3, H, W) float32.
        original_sizes: (rows, columns) of each picture, upright, before any step.
    """

    pixel_values: np.ndarray
    original_sizes: tuple[tuple[int, int], ...]


class ImageProcessor:
    """Does to pictures what transformers' slow image processor does, from the same file.

    May be used from several threads at once.

    Attributes:
        settings: the steps, in order.
        unread: fields of the file that its class does not read, as in transformers.
    """

    def __init__(self, config: Any, *, max_pixels: int = MAX_PIXELS) -> None:
        """From the content of preprocessor_config.json, or of a processor_config.json with it.

        Args:
            config: the fields.
            max_pixels: see :func:`onnxgen.vision.loading.load`.

        Raises:
            ModelFileError: a field has a wrong value, is missing, or is misspelt.
            UnsupportedModelError: steps that are not known.
            OptionError: ``max_pixels`` is no positive integer.
        """
        check_limit(max_pixels)
        self.settings: Settings = read(config)
        self.unread = self.settings.unread
        self._max_pixels = max_pixels
        settings = self.settings
        self._levels = levels.table(  # (3, 256)
            settings.rescale_factor, settings.image_mean, settings.image_std, settings.offset
        )
        self._channels = (2, 1, 0) if settings.do_flip_channel_order else (0, 1, 2)

    @property
    def output_size(self) -> tuple[int, int] | None:
        """The (H, W) that every picture gets; None if it depends on the picture."""
        settings = self.settings
        if settings.crop_size is not None:
            return resizing.target(settings.crop_size, 1, 1)
        exact = settings.do_pad if settings.document else settings.do_resize
        if exact and "height" in settings.size:
            return resizing.target(settings.size, 1, 1)
        return None

    def __call__(self, images: Any) -> np.ndarray:
        """(B, 3, H, W) float32 of one image or a list of them; see :meth:`process`."""
        return self.process(images).pixel_values

    def process(self, images: Any) -> Processed:
        """The input of the model for one image, a list of them or an array of four axes.

        Each may be whatever :func:`onnxgen.vision.loading.load` takes.

        Raises:
            ImageError: no image, a broken one, one that the steps cannot bring to size, or
                several that end with unlike sizes.
            InputNotFoundError: no file of this name.
        """
        many = isinstance(images, list | tuple) or (
            isinstance(images, np.ndarray) and images.ndim == 4
        )
        sources: Sequence[Any] = images if many else [images]
        if len(sources) == 0:
            raise ImageError("no images", wanted="at least one")
        original_sizes, pictures = [], []
        for source in sources:
            image = load(source, max_pixels=self._max_pixels)
            original_sizes.append((image.height, image.width))
            pictures.append(self._shaped(image))
        return Processed(
            levels.look_up(self._levels, pictures, self._channels), tuple(original_sizes)
        )

    def _shaped(self, image: Image) -> Image:
        """``image`` after all steps that move pixels."""
        settings = self.settings
        size = (
            resizing.target(settings.size, image.height, image.width) if settings.size else (0, 0)
        )
        if settings.do_crop_margin:
            image = resizing.crop_margin(image)
        if settings.do_align_long_axis:
            image = resizing.align_long_axis(image, size)
        if settings.do_resize:
            resized = size
            if settings.document:
                resized = resizing.shortest_edge(min(size), image.height, image.width)
            image = resizing.resize(image, resized, settings.resample)
        if settings.do_thumbnail:
            image = resizing.thumbnail(image, size)
        if settings.do_pad:
            image = resizing.pad(image, size)
        if settings.crop_size is not None:
            crop = resizing.target(settings.crop_size, image.height, image.width)
            image = resizing.center_crop(image, crop)
        return image
