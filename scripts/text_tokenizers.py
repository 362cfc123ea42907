"""Small tokenizers of every kind that exported models bring, for ``make_text_fixtures.py``.

Each maker writes one folder as a model repository would have it, with the odd settings that
transformers changes while it loads. Training breaks ties by chance, so a folder that is there is
left as it is; remove it to make it anew. Runs in the oracle environment.
"""

# ruff: noqa: RUF001  (tokens with full-width bars are in use)

import json
import shutil
from pathlib import Path

import sentencepiece
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import LlamaTokenizerFast, T5TokenizerFast

CORPUS = [
    "The quick brown fox jumps over the lazy dog, doesn't it? It's what they've said!",
    "A tokenizer turns text into numbers; the model reads numbers and writes numbers.",
    "def greet(name):\n    return f'Hello, {name}!'\n\nprint(greet('world'))\n",
    "Übergrößenträger naïve façade, señor Ångström, Πλάτων, привет мир",
    "東京は日本の首都です。今日はいい天気ですね。中文也可以。한국어 문장입니다.",
    "1234 567.89 3.14159 2024-01-01 10:30:00 www.example.com user@example.org",
    "the the the and and of to in is it that for was on with as his they at be this",
    "Paris is the capital of France. Berlin is the capital of Germany.",
    "  indented\n\ttabbed\r\nwindows lines   many   spaces",
] * 4
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+"
)


def write(
    folder: Path, tokenizer: Tokenizer, settings: dict | None = None, /, **files: dict
) -> None:
    """Writes tokenizer.json, ``settings`` as tokenizer_config.json, ``files`` by their names."""
    if folder.exists():
        return
    folder.mkdir(parents=True)
    compact = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":"))
    (folder / "tokenizer.json").write_text(compact, encoding="utf-8")
    if settings is not None:
        files["tokenizer_config"] = settings
    for name, content in files.items():
        text = json.dumps(content, ensure_ascii=False, indent=1) + "\n"
        (folder / f"{name}.json").write_text(text, encoding="utf-8")


def added(content: str, special: bool = True, **flags: bool) -> dict:
    normal = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    return {"content": content, **normal, **flags, "special": special}


def byte_level(specials: list[str], size: int = 400, prefix: bool = False) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=specials,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        ),
    )
    return tokenizer


def split_byte_level(specials: list[str], size: int = 420, prefix: bool = False) -> Tokenizer:
    tokenizer = byte_level(specials, size)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False),
        ]
    )
    return tokenizer


def llama_like(metaspace: str = "", strip: bool = True) -> Tokenizer:
    """BPE with byte fallback; spaces by a normalizer, or by a Metaspace of that scheme."""
    specials = ["<unk>", "<s>", "</s>"]
    trained = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    trained.pre_tokenizer = pre_tokenizers.Metaspace("▁", "always")  # words, for the training
    trained.train_from_iterator(
        CORPUS[:3] + CORPUS[6:9],  # no CJK: it falls back to bytes
        trainers.BpeTrainer(
            vocab_size=520,
            special_tokens=specials + [f"<0x{byte:02X}>" for byte in range(256)],
            show_progress=False,
        ),
    )
    state = json.loads(trained.to_str())
    state["added_tokens"] = [t for t in state["added_tokens"] if t["content"] in specials]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", metaspace, split=False)
    else:
        tokenizer.pre_tokenizer = None
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(parts + ([decoders.Strip(" ", 1, 0)] if strip else []))
    return tokenizer


LLAMA_ADDED = {"0": added("<unk>"), "1": added("<s>"), "2": added("</s>")}
LLAMA = {"tokenizer_class": "LlamaTokenizer", "added_tokens_decoder": LLAMA_ADDED}
LLAMA |= {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", "always")
    tokenizer.decoder = decoders.Metaspace("▁", "always")
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.UnigramTrainer(
            vocab_size=300,
            special_tokens=["<pad>", "</s>", "<unk>"],
            unk_token="<unk>",
            show_progress=False,
        ),
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return tokenizer


def wordpiece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece("##", cleanup=True)
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.WordPieceTrainer(vocab_size=400, special_tokens=specials, show_progress=False),
    )
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def word_ends() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.BPEDecoder("</w>")
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=["<unk>"],
            end_of_word_suffix="</w>",
            show_progress=False,
        ),
    )
    return tokenizer


def words() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.WordLevelTrainer(
            vocab_size=80, special_tokens=["<unk>", "<end>"], show_progress=False
        ),
    )
    return tokenizer


