"""Makes fixtures/attacks/tokenizers: files that make the tokenizers library panic, or never end.

A case is ``<name>.json``, a tokenizer.json that is loaded and then encodes and decodes.
"""

import json
from pathlib import Path
from typing import Any

PLACE = Path(__file__).parents[2] / "fixtures" / "attacks" / "tokenizers"
BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
UNIGRAM = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]}
A, B = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
DOUBLED = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
STARRED = {"type": "Replace", "pattern": {"Regex": "x*"}, "content": "aaaa"}
LONG = {"type": "Prepend", "prepend": "a" * 1000}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
TIMES = 60
ADDED = {
    "id": 3, "content": "aaa", "single_word": False, "lstrip": False, "rstrip": False,
    "normalized": True, "special": False,
}  # fmt: skip


def template(*single: dict) -> dict:
    return {"type": "TemplateProcessing", "single": single, "pair": [A, B], "special_tokens": {}}


def strip(start: int, stop: int) -> dict:
    return {"decoder": {"type": "Strip", "content": "a", "start": start, "stop": stop}}


def precompiled(table: str) -> dict:
    return {"normalizer": {"type": "Precompiled", "precompiled_charsmap": table}}


def row(name: str, names: str, part: dict) -> dict:
    return {name: {"type": "Sequence", names: [part] * TIMES}}


# Name: what it tries, the model, the other parts. All must end in a TokenizerError.
CASES: dict[str, tuple[str, dict, dict[str, Any]]] = {
    "charsmap-cut": ("panics at load: a normalizer's table is cut", UNIGRAM, precompiled("AAAA")),
    "charsmap-empty": ("panics at load: a normalizer's table is empty", UNIGRAM, precompiled("")),
    "special-without-id": (
        "panics at encode: a special token has no id",
        BPE,
        {"post_processor": template({"SpecialToken": {"id": "X", "type_id": 0}}, A)},
    ),
    "second-alone": ("panics at encode: only a second text", BPE, {"post_processor": template(B)}),
    "no-length": (
        "panics at encode: pieces of no length",
        BPE,
        {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    ),
    "strip-more": ("panics at decode: more is stripped than there is", BPE, strip(5, 5)),
    "strip-both": ("panics at decode: both ends are one character", BPE, strip(1, 1)),
    "merge-inside": (
        "aborts the process at load: a merge is cut inside a character",
        {
            "type": "BPE", "continuing_subword_prefix": "x", "vocab": {"a": 0, "é": 1, "aé": 2},
            "merges": ["a é"],
        },
        {},
    ),
    "expression": (
        "lets a regular expression try for ever when a text is encoded",
        BPE,
        {
            "pre_tokenizer": {
                "type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated",
                "invert": False,
            }
        },
    ),
    "normalizer-doubles": (
        f"makes a text 2^{TIMES} times longer when it is encoded",
        BPE,
        row("normalizer", "normalizers", DOUBLED),
    ),
    "normalizer-doubles-added": (
        "does so at loading, for an added token",
        BPE,
        {"added_tokens": [ADDED], **row("normalizer", "normalizers", DOUBLED)},
    ),
    "normalizer-fills": (
        "writes at every place, again and again",
        BPE,
        row("normalizer", "normalizers", STARRED),
    ),
    "normalizer-prepends": (
        "writes much before every piece, again and again",
        BPE,
        row("normalizer", "normalizers", LONG),
    ),
    "bytes-of-bytes": (
        "makes bytes of characters that stand for bytes, again and again",
        BPE,
        row("pre_tokenizer", "pretokenizers", BYTES),
    ),
    "template-doubles": (
        "adds the text to itself, again and again",
        BPE,
        row("post_processor", "processors", template(A, A)),
    ),
    "decoder-doubles": (
        f"makes a token 2^{TIMES} times longer when it is decoded",
        BPE,
        row("decoder", "decoders", DOUBLED),
    ),
}  # fmt: skip
# Done to a sound tokenizer: what it tries, what must happen.
DONE = {
    "id-negative": ("decodes -1", "TokenizerError"),
    "id-over-32-bits": ("decodes 2^32", "TokenizerError"),
    "id-no-number": ("decodes a text, None, 1.5 and NaN", "TokenizerError"),
    "id-beyond-vocabulary": ("decodes the number of tokens and 2^32 - 1", "runs"),
    "text-no-unicode": ("encodes half a surrogate pair", "TokenizerError"),
    "text-no-text": ("encodes None, bytes and a number", "TokenizerError"),
    "text-of-a-megabyte": ("encodes a long word", "runs"),
    "escaped-names": ("hides a doubling normalizer behind escaped letters", "TokenizerError"),
}


def main() -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    lines = []
    for name, (tries, model, parts) in CASES.items():
        text = json.dumps({"version": "1.0", "model": model} | parts)
        (PLACE / f"{name}.json").write_text(text + "\n")
        lines.append({"name": name, "tries": tries, "must": "TokenizerError"})
    lines += [{"name": n, "tries": tries, "must": must} for n, (tries, must) in DONE.items()]
    text = ",\n".join(f"  {json.dumps(line, ensure_ascii=False)}" for line in lines)
    (PLACE / "cases.json").write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
