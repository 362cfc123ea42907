"""An image with a task prompt to text, by an encoder that reads both: Florence-2.

Letters: B prompts, T tokens of the longest one, L of one, R features, H hidden size.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from onnxgen.errors import CapacityError, ImageError, OptionError, UnsupportedModelError
from onnxgen.files import ModelFiles
from onnxgen.generation.config import GenerationConfig
from onnxgen.generation.results import Generation, Piece
from onnxgen.runtime.caches import Ints
from onnxgen.runtime.embeddings import Embedder
from onnxgen.runtime.encoder import Encoding
from onnxgen.runtime.memory import enough
from onnxgen.runtime.session import PLAIN, Cancel, Engine
from onnxgen.runtime.vision import VisionModel
from onnxgen.tasks.asking import Extras, Source
from onnxgen.tasks.encoder_decoder import EncoderDecoder, padded_right
from onnxgen.tasks.pictured import Features, Shown, configs, images_of_each, shown
from onnxgen.tasks.prompts import as_list
from onnxgen.tasks.request import Request
from onnxgen.vision import florence, vlm
from onnxgen.vision.plain import Florence

OWN = ("images", "decoder_input_ids")


@dataclass(frozen=True, slots=True)
class Read(Generation):
    """An answer, and what it says: text, or for tasks with places a dict of lists in pixels.

    See :func:`onnxgen.vision.florence.parse`; None without an image or a task.
    """

    parsed: str | dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt's ids (L,), which of them are features (L,), its task, and its image if any."""

    ids: list[int]
    marks: Ints
    task: str | None
    image: Shown | None


class ReadingRequest(Request):
    """A request whose answers are parsed."""

    asked: Sequence[Asked] = ()
    reading: florence.Reading | None = None

    def results(self) -> list[list[Generation]]:
        """See :meth:`Request.results`; each answer is a :class:`Read`."""
        found = super().results()
        return [
            [self._read(answer, own) for answer in answers]
            for answers, own in zip(found, self.asked, strict=True)
        ]

    def _read(self, answer: Generation, own: Asked) -> Generation:
        parsed = None
        if own.image is not None and own.task is not None and self.tokenizer is not None:
            text = self.tokenizer.decode(answer.tokens, skip_special_tokens=False)
            parsed = florence.parse(text, own.task, own.image.picture.size, self.reading)
        told = {field.name: getattr(answer, field.name) for field in fields(answer)}
        return Read(**told, parsed=parsed)


class ImagePromptToText(EncoderDecoder):
    """A vision encoder whose features stand in the text encoder's prompt: Florence-2."""

    def __init__(self, files: ModelFiles, engine: Engine = PLAIN) -> None:
        super().__init__(files, engine)
        self._configs = configs(files)
        processor = vlm.processor(self._configs)
        if not isinstance(processor, Florence) or not isinstance(self.embedder, Embedder):
            raise UnsupportedModelError(
                f"{files.source} has an encoder for prompts, and {type(processor).__name__} images",
                wanted="a model like Florence-2",
            )
        self.processor, self._embedder = processor, self.embedder
        self.vision = VisionModel(files.graphs["vision_encoder"], engine)
        self.features = Features(self.vision, processor)

    def generate(
        self, prompt: Any, *, config: GenerationConfig | None = None, **keywords: Any
    ) -> Any:
        """What the model reads in an image, for a prompt or each of a list of prompts.

        A prompt is a task like ``<CAPTION>`` or ``<OD>``, one with an input behind it, or a text.
        ``images`` are the prompts' images, one each; for a single prompt the image itself. The
        answers are :class:`Read`: with what the tasks for boxes, regions and polygons found.

        Raises:
            ImageError: no image, a broken one, or several for a prompt.
            OptionError: an unknown option, a wrong value, or a task without the input it wants.
        """
        prompts, several = as_list(prompt)
        answers = self.request(prompts, config, keywords).answers()
        return answers if several else answers[0]

    def stream(
        self, prompt: Any, *, config: GenerationConfig | None = None, **keywords: Any
    ) -> Iterator[Piece]:
        """Like :meth:`generate`, as pieces while they come; those of a list carry their row."""
        prompts, _ = as_list(prompt)
        return self.request(prompts, config, keywords).pieces()

    def about(self, images: Sequence[Any], text: str | None = None) -> tuple[Any, dict[str, Any]]:
        """A prompt that asks ``text`` about ``images``, and the keywords that go with it."""
        return text or "<CAPTION>", {"images": list(images)}

    def to_json(self, answer: Generation) -> Any:
        """What an answer says, as plain values."""
        return answer.parsed if isinstance(answer, Read) else answer.text

    @enough("read the images")
    def request(
        self, prompts: Sequence[Any], config: GenerationConfig | None, keywords: Mapping[str, Any]
    ) -> Request:
        """A checked request, ready to run."""
        rest = {name: value for name, value in keywords.items() if name not in OWN}
        merged, functions = self._merged(config, rest, OWN, {})
        images = images_of_each(keywords.get("images"), len(prompts), "images")
        asked = [self._asked(*each) for each in zip(prompts, images, strict=True)]
        starts = self.decoder_prompts(keywords.get("decoder_input_ids"), merged, len(asked))
        text = self.tokenizer
        extras = Extras(source=self._source(asked))
        request = ReadingRequest(self.model, text, starts, merged, functions, self._room, extras)
        request.asked, request.reading = asked, self.processor.reading
        return request

    def _asked(self, prompt: Any, images: list[Any]) -> Asked:
        """One prompt as the encoder gets it."""
        if not isinstance(prompt, str):
            raise OptionError("a prompt that is no text", wanted="a task like <CAPTION>, or a text")
        if len(images) > 1:
            raise ImageError(f"{len(images)} images", wanted="one for each prompt")
        seen = shown(self.processor(images))[0] if images else None
        text = self.processor.expand(prompt, [seen.picture] if seen else [])
        token = self.tokenizer.token_to_id(self.processor.image_token)
        if seen is not None and token is None:  # the image stands before the prompt, without tokens
            text = text.replace(self.processor.image_token, "")
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        marks = np.zeros(len(ids), bool)
        if seen is not None and token is None:
            ids = [0] * seen.picture.tokens + ids
            marks = np.arange(len(ids)) < seen.picture.tokens
        elif seen is not None:
            marks = np.asarray(ids) == token
        bound = self.encoder.graph.capacity.rows
        if not ids:
            raise OptionError("the prompt is empty", wanted="a task like <CAPTION>, or a text")
        if bound is not None and len(ids) > bound:
            raise CapacityError(
                f"the prompt has {len(ids)} tokens", wanted=f"at most {bound}", do="shorten it"
            )
        return Asked(ids, np.where(marks, np.cumsum(marks) - 1, -1), florence.task_of(prompt), seen)

    def _source(self, asked: Sequence[Asked]) -> Source:
        ids, mask = padded_right([own.ids for own in asked], 0)

        def encode(cancel: Cancel) -> Encoding:
            parts = [self.features.of(own.image, cancel) for own in asked if own.image is not None]
            places, count = np.full(ids.shape, -1, np.int64), 0  # (B,T)
            for row, own in zip(places, asked, strict=True):
                row[: len(own.ids)] = np.where(own.marks >= 0, own.marks + count, -1)
                count += own.image.picture.tokens if own.image is not None else 0
            features = np.concatenate(parts) if parts else np.zeros((0, 0), np.float32)  # (R,H)
            values = self._embedder.embeddings(ids, places, features, cancel)  # (B,T,H)
            return self.encoder.encode(values, mask, cancel)

        return Source(encode, [own.ids for own in asked])
