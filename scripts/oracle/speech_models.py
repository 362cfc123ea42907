"""The tiny speech models: configuration, random weights, generation_config.json, preprocessor."""

import json
from pathlib import Path

import torch
from transformers import (
    GenerationConfig,
    MoonshineConfig,
    MoonshineForConditionalGeneration,
    PreTrainedModel,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

from . import weights
from .speech_clips import samples
from .speech_tokens import END, LANGUAGES, START, Moonshine, Whisper

#: decoder positions; half of them less one is how much earlier text may precede a window
POSITIONS = 64
OFFICIAL = "4.31.0.dev0"  # the release that wrote the official generation_config.json
MULTILINGUAL = Whisper()
ENGLISH = Whisper(text=300, no_speech="nocaptions")
MOONSHINE = Moonshine()


def whisper(words: Whisper, seed: int) -> WhisperForConditionalGeneration:
    """Two layers a side, width 12; `words` says whether it knows languages."""
    end, start = words.id(END), words.id(START)
    config = WhisperConfig(
        vocab_size=words.size, d_model=12, num_mel_bins=80,
        encoder_layers=2, encoder_attention_heads=3, encoder_ffn_dim=24,
        decoder_layers=2, decoder_attention_heads=3, decoder_ffn_dim=24,
        max_source_positions=1500, max_target_positions=POSITIONS,
        bos_token_id=end, eos_token_id=end, pad_token_id=end, decoder_start_token_id=start,
        suppress_tokens=None, begin_suppress_tokens=None, attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(seed)
    model = WhisperForConditionalGeneration(config)
    weights.fill(model, seed, gain=2.4, embedding_std=1.0)
    balance(model, words)
    model.generation_config = whisper_generation(words)
    doubt(model.eval(), words)
    return model


def balance(model: WhisperForConditionalGeneration, words: Whisper) -> None:
    """Makes timestamps win about as often as text does, and no token follow from itself.

    Embeddings are tied to the output: small ones keep a token from asking for itself again, and
    the last norm makes the logits large all the same. The 1501 timestamps win by their sum.
    """
    decoder = model.model.decoder
    with torch.no_grad():
        table = decoder.embed_tokens.weight  # (V,12)
        table *= 0.6
        table[words.id("<|0.00|>") :] *= 0.5 if words is MULTILINGUAL else 0.6
        table[words.id(END)] *= 1.3
        decoder.layer_norm.weight *= 2.0
        for layer in decoder.layers:  # what is heard counts for more than what was said
            layer.encoder_attn.q_proj.weight *= 1.5
            layer.encoder_attn.out_proj.weight *= 2.0


@torch.inference_mode()
def doubt(model: WhisperForConditionalGeneration, words: Whisper) -> None:
    """Makes silence about as likely as all the rest together, so that it depends on the clip."""
    sounds = [samples(name)[: 30 * 16_000] for name in ("silence", "short-0", "long-0", "long-2")]
    heard = WhisperFeatureExtractor()(sounds, sampling_rate=16_000, return_tensors="pt")
    start = torch.full((len(sounds), 1), words.id(START))
    out = model(**heard, decoder_input_ids=start, output_hidden_states=True)
    rest = out.logits[:, 0].logsumexp(-1).mean()
    state = out.decoder_hidden_states[-1][:, 0].mean(0)  # (12,), what the output layer takes
    table = model.model.decoder.embed_tokens.weight  # (V,12)
    table[words.id(f"<|{words.no_speech}|>")] = state * rest / state.dot(state)


def whisper_generation(words: Whisper) -> GenerationConfig:
    """What the files of real repositories hold; text that one cannot see is suppressed.

    Their `transformers_version` matters: for files since 4.50, transformers applies
    `suppress_tokens` before it looks at the probability of silence, which without languages is
    then zero.
    """
    multilingual = words is MULTILINGUAL
    end = words.id(END)
    content = {
        "bos_token_id": end, "eos_token_id": end, "pad_token_id": end,
        "decoder_start_token_id": words.id(START), "max_length": POSITIONS,
        "no_timestamps_token_id": words.id("<|notimestamps|>"),
        "prev_sot_token_id": words.id("<|startofprev|>"),
        "max_initial_timestamp_index": 50, "return_timestamps": False,
        "is_multilingual": multilingual, "alignment_heads": [[0, 1], [1, 0], [1, 2]],
        "begin_suppress_tokens": [220, end], "transformers_version": OFFICIAL,
        "forced_decoder_ids": [[1, words.id("<|notimestamps|>")]],
    }  # fmt: skip
    control = [words.id(token) for token in words.specials[1:-1]]
    content["suppress_tokens"] = control
    if multilingual:
        content["suppress_tokens"] = words.unprintable + control
        content["lang_to_id"] = {f"<|{name}|>": words.id(f"<|{name}|>") for name in LANGUAGES}
        content["task_to_id"] = {t: words.id(f"<|{t}|>") for t in ("transcribe", "translate")}
        content["forced_decoder_ids"] = [[1, None], [2, words.id("<|transcribe|>")]]
    return GenerationConfig.from_dict(content)


def moonshine(seed: int) -> MoonshineForConditionalGeneration:
    """Two layers a side, width 16, as many key-value heads as heads: 4.57.6 mixes up others."""
    config = MoonshineConfig(
        vocab_size=MOONSHINE.size, hidden_size=16, intermediate_size=32,
        encoder_num_hidden_layers=2, encoder_num_attention_heads=2,
        decoder_num_hidden_layers=2, decoder_num_attention_heads=2,
        max_position_embeddings=194, bos_token_id=1, eos_token_id=2, pad_token_id=2,
        decoder_start_token_id=1, tie_word_embeddings=True, attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(seed)
    model = MoonshineForConditionalGeneration(config)
    weights.fill(model, seed, gain=2.4, embedding_std=1.0)
    with torch.no_grad():  # as in `balance`; bytes come less often than pieces do
        table = model.model.decoder.embed_tokens.weight  # (V,16)
        table *= 0.6
        table[3:259] *= 0.6
        table[2] *= 1.2
        model.model.decoder.norm.weight *= 2.0
    model.generation_config = GenerationConfig(
        bos_token_id=1, eos_token_id=2, pad_token_id=2, decoder_start_token_id=1
    )
    return model.eval()


def save(model: PreTrainedModel, folder: Path) -> None:
    """A checkpoint as the exporters take it: weights, configs, tokenizer, preprocessor."""
    model.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    if isinstance(model, MoonshineForConditionalGeneration):
        MOONSHINE.save(folder)
        preprocessor = {
            "do_normalize": False, "feature_extractor_type": "Wav2Vec2FeatureExtractor",
            "feature_size": 1, "padding_side": "right", "padding_value": 0.0,
            "processor_class": "Wav2Vec2Processor", "return_attention_mask": True,
            "sampling_rate": 16000,
        }  # fmt: skip
        text = json.dumps(preprocessor, indent=2)
        (folder / "preprocessor_config.json").write_text(text + "\n")
    else:
        words = MULTILINGUAL if model.generation_config.is_multilingual else ENGLISH
        words.save(folder)
        WhisperFeatureExtractor().save_pretrained(folder)
        date_back(folder)


def date_back(folder: Path) -> None:
    """Lets generation_config.json be as old as the official ones are."""
    path = folder / "generation_config.json"
    content = json.loads(path.read_text()) | {"transformers_version": OFFICIAL}
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