def sentencepiece_model(folder: Path, kind: str) -> Path:
    """Trains a SentencePiece model of ``kind``, bpe or unigram."""
    text = folder / "corpus.txt"
    text.write_text("\n".join(CORPUS), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(folder / kind),
        vocab_size=400 if kind == "bpe" else 150,
        model_type=kind,
        byte_fallback=kind == "bpe",
        character_coverage=0.98,
        minloglevel=2,
        num_threads=1,
    )
    return folder / f"{kind}.model"


def make_byte_level(root: Path) -> None:
    end = "<|endoftext|>"
    write(root / "gpt2", byte_level([end]), {"tokenizer_class": "GPT2Tokenizer"})
    write(root / "gpt2-no-config", byte_level([end]), config={"model_type": "gpt2"})

    cut = byte_level([end], prefix=True)
    cut.enable_truncation(4)
    cut.enable_padding(direction="left", pad_id=0, pad_token=end, length=8)
    write(root / "truncated-padded", cut, {"tokenizer_class": "PreTrainedTokenizerFast"})
    prefixed = {"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": True}
    write(root / "gpt2-prefix-space", byte_level([end]), prefixed)

    qwen = split_byte_level([end, "<|im_start|>", "<|im_end|>"])
    marks = {str(i): added(t) for i, t in enumerate([end, "<|im_start|>", "<|im_end|>"])}
    qwen.add_tokens([AddedToken("<flag>", normalized=False), AddedToken("<sep>", normalized=False)])
    marks |= {"426": added("<|new|>"), "425": added("<tool_call>", False)}
    marks |= {"420": added("<flag>"), "421": added("<sep>", False)}
    config = {"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": marks}
    config |= {"eos_token": "<|im_end|>", "pad_token": end, "add_bos_token": True}
    config |= {"sep_token": "<sep>"}
    config |= {"additional_special_tokens": ["<|im_start|>", "<|im_end|>", "<|missing|>"]}
    write(root / "qwen", qwen, config | {"clean_up_tokenization_spaces": False})

    llama3 = split_byte_level(["<|begin_of_text|>", "<|eot_id|>"])
    llama3.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)]
            ),
        ]
    )
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": True}
    config |= {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "add_bos_token": False}
    config |= {"extra_special_tokens": {"image_token": "<|image|>"}, "padding_side": "left"}
    write(root / "llama3", llama3, config)

    neox = byte_level([end, "<|padding|>"])
    neox.enable_padding(pad_id=1, pad_token="<|padding|>")  # the class says that there is none
    config = {"tokenizer_class": "GPTNeoXTokenizer", "add_bos_token": True, "add_eos_token": True}
    write(root / "neox", neox, config | {"split_special_tokens": False})
    write(
        root / "bloom",
        split_byte_level(["<unk>", "<s>", "</s>", "<pad>"]),
        {"tokenizer_class": "BloomTokenizerFast", "add_prefix_space": True},
    )
    cohere = split_byte_level(["<PAD>", "<UNK>", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"])
    write(root / "cohere", cohere, {"tokenizer_class": "CohereTokenizer"})

    deepseek = split_byte_level(["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"])
    deepseek.add_tokens([AddedToken("<｜User｜>", normalized=False)])
    config = {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": True}
    config |= {
        "bos_token": {"__type": "AddedToken", **added("<｜begin▁of▁sentence｜>")},
        "eos_token": {"__type": "AddedToken", **added("<｜end▁of▁sentence｜>")},
        "unk_token": None,
        "added_tokens_decoder": {},
    }
    write(root / "deepseek", deepseek, config)

    converted = byte_level(["<|im_start|>", "<|im_end|>"], prefix=True)  # as made from a GGUF file
    converted.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Fuse(), decoders.Replace("▁", " "), decoders.ByteLevel()]
    )
    config = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<|im_start|>", "legacy": True}
    config |= {"eos_token": "<|im_end|>", "unk_token": "<|im_end|>"}
    config |= {"clean_up_tokenization_spaces": True}
    write(root / "gguf-bytes", converted, config)

    whisper = byte_level([end, "<|startoftranscript|>", "<|en|>", "<|startofprev|>"])
    whisper.add_tokens([AddedToken(f"<|{i * 0.02:.2f}|>", normalized=False) for i in range(30)])
    whisper.post_processor = processors.TemplateProcessing(
        single=f"<|startoftranscript|> <|en|> $A {end}",
        special_tokens=[("<|startoftranscript|>", 1), ("<|en|>", 2), (end, 0)],
    )
    config = {"tokenizer_class": "WhisperTokenizer", "add_prefix_space": False}
    config |= {"clean_up_tokenization_spaces": True, "bos_token": end, "eos_token": end}
    write(root / "whisper", whisper, config | {"unk_token": end, "pad_token": end})

    old = byte_level([end])
    old.add_tokens([AddedToken("<sep>", normalized=False)])
    specials = {"bos_token": added("<bos>"), "eos_token": end, "pad_token": "<pad>"}
    specials["sep_token"] = "<sep>"
    del specials["bos_token"]["special"]
    specials |= {"additional_special_tokens": ["<extra>", added("<lstrip>", lstrip=True)]}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 128}
    config |= {"additional_special_tokens": ["<first>"], "eos_token": "<replaced>"}
    write(
        root / "special-tokens-map",
        old,
        config,
        special_tokens_map=specials,
        added_tokens={"<pad>": 500, "<word>": 501},
    )
    split = {"tokenizer_class": "GPT2Tokenizer", "split_special_tokens": True}
    write(root / "split-special", byte_level([end]), split)


