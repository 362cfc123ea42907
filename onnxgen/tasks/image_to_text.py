"""Image to text: captions, text recognition, and document models that answer in fields.

Letters: B images, H and W rows and columns of pixels.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onnxgen.errors import ModelFileError, OptionError, UnsupportedModelError
from onnxgen.files import ModelFiles
from onnxgen.generation.config import GenerationConfig
from onnxgen.generation.results import Generation, Piece
from onnxgen.runtime.encoder import Encoding
from onnxgen.runtime.memory import enough
from onnxgen.runtime.session import PLAIN, Cancel, Engine
from onnxgen.tasks.asking import Extras, Source
from onnxgen.tasks.encoder_decoder import EncoderDecoder
from onnxgen.tasks.markup import to_json
from onnxgen.tasks.request import Request
from onnxgen.vision.processor import ImageProcessor

OWN = ("prompt", "question", "decoder_input_ids")


class ImageToText(EncoderDecoder):
    """An image encoder with its decoder: ViT-GPT2, TrOCR, Donut, Nougat and their like."""

    def __init__(self, files: ModelFiles, engine: Engine = PLAIN) -> None:
        super().__init__(files, engine)
        if len(self.encoder.graph.main.shape) != 4:
            raise UnsupportedModelError(
                f"the encoder of {files.source} takes {self.encoder.graph.main.name}",
                wanted="an encoder of pixels (batch, channels, height, width)",
                do="load it for another task",
            )
        config = files.json("preprocessor_config.json")
        if not config:
            raise ModelFileError(
                f"{files.source} has no preprocessor_config.json",
                wanted="how images become pixels: sizes, mean and deviation",
                do="download the whole repository",
            )
        self.processor = ImageProcessor(config)
        # Donut's prompts are whole: its task tokens take the place of the start token.
        encoder = files.json("config.json").get("encoder")
        self._tasks = "donut" in str(encoder.get("model_type") if encoder else "")

    def generate(
        self, image: Any, *, config: GenerationConfig | None = None, **keywords: Any
    ) -> Any:
        """What the model reads in an image, or in each of a list of them.

        An image is whatever :func:`onnxgen.vision.loading.load` takes: a path, bytes, a binary
        file, a Pillow image or an array. Beside the options of :class:`GenerationConfig` and of
        :class:`onnxgen.tasks.request.Functions`:

        - ``prompt``: a text that begins the answer, or one for each image (Donut's task tokens).
        - ``question``: asks a document model that was trained for questions.
        - ``decoder_input_ids``: the begin of the answer as ids.

        Returns one :class:`Generation`, or a list of them for a list of images; with
        ``num_return_sequences`` above 1 each image has a list of its own.

        Raises:
            ImageError: no image, a broken one, or one too large.
            OptionError: an unknown option or a wrong value.
        """
        images, several = as_images(image)
        answers = self.request(images, config, keywords).answers()
        return answers if several else answers[0]

    def stream(
        self, image: Any, *, config: GenerationConfig | None = None, **keywords: Any
    ) -> Iterator[Piece]:
        """Like :meth:`generate`, as pieces while they come; those of a list carry their row."""
        return self.request(as_images(image)[0], config, keywords).pieces()

    def to_json(self, answer: Generation) -> Any:
        """The fields of a document model's answer; text alone is a field ``text_sequence``."""
        tokens = self.tokenizer
        text = tokens.decode(answer.tokens, skip_special_tokens=False)
        for name in ("eos_token", "pad_token"):
            token = tokens.special_tokens.get(name)
            text = text.replace(token, "") if isinstance(token, str) else text
        return to_json(text.strip(), tokens.added_tokens)

    @enough("read the images")
    def request(
        self,
        images: Sequence[Any],
        config: GenerationConfig | None,
        keywords: Mapping[str, Any],
    ) -> Request:
        """A checked request, ready to run."""
        own = {name: keywords[name] for name in OWN if keywords.get(name) is not None}
        rest = {name: value for name, value in keywords.items() if name not in OWN}
        if len(own) > 1:
            raise OptionError(f"{' and '.join(own)} are given", wanted="one of them")
        merged, functions = self._merged(config, rest, OWN, {})
        prompts = self._prompts(own, merged, len(images))
        pixels = self.processor(list(images))  # (B,3,H,W)

        def encode(cancel: Cancel) -> Encoding:
            return self.encoder.encode(pixels, None, cancel)

        return self.ask(prompts, merged, functions, Extras(source=Source(encode)))

    def _prompts(
        self, own: Mapping[str, Any], config: GenerationConfig, count: int
    ) -> list[list[int]]:
        if "decoder_input_ids" in own:
            return self.decoder_prompts(own["decoder_input_ids"], config, count, whole=self._tasks)
        texts = self._questions(own["question"]) if "question" in own else own.get("prompt")
        if texts is None:
            return self.decoder_prompts(None, config, count)
        each = _texts("prompt", texts)
        each = each * count if isinstance(texts, str) else each
        if len(each) != count:
            raise OptionError(
                f"{len(each)} prompts for {count} images", wanted="one, or one for each image"
            )
        ids = [self.tokenizer.encode(text, add_special_tokens=False) for text in each]
        if not all(ids):
            raise OptionError("the prompt is empty", wanted="at least one token")
        # A task token takes the place of the start token; a plain text stands behind it.
        prompts = []
        for row, start in zip(ids, self.starts(config, count), strict=True):
            whole = row[0] == start or self._is_task(row[0])
            prompts.append(row if whole else [start, *row])
        return prompts

    def _is_task(self, token: int) -> bool:
        return self.tokenizer.id_to_token(token) in self.tokenizer.added_tokens

    def _questions(self, question: Any) -> list[str] | str:
        """Donut's prompts for one question, or one for each image."""
        if self.tokenizer.token_to_id("<s_question>") is None:
            raise OptionError(
                f"{self.files.source} knows no questions",
                wanted="a document model with the token <s_question>",
                do="give a prompt instead",
            )
        known = self.tokenizer.token_to_id("<s_docvqa>") is not None
        head = "<s_docvqa>" if known else ""
        each = _texts("question", question)
        asked = [f"{head}<s_question>{one}</s_question><s_answer>" for one in each]
        return asked[0] if isinstance(question, str) else asked


def _texts(name: str, value: Any) -> list[str]:
    """One text or several as a list; OptionError for all else, and for an empty one."""
    each = [value] if isinstance(value, str) else value
    if not isinstance(each, list | tuple) or not all(isinstance(t, str) and t for t in each):
        raise OptionError(f"{name} is {value!r}", wanted="a text, or one for each image, not empty")
    return list(each)


def as_images(image: Any) -> tuple[list[Any], bool]:
    """Images as a list, and whether they came as one; OptionError for an empty list."""
    if isinstance(image, list | tuple) or getattr(image, "ndim", 0) == 4:
        if len(image) == 0:
            raise OptionError("there is no image", wanted="one at least")
        return list(image), True
    return [image], False
