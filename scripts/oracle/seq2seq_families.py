"""The encoder-decoder families: models, tokenizers, and the settings that their files come with."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BlenderbotConfig,
    BlenderbotForConditionalGeneration,
    DeiTConfig,
    DonutImageProcessor,
    DonutSwinConfig,
    GPT2Config,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    T5Config,
    T5ForConditionalGeneration,
    TrOCRConfig,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
    ViTImageProcessor,
)

from . import seq2seq_tokens as tokens

JSON = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One way to call `generate`: its options, on top of the model's own settings or without them.

    `prompts` are decoder ids that the inputs take in turn, where there are any.
    """

    options: JSON
    settings: bool = False
    prompts: tuple[tuple[int, ...], ...] = ()


GREEDY = Case({"max_new_tokens": 20})
BEAM = Case({"num_beams": 4, "length_penalty": 1.0, "early_stopping": False, "max_new_tokens": 20})


@dataclass(frozen=True)
class Family:
    """One architecture.

    `save_text` writes the tokenizer into a folder. `ids` are the special ids that every run needs,
    `settings` what else generation_config.json holds; `special` are ids that are no text.
    What makes random weights speak is told in seq2seq_weights.py; `seed` is the first to try.
    """

    model: Callable[[PretrainedConfig], PreTrainedModel]
    config: PretrainedConfig
    save_text: Callable[[Path], None]
    ids: dict[str, int]
    special: frozenset[int]
    settings: JSON = field(default_factory=dict)
    cases: dict[str, Case] = field(default_factory=dict)
    processor: ViTImageProcessor | DonutImageProcessor | None = None
    embedding_std: float = 1.0
    branch: float = 1.0
    sharpness: float = 1.0
    eos: float = 1.25
    seed: int = 0

    @property
    def task(self) -> str:
        return "image-to-text" if self.processor else "text2text-generation"

    @property
    def all_cases(self) -> dict[str, Case]:
        return {"greedy": GREEDY, "beam": BEAM, "settings": Case({}, settings=True)} | self.cases


def by_class(
    make_tokenizer: Callable[[int], PreTrainedTokenizerBase], size: int
) -> Callable[[Path], None]:
    """A writer of tokenizer.json and tokenizer_config.json; the slow class's files are left out."""

    def save(folder: Path) -> None:
        make_tokenizer(size).save_pretrained(folder)
        for name in ("special_tokens_map.json", "vocab.json", "merges.txt", "added_tokens.json"):
            (folder / name).unlink(missing_ok=True)

    return save


def save_marian(folder: Path) -> None:
    tokens.save_marian(folder, 125)


def bart_like(layers: tuple[int, int], width: int, heads: int, vocab: int, **more: Any) -> JSON:
    """The settings that BART and its kin share."""
    return {
        "vocab_size": vocab,
        "d_model": width,
        "encoder_layers": layers[0],
        "decoder_layers": layers[1],
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": 2 * width,
        "decoder_ffn_dim": 2 * width,
        "max_position_embeddings": 64,
    } | more


def pair(encoder: PretrainedConfig, decoder: PretrainedConfig, **ids: int) -> PretrainedConfig:
    """The configuration of a vision encoder-decoder."""
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    for name, value in ids.items():
        setattr(config, name, value)
    return config


