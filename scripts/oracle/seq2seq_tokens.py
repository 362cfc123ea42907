"""Tiny tokenizers of the encoder-decoder families, each in the family's own class."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import sentencepiece.sentencepiece_model_pb2 as sentencepiece_model
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    BartTokenizerFast,
    BlenderbotTokenizerFast,
    GPT2TokenizerFast,
    MarianTokenizer,
    MBart50TokenizerFast,
    NllbTokenizerFast,
    PegasusTokenizerFast,
    PreTrainedTokenizerBase,
    RobertaTokenizerFast,
    T5TokenizerFast,
    XLMRobertaTokenizerFast,
)

WORDS: list[str] = (  # noqa: SIM905
    "the a an and of to in is it on for with as was one two three cat dog bird tree house river"
    " rain sun sea stone road night day long small red green old new runs sings sleeps falls"
    " walks under over near there here where when what who she he they we you not very never"
    " always again morning evening north south water fire wind light translate summarize"
).split()
MAX_LENGTH = 60
SPACE = "▁"  # what SentencePiece writes for a space
#: with a space, all that a text here may hold
LETTERS = "abcdefghijklmnopqrstuvwxyz.,:?"
NLLB_LANGUAGES = ["eng_Latn", "fra_Latn", "deu_Latn"]
DONUT_PROMPTS = ["<s_caption>", "<s_answer>", "</s_answer>"]


def pieces(count: int) -> list[tuple[str, float]]:
    """`count` pieces of a unigram model: single characters, the first WORDS whole, parts of words.

    Scores fall with the number of pieces that a cut needs, so that long pieces win.
    """
    single = [SPACE, *LETTERS]
    whole = [SPACE + word for word in WORDS[: (count - len(single)) // 2]]
    parts = Counter(
        word[i : i + n] for n in (2, 3) for word in WORDS for i in range(len(word) - n + 1)
    )
    common = sorted(parts, key=lambda part: (-parts[part], part))
    chosen = list(dict.fromkeys(single + whole + common))[:count]
    total = sum(parts.values())
    return [(p, round(math.log((parts[p] + 1) / total) - 4 * (len(p) == 1), 4)) for p in chosen]


def unigram(first: Sequence[str], unknown: str, count: int, last: Sequence[str] = ()) -> Tokenizer:
    """A SentencePiece-like tokenizer: special tokens, `count` pieces, more special tokens."""
    vocab = [(t, 0.0) for t in first] + pieces(count) + [(t, 0.0) for t in last]
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=[*first].index(unknown)))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in (*first, *last)])
    return tokenizer


def byte_level(first: Sequence[str], size: int, prefix_space: bool = False) -> Tokenizer:
    """A byte-level BPE tokenizer of `size` ids, trained on WORDS; only their bytes are known."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>" if "<unk>" in first else None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        show_progress=False,
        special_tokens=[AddedToken(token, special=True) for token in first],
        initial_alphabet=[*LETTERS, "Ġ"],
    )
    tokenizer.train_from_iterator([" " + " ".join(WORDS), ". , : ?"], trainer)
    assert tokenizer.get_vocab_size() == size, tokenizer.get_vocab_size()
    return tokenizer


def template(tokenizer: Tokenizer, single: str) -> None:
    """Surrounds each text with special tokens: `<s> $A </s>`."""
    marks = {t: tokenizer.token_to_id(t) for t in single.split() if t != "$A"}
    tokenizer.post_processor = processors.TemplateProcessing(
        single, special_tokens=[*marks.items()]
    )


def t5(count: int) -> PreTrainedTokenizerBase:
    extra = [f"<extra_id_{i}>" for i in reversed(range(5))]
    tokenizer = unigram(["<pad>", "</s>", "<unk>"], "<unk>", count, extra)
    template(tokenizer, "$A </s>")
    return T5TokenizerFast(
        tokenizer_object=tokenizer, extra_ids=5, model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=False,
    )  # fmt: skip


def bart(size: int) -> PreTrainedTokenizerBase:
    tokenizer = byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"], size)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return BartTokenizerFast(tokenizer_object=tokenizer, model_max_length=MAX_LENGTH)


