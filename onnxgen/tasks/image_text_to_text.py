"""Images and text to text: prompts or chats with images in, answers out.

Letters: L tokens of a prompt, N axes of positions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from onnxgen.errors import ImageError, OptionError, UnsupportedModelError
from onnxgen.files import ModelFiles
from onnxgen.generation.config import GenerationConfig
from onnxgen.generation.results import Piece
from onnxgen.runtime.caches import Ints
from onnxgen.runtime.embeddings import Embedder
from onnxgen.runtime.memory import enough
from onnxgen.runtime.session import PLAIN, Engine
from onnxgen.runtime.vision import VisionModel
from onnxgen.tasks import messages
from onnxgen.tasks.asking import Extras, asked
from onnxgen.tasks.pictured import Features, Prompt, configs, images_of_each, shown
from onnxgen.tasks.prompts import is_chat
from onnxgen.tasks.request import Request
from onnxgen.tasks.text_generation import TextGeneration
from onnxgen.vision import positions, vlm
from onnxgen.vision.patches import Patches
from onnxgen.vision.pictures import VisionProcessor

OWN = ("images", "videos", "fps", "processing")
# Families whose first position is 1, and, of these, those whose prompt attends in both directions.
FROM_ONE, BOTH_WAYS = {"paligemma", "gemma3"}, {"paligemma"}


class ImageTextToText(TextGeneration):
    """A language model that sees: LLaVA, SmolVLM, Qwen2-VL, Gemma 3, PaliGemma and their like.

    Several threads may generate with one object at once.
    """

    def __init__(self, files: ModelFiles, engine: Engine = PLAIN) -> None:
        engine = replace(engine, alone=False)
        super().__init__(files, engine)
        if not isinstance(self.model.embedder, Embedder):
            raise UnsupportedModelError(
                f"the decoder of {files.source} takes no embeddings",
                wanted="embed_tokens.onnx and a decoder with inputs_embeds",
            )
        self.vision = VisionModel(files.graphs["vision_encoder"], engine)
        self._configs = configs(files)
        self.processor = self._processor({})
        self.features = Features(self.vision, self.processor)
        self._kind = str(self._configs.get("config.json", {}).get("model_type", ""))
        axes = self.model.graph.inputs.get("positions")
        self._axes = 3 if axes is not None and len(axes.shape) == 3 else 1

    def generate(
        self, prompt: Any, *, config: GenerationConfig | None = None, **keywords: Any
    ) -> Any:
        """Answers a prompt, or each of a list of prompts, about its images.

        A prompt is a text with the model's own placeholders, or a chat whose messages hold parts:
        ``{"type": "image", "image": ...}`` as in transformers, ``{"type": "image_url", ...}`` as
        with OpenAI, ``{"type": "text", "text": ...}``. Beside the options of
        :meth:`TextGeneration.generate`:

        - ``images``: those of a text's placeholders, and of chat parts that hold none: one image, a
          list of them, or for a list of prompts a list of such lists.
        - ``videos``: likewise, each a list of frames; ``fps`` says how many a second (2).
        - ``processing``: options of the model's image processor, ``do_pan_and_scan`` for instance.

        Raises:
            ImageError: no image, a broken one, or more or fewer than the prompt has places for.
            OptionError, CapacityError, TokenizerError, ChatTemplateError: as there.
        """
        return super().generate(prompt, config=config, **keywords)

    def stream(
        self, prompt: Any, *, config: GenerationConfig | None = None, **keywords: Any
    ) -> Iterator[Piece]:
        """Like :meth:`generate`, as pieces while they come; see :meth:`TextGeneration.stream`."""
        return super().stream(prompt, config=config, **keywords)

    def about(self, images: Sequence[Any], text: str | None = None) -> tuple[Any, dict[str, Any]]:
        """A prompt that shows ``images`` and asks ``text``, and the keywords that go with it.

        It is a chat where the model has a template for that, else the text behind as many
        placeholders; a text that holds placeholders stays as it is. None asks for a description.
        """
        places, plain = self.processor.placeholder, self.tokenizer.chat_template is None
        asked = text or ("caption en" if self._kind in BOTH_WAYS else "Describe this image.")
        if plain or places in asked:
            own = asked if places in asked else places * len(images) + asked
            return own, {"images": list(images)}
        parts: list[dict[str, Any]] = [{"type": "image", "image": image} for image in images]
        return [{"role": "user", "content": [*parts, {"type": "text", "text": asked}]}], {}

    @enough("read the images")
    def request(
        self, prompts: Sequence[Any], config: GenerationConfig | None, keywords: Mapping[str, Any]
    ) -> Request:
        """A checked request, ready to run."""
        merged, functions = asked(self.defaults, config, keywords, OWN)
        if self._kind in BOTH_WAYS and functions.cache is not None:
            raise OptionError(
                f"a cache with {self.files.source}, whose prompts attend in both directions",
                do="leave it out",
            )
        processor = self._processor(keywords.get("processing") or {})
        images = images_of_each(keywords.get("images"), len(prompts), "images")
        videos = images_of_each(keywords.get("videos"), len(prompts), "videos", depth=2)
        read = [
            self._read(prompt, processor, own, clips, keywords.get("fps"))
            for prompt, own, clips in zip(prompts, images, videos, strict=True)
        ]
        return Request(
            self.model,
            self._tokenizer,
            [prompt.ids for prompt in read],
            merged,
            functions,
            self._room,
            self._extras(read, processor, cached=functions.cache is not None),
        )

    def _extras(
        self, prompts: Sequence[Prompt], processor: VisionProcessor, cached: bool
    ) -> Extras:
        """What the request needs beside the ids; nothing where all is text."""
        whole = self._kind in BOTH_WAYS or "token_types" in self.model.graph.inputs
        if not whole and not any(prompt.images or prompt.positions for prompt in prompts):
            return Extras()
        features = self.features
        if processor is not self.processor:
            features = Features(self.vision, processor)
        return Extras(
            scene=lambda cancel, held: features.scene(prompts, whole, cancel, held),
            keys=prompts[0].keys() if cached else None,
            never=frozenset().union(*(prompt.tokens for prompt in prompts)),
        )

    def _read(
        self, prompt: Any, processor: VisionProcessor, given: list[Any], clips: list[Any], fps: Any
    ) -> Prompt:
        """One prompt with its images in place."""
        special = processor.add_special_tokens
        if is_chat(prompt):
            bare, images, videos = messages.without_images(prompt)
            given, clips = _placed(images, given, "images"), _placed(videos, clips, "videos")
            text = messages.rendered(self.tokenizer, bare)
            begin = self.tokenizer.special_tokens.get("bos_token")
            special = special and not (isinstance(begin, str) and text.startswith(begin))
        elif isinstance(prompt, str):
            text = prompt
        else:
            if given or clips:
                raise ImageError("images beside a prompt of ids", wanted="a text or a chat")
            return Prompt(
                self.encode(prompt), (), frozenset(), self._positions(prompt, (), (), None)
            )
        pictures = processor(given) if given else None
        seen = shown(pictures) if pictures else []
        own = [image.picture for image in seen]
        films = []
        if clips:
            films = shown(self._films(processor).videos(clips))
            text = self._films(processor).expand(text, own, [film.picture for film in films])
        elif own or special is False or processor.placeholder in text:
            text = processor.expand(text, own)
        ids = self.tokenizer.encode(text, add_special_tokens=special)
        if not ids:
            raise OptionError("the prompt is empty", wanted="at least one token")
        seconds = None
        if films and fps is not None:
            seconds = [self._films(processor).seconds(fps)] * len(films)
        grids = tuple(p.grid for p in own), tuple(film.picture.grid for film in films)
        order = _in_order(ids, seen, films, self._image_token, self._video_token)
        tokens = frozenset(t for t in (self._image_token, self._video_token) if t is not None)
        found = Prompt(ids, order, tokens, self._positions(ids, *grids, seconds))
        found.check(self.files.source)
        return found

    def _positions(
        self, ids: Sequence[int], images: Any, videos: Any, seconds: Sequence[float] | None
    ) -> tuple[Ints, int] | None:
        """The positions (N,L) of a prompt and the delta of what follows; None for the index."""
        if self._axes == 3 and (images or videos):
            return positions.positions(np.asarray(ids), self._rules, images, videos, seconds)
        if self._kind in FROM_ONE:
            return np.arange(1, len(ids) + 1)[None], 1
        return None

    @cached_property
    def _rules(self) -> positions.Rules:
        return positions.rules(self._configs)

    @cached_property
    def _image_token(self) -> int:
        """The id that stands for a feature: the config's, else the placeholder's own."""
        config = self._configs.get("config.json", {})
        for name in ("image_token_index", "image_token_id"):
            if isinstance(config.get(name), int):
                return int(config[name])
        known = self.tokenizer.token_to_id(self.processor.placeholder)
        if known is None:
            raise UnsupportedModelError(
                f"nothing says which token of {self.files.source} stands for an image",
                wanted="image_token_index or image_token_id in config.json",
            )
        return int(known)

    @property
    def _video_token(self) -> int | None:
        token = self._configs.get("config.json", {}).get("video_token_id")
        return token if isinstance(token, int) else None

    def _processor(self, given: Mapping[str, Any]) -> VisionProcessor:
        """The model's processor, the one made for all calls if ``given`` says no other."""
        if not given and "processor" in self.__dict__:
            return self.processor
        return vlm.processor(self._configs, newline=self.vision.has_newline, **given)

    def _films(self, processor: VisionProcessor) -> Patches:
        if not isinstance(processor, Patches):
            raise ImageError(
                f"{self.files.source} takes no videos", do="give frames of it as images"
            )
        return processor


def _placed(places: list[Any], given: list[Any], what: str) -> list[Any]:
    """What the parts of a chat hold, those that hold nothing filled from ``given``."""
    empty = sum(held is messages.GIVEN for held in places)
    if empty != len(given):
        raise ImageError(
            f"the chat has {empty} parts for {what} of the call, and {len(given)} are given",
            wanted=f"one part without an image of its own for each of the call's {what}",
        )
    rest = iter(given)
    return [next(rest) if held is messages.GIVEN else held for held in places]


def _in_order(
    ids: Sequence[int], images: list[Any], films: list[Any], image: int, film: int | None
) -> tuple[Any, ...]:
    """Images and videos in the order of their tokens in ``ids``."""
    if not films:
        return tuple(images)
    found: list[Any] = []
    rest = {image: iter(images), film: iter(films)}
    counts: dict[int | None, int] = {image: 0, film: 0}
    for token in ids:
        if token in counts:
            if counts[token] == 0:
                found.append(next(rest[token]))
                counts[token] = found[-1].picture.tokens
            counts[token] -= 1
    return tuple(found)