def make_sentencepiece(root: Path) -> None:
    write(root / "llama", llama_like(), LLAMA | {"clean_up_tokenization_spaces": False})
    ends = LLAMA | {"add_bos_token": False, "add_eos_token": True, "legacy": False}
    write(root / "llama-add-eos", llama_like(metaspace="first"), ends)
    flags = {"1": added("<s>", lstrip=True, rstrip=True), "2": added("</s>"), "0": added("<unk>")}
    more = {
        "900": added("<|user|>", rstrip=True),
        "901": added("<|end|>"),
        "905": added("x", False),
    }
    phi = LLAMA | {"added_tokens_decoder": flags | more, "pad_token": "<|end|>"}
    write(root / "phi3", llama_like(), phi | {"padding_side": "left", "add_bos_token": False})
    padded = llama_like()
    padded.enable_padding(direction="right", pad_id=2, pad_token="</s>")
    write(root / "llama-padded", padded, {"tokenizer_class": "LlamaTokenizerFast"})

    gemma = llama_like(strip=False)
    gemma.normalizer = normalizers.Replace(" ", "▁")
    gemma.add_special_tokens(["<pad>", "<eos>", "<bos>"])
    write(root / "gemma", gemma, {"tokenizer_class": "GemmaTokenizer"})
    write(
        root / "never",
        llama_like(metaspace="never", strip=False),
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>"},
    )

    write(root / "t5", unigram(), {"tokenizer_class": "T5Tokenizer", "extra_ids": 5})
    write(
        root / "unigram",
        unigram(),
        {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": True},
    )


def make_others(root: Path) -> None:
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": False}
    write(root / "bert", wordpiece(), config | {"clean_up_tokenization_spaces": True})
    plain = {"tokenizer_class": "PreTrainedTokenizerFast"}
    write(root / "word-ends", word_ends(), plain)
    write(root / "no-decoder", words(), plain | {"eos_token": "<end>"})
    ctc = words()
    ctc.decoder = decoders.CTC("<unk>", "the")
    write(root / "ctc", ctc, plain)
    mixed = byte_level(["<end>", "<｜odd｜>"])  # one odd token turns byte decoding off
    mixed.decoder = decoders.Sequence([decoders.Fuse(), decoders.ByteLevel()])
    write(root / "fused-bytes", mixed, plain)
    odd = llama_like()
    odd.decoder = decoders.Sequence(
        [
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Replace("▁▁", "=="),
            decoders.Strip("▁", 1, 0),
        ]
    )
    write(root / "odd-sequence", odd, plain)


def make_from_slow(root: Path, scratch: Path) -> None:
    """Folders with a SentencePiece model, from which add_prefix_space asks to convert again."""
    bpe, uni = (sentencepiece_model(scratch, kind) for kind in ("bpe", "unigram"))
    for space in (True, False):
        for legacy in (True, False):
            name = f"llama-from-slow-{'space' if space else 'none'}-{'old' if legacy else 'new'}"
            base = LlamaTokenizerFast(vocab_file=str(bpe), legacy=legacy, from_slow=True)
            config = LLAMA | {"add_prefix_space": space, "legacy": legacy}
            write(root / name, base.backend_tokenizer, config)
            shutil.copy(bpe, root / name / "tokenizer.model")
        name = f"t5-from-slow-{'space' if space else 'none'}"
        base = T5TokenizerFast(vocab_file=str(uni), from_slow=True, extra_ids=4)
        config = {"tokenizer_class": "T5Tokenizer", "extra_ids": 4, "add_prefix_space": space}
        write(root / name, base.backend_tokenizer, config | {"legacy": space})
        shutil.copy(uni, root / name / "spiece.model")


def make_all(root: Path, scratch: Path) -> list[Path]:
    """Writes every folder below ``root`` that is not there; all of them, sorted."""
    for folder in root.glob("*-from-slow-*"):  # their SentencePiece models are emptied in the end
        shutil.rmtree(folder)
    make_byte_level(root)
    make_sentencepiece(root)
    make_others(root)
    make_from_slow(root, scratch)
    return sorted(path for path in root.iterdir() if path.is_dir())
