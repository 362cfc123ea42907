"""Tokenizers of models from text to text, and the ids that transformers 4.57.6 gives with them.

``make_text_fixtures.py`` runs this; alone, in the oracle environment, it makes these alone::

    HF_HUB_OFFLINE=1 python scripts/translation_tokenizers.py

Folders in ``fixtures/text/translation`` are as ``save_pretrained`` of the class writes them. Marian
and M2M100 have no such class with a ``tokenizer.json``: theirs is laid out as transformers.js
converts it, and the ids are those of the slow class, from the SentencePiece model itself.
``translation.json`` says what is expected. Folders that are there are left as they are.
"""

# ruff: noqa: RUF001  (full-width characters are what a normalizer is for)

import json
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import sentencepiece
from text_tokenizers import CORPUS, byte_level
from tokenizers import Tokenizer, processors
from transformers import (
    AutoTokenizer,
    BartTokenizerFast,
    BlenderbotTokenizerFast,
    M2M100Tokenizer,
    MarianTokenizer,
    MBart50TokenizerFast,
    MBartTokenizerFast,
    NllbTokenizerFast,
    PegasusTokenizerFast,
    PreTrainedTokenizerBase,
    SeamlessM4TTokenizerFast,
)
from transformers.convert_slow_tokenizer import SpmConverter

ROOT = Path(__file__).parent.parent / "fixtures" / "text"

TEXTS = [
    "",
    "Paris is the capital of France.",
    "  The quick   brown fox \n jumps over the lazy dog ",
    "naïve façade, señor — привет мир",
    "東京は日本の首都です。 1234",
    "It's 😀 “quoted” … ½ ﬁne ｆｕｌｌ　width～tilde~\u200b\u00a0e\u0301 \u0007x\ttab",
    "fra_Latn fr_XX __fr__ >>fra<< de_DE eng_Latn",
    "Hi</s> there<pad>",
    ">>fra<< Paris is the capital.",
    ">>fra<<Paris",
    ">>xyz<< Berlin",
    ">>fra<<",
    " >>ita<< Berlin",
    ">>not closed",
]


def spm(folder: Path, name: str, kind: str, rule: str = "identity", **options: Any) -> str:
    """A SentencePiece model of ``kind``; without a rule no table of 300 kB comes along."""
    corpus = folder / "corpus.txt"
    corpus.write_text("\n".join(CORPUS), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus),
        model_prefix=str(folder / name),
        vocab_size=300 if kind == "bpe" else 150,
        model_type=kind,
        normalization_rule_name=rule,
        character_coverage=0.98,
        required_chars="<>_～~",  # what tokens of languages are spelled with, and two tildes
        minloglevel=2,
        num_threads=1,
        **options,
    )
    return str(folder / f"{name}.model")


def compact(folder: Path) -> None:
    """Takes the SentencePiece models out of a folder, and the white space out of its files."""
    for path in folder.iterdir():
        if path.suffix in (".model", ".spm", ".txt") or path.name in (
            "vocab.json",
            "special_tokens_map.json",
            "added_tokens.json",
        ):
            path.unlink()
            continue
        content = json.loads(path.read_text(encoding="utf-8"))
        for name in ("sp_model_kwargs", "vocab_file", "source_spm", "target_spm", "name_or_path"):
            content.pop(name, None)
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        path.write_text(text + "\n", encoding="utf-8")


