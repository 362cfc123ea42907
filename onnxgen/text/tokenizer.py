"""Text to token ids and back, as transformers' fast tokenizers do it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from onnxgen.errors import ChatTemplateError, OptionError, TokenizerError
from onnxgen.text import loading
from onnxgen.text.chat_template import ChatTemplate
from onnxgen.text.classes import Side
from onnxgen.text.cleaning import clean_up, drop_timestamps
from onnxgen.text.decoding import Plan, plan
from onnxgen.text.loading import Loaded
from onnxgen.text.native import native

if TYPE_CHECKING:
    from onnxgen.files import ModelFiles

_MAX_ID = 2**32 - 1  # tokenizers holds ids in 32 bits
_LEADING_CODE = re.compile(r">>.*?<<", re.DOTALL)


class Tokenizer:
    """The tokenizer of a model.

    May be used from several threads at once. Every failure, a panic inside the tokenizers library
    too, is a TokenizerError.

    Attributes:
        backend: the tokenizer of the tokenizers library; its panics are no Exceptions.
        special_tokens: name (``bos_token``, ..., ``additional_special_tokens``) to token or list
            of tokens, as chat templates see them.
        padding_side: where a batch of prompts is filled up.
        chat_template: None if the model has none.
        cleans_up: decoded text loses spaces before punctuation.
        drops_timestamps: decoded text loses Whisper's timestamps.
        added_tokens: those that stand for themselves wherever they are in a text.
        languages: those to choose from; None for a model of one pair, or of none.
    """

    def __init__(self, loaded: Loaded, chat_template: ChatTemplate | None = None) -> None:
        self.backend = loaded.backend
        self.special_tokens = loaded.special_tokens
        self.padding_side: Side = loaded.padding_side
        self.chat_template = chat_template
        self.cleans_up = loaded.clean_up
        self.drops_timestamps = loaded.whisper
        self.languages = loaded.languages
        self._splits_code = loaded.marian
        added = self.backend.get_added_tokens_decoder().values()
        self.added_tokens = frozenset(token.content for token in added)
        self._special = frozenset(token.content for token in added if token.special)
        self._tokens: dict[int, str | None] = {}  # seen ids

    @classmethod
    def from_files(cls, files: ModelFiles) -> Tokenizer:
        """The tokenizer of a model folder, with its chat template if it has one.

        Raises:
            TokenizerError: no ``tokenizer.json``, or it or its configuration is broken.
            ChatTemplateError: the chat template is not stored as one.
        """
        return cls(loading.load(files), ChatTemplate.from_files(files))

    @classmethod
    def of(cls, files: ModelFiles) -> Tokenizer | None:
        """Like :meth:`from_files`, but None for a folder without ``tokenizer.json``."""
        return cls.from_files(files) if files.path("tokenizer.json") else None

    @cached_property
    def vocab_size(self) -> int:
        """How many tokens there are, added ones too; the model's logits are often wider."""
        return int(self.backend.get_vocab_size())

    @cached_property
    def bos_token_id(self) -> int | None:
        """Id of the token that starts a text, None if there is none."""
        return self._special_id("bos_token")

    @cached_property
    def eos_token_id(self) -> int | None:
        """Id of the token that ends a text, None if there is none."""
        return self._special_id("eos_token")

    @cached_property
    def pad_token_id(self) -> int | None:
        """Id of the token that fills up a batch, None if there is none."""
        return self._special_id("pad_token")

    def _special_id(self, name: str) -> int | None:
        token = self.special_tokens.get(name)
        return self.token_to_id(token) if isinstance(token, str) else None

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The ids of ``text``; with ``add_special_tokens``, those before and after it too.

        The source language of a translation model is then its default: see :meth:`encode_source`.
        """
        with native("encode a text"):
            code, text = self._code_before(text)
            ids: list[int] = self.backend.encode(text, add_special_tokens=add_special_tokens).ids
        return [*code, *ids]

    def _code_before(self, text: str) -> tuple[list[int], str]:
        """Marian's ``>>code<<`` before a text as its id, unknown codes too; the text behind it."""
        found = _LEADING_CODE.match(text) if self._splits_code else None
        if found is None:
            return [], text
        code = self.token_to_id(found[0])
        code = self._special_id("unk_token") if code is None else code
        return [] if code is None else [code], text[found.end() :]

    def encode_source(
        self, text: str, src_lang: str | None = None, tgt_lang: str | None = None
    ) -> list[int]:
        """The ids of ``text`` as the encoder of a text-to-text model takes them.

        Args:
            text: the source.
            src_lang: its language, by code or token; None for the model's default.
            tgt_lang: matters only to models that are told the target here, not by their decoder:
                those whose :meth:`target_options` are empty. Their text may begin with its token
                instead.

        Raises:
            OptionError: a language that the model does not have, or one for a model without any.
        """
        if self.languages is None:
            if src_lang is not None or tgt_lang is not None:
                raise _without_languages()
            return self.encode(text)
        before, after = self.languages.source(src_lang, tgt_lang)
        return [*before, *self.encode(text, add_special_tokens=False), *after]

    def target_options(self, tgt_lang: str) -> dict[str, int]:
        """The option of generation that makes the decoder write ``tgt_lang``.

        ``forced_bos_token_id``, or for the first mBART ``decoder_start_token_id``, as its model
        was trained; empty where the target stands in the source, see :meth:`encode_source`.

        Raises:
            OptionError: a language that the model does not have, or one for a model without any.
        """
        if self.languages is None:
            raise _without_languages()
        token = self.languages.target(tgt_lang)
        match self.languages.target_place:
            case "forced":
                return {"forced_bos_token_id": token}
            case "start":
                return {"decoder_start_token_id": token}
            case _:
                return {}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of ``ids``; ids beyond the vocabulary are no text.

        Raises:
            TokenizerError: one is no id at all: negative, over 32 bits, no integer.
        """
        checked = [_id(i) for i in ids]
        if skip_special_tokens and self.prompt_ids is not None:
            checked = _without_prompt(checked, *self.prompt_ids)
        with native("decode ids"):
            text: str = self.backend.decode(checked, skip_special_tokens=skip_special_tokens)
        if self.cleans_up:
            text = clean_up(text)
        return drop_timestamps(text) if self.drops_timestamps else text

    def token_to_id(self, token: str) -> int | None:
        """The id of exactly this ``token``, None if there is none."""
        with native("look up a token"):
            found: int | None = self.backend.token_to_id(token)
        return found

    def id_to_token(self, id: int) -> str | None:  # noqa: A002
        """The token as the vocabulary spells it, None for an id beyond the vocabulary."""
        with native("look up an id"):
            token: str | None = self.backend.id_to_token(_id(id))
        return token

    def visible_token(self, token_id: int, skip_special_tokens: bool) -> str | None:
        """The token of an id, None if it leaves no trace in decoded text."""
        number = _id(token_id)
        try:
            token = self._tokens[number]
        except KeyError:
            token = self._tokens[number] = self.id_to_token(number)
        return None if skip_special_tokens and token in self._special else token

    @cached_property
    def stream_plan(self) -> Plan | None:
        """How ids are decoded one by one, None if they can't be."""
        with native("read its decoder"):
            return plan(self.backend.decoder, self.backend.get_vocab)

    @cached_property
    def prompt_ids(self) -> tuple[int, int] | None:
        """Whisper: what opens a prompt and what opens the transcript after it."""
        if not self.drops_timestamps:
            return None
        start, end = (self.token_to_id(f"<|startof{name}|>") for name in ("prev", "transcript"))
        return None if start is None or end is None else (start, end)

    def apply_chat_template(
        self,
        messages: Sequence[Any],
        *,
        tools: Sequence[Any] | None = None,
        documents: Sequence[Any] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        **variables: Any,
    ) -> str:
        """The prompt for ``messages``; encode it with ``add_special_tokens=False``.

        Arguments and errors are those of :meth:`ChatTemplate.render`; special tokens are variables
        of the template unless ``variables`` overrules them.
        """
        if self.chat_template is None and chat_template is None:
            raise ChatTemplateError(
                "the model has no chat template", do="give one, or use a plain prompt"
            )
        return (self.chat_template or ChatTemplate({})).render(
            messages,
            tools=tools,
            documents=documents,
            chat_template=chat_template,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            special_tokens=self.special_tokens,
            variables=variables,
        )


def _id(value: Any) -> int:
    """``value`` as an id, also where it comes from numpy."""
    try:
        number: int = value.__index__()
    except (AttributeError, TypeError):
        number = -1
    if not 0 <= number <= _MAX_ID:
        raise TokenizerError("a token id is no id", wanted="integers from 0 to 2**32 - 1")
    return number


def _without_languages() -> OptionError:
    return OptionError(
        "a language for a model that has none to choose from",
        do="leave src_lang and tgt_lang out",
    )


def _without_prompt(ids: list[int], start: int, end: int) -> list[int]:
    if not ids or ids[0] != start:
        return ids
    return ids[ids.index(end) :] if end in ids else []
