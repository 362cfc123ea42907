"""Tiny tokenizers of speech models: Whisper's byte-level BPE, Moonshine's BPE with bytes."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast, WhisperTokenizerFast

CORPUS = [
    " The capital of France is Paris, and the capital of Japan is Tokyo.",
    " He said that there is nothing like the sound of rain on the roof in the morning.",
    " Le garçon a été très heureux, et la fête était finie à la nuit tombée.",
    " Die Straße über die Brücke führt zu den schönen alten Häusern.",
    " El niño comió una piña mañana, señor. ¿Qué más?",
    "日本の首都は東京です。日本の歌。",
] * 3
LANGUAGES = ("en", "zh", "de", "es", "fr", "ja")
END, START = "<|endoftext|>", "<|startoftranscript|>"


@dataclass(frozen=True)
class Whisper:
    """A vocabulary in Whisper's order: text, specials, timestamps.

    `in_file`: whether tokenizer.json knows the timestamps; those of older repositories do not.
    """

    text: int = 320
    no_speech: str = "nospeech"
    in_file: bool = False

    @property
    def specials(self) -> list[str]:
        rest = ("translate", "transcribe", "startoflm", "startofprev", self.no_speech)
        return [END, START, *(f"<|{name}|>" for name in (*LANGUAGES, *rest, "notimestamps"))]

    @property
    def timestamps(self) -> list[str]:
        return [f"<|{step * 0.02:.2f}|>" for step in range(1501)]

    @property
    def size(self) -> int:
        return self.text + len(self.specials) + len(self.timestamps)

    def id(self, token: str) -> int:
        return self.text + [*self.specials, *self.timestamps].index(token)

    @cached_property
    def fast(self) -> WhisperTokenizerFast:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=self.text, show_progress=False, initial_alphabet=alphabet
        )
        tokenizer.train_from_iterator(CORPUS, trainer)
        tokenizer.add_special_tokens([AddedToken(t, special=True) for t in self.specials])
        if self.in_file:
            tokenizer.add_tokens([AddedToken(t, special=False) for t in self.timestamps])
        around = (START, "<|notimestamps|>", END)
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{around[0]} {around[1]} $A {around[2]}",
            special_tokens=[(token, self.id(token)) for token in around],
        )
        return WhisperTokenizerFast(
            tokenizer_object=tokenizer, unk_token=END, bos_token=END, eos_token=END, pad_token=END,
            additional_special_tokens=self.specials[1:],
        )  # fmt: skip

    @property
    def unprintable(self) -> list[int]:
        """The ids of text that is no whole character, or none that one sees."""
        pieces = ((i, self.fast.decode([i])) for i in range(self.text))
        return [i for i, piece in pieces if "\ufffd" in piece or not piece.isprintable()]

    def save(self, folder: Path) -> None:
        """Writes tokenizer.json and tokenizer_config.json, without what they repeat."""
        (folder / "tokenizer.json").write_text(compact(self.fast))
        write_config(
            folder,
            tokenizer_class="WhisperTokenizer", unk_token=END, bos_token=END, eos_token=END,
            pad_token=END, additional_special_tokens=self.specials[1:], model_max_length=1024,
            clean_up_tokenization_spaces=True, processor_class="WhisperProcessor",
        )  # fmt: skip


class Moonshine:
    """SentencePiece's way: spaces are ▁, unknown characters their bytes. Ids 0 to 2 are special."""

    size = 352

    def __init__(self) -> None:
        special = ["<unk>", "<s>", "</s>"]
        pieces = special + [f"<0x{byte:02X}>" for byte in range(256)]
        learnt = Tokenizer(models.BPE())
        learnt.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.BpeTrainer(vocab_size=self.size - len(pieces), show_progress=False)
        learnt.train_from_iterator((line.strip() for line in CORPUS), trainer)
        model = json.loads(learnt.to_str())["model"]
        known = pieces + sorted(model["vocab"], key=model["vocab"].get)
        bpe = models.BPE(
            vocab={piece: i for i, piece in enumerate(known)},
            merges=[tuple(pair) for pair in model["merges"]],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
        tokenizer = Tokenizer(bpe)
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
        tokenizer.decoder = decoders.Sequence(
            [
                decoders.Replace("▁", " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        )
        tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 1)]
        )
        self.fast = PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
        )

    def save(self, folder: Path) -> None:
        (folder / "tokenizer.json").write_text(compact(self.fast))
        write_config(
            folder,
            tokenizer_class="PreTrainedTokenizerFast", unk_token="<unk>", bos_token="<s>",
            eos_token="</s>", pad_token="</s>", clean_up_tokenization_spaces=False,
            model_max_length=194, processor_class="Wav2Vec2Processor",
        )  # fmt: skip


def compact(fast: PreTrainedTokenizerFast) -> str:
    """tokenizer.json on one line: its many added tokens are most of a folder otherwise."""
    content = json.loads(fast.backend_tokenizer.to_str())
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n"


def write_config(folder: Path, **content: object) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text + "\n")