def roberta(size: int) -> PreTrainedTokenizerBase:
    tokenizer = byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"], size)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return RobertaTokenizerFast(tokenizer_object=tokenizer, model_max_length=MAX_LENGTH)


def blenderbot(size: int) -> PreTrainedTokenizerBase:
    tokenizer = byte_level(["<pad>", "<s>", "</s>", "<unk>", "<mask>"], size, prefix_space=True)
    template(tokenizer, "$A </s>")
    return BlenderbotTokenizerFast(
        tokenizer_object=tokenizer, add_prefix_space=True, model_max_length=MAX_LENGTH
    )


def gpt2(size: int) -> PreTrainedTokenizerBase:
    """The only special token is the last id, as in GPT-2."""
    tokenizer = byte_level([], size - 1)
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    return GPT2TokenizerFast(
        tokenizer_object=tokenizer, pad_token="<|endoftext|>", model_max_length=MAX_LENGTH
    )


def pegasus(count: int) -> PreTrainedTokenizerBase:
    """<unk> is the first id after the offset, here 6."""
    first = ["<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{i}>" for i in range(2, 6)), "<unk>"]
    tokenizer = unigram(first, "<unk>", count)
    template(tokenizer, "$A </s>")
    return PegasusTokenizerFast(tokenizer_object=tokenizer, offset=6, model_max_length=MAX_LENGTH)


def nllb(count: int) -> PreTrainedTokenizerBase:
    first = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer = unigram(first, "<unk>", count, [*NLLB_LANGUAGES, "<mask>"])
    return NllbTokenizerFast(
        tokenizer_object=tokenizer, src_lang="eng_Latn", model_max_length=MAX_LENGTH,
        additional_special_tokens=list(NLLB_LANGUAGES), clean_up_tokenization_spaces=True,
    )  # fmt: skip


def mbart50(count: int) -> PreTrainedTokenizerBase:
    codes = MBart50TokenizerFast.__init__.__globals__["FAIRSEQ_LANGUAGE_CODES"]
    first = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer = unigram(first, "<unk>", count, [*codes, "<mask>"])
    return MBart50TokenizerFast(
        tokenizer_object=tokenizer, src_lang="en_XX", model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=True,
    )  # fmt: skip


def xlm_roberta(count: int) -> PreTrainedTokenizerBase:
    """With Donut's task prompts, which follow <mask>."""
    first = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer = unigram(first, "<unk>", count, ["<mask>", *DONUT_PROMPTS])
    template(tokenizer, "<s> $A </s>")
    return XLMRobertaTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=MAX_LENGTH,
        additional_special_tokens=list(DONUT_PROMPTS),
    )  # fmt: skip


def save_marian(folder: Path, count: int) -> None:
    """Marian has no fast class: SentencePiece files, their ids in vocab.json, and a tokenizer.json.

    The last is what transformers.js repositories have beside them; it must give the same ids.
    """
    model = sentencepiece_model.ModelProto()
    control = model.SentencePiece.CONTROL
    model.pieces.add(piece="<unk>", score=0.0, type=model.SentencePiece.UNKNOWN)
    for piece in ("<s>", "</s>"):
        model.pieces.add(piece=piece, score=0.0, type=control)
    for piece, score in pieces(count):
        model.pieces.add(piece=piece, score=score)
    model.trainer_spec.model_type = model.trainer_spec.UNIGRAM
    model.normalizer_spec.name = "identity"
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(model.SerializeToString(deterministic=True))
    tokenizer = unigram(["</s>", "<unk>"], "<unk>", count, ["<pad>"])
    template(tokenizer, "$A </s>")
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "vocab.json").write_text(json.dumps(tokenizer.get_vocab(), ensure_ascii=False))
    MarianTokenizer(
        str(folder / "source.spm"), str(folder / "target.spm"), str(folder / "vocab.json"),
        source_lang="en", target_lang="fr", model_max_length=MAX_LENGTH,
    ).save_pretrained(folder)  # fmt: skip
