"""What a vision-language model's processor gives for images, whatever the family.

The host reads images, feeds the vision session, expands the prompt and packs the features; the
families differ in what :class:`VisionProcessor` hides.

Letters: T tiles (pictures as the graph sees them), R rows of features, F features of one tile,
D the width of the text model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from onnxgen.errors import ImageError, ModelFileError
from onnxgen.vision.loading import load

if TYPE_CHECKING:
    from PIL.Image import Image

Configs = Mapping[str, Any]  # the model's config files, parsed, by file name

PREPROCESSOR, PROCESSOR = "preprocessor_config.json", "processor_config.json"
# Of one image or video, far beyond any model's: contexts end at about the first of them.
MAX_TOKENS, MAX_TILES = 1 << 18, 1 << 10


@dataclass(frozen=True, slots=True)
class Picture:
    """What one image is to the text.

    Attributes:
        tokens: how many image tokens, that is rows of features, it stands for, its tiles together.
        grid: Qwen: (time, rows, columns) of patches before merging; tiling: (1, rows, columns) of
            tiles, 0 rows if it is not split; elsewhere of no meaning.
        size: (rows, columns) of the image, upright, before any step.
    """

    tokens: int
    grid: tuple[int, int, int] = (1, 1, 1)
    size: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Pictures:
    """The images of one call, in order.

    Attributes:
        feeds: inputs of the vision session by transformers' names; the tiles of all images stand
            on axis 0, whatever rank the graph wants: ``pixel_values`` is (T, 3, H, W).
        pictures: one for each image.
    """

    feeds: Mapping[str, np.ndarray]
    pictures: tuple[Picture, ...]

    def apart(self) -> list[dict[str, np.ndarray]]:
        """The feeds of each image by itself, those of videos under the names for images."""
        names = {
            name: name.removesuffix("_videos").replace("video_", "image_") for name in self.feeds
        }
        grids = next((v for name, v in self.feeds.items() if name.endswith("grid_thw")), None)
        if grids is not None:
            counts = [int(np.prod(grid)) for grid in grids]  # of patches
        elif len(next(iter(self.feeds.values()))) == len(self.pictures):
            counts = [1] * len(self.pictures)
        else:
            counts = [
                1 + picture.grid[1] * picture.grid[2] for picture in self.pictures
            ]  # of tiles
        ends = np.cumsum(counts)
        found: list[dict[str, np.ndarray]] = []
        for index, (end, count) in enumerate(zip(ends, counts, strict=True)):
            found.append(
                {
                    names[name]: values[index : index + 1]
                    if name.endswith("grid_thw")
                    else values[end - count : end]
                    for name, values in self.feeds.items()
                }
            )
        return found


class VisionProcessor(Protocol):
    """What a family does with images and prompts; made by :func:`onnxgen.vision.vlm.processor`.

    Attributes:
        placeholder: what the user's prompt holds for an image.
        add_special_tokens: the tokenizer adds its own to the expanded prompt.
    """

    placeholder: str
    add_special_tokens: bool = True

    def __call__(self, images: Sequence[Any]) -> Pictures:
        """The feeds and the geometry of ``images``, each as :func:`onnxgen.vision.loading.load`.

        Raises:
            ImageError: no image, a broken one, or one of a form that the model cannot take.
            InputNotFoundError: no file of this name.
        """
        ...

    def expand(self, text: str, pictures: Sequence[Picture]) -> str:
        """One prompt, each placeholder replaced by what transformers' processor writes for it.

        Raises:
            ImageError: the prompt has more or fewer placeholders than there are ``pictures``.
        """
        ...

    def pack(
        self, features: np.ndarray, pictures: Sequence[Picture], **extra: np.ndarray
    ) -> np.ndarray:
        """The session's ``features`` (T, F, D) as rows (R, D), in the order of the image tokens.

        ``extra`` are the session's other outputs by name.
        """
        del pictures, extra
        return features.reshape(-1, features.shape[-1])  # (T, F, D) or (R, D) -> (R, D)


def image_fields(configs: Configs) -> dict[str, Any]:
    """The image processor's fields: a file of its own, or a part of processor_config.json.

    Raises:
        ModelFileError: there are none.
    """
    own = configs.get(PREPROCESSOR)
    if own is None:
        whole = configs.get(PROCESSOR)
        own = whole.get("image_processor") if isinstance(whole, Mapping) else None
    if isinstance(own, Mapping) and isinstance(own.get("image_processor"), Mapping):
        own = own["image_processor"]
    if not isinstance(own, Mapping):
        raise ModelFileError(
            f"no image processor's fields in {PREPROCESSOR} or {PROCESSOR}",
            wanted="one of the two files, with an object of fields",
        )
    return dict(own)


def section(configs: Configs, *names: str) -> dict[str, Any]:
    """The object at ``names``, a file and the names within it; empty if it is not there.

    Raises:
        ModelFileError: something else than an object stands there.
    """
    found: Any = configs
    for name in names:
        found = found.get(name)
        if found is None:
            return {}
        if not isinstance(found, Mapping):
            raise ModelFileError(f"{' '.join(names)} is a {type(found).__name__}", "an object")
    return dict(found)


def token(configs: Configs, name: str, default: str) -> str:
    """The special token ``name`` that the tokenizer has beyond the usual ones, ``boi_token`` say.

    Raises:
        ModelFileError: it is no text.
    """
    file = "tokenizer_config.json"
    named = section(configs, file)
    if isinstance(named.get("extra_special_tokens"), Mapping):  # transformers 5 writes a list
        named = named["extra_special_tokens"] or named
    value = named.get(name, default)
    value = value.get("content") if isinstance(value, Mapping) else value
    if not isinstance(value, str) or not value:
        raise ModelFileError(f"{file}: {name} is a {type(value).__name__}", "a token's text")
    return value


def check_tokens(tokens: int) -> int:
    """``tokens`` of an image, if a prompt may hold them; ImageError if they are too many."""
    if tokens > MAX_TOKENS:
        raise ImageError(
            f"an image would stand for {tokens} tokens",
            wanted=f"at most {MAX_TOKENS}",
            do=f"check the sizes and lengths in {PREPROCESSOR} and {PROCESSOR}",
        )
    return tokens


def check_tiles(rows: int, columns: int) -> None:
    """ImageError where an image is to be cut into more tiles than any model takes."""
    if rows * columns > MAX_TILES:
        raise ImageError(
            f"an image would be cut into {rows} x {columns} tiles",
            wanted=f"at most {MAX_TILES}",
            do=f"check the sizes in {PREPROCESSOR}",
        )


def load_all(images: Any, max_pixels: int) -> "list[Image]":
    """The Pillow images of ``images``, in RGB; see :func:`onnxgen.vision.loading.load`.

    Raises:
        ImageError: nothing is given, or something that is no image.
        InputNotFoundError: no file of this name.
    """
    many = isinstance(images, list | tuple) or (isinstance(images, np.ndarray) and images.ndim == 4)
    if not many:
        raise ImageError(f"a {type(images).__name__} is no list of images", "a list of images")
    if len(images) == 0:
        raise ImageError("no images", wanted="at least one")
    return [load(image, max_pixels=max_pixels) for image in images]


def count(value: Any, where: str, *, least: int = 1, most: int = 1_000_000) -> int:
    """``value`` if it is an integer in the bounds; ``where`` is for the message.

    Raises:
        ModelFileError: it is not.
    """
    if type(value) is not int or not least <= value <= most:
        raise ModelFileError(f"{where} is {value!r}"[:200], f"an integer, {least} to {most}")
    return value


def fill(text: str, placeholder: str, pieces: Sequence[str]) -> str:
    """``text`` with its placeholders replaced by ``pieces``, in order.

    Raises:
        ImageError: there are more or fewer placeholders than pieces.
    """
    parts = text.split(placeholder)
    if len(parts) - 1 != len(pieces):
        raise ImageError(
            f"the prompt has {len(parts) - 1} places for images, and {len(pieces)} are given",
            wanted=f"one {placeholder} for each image",
            do="let the chat template place the images, or write the places into the prompt",
        )
    return parts[0] + "".join(a + b for a, b in zip(pieces, parts[1:], strict=True))
