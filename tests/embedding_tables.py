"""Tables of embeddings in files, for the tests of what reads them."""

from pathlib import Path

import numpy as np

from onnxgen.files.lookup import Table

TOKENS, HIDDEN = 640, 12


def written(folder: Path, dtype: str, turned: bool) -> tuple[Table, np.ndarray]:
    """A table behind bytes that end at no page and no number, and its numbers (V,H)."""
    numbers = np.random.default_rng(0).standard_normal((TOKENS, HIDDEN)).astype(dtype)
    path, lying = folder / "weights", numbers.T if turned else numbers
    path.write_bytes(b"x" * 5001 + lying.tobytes() + b"y" * 99)
    return Table(path, 5001, TOKENS, HIDDEN, dtype, turned), numbers