def save(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    if not folder.exists():
        tokenizer.save_pretrained(folder)
        compact(folder)


def make_fast(root: Path, scratch: Path) -> None:
    bpe, unigram = spm(scratch, "bpe", "bpe"), spm(scratch, "unigram", "unigram")
    save(NllbTokenizerFast(bpe), root / "nllb")
    some = ["eng_Latn", "fra_Latn", "zho_Hans", "zho_Hant", "tyv_Cyrl"]  # one is a newcomer
    tuned = NllbTokenizerFast(bpe, additional_special_tokens=some, src_lang="fra_Latn")
    save(tuned, root / "nllb-tuned")
    save(MBartTokenizerFast(unigram, src_lang="en_XX", tgt_lang="ro_RO"), root / "mbart")
    save(MBart50TokenizerFast(unigram), root / "mbart50")
    some = ["__eng__", "__fra__", "__cmn__", "__cmn_Hant__"]
    save(SeamlessM4TTokenizerFast(bpe, additional_special_tokens=some), root / "seamless")
    pegasus = spm(
        scratch, "pegasus", "unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1, unk_piece="<unk>"
    )
    save(PegasusTokenizerFast(pegasus, offset=10), root / "pegasus")

    for name, kind, single in (
        ("bart", BartTokenizerFast, "<s> $A </s>"),
        ("blenderbot", BlenderbotTokenizerFast, "$A </s>"),
    ):
        backend = byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"], 330)
        ends = [("<s>", 0), ("</s>", 2)]
        backend.post_processor = (
            processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
            if name == "bart"
            else processors.TemplateProcessing(single=single, special_tokens=ends)
        )
        prefix = name == "blenderbot"
        save(kind(tokenizer_object=backend, add_prefix_space=prefix), root / name)


class M2M100Converter(SpmConverter):
    """The ids of vocab.json around the pieces of the SentencePiece model."""

    def vocab(self, proto: Any) -> list[tuple[str, float]]:
        scores = {piece.piece: piece.score for piece in proto.pieces}
        known = self.original_tokenizer.get_vocab()
        return [(token, scores.get(token, 0.0)) for token in sorted(known, key=known.get)]

    def unk_id(self, proto: Any) -> int:
        return self.original_tokenizer.unk_token_id

    def post_processor(self) -> Any:
        ends = [(t, self.original_tokenizer.convert_tokens_to_ids(t)) for t in ("__en__", "</s>")]
        return processors.TemplateProcessing(single="__en__ $A </s>", special_tokens=ends)


def m2m100(scratch: Path) -> tuple[M2M100Tokenizer, Tokenizer]:
    model = spm(scratch, "m2m", "bpe")
    pieces = sentencepiece.SentencePieceProcessor(model_file=model)
    ordinary = [pieces.id_to_piece(i) for i in range(3, pieces.get_piece_size())]
    ordinary = ordinary[100:] + ordinary[:100]  # not the order of the model
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", *ordinary]
    path = scratch / "vocab.json"
    path.write_text(json.dumps({token: i for i, token in enumerate(vocabulary)}))
    codes = M2M100Tokenizer(str(path), model).lang_token_to_id
    slow = M2M100Tokenizer(str(path), model, additional_special_tokens=list(codes))
    slow.vocab_file = model  # where converters look
    backend = M2M100Converter(slow).converted()
    slow.vocab_file = str(path)
    backend.add_special_tokens([str(token) for token in slow.all_special_tokens])
    return slow, backend


def marian(scratch: Path, codes: Iterable[str]) -> tuple[MarianTokenizer, Tokenizer]:
    """As transformers.js writes it: no table of the normalizer, and 2 for the unknown token."""
    model = spm(scratch, "marian", "unigram", "nmt_nfkc")
    pieces = sentencepiece.SentencePieceProcessor(model_file=model)
    scores = {pieces.id_to_piece(i): pieces.get_score(i) for i in range(pieces.get_piece_size())}
    ordinary = [piece for piece in scores if piece not in ("<s>", "</s>", "<unk>")]
    vocabulary = ["</s>", "<unk>", *ordinary, *(f">>{code}<<" for code in codes), "<pad>"]
    (scratch / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(vocabulary)}))
    slow = MarianTokenizer(model, model, str(scratch / "vocab.json"))
    special = ["</s>", "<unk>", "<pad>"]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    space = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}
    end = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    a, b = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    state = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": vocabulary.index(t), "special": True, "content": t, **flags} for t in special
        ],
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": None},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "WhitespaceSplit"}, space],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [a, end],
            "pair": [a, end, b, end],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [0], "tokens": ["</s>"]}},
        },
        "decoder": space,
        "model": {
            "type": "Unigram",
            "unk_id": 2,
            "vocab": [[t, 0.0 if t in special else scores.get(t, -100)] for t in vocabulary],
        },
    }
    return slow, state


def make_slow(root: Path, scratch: Path) -> dict[str, PreTrainedTokenizerBase]:
    """The slow tokenizers by folder; the folders get their ``tokenizer.json`` beside them."""
    slow: dict[str, PreTrainedTokenizerBase] = {}
    for name, (tokenizer, fast) in {
        "m2m100": m2m100(scratch),
        "marian": marian(scratch, ["fra", "ita", "spa_Latn"]),
        "marian-pair": marian(scratch, []),
    }.items():
        slow[name] = tokenizer
        folder = root / name
        shutil.rmtree(folder, ignore_errors=True)
        tokenizer.save_pretrained(folder)
        state = json.loads(fast.to_str()) if isinstance(fast, Tokenizer) else fast
        (folder / "tokenizer.json").write_text(json.dumps(state), encoding="utf-8")
        compact(folder)
    return slow


