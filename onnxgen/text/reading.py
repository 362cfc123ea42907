"""Reads ``tokenizer.json``, and mends or refuses what the tokenizers library cannot take."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from onnxgen.errors import TokenizerError
from onnxgen.text import expansion
from onnxgen.text.native import SAVE_AGAIN, native

# A key that may stand for continuing_subword_prefix: itself with a value, or with letters escaped.
_PREFIXED = re.compile(rb'"continuing_subword_prefix"\s*:\s*"[^"]|\\u00(?:5[fF]|[67])')
_NO_CHARSMAP = re.compile(rb'"precompiled_charsmap"\s*:\s*null')

# What SentencePiece does unless told otherwise, nmt_nfkc: NFKC of all but the full-width tilde,
# which hides behind a character that is none.
_TILDE, _HIDDEN = "\uff5e", "\U0010ffff"
_NMT_NFKC = [
    {"type": "Nmt"},
    {"type": "Replace", "pattern": {"String": _TILDE}, "content": _HIDDEN},
    {"type": "NFKC"},
    {"type": "Replace", "pattern": {"String": _HIDDEN}, "content": _TILDE},
]


def read(path: Path, unknown: str | None = None) -> Backend:
    """The tokenizer of a ``tokenizer.json``; with ``unknown``, that token is its unknown one.

    Raises:
        TokenizerError: it is broken, or would abort the process, or fill its memory.
    """
    with native("load its tokenizer.json"):
        data = path.read_bytes()
        _refuse_cut_merges(data)
        expansion.check(data)
        if unknown is None and not _NO_CHARSMAP.search(data):
            return Backend.from_file(str(path))
        state = json.loads(data)
        state["normalizer"] = _normalizer(state.get("normalizer"))
        if unknown is not None:
            _set_unknown(state["model"], unknown)
        return Backend.from_str(json.dumps(state))


def _normalizer(part: Any) -> Any:
    """``part`` with SentencePiece's default for tables that are not there.

    The converter of transformers.js writes null for Marian and SpeechT5, whose models have it.
    """
    if not isinstance(part, dict):
        return part
    if part.get("type") == "Sequence":
        return part | {"normalizers": [_normalizer(inner) for inner in part["normalizers"]]}
    if part.get("type") == "Precompiled" and part.get("precompiled_charsmap") is None:
        return {"type": "Sequence", "normalizers": _NMT_NFKC}
    return part


def _set_unknown(model: dict[str, Any], token: str) -> None:
    """Lets ``unk_id`` be the id of ``token``; the same converter writes 2 whatever it is."""
    pieces = [piece for piece, _ in model["vocab"]] if model.get("type") == "Unigram" else []
    if token in pieces:
        model["unk_id"] = pieces.index(token)


def _refuse_cut_merges(data: bytes) -> None:
    """Refuses BPE merges without the model's own prefix.

    tokenizers cuts the prefix off unseen, and where the cut falls into a character, version 0.23
    aborts the process instead of raising. Such prefixes are rare, so few files are parsed twice.
    """
    if not _PREFIXED.search(data):
        return
    model = json.loads(data)["model"]
    prefix = model.get("continuing_subword_prefix") or ""
    if model.get("type", "BPE") != "BPE" or not prefix:
        return
    for merge in model["merges"]:
        last = merge.split(" ")[-1] if isinstance(merge, str) else merge[-1]
        if not last.startswith(prefix):
            raise TokenizerError("tokenizer.json has merges without its prefix", do=SAVE_AGAIN)
