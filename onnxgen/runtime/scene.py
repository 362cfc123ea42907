"""What prompts hold beside tokens: features of images, and positions that are no mere index.

Letters: B rows, S new tokens, L prompt tokens of the longest row, R features, H hidden size, N axes
of positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxgen.runtime.caches import Ints, Layout


@dataclass(frozen=True, slots=True)
class Scene:
    """The images of a batch's prompts, as its decoder needs them.

    Attributes:
        features: (R,H), of all rows.
        places: (B,L), which feature takes the place of each prompt token's embedding, -1 for none.
        positions: (B,N,L), None where a token's position is its index.
        deltas: (B,), the position of a token behind the prompt is its index plus this.
        lengths: (B,) of the prompts.
        whole: image tokens, or all of a prompt, attend to what follows them, so that a prompt runs
            in one piece.
        sources: (B,), of which prompt each row is a copy.
    """

    features: NDArray[Any]
    places: Ints
    positions: Ints | None
    deltas: Ints
    lengths: Ints
    whole: bool
    sources: Ints

    @classmethod
    def of(
        cls,
        features: NDArray[Any],
        places: Sequence[Ints],
        positions: Sequence[tuple[Ints, int]] | None = None,
        whole: bool = False,
    ) -> "Scene":
        """From what there is of each row: ``places`` (L,), positions (N,L) and their delta."""
        lengths = np.array([len(row) for row in places], np.int64)
        padded = np.full((len(places), int(lengths.max())), -1, np.int64)  # (B,L)
        for row, own in zip(padded, places, strict=True):
            row[: len(own)] = own
        deltas, axes = np.zeros(len(places), np.int64), None
        if positions is not None:
            axes = np.zeros((len(places), positions[0][0].shape[0], padded.shape[1]), np.int64)
            for row, (own, _) in zip(axes, positions, strict=True):
                row[:, : own.shape[1]] = own
            deltas = np.array([delta for _, delta in positions], np.int64)
        return cls(features, padded, axes, deltas, lengths, whole, np.arange(len(places)))

    def gather(self, rows: Ints | Sequence[int]) -> "Scene":
        """That of rows ``rows``: itself, if they are copies of the same prompts."""
        picked = np.asarray(rows, np.int64)
        if np.array_equal(self.sources[picked], self.sources):
            return self
        return replace(
            self,
            places=self.places[picked],
            positions=None if self.positions is None else self.positions[picked],
            deltas=self.deltas[picked],
            lengths=self.lengths[picked],
            sources=self.sources[picked],
        )

    def laid(self, layout: Layout) -> Layout:
        """``layout``, whose positions are indices still, with features and positions in place."""
        index = layout.positions  # (B,S)
        within = index < self.lengths[:, None]  # (B,S)
        known = np.minimum(index, self.places.shape[1] - 1)
        places = np.where(within, np.take_along_axis(self.places, known, axis=1), -1)
        if self.positions is None:
            return replace(layout, places=places)
        told = np.take_along_axis(self.positions, known[:, None, :], axis=2)  # (B,N,S)
        after = (index + self.deltas[:, None])[:, None, :]  # (B,1,S)
        positions = np.where(within[:, None, :], told, after).swapaxes(0, 1)  # (N,B,S)
        return replace(layout, places=places, positions=positions)
