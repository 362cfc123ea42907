"""Text to text: translation, summarisation, whatever encoder-decoders of texts are trained for."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from onnxgen.errors import CapacityError, OptionError, UnsupportedModelError
from onnxgen.files import ModelFiles
from onnxgen.generation.config import GenerationConfig
from onnxgen.generation.results import Piece
from onnxgen.runtime.encoder import Encoding
from onnxgen.runtime.session import PLAIN, Cancel, Engine
from onnxgen.tasks.asking import Extras, Source
from onnxgen.tasks.encoder_decoder import EncoderDecoder, padded_right
from onnxgen.tasks.prompts import as_list, is_chat
from onnxgen.tasks.request import Request

OWN = ("src_lang", "tgt_lang", "task", "prefix", "decoder_input_ids")


class TextToText(EncoderDecoder):
    """A text encoder with its decoder: T5, BART, Marian, M2M100, NLLB and their like."""

    def __init__(self, files: ModelFiles, engine: Engine = PLAIN) -> None:
        super().__init__(files, engine)
        if not self.encoder.graph.takes_ids:
            raise UnsupportedModelError(
                f"the encoder of {files.source} takes {self.encoder.graph.main.name}",
                wanted="an encoder of token ids",
                do="load it for another task",
            )
        self._config = files.json("config.json")

    def generate(
        self,
        text: str | Sequence[int] | Sequence[str] | Sequence[Sequence[int]],
        *,
        config: GenerationConfig | None = None,
        **keywords: Any,
    ) -> Any:
        """What the model makes of a text (or of its ids), or of each of a list of them.

        Beside the options of :class:`GenerationConfig` and of
        :class:`onnxgen.tasks.request.Functions`:

        - ``src_lang``, ``tgt_lang``: for models of many languages, by the model's codes. Where
          config.json has a task for that pair (T5), they choose it.
        - ``task``: one of config.json's ``task_specific_params``, whose options and prefix hold.
        - ``prefix``: stands before each text; unset, config.json's or the task's.
        - ``decoder_input_ids``: how each answer begins.

        Returns one :class:`Generation`, or a list of them for a list of texts; with
        ``num_return_sequences`` above 1 each text has a list of its own.

        Raises:
            OptionError: an unknown option, language or task, or a wrong value.
            CapacityError: a text longer than the encoder can take.
            TokenizerError: no usable tokenizer.
        """
        texts, several = as_list(text)
        answers = self.request(texts, config, keywords).answers()
        return answers if several else answers[0]

    def stream(
        self, text: Any, *, config: GenerationConfig | None = None, **keywords: Any
    ) -> Iterator[Piece]:
        """Like :meth:`generate`, as pieces while they come; those of a list carry their row."""
        texts, _ = as_list(text)
        return self.request(texts, config, keywords).pieces()

    def request(
        self,
        texts: Sequence[Any],
        config: GenerationConfig | None,
        keywords: Mapping[str, Any],
    ) -> Request:
        """A checked request, ready to run."""
        own = {name: keywords[name] for name in OWN if keywords.get(name) is not None}
        rest = {name: value for name, value in keywords.items() if name not in OWN}
        task = self._task(own)
        merged, functions = self._merged(config, rest, OWN, {**task, **self._language(own, task)})
        prefix = own.get("prefix", task.get("prefix", self._config.get("prefix") or ""))
        if not isinstance(prefix, str):
            raise OptionError(f"prefix is {prefix!r}", wanted="a text")
        languages = {n: v for n, v in own.items() if n.endswith("_lang") and not task}
        ids = [self._ids(text, prefix, languages) for text in texts]
        prompts = self.decoder_prompts(own.get("decoder_input_ids"), merged, len(ids))
        source = self._source(ids, merged)
        return self.ask(prompts, merged, functions, Extras(source=source))

    def _task(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """The options of the task asked for; that of a pair of languages, if there is one."""
        tasks = self._config.get("task_specific_params")
        known = tasks if isinstance(tasks, dict) else {}
        name = own.get("task")
        if name is None and self._pair(own) in known:
            name = self._pair(own)
        if name is None:
            return {}
        if not known:
            raise OptionError(
                f"task is {name!r}, and config.json has no task_specific_params", do="leave it out"
            )
        if not (isinstance(name, str) and isinstance(known.get(name), dict)):
            raise OptionError.unknown(str(name), known, "config.json's task_specific_params")
        return dict(known[name])

    def _language(self, own: Mapping[str, Any], task: Mapping[str, Any]) -> dict[str, Any]:
        """The options by which the decoder begins in ``tgt_lang``."""
        if own.get("tgt_lang") is None or task:
            return {}
        return dict(self.tokenizer.target_options(own["tgt_lang"]))

    def _pair(self, own: Mapping[str, Any]) -> str:
        return f"translation_{own.get('src_lang')}_to_{own.get('tgt_lang')}"

    def _ids(self, text: Any, prefix: str, languages: Mapping[str, str]) -> list[int]:
        """What the encoder gets for a text, or the ids given; OptionError for an empty one."""
        if is_chat(text):
            raise OptionError("a chat", wanted="a text: this model has no chat template")
        if not isinstance(text, str):
            ids, width = [int(token) for token in cast(Sequence[int], text)], self._width()
            if bad := [i for i in ids if not 0 <= i < width]:
                raise OptionError(
                    f"the text holds the token id {bad[0]}", wanted=f"ids from 0 to {width - 1}"
                )
        else:
            whole = prefix + text
            ids = self.tokenizer.encode_source(whole, **languages) if text.strip() else []
        if not ids:
            raise OptionError("the text is empty", wanted="at least one word")
        bound = self.encoder.graph.capacity.rows
        if bound is not None and len(ids) > bound:
            raise CapacityError(
                f"the text has {len(ids)} tokens",
                wanted=f"at most {bound} (the encoder's position table)",
                do="split it",
            )
        return ids

    def _width(self) -> int:
        """How many ids the encoder knows, as far as config.json says; else the decoder's."""
        width = self._config.get("vocab_size")
        return width if isinstance(width, int) else self.model.vocab_size

    def _source(self, ids: list[list[int]], config: GenerationConfig) -> Source:
        pad = config.pad_token_id
        first = pad[0] if isinstance(pad, list) and pad else pad
        array, mask = padded_right(ids, first if isinstance(first, int) else 0)

        def encode(cancel: Cancel) -> Encoding:
            return self.encoder.encode(array, mask, cancel)

        return Source(encode, ids)
