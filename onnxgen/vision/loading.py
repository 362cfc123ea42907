"""Loads images: whatever a user calls an image becomes a Pillow image in RGB, upright.

Differs from transformers' ``load_image`` on purpose in this: grey images of 16 bits are scaled
(Pillow's conversion clips them to white), broken EXIF data leaves an image as it is instead of
refusing it, and addresses of the network are refused.
"""

from __future__ import annotations

import base64
import binascii
import io
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxgen.errors import ImageError, InputNotFoundError, OptionError
from onnxgen.vision import arrays
from onnxgen.vision.pillow import pillow

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 64_000_000  # 192 MB as RGB; Pillow itself warns from 89 million
# No format that runs other programs (EPS) or has a record of memory faults (JPEG 2000).
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF")
_ACCEPTED = "a path, bytes, a binary file, a data: URI, base64, a Pillow image or an array"
_ORIENTATION = 0x0112  # the EXIF tag
# EXIF orientation -> name of the Pillow transposition that sets the image upright.
_UPRIGHT = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}


def load(source: Any, *, max_pixels: int = MAX_PIXELS) -> Image:
    """The Pillow image, mode RGB, of ``source``; nothing is fetched from the network.

    The EXIF orientation is applied, palettes are looked up, alpha and transparency are dropped
    (the colour below them stays), grey of 16 bits is scaled, and of an animation the first frame
    is taken. ``source`` may be a path, bytes, a binary file, a ``data:`` URI or base64 text, a
    Pillow image, or an array as :func:`onnxgen.vision.arrays.rgb` takes it. A text may name any
    file that this process can read: pass no paths from strangers.

    Args:
        max_pixels: H * W above this is refused, for files before they are decoded.

    Raises:
        ImageError: no image, a broken or truncated one, or too many pixels.
        InputNotFoundError: no file of this name.
        OptionError: ``max_pixels`` is no positive integer.
        MissingPackageError: Pillow is not installed.
    """
    check_limit(max_pixels)
    image_module = pillow()
    if isinstance(source, image_module.Image):
        return _decode(source, "the image", max_pixels)
    if isinstance(source, str):
        return _load_text(source, max_pixels)
    if isinstance(source, os.PathLike):
        return _load_path(source, max_pixels)
    if isinstance(source, bytes | bytearray | memoryview):
        return _load_file(io.BytesIO(source), "the bytes", max_pixels)
    if hasattr(source, "read"):
        return _load_file(_in_memory(source, max_pixels), "the file", max_pixels)
    if hasattr(source, "__array__") or hasattr(source, "__array_interface__"):
        pixels = arrays.rgb(source)  # (H, W, 3)
        _check_size(pixels.shape[1], pixels.shape[0], "the array", max_pixels)
        return _from_pixels(pixels)
    raise ImageError(f"a {type(source).__name__} is no image", wanted=_ACCEPTED)


def check_limit(max_pixels: Any) -> None:
    """OptionError if ``max_pixels`` is no number of pixels."""
    if type(max_pixels) is not int or max_pixels < 1:
        raise OptionError(f"max_pixels is {max_pixels!r}", wanted="a positive integer")


def _load_text(text: str, max_pixels: int) -> Image:
    """The image of a path, a ``data:`` URI or bare base64; a path goes first."""
    if text[:5].lower() == "data:":
        head, comma, body = text.partition(",")
        if not comma or not head.lower().endswith(";base64"):
            raise ImageError("a data: URI without base64", wanted="data:image/png;base64,...")
        return _load_file(io.BytesIO(_from_base64(body)), "the data: URI", max_pixels)
    if address := re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text):
        raise ImageError(
            f"an address ({address[0]}...)", wanted=_ACCEPTED, do="download the image first"
        )
    # Base64 is longer than names are; "" and short words are missing files.
    if len(text) > 255 and re.fullmatch(r"[A-Za-z0-9+/_=\s-]+", text) and not _exists(text):
        return _load_file(io.BytesIO(_from_base64(text)), "the base64 text", max_pixels)
    return _load_path(text, max_pixels)


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # a name too long is a name of nothing
        return False


def _from_base64(text: str) -> bytes:
    """The bytes of base64 text in either alphabet, white space and missing padding allowed."""
    text = "".join(text.split()).rstrip("=").translate({ord("-"): "+", ord("_"): "/"})
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ImageError("broken base64", wanted="an image in base64") from error


def _load_path(path: str | os.PathLike[Any], max_pixels: int) -> Image:
    name = repr(os.fsdecode(path)[:300])
    try:
        with Path(os.fsdecode(path)).open("rb") as file:
            return _load_file(file, name, max_pixels)
    except ImageError:
        raise
    except FileNotFoundError as error:
        raise InputNotFoundError(f"no file {name}", wanted=_ACCEPTED) from error
    except (OSError, ValueError) as error:  # a folder, no right to read it, NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise ImageError(f"cannot read {name}: {reason}", wanted=_ACCEPTED) from error


