"""Tiny tokenizers and chat templates of the vision-language families, in each family's class."""

import json
from collections.abc import Sequence

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
from transformers import (
    GemmaTokenizerFast,
    GPT2TokenizerFast,
    LlamaTokenizerFast,
    PreTrainedTokenizerFast,
    Qwen2TokenizerFast,
)

MAX_LENGTH = 1024
SPACE = "▁"  # what SentencePiece writes for a space
TEXTS = [
    "What is in this picture? Describe the image. How many are there in the two pictures?",
    "The capital of France is Paris. There is a red house on the green hill by the river.",
    "user\nassistant\nsystem\nmodel\nUser: Assistant: USER: ASSISTANT: caption answer detect",
    "You are a helpful assistant. Here is the original image and here are some crops to help",
    "One two three, the cat and the dog went over the bridge in the rain and saw it.",
]
#: how a text is cut before its bytes are merged: words with a space before them, digits, the rest
WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def special(tokens: Sequence[str]) -> list[AddedToken]:
    return [AddedToken(token, special=True, normalized=False) for token in tokens]


def byte_level(size: int, first: Sequence[str] = (), last: Sequence[str] = ()) -> Tokenizer:
    """Byte-level BPE: `first`, bytes and merges up to `size` ids, `last`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        show_progress=False,
        special_tokens=special(first),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    assert tokenizer.get_vocab_size() == size, tokenizer.get_vocab_size()
    tokenizer.add_special_tokens(special(last))
    return tokenizer


def sentencepiece(size: int, first: Sequence[str], last: Sequence[str], prefix: bool) -> Tokenizer:
    """BPE over characters with bytes for unknown ones, as Llama and Gemma have it.

    `prefix` puts a space before the text; spaces are then cut off when decoding.
    """
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    letters = Tokenizer(models.BPE())
    letters.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    count = size - len(first) - len(fallback)
    letters.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=count, show_progress=False))
    found, merges = learned(letters)
    pieces = [*first, *fallback, *found]
    assert len(pieces) == size, len(pieces)
    tokenizer = Tokenizer(
        models.BPE(
            {piece: i for i, piece in enumerate(pieces)},
            merges,
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    replace = normalizers.Replace(" ", SPACE)
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if prefix:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), replace])
        tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    else:
        tokenizer.normalizer = replace
        tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.add_special_tokens(special(first))
    tokenizer.add_special_tokens(special(last))
    return tokenizer


def learned(trained: Tokenizer) -> tuple[list[str], list[tuple[str, str]]]:
    """The pieces in order of their ids, and the merges, of a trained BPE."""
    content = json.loads(trained.to_str())["model"]
    vocab = sorted(content["vocab"], key=content["vocab"].get)
    return vocab, [tuple(pair) for pair in content["merges"]]


def smolvlm() -> PreTrainedTokenizerFast:
    """SmolLM2's, with the marks of tiles."""
    tiles = [f"<row_{row}_col_{col}>" for row in range(1, 7) for col in range(1, 7)]
    last = ["<fake_token_around_image>", "<image>", "<end_of_utterance>"]
    tokenizer = byte_level(290, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
                           ["<global-img>", *tiles, *last])  # fmt: skip
    fast = GPT2TokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|im_start|>", eos_token="<end_of_utterance>",
        pad_token="<|im_end|>", unk_token="<|endoftext|>", additional_special_tokens=last,
        model_max_length=MAX_LENGTH, clean_up_tokenization_spaces=False,
    )  # fmt: skip
    fast.chat_template = (
        "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}"
        "{% if message['content'][0]['type'] == 'image' %}:{% else %}: {% endif %}"
        "{% for part in message['content'] %}"
        "{% if part['type'] == 'text' %}{{ part['text'] }}"
        "{% elif part['type'] == 'image' %}<image>{% endif %}"
        "{% endfor %}<end_of_utterance>\n{% endfor %}"
        "{% if add_generation_prompt %}Assistant:{% endif %}"
    )
    return fast


QWEN = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
    "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>",
    "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
]  # fmt: skip


