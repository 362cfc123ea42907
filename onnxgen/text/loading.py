"""Builds the ``tokenizers.Tokenizer`` of a model folder as transformers 4.57 would.

``tokenizer.json`` alone is not what a model was trained with: the config beside it clears or
replaces parts of it. The order of the steps decides which ids new tokens get; it is theirs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from tokenizers import AddedToken, decoders, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from onnxgen.errors import TokenizerError
from onnxgen.text import languages
from onnxgen.text.classes import Side, TokenizerClass, tokenizer_class
from onnxgen.text.languages import LanguageRule, Languages
from onnxgen.text.native import native
from onnxgen.text.reading import read

if TYPE_CHECKING:
    from onnxgen.files import ModelFiles

CONFIG = "tokenizer_config.json"
_ADDITIONAL = "additional_special_tokens"
# In this order new special tokens get their ids.
_SPECIAL_NAMES = (
    *(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")),
    _ADDITIONAL,
)
_MAX_EXTRA_IDS = 10_000
_OTHER_FILES = (
    *("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "source.spm"),
    *("vocab.json", "vocab.txt", "tekken.json"),
)
_MAKE_ONE = "make one with transformers: AutoTokenizer.from_pretrained(..).save_pretrained(..)"
_TAKE_ONE = "take that of a conversion for transformers.js; transformers makes none for this class"
_TOKEN_FIELDS = ("content", "lstrip", "rstrip", "normalized", "single_word", "special")
Token = str | AddedToken
Specials = dict[str, Token | list[Token]]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A tokenizer with what its configuration adds.

    Attributes:
        backend: ready to encode; nothing is truncated or padded.
        special_tokens: name to token, or to a list of them; what chat templates see.
        padding_side: where a batch of prompts is filled up.
        clean_up: decoded text loses the spaces before punctuation.
        whisper: decoded text loses prompt and timestamps.
        marian: ``>>code<<`` at the start of a text is one token.
        languages: of a translation model that has several; else None.
    """

    backend: Backend
    special_tokens: dict[str, str | list[str]]
    padding_side: Side
    clean_up: bool
    whisper: bool
    marian: bool = False
    languages: Languages | None = None


def load(files: ModelFiles) -> Loaded:
    """The tokenizer of ``files``.

    Raises:
        TokenizerError: no tokenizer.json, or it or its configuration is broken.
    """
    with native("read its configuration"):
        return _load(files)


def _load(files: ModelFiles) -> Loaded:
    config = dict(files.json(CONFIG))
    model = files.json("config.json")
    kind = tokenizer_class(
        config.get("tokenizer_class") or model.get("tokenizer_class"), model.get("model_type")
    )
    backend = _read(files, config, kind)
    with native("drop its padding"):
        padding = backend.padding or {}
        backend.no_truncation()
        backend.no_padding()
    with native("add the tokens of its configuration"):
        added = _added_tokens(files, config, backend)
        specials = _special_tokens(config, kind, padding, added, backend)
        _add_missing(backend, added, specials)
        backend.encode_special_tokens = bool(config.get("split_special_tokens", False))
    with native("set its prefix space"):
        if kind.sentencepiece and config.get("add_prefix_space") is not None:
            if files.path("tokenizer.model") or files.path("spiece.model"):
                _rebuild_sentencepiece(backend, config, kind)
        else:
            _set_prefix_space(backend, config, kind)
    if kind.adds is not None:
        _add_start_and_end(backend, config, kind.adds, specials)
    spoken = _languages(backend, config, kind, specials)
    if spoken is not None and spoken.default_source is not None:
        _add_around(backend, *spoken.source())
    return Loaded(
        backend=backend,
        special_tokens={
            name: [str(t) for t in token] if isinstance(token, list) else str(token)
            for name, token in specials.items()
        },
        padding_side=_padding_side(config, padding, kind),
        clean_up=bool(config.get("clean_up_tokenization_spaces", False)),
        whisper=kind.whisper,
        marian=kind.marian,
        languages=spoken,
    )


def _read(files: ModelFiles, config: Mapping[str, Any], kind: TokenizerClass) -> Backend:
    path = files.path("tokenizer.json")
    if path is None:
        there = [name for name in _OTHER_FILES if files.path(name) is not None]
        raise TokenizerError(
            f"{files.source} has no tokenizer.json" + (f", only {there[0]}" if there else ""),
            wanted="the file of a fast tokenizer",
            do=_TAKE_ONE if kind.languages in (languages.M2M100, languages.MARIAN) else _MAKE_ONE,
        )
    unknown = config.get("unk_token", kind.special_tokens["unk_token"]) if kind.marian else None
    return read(path, None if unknown is None else str(_token(unknown)))


