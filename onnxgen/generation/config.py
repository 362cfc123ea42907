"""``GenerationConfig``: what may be asked of a generation, and how three places to ask merge.

Names and meanings are those of transformers' class of the same name. A keyword of the call beats
a ``GenerationConfig`` of the caller, that the model's generation_config.json, that the default.
None means unset, except as a keyword, where it switches the option off.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from onnxgen.errors import OptionError

DEFAULTS: Mapping[str, Any] = {
    "do_sample": False,
    "num_beams": 1,
    "num_return_sequences": 1,
    "min_length": 0,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "length_penalty": 1.0,
    "early_stopping": False,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "renormalize_logits": False,
    "remove_invalid_values": False,
    "use_cache": True,
}

# Options that only act when sampling, and are void without it.
SAMPLING = frozenset({
    "temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff",
})  # fmt: skip

# What this version carries out.
SUPPORTED = frozenset({
    "max_new_tokens", "max_length", "eos_token_id", "bos_token_id", "pad_token_id",
    "decoder_start_token_id", "use_cache",
})  # fmt: skip

# Methods that transformers itself has moved out of its package.
REFUSED = frozenset({
    "diversity_penalty", "num_beam_groups", "constraints", "force_words_ids", "penalty_alpha",
    "dola_layers", "low_memory",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationConfig:
    """Options of a generation; None is unset. See transformers for each one's meaning."""

    max_new_tokens: int | None = None
    max_length: int | None = None
    min_length: int | None = None
    min_new_tokens: int | None = None
    max_time: float | None = None
    stop_strings: str | list[str] | None = None
    eos_token_id: int | list[int] | None = None
    bos_token_id: int | None = None
    pad_token_id: int | list[int] | None = None
    decoder_start_token_id: int | list[int] | None = None
    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    epsilon_cutoff: float | None = None
    eta_cutoff: float | None = None
    num_beams: int | None = None
    num_return_sequences: int | None = None
    length_penalty: float | None = None
    early_stopping: bool | str | None = None
    repetition_penalty: float | None = None
    encoder_repetition_penalty: float | None = None
    no_repeat_ngram_size: int | None = None
    encoder_no_repeat_ngram_size: int | None = None
    bad_words_ids: list[list[int]] | None = None
    sequence_bias: Any = None
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | list[int] | None = None
    suppress_tokens: list[int] | None = None
    begin_suppress_tokens: list[int] | None = None
    exponential_decay_length_penalty: list[float] | None = None
    renormalize_logits: bool | None = None
    remove_invalid_values: bool | None = None
    guidance_scale: float | None = None
    watermarking_config: Any = None
    prompt_lookup_num_tokens: int | None = None
    prefill_chunk_size: int | None = None
    token_healing: bool | None = None
    use_cache: bool | None = None

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "GenerationConfig":
        """From a generation_config.json; keys of other purposes are left to who needs them."""
        known = {f.name for f in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})

    def set_options(self) -> dict[str, Any]:
        """The options that are set."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


OPTIONS = frozenset(f.name for f in fields(GenerationConfig))


def merge(
    file: Mapping[str, Any], config: GenerationConfig | None, keywords: Mapping[str, Any]
) -> GenerationConfig:
    """One configuration from the model's file, the caller's object and the call's keywords.

    OptionError for an unknown keyword, a wrong value, or an option that is not carried out; an
    option of the file that is not carried out is warned of.
    """
    for name in keywords:
        if name in REFUSED:
            raise OptionError(
                f"{name} is not offered", do="use greedy decoding, sampling or beam search"
            )
        if name not in OPTIONS:
            raise OptionError.unknown(name, OPTIONS, "generate")
    asked = {**(config.set_options() if config else {}), **keywords}
    from_file = GenerationConfig.from_json(file).set_options()
    sampling = asked.get("do_sample", from_file.get("do_sample", False))
    for name, value in asked.items():
        if name not in SUPPORTED and _acts(name, value, sampling):
            raise OptionError(
                f"{name}={value!r} is not supported by this version", do="leave it out"
            )
    unused = [n for n, v in from_file.items() if n not in SUPPORTED | set(asked)]
    acting = [n for n in unused if _acts(n, from_file[n], sampling)]
    if acting:
        warnings.warn(
            f"the model's generation_config.json asks for {', '.join(sorted(acting))}, which this "
            "version does not carry out: decoding is greedy",
            stacklevel=2,
        )
    kept = {name: value for name, value in from_file.items() if name in SUPPORTED}
    merged = {**kept, **asked}
    if keywords.get("max_new_tokens") is not None and "max_length" not in keywords:
        merged.pop("max_length", None)
    _check(merged)
    return GenerationConfig(**merged)


def _acts(name: str, value: Any, sampling: Any) -> bool:
    """Whether the option changes anything at this value."""
    if value is None or value == DEFAULTS.get(name):
        return False
    return bool(sampling) or name not in SAMPLING


def _check(values: Mapping[str, Any]) -> None:
    """OptionError for values of a wrong type or range."""
    for name in ("max_new_tokens", "max_length"):
        value = values.get(name)
        if value is not None and (
            not isinstance(value, int) or isinstance(value, bool) or value < 1
        ):
            raise OptionError(f"{name} is {value!r}", wanted="a whole number of 1 or more")
    for name in ("eos_token_id", "pad_token_id", "bos_token_id", "decoder_start_token_id"):
        ids = values.get(name)
        for token in ids if isinstance(ids, list | tuple | set | frozenset) else [ids]:
            if token is None:
                continue
            if type(token) is not int or token < 0:
                raise OptionError(f"{name} is {ids!r}", wanted="a token id or a list of them")


def stop_ids(config: GenerationConfig) -> frozenset[int]:
    """The ids of which any ends a row."""
    ids = config.eos_token_id
    if ids is None:
        return frozenset()
    return frozenset([ids] if isinstance(ids, int) else ids)


# What a task gives when nothing says how long the answer may be; transformers' 20 counts as unset.
DEFAULT_NEW_TOKENS = 256


def new_tokens(config: GenerationConfig, prompt_length: int) -> int:
    """How many tokens a row with this prompt may get.

    OptionError if ``max_length`` leaves none.
    """
    if config.max_new_tokens is not None:
        return config.max_new_tokens
    if config.max_length is None or config.max_length == 20:
        return DEFAULT_NEW_TOKENS
    if config.max_length <= prompt_length:
        raise OptionError(
            f"max_length is {config.max_length}, and the prompt has {prompt_length} tokens",
            wanted="a max_length beyond the prompt",
            do="raise it, or give max_new_tokens instead",
        )
    return config.max_length - prompt_length
