"""Pillow, imported where it is used: it comes with an extra."""

from typing import Any

from onnxgen.errors import MissingPackageError


def pillow() -> Any:
    """The module PIL.Image; MissingPackageError if Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingPackageError(
            f"Pillow does not load: {error}",
            wanted="Pillow, which reads and resizes images",
            do="pip install 'onnxgen[vision]'",
        ) from error
    return Image