def _in_memory(file: Any, max_pixels: int) -> io.BytesIO:
    """All that ``file``, which may be a pipe, holds; bounded as no image needs more."""
    most = 8 * max_pixels + 2**20  # the widest pixel is RGBA of 16 bits, uncompressed
    try:
        if getattr(file, "seekable", lambda: False)():
            file.seek(0)  # as Pillow does: it may just have been written
        data = _all_of(file, most + 1)
    except ImageError:
        raise
    except Exception as error:  # whatever a foreign file raises
        raise ImageError(f"the file cannot be read: {str(error)[:200]}") from error
    if len(data) > most:
        raise ImageError(f"the file has more than {most} bytes", wanted="an image file")
    return io.BytesIO(data)


def _all_of(file: Any, most: int) -> bytes:
    """What ``file`` holds, up to ``most`` bytes; a pipe gives a part at a time."""
    data = bytearray()
    while len(data) < most and (part := file.read(most - len(data))) != b"":
        if not isinstance(part, bytes):
            found = "text" if isinstance(part, str) else f"a {type(part).__name__}"
            raise ImageError(f"the file gives {found}", wanted="a file opened in binary mode")
        data += part
    return bytes(data)


def _load_file(file: Any, name: str, max_pixels: int) -> Image:
    """The image in a seekable binary file; ``name`` is for messages."""
    image_module = pillow()
    image_module.init()  # registers all formats: which there are depends on Pillow's build
    formats = [name for name in FORMATS if name in image_module.OPEN]
    try:
        image = image_module.open(file, formats=formats)
    except (image_module.DecompressionBombError, image_module.DecompressionBombWarning) as error:
        raise _too_large(name, "far more", max_pixels) from error
    except image_module.UnidentifiedImageError as error:
        raise ImageError(
            f"{name} is no image", wanted=f"a file of these formats: {', '.join(formats)}"
        ) from error
    except Exception as error:  # plugins raise anything on a broken header
        raise _broken(name, error) from error
    with image:
        return _decode(image, name, max_pixels)


def _decode(image: Image, name: str, max_pixels: int) -> Image:
    """``image`` decoded, upright, in RGB; its present frame, if it has several."""
    _check_size(*image.size, name, max_pixels)
    try:
        image.load()  # first: GIF finds its mode here, and TIFF turns itself
        rgb = _to_rgb(image)
        if name_of_turn := _UPRIGHT.get(_orientation(image)):
            rgb = rgb.transpose(pillow().Transpose[name_of_turn])
    except ImageError:
        raise
    except Exception as error:  # plugins raise anything on broken data
        raise _broken(name, error) from error
    rgb.info.clear()  # holds the orientation still: loaded again, it must not turn again
    return rgb


def _orientation(image: Image) -> int:
    try:
        orientation = image.getexif().get(_ORIENTATION)
    except Exception:  # broken EXIF data says nothing; the picture itself is sound
        return 1
    return orientation if isinstance(orientation, int) else 1


def _to_rgb(image: Image) -> Image:
    """``image`` in mode RGB, as Pillow converts, except grey that has more than 8 bits."""
    if image.mode == "RGB":
        return image.copy()  # the source may be the caller's, or a file about to be closed
    if image.mode.startswith("I;16"):
        grey = arrays.eight_bit(np.asarray(image).astype(np.uint16))
    elif image.mode == "I" and image.format is not None:  # a file of 16 bits, in PGM for example
        grey = _sixteen(np.asarray(image))
    elif image.mode in ("I", "F"):
        grey = arrays.eight_bit(np.asarray(image))
    elif image.mode == "P" and "transparency" in image.info:
        image = image.copy()
        del image.info["transparency"]  # dropped anyway; Pillow would warn
        return image.convert("RGB")
    else:
        return image.convert("RGB")
    return _from_pixels(np.broadcast_to(grey[:, :, None], (*grey.shape, 3)))


def _from_pixels(pixels: np.ndarray) -> Image:
    """The RGB image of pixels (H, W, 3) uint8."""
    image: Image = pillow().fromarray(np.ascontiguousarray(pixels))
    return image


def _sixteen(grey: np.ndarray) -> np.ndarray:
    """Grey (H, W) of 32-bit integers with 16 used, as 8 bits."""
    if grey.min() < 0 or grey.max() > 65535:
        raise ImageError(
            f"a grey image with values from {grey.min()} to {grey.max()}", wanted="8 or 16 bits"
        )
    return arrays.sixteen_to_eight(grey)


def _check_size(width: int, height: int, name: str, max_pixels: int) -> None:
    if width < 1 or height < 1:
        raise ImageError(f"{name} has {height} rows and {width} columns", wanted="at least one")
    if width * height > max_pixels:
        raise _too_large(name, f"{height} x {width}", max_pixels)


def _too_large(name: str, size: str, max_pixels: int) -> ImageError:
    return ImageError(
        f"{name} has too many pixels: {size}",
        wanted=f"at most {max_pixels}",
        do="make it smaller, or raise max_pixels",
    )


def _broken(name: str, error: Exception) -> ImageError:
    reason = str(error)[:200] or type(error).__name__
    return ImageError(f"{name} is broken or cut off: {reason}", wanted="a whole image file")