def _added_tokens(
    files: ModelFiles, config: dict[str, Any], backend: Backend
) -> dict[int, AddedToken]:
    """Id to token of what the configuration adds; older files' special tokens join ``config``."""
    if "added_tokens_decoder" in config:
        return {int(i): _token(fields) for i, fields in config["added_tokens_decoder"].items()}
    for name, value in files.json("special_tokens_map.json").items():
        if name == _ADDITIONAL and isinstance(value, list):
            known = config.get(_ADDITIONAL) or []
            config[name] = known + [token for token in value if token not in known]
        else:
            config[name] = value
    special = {
        str(_token(token))
        for name in _SPECIAL_NAMES
        for token in _listed(config.get(name))
        if token is not None
    }
    added = {
        int(i): AddedToken(content, normalized=content not in special, special=content in special)
        for content, i in files.json("added_tokens.json").items()
    }
    return added | backend.get_added_tokens_decoder()


def _special_tokens(
    config: Mapping[str, Any],
    kind: TokenizerClass,
    padding: Mapping[str, Any],
    added: Mapping[int, AddedToken],
    backend: Backend,
) -> Specials:
    """Name to token, in the order of their names; tokens that ``added`` describes as there."""
    values: dict[str, Any] = {**kind.special_tokens}
    values |= {name: config[name] for name in _SPECIAL_NAMES if name in config}
    if "pad_token" not in values and padding:
        values["pad_token"] = padding["pad_token"]
    if kind.extra_ids:
        values[_ADDITIONAL] = _with_extra_ids(
            values.get(_ADDITIONAL), config.get("extra_ids", kind.extra_ids)
        )
    extra = config.get("extra_special_tokens") or {}
    if isinstance(extra, list):  # how transformers 5 writes additional_special_tokens
        values[_ADDITIONAL] = [*(values.get(_ADDITIONAL) or []), *extra]
        extra = {}
    if kind.languages and kind.languages.codes:
        values[_ADDITIONAL] = _with_codes(values.get(_ADDITIONAL), kind.languages, backend)
    described = {token.content: token for token in added.values()}
    specials: Specials = {}
    for name in (*_SPECIAL_NAMES, *extra):
        value = extra[name] if name in extra else values.get(name)
        if not value:
            continue
        if name == _ADDITIONAL:
            specials[name] = [_named(token) for token in value]
        else:
            token = _named(value)
            specials[name] = token if name in extra else described.get(str(token), token)
    return specials


def _with_extra_ids(additional: list[Any] | None, count: int) -> list[Any]:
    if additional and any("<extra_id_" in str(_token(token)) for token in additional):
        return additional
    if not 0 <= count <= _MAX_EXTRA_IDS:
        raise TokenizerError(f"{CONFIG} has a wrong number of extra_ids")
    return [*(additional or []), *(f"<extra_id_{i}>" for i in range(count))]


def _with_codes(additional: list[Any] | None, rule: LanguageRule, backend: Backend) -> list[Any]:
    """``additional`` and the languages of the class, as far as the vocabulary has them."""
    known = {str(_token(token)) for token in additional or []}
    own = [rule.token(code) for code in rule.codes]
    missing = [t for t in own if t not in known and backend.token_to_id(t) is not None]
    return [*(additional or []), *missing]


def _add_missing(backend: Backend, added: Mapping[int, AddedToken], specials: Specials) -> None:
    """Appends tokens that ``backend`` lacks, at its next free ids, whatever ids were stated."""
    own = backend.get_added_tokens_decoder().values()
    known = {repr(token) for token in own}
    tokens: list[Token] = [t for _, t in sorted(added.items()) if repr(t) not in known]
    names = {token.content for token in own} | {str(token) for token in tokens}
    listed = [token for value in specials.values() for token in _listed(value)]
    special = {str(token) for token in listed}
    seen: set[str] = set()
    for token in listed:
        if str(token) not in seen and (token not in names and token not in tokens):
            tokens.append(token)
        seen.add(str(token))
    new = []
    for token in tokens:
        if isinstance(token, str):
            new.append(AddedToken(token, special=True))
        else:
            token.special = token.special or str(token) in special
            new.append(token)
    backend.add_tokens(new)


def _set_prefix_space(backend: Backend, config: Mapping[str, Any], kind: TokenizerClass) -> None:
    """Sets a ByteLevel pre-tokenizer's add_prefix_space; one in a sequence only for two classes."""
    wanted = config.get("add_prefix_space", kind.add_prefix_space)
    if wanted is None or backend.pre_tokenizer is None:
        return
    state = json.loads(backend.pre_tokenizer.__getstate__())
    if state.get("add_prefix_space", wanted) != wanted:
        del state["type"]
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(**state | {"add_prefix_space": wanted})
    elif wanted and kind.prefix_space_in_sequence and state["type"] == "Sequence":
        for index, part in enumerate(state["pretokenizers"]):
            if part.pop("type") == "ByteLevel":
                changed = pre_tokenizers.ByteLevel(**part | {"add_prefix_space": True})
                backend.pre_tokenizer[index] = changed