def qwen(*more: str) -> PreTrainedTokenizerFast:
    """Qwen2's, with `more` tokens behind its own."""
    fast = Qwen2TokenizerFast(
        tokenizer_object=byte_level(286, (), [*QWEN, *more]),
        unk_token=None, bos_token=None, eos_token="<|im_end|>", pad_token="<|endoftext|>",
        additional_special_tokens=[*QWEN[1:], *more],
        model_max_length=MAX_LENGTH, clean_up_tokenization_spaces=False,
    )  # fmt: skip
    fast.chat_template = (
        "{% for message in messages %}"
        "{% if loop.first and message['role'] != 'system' %}"
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
        "<|im_start|>{{ message['role'] }}\n"
        "{% if message['content'] is string %}{{ message['content'] }}"
        "{% else %}{% for part in message['content'] %}"
        "{% if part['type'] == 'image' or 'image' in part %}"
        "<|vision_start|><|image_pad|><|vision_end|>"
        "{% elif part['type'] == 'video' or 'video' in part %}"
        "<|vision_start|><|video_pad|><|vision_end|>"
        "{% elif 'text' in part %}{{ part['text'] }}{% endif %}"
        "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    return fast


def onevision() -> PreTrainedTokenizerFast:
    """Qwen2's with LLaVA-OneVision's two tokens; its template puts images before texts."""
    fast = qwen("<image>", "<video>")
    fast.chat_template = (
        "{% for message in messages %}<|im_start|>{{ message['role'] }} "
        "{% for part in message['content'] if part['type'] == 'image' %}<image>{% endfor %}"
        "{% for part in message['content'] if part['type'] == 'text' %}"
        "{{ '\\n' + part['text'] }}{% endfor %}"
        "<|im_end|>{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    return fast


def llama() -> PreTrainedTokenizerFast:
    """Llama's, with LLaVA's two tokens behind; `<s>` before each text."""
    fast = LlamaTokenizerFast(
        tokenizer_object=sentencepiece(
            340, ["<unk>", "<s>", "</s>"], ["<image>", "<pad>"], prefix=True
        ),
        unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<pad>",
        padding_side="left", legacy=False, model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=False,
    )  # fmt: skip
    fast.chat_template = (
        "{% for message in messages %}"
        "{% if message['role'] == 'user' %}USER: {% else %}ASSISTANT: {% endif %}"
        "{% for part in message['content'] if part['type'] == 'image' %}<image>\n{% endfor %}"
        "{% for part in message['content'] if part['type'] == 'text' %}"
        "{{ part['text'] }} {% endfor %}"
        "{% endfor %}"
        "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
    )
    return fast


def gemma3() -> PreTrainedTokenizerFast:
    """Gemma's, with the turns and the image tokens of Gemma 3; `<bos>` before each text."""
    first = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>",
             "<start_of_image>", "<end_of_image>"]  # fmt: skip
    fast = GemmaTokenizerFast(
        tokenizer_object=sentencepiece(345, first, ["<image_soft_token>"], prefix=False),
        unk_token="<unk>", bos_token="<bos>", eos_token="<eos>", pad_token="<pad>",
        padding_side="left", model_max_length=MAX_LENGTH, clean_up_tokenization_spaces=False,
        extra_special_tokens={
            "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>",
            "image_token": "<image_soft_token>",
        },
    )  # fmt: skip
    fast.chat_template = (
        "{{ bos_token }}{% for message in messages %}"
        "{% if message['role'] == 'assistant' %}{% set role = 'model' %}"
        "{% else %}{% set role = message['role'] %}{% endif %}"
        "<start_of_turn>{{ role }}\n"
        "{% if message['content'] is string %}{{ message['content'] | trim }}"
        "{% else %}{% for part in message['content'] %}"
        "{% if part['type'] == 'image' %}<start_of_image>"
        "{% elif part['type'] == 'text' %}{{ part['text'] | trim }}{% endif %}"
        "{% endfor %}{% endif %}<end_of_turn>\n{% endfor %}"
        "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
    )
    return fast


def paligemma() -> PreTrainedTokenizerFast:
    """Gemma's, with some of the places and `<image>`; it has no chat template."""
    places = [f"<loc{i:04}>" for i in range(4)] + [f"<seg{i:03}>" for i in range(2)]
    return GemmaTokenizerFast(
        tokenizer_object=sentencepiece(
            340, ["<pad>", "<eos>", "<bos>", "<unk>"], ["<image>", *places], prefix=False
        ),
        unk_token="<unk>", bos_token="<bos>", eos_token="<eos>", pad_token="<pad>",
        padding_side="left", model_max_length=MAX_LENGTH, clean_up_tokenization_spaces=False,
        extra_special_tokens={"image_token": "<image>"},
    )  # fmt: skip