T5_IDS = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
BART_IDS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
MARIAN_IDS = {
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 127,
    "decoder_start_token_id": 127,
}
PEGASUS_IDS = {"bos_token_id": 0, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
BLENDERBOT_IDS = {
    "pad_token_id": 0,
    "bos_token_id": 1,
    "decoder_start_token_id": 1,
    "eos_token_id": 2,
}
GPT2_IDS = dict.fromkeys(
    ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"), 127
)
#: ids in the tokenizers: first languages of mBART-50 and NLLB, Donut's first prompt
MBART_ENGLISH, MBART_FRENCH = 107, 111
NLLB_FRENCH, NLLB_GERMAN = 125, 126
DONUT_CAPTION, DONUT_ANSWER = 125, 126
DONUT_IDS = BART_IDS | {"decoder_start_token_id": DONUT_CAPTION}


def prompted(*prompts: tuple[int, ...]) -> dict[str, Case]:
    """Greedy and beam search behind the decoder's own prompts."""
    return {
        "prompt": Case({"max_new_tokens": 16}, prompts=prompts),
        "prompt_beam": Case({"num_beams": 3, "max_new_tokens": 12}, prompts=prompts),
    }


FAMILIES: dict[str, Family] = {
    "t5": Family(
        T5ForConditionalGeneration,
        T5Config(
            vocab_size=128, d_model=24, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
            relative_attention_num_buckets=8, relative_attention_max_distance=20, **T5_IDS,
        ),
        by_class(tokens.t5, 120),
        T5_IDS,
        frozenset({0, 1, 2, *range(123, 128)}),
        seed=2,
        cases=prompted((0, 40, 51), (0, 60), (0, 33, 34, 90, 35)),
        embedding_std=2.0,
        sharpness=2.0,
    ),
    "t5-gated": Family(
        T5ForConditionalGeneration,
        T5Config(
            vocab_size=128, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_decoder_layers=1,
            num_heads=3, relative_attention_num_buckets=8, relative_attention_max_distance=20,
            feed_forward_proj="gated-gelu", tie_word_embeddings=False, **T5_IDS,
        ),
        by_class(tokens.t5, 120),
        T5_IDS,
        frozenset({0, 1, 2, *range(123, 128)}),
        cases=prompted((0, 40, 51), (0, 60)) | {
            "penalties": Case(
                {"repetition_penalty": 1.3, "min_new_tokens": 6, "max_new_tokens": 12}
            ),
        },
    ),
    "bart": Family(
        BartForConditionalGeneration,
        BartConfig(**bart_like((2, 2), 24, 4, 128, forced_eos_token_id=2, **BART_IDS)),
        by_class(tokens.bart, 128),
        BART_IDS,
        frozenset(range(5)),
        branch=0.1,
        eos=2.2,
        settings={
            "early_stopping": True, "forced_bos_token_id": 0, "forced_eos_token_id": 2,
            "length_penalty": 2.0, "max_length": 24, "min_length": 8,
            "no_repeat_ngram_size": 3, "num_beams": 3,
        },
        cases=prompted((2, 0, 40), (2, 0), (2, 0, 50, 60, 61)) | {
            "penalties": Case({
                "encoder_repetition_penalty": 1.5, "repetition_penalty": 1.2,
                "no_repeat_ngram_size": 2, "max_new_tokens": 20,
            }),
            "encoder_ngrams": Case(
                {"encoder_no_repeat_ngram_size": 1, "num_beams": 2, "max_new_tokens": 12}
            ),
        },
    ),
    "marian": Family(
        MarianMTModel,
        MarianConfig(**bart_like(
            (2, 2), 16, 2, 128, forced_eos_token_id=0, scale_embedding=True,
            activation_function="swish", **MARIAN_IDS,
        )),
        save_marian,
        MARIAN_IDS,
        frozenset({0, 1, 127}),
        seed=1,
        embedding_std=0.4,
        sharpness=4.0,
        branch=0.1,
        eos=1.8,
        settings={
            "bad_words_ids": [[127]], "forced_eos_token_id": 0, "max_length": 24, "num_beams": 3,
            "renormalize_logits": True,
        },
        cases=prompted((127, 40, 51), (127, 60)),
    ),
    "m2m_100": Family(
        M2M100ForConditionalGeneration,
        M2M100Config(**bart_like((1, 1), 16, 2, 128, scale_embedding=True, **BART_IDS)),
        by_class(tokens.nllb, 120),
        BART_IDS,
        frozenset({0, 1, 2, 3, 124, 125, 126, 127}),
        seed=2,
        settings={"max_length": 24, "num_beams": 2, "early_stopping": True},
        cases=prompted((2, NLLB_FRENCH, 40), (NLLB_GERMAN,), (NLLB_FRENCH, 50)) | {
            "language": Case({"forced_bos_token_id": NLLB_FRENCH}, settings=True),
            "language_greedy": Case({"forced_bos_token_id": NLLB_GERMAN, "max_new_tokens": 16}),
        },
    ),
    "mbart": Family(
        MBartForConditionalGeneration,
        MBartConfig(**bart_like((1, 1), 16, 2, 160, scale_embedding=True, **BART_IDS)),
        by_class(tokens.mbart50, 103),
        BART_IDS,
        frozenset({0, 1, 2, 3, *range(107, 160)}),
        seed=2,
        settings={
            "early_stopping": True, "forced_bos_token_id": MBART_ENGLISH, "forced_eos_token_id": 2,
            "max_length": 20, "num_beams": 3,
        },
        cases=prompted((2, MBART_FRENCH, 40), (2, MBART_FRENCH)) | {
            "start": Case({"decoder_start_token_id": MBART_FRENCH, "max_new_tokens": 16}),
        },
    ),
    "pegasus": Family(
        PegasusForConditionalGeneration,
        PegasusConfig(**bart_like((2, 1), 16, 2, 128, scale_embedding=True, **PEGASUS_IDS)),
        by_class(tokens.pegasus, 119),
        PEGASUS_IDS,
        frozenset(range(9)),
        seed=1,
        settings={
            "forced_eos_token_id": 1, "length_penalty": 0.6, "max_length": 24, "num_beams": 4,
        },
        cases=prompted((0, 40, 51), (0, 60)),
    ),
    "blenderbot": Family(
        BlenderbotForConditionalGeneration,
        BlenderbotConfig(**bart_like((1, 2), 16, 2, 128, scale_embedding=True, **BLENDERBOT_IDS)),
        by_class(tokens.blenderbot, 128),
        BLENDERBOT_IDS,
        frozenset(range(5)),
        settings={
            "encoder_no_repeat_ngram_size": 3, "forced_eos_token_id": 2, "length_penalty": 0.65,
            "max_length": 24, "min_length": 8, "no_repeat_ngram_size": 3, "num_beams": 3,
        },
        cases=prompted((1, 40, 51), (1, 60)),
    ),
    "vit-gpt2": Family(
        VisionEncoderDecoderModel,
        pair(
            ViTConfig(
                hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
                image_size=32, patch_size=8,
            ),
            GPT2Config(vocab_size=128, n_embd=16, n_layer=2, n_head=2, n_positions=64, **GPT2_IDS),
            **GPT2_IDS,
        ),
        by_class(tokens.gpt2, 128),
        GPT2_IDS,
        frozenset({127}),
        settings={"max_length": 16, "num_beams": 2},
        cases=prompted((127, 40, 51), (127, 60)),
        processor=ViTImageProcessor(size={"height": 32, "width": 32}),
    ),
    "trocr": Family(
        VisionEncoderDecoderModel,
        pair(
            DeiTConfig(
                hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
                image_size=32, patch_size=8,
            ),
            TrOCRConfig(
                vocab_size=128, d_model=24, cross_attention_hidden_size=16, decoder_layers=1,
                decoder_attention_heads=4, decoder_ffn_dim=48, max_position_embeddings=64,
                **BART_IDS,
            ),
            **BART_IDS,
        ),
        by_class(tokens.roberta, 128),
        BART_IDS,
        frozenset(range(5)),
        settings={"max_length": 20, "use_cache": False},
        eos=1.7,
        cases=prompted((2, 0, 40), (2, 60)),
        processor=ViTImageProcessor(size={"height": 32, "width": 32}),
    ),
    "donut": Family(
        VisionEncoderDecoderModel,
        pair(
            DonutSwinConfig(
                image_size=[48, 32], patch_size=4, embed_dim=8, depths=[2, 1], num_heads=[2, 2],
                window_size=4,
            ),
            MBartConfig(**bart_like(
                (1, 1), 16, 2, 128, scale_embedding=True, add_final_layer_norm=True,
                is_encoder_decoder=False, is_decoder=True, add_cross_attention=True, **BART_IDS,
            )),
            **DONUT_IDS,
        ),
        by_class(tokens.xlm_roberta, 120),
        DONUT_IDS,
        frozenset({0, 1, 2, 3, 124, 125, 126, 127}),
        settings={"forced_eos_token_id": 2, "max_length": 24, "bad_words_ids": [[3]]},
        cases=prompted((DONUT_ANSWER, 40, 51), (DONUT_CAPTION, 60), (DONUT_ANSWER,)),
        processor=DonutImageProcessor(
            size={"height": 48, "width": 32}, do_align_long_axis=False,
            image_mean=[0.5] * 3, image_std=[0.5] * 3,
        ),
    ),
}  # fmt: skip