# Folder, what is changed in its tokenizer_config.json (null takes a key out), sources, targets.
# NO_CODES is a file whose languages are words of the vocabulary like any other.
NO_CODES = {"added_tokens_decoder": None, "additional_special_tokens": None}
NLLB = ["eng_Latn", "fra_Latn", "zho_Hans", "zul_Latn"]
CASES: list[tuple[str, dict[str, Any], list[str], list[str]]] = [
    ("nllb", {}, NLLB, NLLB),
    ("nllb", {"legacy_behaviour": True}, NLLB, NLLB),
    ("nllb", {"legacy_behaviour": True, "src_lang": "deu_Latn"}, ["fra_Latn"], ["deu_Latn"]),
    ("nllb-tuned", {}, ["zho_Hant", "tyv_Cyrl"], ["tyv_Cyrl", "eng_Latn"]),
    ("mbart", {}, ["en_XX", "fr_XX", "zh_CN"], ["ro_RO", "en_XX"]),
    ("mbart", {"src_lang": "de_DE"}, ["fr_XX"], ["ro_RO"]),
    ("mbart", NO_CODES, ["en_XX", "fr_XX"], ["ro_RO"]),
    ("mbart50", {}, ["en_XX", "fr_XX", "sl_SI"], ["ro_RO", "gl_ES"]),
    ("mbart50", {"src_lang": "af_ZA"}, ["fr_XX"], ["ro_RO"]),
    ("m2m100", {}, ["en", "fr", "zu"], ["fr", "ast", "en"]),
    ("seamless", {}, ["eng", "fra", "__cmn_Hant__"], ["fra", "__cmn__"]),
    ("marian", {}, [], []),
    ("marian-pair", {}, [], []),
    ("pegasus", {}, [], []),
    ("bart", {}, [], []),
    ("blenderbot", {}, [], []),
]


def target_id(tokenizer: PreTrainedTokenizerBase, code: str) -> int:
    """What the translation pipeline forces the decoder to begin with."""
    inputs = tokenizer._build_translation_inputs(
        "a", src_lang=tokenizer.src_lang.strip("_"), tgt_lang=code, return_tensors=None
    )
    return inputs["forced_bos_token_id"]


def encoded(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], **options: bool
) -> list[list[int]]:
    return [tokenizer(text, padding=False, **options).input_ids for text in texts]


def expectation(
    tokenizer: PreTrainedTokenizerBase, sources: list[str], targets: list[str]
) -> dict[str, Any]:
    plain = encoded(tokenizer, TEXTS)
    targeted = {code: target_id(tokenizer, code) for code in targets}
    spoken = {}
    for code in sources:
        tokenizer.src_lang = code
        spoken[code] = encoded(tokenizer, TEXTS)
    bare = encoded(tokenizer, TEXTS[:6], add_special_tokens=False)
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    answers = [[i, *ids, end, pad] for i in [*targeted.values(), end] for ids in bare]
    return {
        "class": type(tokenizer).__name__,
        "size": len(tokenizer),
        "special": [tokenizer.bos_token_id, end, pad],
        "plain": plain,
        "sources": spoken,
        "targets": targeted,
        "decoded": [[ids, tokenizer.decode(ids, skip_special_tokens=True)] for ids in answers],
    }


def changed(folder: Path, changes: dict[str, Any], scratch: Path) -> Path:
    copy = scratch / "changed"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    config = json.loads((copy / "tokenizer_config.json").read_text(encoding="utf-8")) | changes
    config = {name: value for name, value in config.items() if value is not None}
    (copy / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    if changes == NO_CODES:
        state = json.loads((copy / "tokenizer.json").read_text(encoding="utf-8"))
        state["added_tokens"] = [t for t in state["added_tokens"] if t["content"][0] == "<"]
        (copy / "tokenizer.json").write_text(json.dumps(state), encoding="utf-8")
    return copy


def make_translation(root: Path = ROOT) -> None:
    """Writes the folders and ``translation.json``."""
    with tempfile.TemporaryDirectory() as name:
        scratch, folders = Path(name), root / "translation"
        make_fast(folders, scratch)
        slow = make_slow(folders, scratch)
        cases = []
        for folder, changes, sources, targets in CASES:
            tokenizer = slow.get(folder) or AutoTokenizer.from_pretrained(
                changed(folders / folder, changes, scratch)
            )
            expected = expectation(tokenizer, sources, targets)
            cases.append({"folder": folder, "config": changes, **expected})
    text = json.dumps({"texts": TEXTS, "cases": cases}, ensure_ascii=False, separators=(",", ":"))
    (root / "translation.json").write_text(text.replace('},{"', '},\n{"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    make_translation()
