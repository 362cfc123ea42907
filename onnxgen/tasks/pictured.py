"""Prompts with images: what the text model reads, and the features that are made when it runs.

Letters: L tokens of a prompt, R features, H hidden size, N axes of positions.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxgen.errors import ImageError
from onnxgen.files import ModelFiles
from onnxgen.runtime.caches import Ints
from onnxgen.runtime.scene import Scene
from onnxgen.runtime.session import Cancel
from onnxgen.runtime.vision import VisionModel
from onnxgen.vision.pictures import Picture, Pictures, VisionProcessor

Floats = NDArray[Any]
_CONFIGS = (  # what processors read
    "config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer_config.json",
    "video_preprocessor_config.json",
)
KEPT_BYTES = 64 << 20  # of features that later requests may ask for again


def configs(files: ModelFiles) -> dict[str, Any]:
    """The config files that processors read, by their names."""
    return {name: found for name in _CONFIGS if (found := files.json(name))}


@dataclass(frozen=True, slots=True)
class Shown:
    """One image or video of a prompt: its geometry, the vision session's feeds, and a digest."""

    picture: Picture
    feeds: Mapping[str, NDArray[Any]]
    digest: bytes


def shown(pictures: Pictures) -> list[Shown]:
    """The images of one call, each by itself."""
    import hashlib  # loads OpenSSL, which text alone does not need

    found = []
    for picture, feeds in zip(pictures.pictures, pictures.apart(), strict=True):
        digest = hashlib.blake2b(repr(picture).encode())
        for name, values in feeds.items():
            digest.update(name.encode() + np.ascontiguousarray(values).tobytes())
        found.append(Shown(picture, feeds, digest.digest()))
    return found


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as ids (L,), with its images in the order of their tokens.

    ``positions`` are (N,L) and the delta of what follows, None where they are the index.
    """

    ids: list[int]
    images: tuple[Shown, ...]
    tokens: frozenset[int]  # the ids that stand for features
    positions: tuple[Ints, int] | None

    def marks(self) -> Ints:
        """(L,) the number of each image token among all of the prompt's, -1 for text."""
        there = (
            np.isin(self.ids, list(self.tokens)) if self.images else np.zeros(len(self.ids), bool)
        )
        return np.where(there, np.cumsum(there) - 1, -1)

    def check(self, name: str) -> None:
        """ImageError if the prompt has more or fewer image tokens than there are features."""
        places = int((self.marks() >= 0).sum())
        wanted = sum(image.picture.tokens for image in self.images)
        if places != wanted:
            raise ImageError(
                f"the prompt has {places} image tokens, and its images are {wanted}",
                wanted="one token for each feature",
                do=f"check that the tokenizer of {name} knows the image token",
            )

    def keys(self) -> list[int]:
        """The ids, with numbers below 0 for image tokens that tell one image from another."""
        keys, marks = list(self.ids), self.marks()
        places = iter(np.flatnonzero(marks >= 0).tolist())
        for image in self.images:
            name = int.from_bytes(image.digest[:6], "big")
            for number in range(image.picture.tokens):
                keys[next(places)] = -1 - (name << 16) - number
        return keys


class Features:
    """Makes the features of images, each once; the newest are kept."""

    def __init__(self, vision: VisionModel, processor: VisionProcessor) -> None:
        self.vision, self._processor = vision, processor
        self._kept: OrderedDict[bytes, Floats] = OrderedDict()
        self._lock = threading.Lock()
        self.passes = 0  # how many images went through the vision session

    def of(self, image: Shown, cancel: Cancel) -> Floats:
        """The features (R,H) of ``image``."""
        with self._lock:
            if image.digest in self._kept:
                self._kept.move_to_end(image.digest)
                return self._kept[image.digest]
        self._make_room(image.picture.tokens)  # before the run, which may then use it
        made, others = self.vision.features(image.feeds, cancel)
        rows = self._processor.pack(made, [image.picture], **others)  # (R,H)
        if len(rows) != image.picture.tokens:
            raise ImageError(
                f"an image became {len(rows)} features, and its prompt has "
                f"{image.picture.tokens} tokens for it",
                wanted="a vision encoder and a processor of one model",
            )
        with self._lock:
            self.passes += 1
            self._kept[image.digest] = rows
        self._make_room(0)
        return rows

    def _make_room(self, tokens: int) -> None:
        """Lets the oldest features go until as many tokens' more may be kept."""
        with self._lock:
            kept = self._kept.values()
            each = max((rows.nbytes // len(rows) for rows in kept if len(rows)), default=0)
            while self._kept and sum(r.nbytes for r in kept) + tokens * each > KEPT_BYTES:
                self._kept.popitem(last=False)

    def scene(self, prompts: Sequence[Prompt], whole: bool, cancel: Cancel, held: int) -> Scene:
        """The images of a batch of ``prompts``, of the first of which ``held`` tokens are done."""
        parts: list[Floats] = []
        places: list[Ints] = []
        count = 0
        for prompt in prompts:
            marks = prompt.marks()  # (L,)
            first = 0  # of the image's tokens
            own = np.full(len(marks), -1, np.int64)
            for image in prompt.images:
                last = first + image.picture.tokens
                mine = (marks >= first) & (marks < last)  # (L,)
                if mine[held:].any():
                    own[mine] = count + marks[mine] - first
                    parts.append(self.of(image, cancel))
                    count += image.picture.tokens
                first = last
            places.append(own)
        axes = {len(p.positions[0]) for p in prompts if p.positions is not None}
        positions = [p.positions or _index(p, max(axes)) for p in prompts] if axes else None
        features = (
            np.concatenate(parts) if len(parts) > 1 else parts[0] if parts else np.zeros((0, 0))
        )
        return Scene.of(features, places, positions, whole)


def _index(prompt: Prompt, axes: int) -> tuple[Ints, int]:
    """Positions (N,L) that are the index on all axes, and their delta."""
    return np.broadcast_to(np.arange(len(prompt.ids)), (axes, len(prompt.ids))), 0


def images_of_each(given: Any, prompts: int, what: str, depth: int = 1) -> list[list[Any]]:
    """The images of each prompt; one prompt's may be given as they are."""
    if given is None:
        return [[] for _ in range(prompts)]
    many = isinstance(given, list | tuple)
    if prompts == 1:
        nested = many and len(given) == 1 and isinstance(given[0], list | tuple)
        if depth == 1:
            return [list(given[0]) if nested else list(given) if many else [given]]
        flat = many and given and not isinstance(given[0], list | tuple)
        return [[list(given)] if flat else list(given)]
    if not many or len(given) != prompts:
        raise ImageError(
            f"{what} of {len(given) if many else 1} prompts for {prompts}",
            wanted=f"a list of {what} for each prompt, [] for none",
        )
    return [[] if one is None else list(one) if isinstance(one, list | tuple) else [one]
            for one in given]  # fmt: skip