def _rebuild_sentencepiece(
    backend: Backend, config: Mapping[str, Any], kind: TokenizerClass
) -> None:
    """What a conversion from the SentencePiece model gives: ``add_prefix_space`` set asks for it.

    Vocabulary and merges are the same in both files, so only the pipeline around them changes.
    """
    space = bool(config["add_prefix_space"])
    legacy = config.get("legacy")
    legacy = True if legacy is None else bool(legacy)
    scheme = ("always" if legacy else "first") if space else "never"
    if kind.sentencepiece == "t5":
        backend.pre_tokenizer = pre_tokenizers.Metaspace("▁", scheme)
        backend.decoder = decoders.Metaspace("▁", scheme)
        return
    if legacy:
        prepend = [normalizers.Prepend("▁")] if space else []
        backend.normalizer = normalizers.Sequence([*prepend, normalizers.Replace(" ", "▁")])
        backend.pre_tokenizer = None
    else:
        backend.normalizer = None
        backend.pre_tokenizer = pre_tokenizers.Metaspace("▁", scheme, split=False)
    strip = [decoders.Strip(" ", 1, 0)] if space else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )


def _add_start_and_end(
    backend: Backend, config: Mapping[str, Any], defaults: tuple[bool, bool], specials: Specials
) -> None:
    """Replaces the post-processor by one that follows ``add_bos_token`` and ``add_eos_token``."""
    ends: list[str | None] = []
    for name, default in zip(("bos", "eos"), defaults, strict=True):
        token = specials.get(f"{name}_token")
        if not config.get(f"add_{name}_token", default):
            ends.append(None)
        elif token is None:
            raise TokenizerError(
                f"{CONFIG} has add_{name}_token, but no {name}_token",
                do="set one or unset the other",
            )
        else:
            ends.append(str(token))
    start, end = ends
    single = [*([f"{start}:0"] if start else []), "$A:0", *([f"{end}:0"] if end else [])]
    second = [part.replace("$A", "$B")[:-1] + "1" for part in single]
    with native("build its post-processor"):
        backend.post_processor = processors.TemplateProcessing(
            single=single,
            pair=[*single, *second],
            special_tokens=[(t, backend.token_to_id(t)) for t in dict.fromkeys(ends) if t],
        )


def _languages(
    backend: Backend, config: Mapping[str, Any], kind: TokenizerClass, specials: Specials
) -> Languages | None:
    """The languages of a class that has some, as far as the vocabulary has them."""
    if kind.languages is None:
        return None
    with native("look for its languages"):
        if kind.marian:
            tokens = backend.get_vocab()
        else:  # any special token may be one, also one that a fine-tuning added
            added = backend.get_added_tokens_decoder().values()
            names = {token.content for token in added if token.special}
            names |= {str(token) for token in _listed(specials.get(_ADDITIONAL, []))}
            ids = ((name, backend.token_to_id(name)) for name in names)
            tokens = {name: i for name, i in ids if i is not None}
        end = backend.token_to_id(str(specials.get("eos_token")))
        if end is None:
            raise TokenizerError(f"{CONFIG} names no eos_token that tokenizer.json has")
        found = Languages(kind.languages, tokens, end, config)
    return found if found.codes else None


def _add_around(backend: Backend, before: list[int], after: list[int]) -> None:
    """Replaces the post-processor by one that adds these ids."""
    with native("build its post-processor"):
        first, last = ([backend.id_to_token(i) for i in ids] for ids in (before, after))
        backend.post_processor = processors.TemplateProcessing(
            single=[*first, "$A", *last],
            pair=[*first, "$A", "$B", *last],
            special_tokens=list(zip([*first, *last], [*before, *after], strict=True)),
        )


def _padding_side(
    config: Mapping[str, Any], padding: Mapping[str, Any], kind: TokenizerClass
) -> Side:
    side = config.get("padding_side", padding.get("direction", kind.padding_side))
    if side not in ("left", "right"):
        raise TokenizerError(f"{CONFIG} has a wrong padding_side", wanted="left or right")
    return cast(Side, side)


def _token(value: Any) -> AddedToken:
    """The token that a config entry, a string or a dict, describes."""
    if isinstance(value, str):
        return AddedToken(value)
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        raise TokenizerError("a special token of the configuration is none", wanted="a text")
    return AddedToken(**{name: value[name] for name in _TOKEN_FIELDS if name in value})


def _named(value: Any) -> Token:
    """``value``, if it is a text, else the token that it describes."""
    token = _token(value)
    return value if isinstance(value, str) else token


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
