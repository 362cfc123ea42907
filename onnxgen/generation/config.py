"""``GenerationConfig``: what may be asked of a generation, and how three places to ask merge.

Names and meanings are those of transformers' class of the same name; those that are onnxgen's own
say so. A keyword of the call beats a ``GenerationConfig`` of the caller, that the model's
generation_config.json, that the default. None means unset, except as a keyword, where it switches
the option off.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from onnxgen.errors import OptionError
from onnxgen.generation.checks import number, whole

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
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "length_penalty": 1.0,
    "early_stopping": False,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "renormalize_logits": False,
    "remove_invalid_values": False,
    "output_scores": False,
    "logprobs": False,
    "top_logprobs": 0,
    "rng": "philox",
}

# Methods that transformers itself has moved out of its package.
REFUSED = frozenset({
    "diversity_penalty", "num_beam_groups", "constraints", "force_words_ids", "penalty_alpha",
    "dola_layers", "low_memory",
})  # fmt: skip


# Options of transformers that this package will not, or cannot yet, carry out.
LATER = frozenset({"token_healing", "assistant_early_exit"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationConfig:
    """Options of a generation; None is unset. See transformers for each one's meaning.

    onnxgen's own are ``seed`` (an int, the same for each prompt) or ``seeds`` (one a prompt),
    ``rng`` ("philox", or "torch" for the draws of torch's CPU generator), ``logit_bias`` (id to
    bias), ``presence_penalty``, ``frequency_penalty``, ``logprobs`` and ``top_logprobs`` (how many
    of the best log-probabilities of each step to keep) as in OpenAI's API. ``use_cache`` is
    accepted, and changes nothing: tokens are the same either way.
    """

    # length and end
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
    # choice
    do_sample: bool | None = None
    seed: int | None = None
    seeds: list[int] | None = None
    rng: str | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    epsilon_cutoff: float | None = None
    eta_cutoff: float | None = None
    num_return_sequences: int | None = None
    # beams
    num_beams: int | None = None
    length_penalty: float | None = None
    early_stopping: bool | str | None = None
    # scores
    guidance_scale: float | None = None
    sequence_bias: Any = None
    logit_bias: Mapping[int, float] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    encoder_repetition_penalty: float | None = None
    no_repeat_ngram_size: int | None = None
    encoder_no_repeat_ngram_size: int | None = None
    bad_words_ids: list[list[int]] | None = None
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | list[int] | None = None
    suppress_tokens: list[int] | None = None
    begin_suppress_tokens: list[int] | None = None
    exponential_decay_length_penalty: list[float] | None = None
    renormalize_logits: bool | None = None
    remove_invalid_values: bool | None = None
    watermarking_config: Any = None
    # guesses that are tried
    prompt_lookup_num_tokens: int | None = None
    max_matching_ngram_size: int | None = None
    # what is done and told
    output_scores: bool | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    prefill_chunk_size: int | None = None
    use_cache: bool | None = None

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "GenerationConfig":
        """From a generation_config.json; keys of other purposes are left to who needs them."""
        return cls(**{name: value for name, value in values.items() if name in OPTIONS})

    def set_options(self) -> dict[str, Any]:
        """The options that are set."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


OPTIONS = frozenset(f.name for f in fields(GenerationConfig))
FLAGS = frozenset({
    "do_sample", "renormalize_logits", "remove_invalid_values", "output_scores", "logprobs",
    "use_cache",
})  # fmt: skip
MOST_ROWS = 16_384
MOST_ID = 1 << 31  # no tokenizer has as many
_AN_ID = f"a token id from 0 to {MOST_ID - 1}"
IDS = ("eos_token_id", "pad_token_id", "bos_token_id", "decoder_start_token_id")


def merge(
    file: Mapping[str, Any],
    config: GenerationConfig | None,
    keywords: Mapping[str, Any],
    others: Collection[str] = (),
) -> GenerationConfig:
    """One configuration from the model's file, the caller's object and the call's keywords.

    Defaults fill what none of them sets. OptionError for an unknown keyword (``others`` are names
    that the caller would have known) or a wrong value; values that only a processor knows to judge
    are judged when it is built.
    """
    for name in keywords:
        if name in REFUSED | LATER:
            raise OptionError(
                f"{name} is not offered", do="use greedy decoding, sampling or beam search"
            )
        if name not in OPTIONS:
            raise OptionError.unknown(name, {*OPTIONS, *others}, "generate")
    if not isinstance(config, GenerationConfig | None):
        raise OptionError(f"config is a {type(config).__name__}", wanted="a GenerationConfig")
    _refuse_methods(file)
    asked = {**(config.set_options() if config else {}), **keywords}
    # As lists, since an array can't be compared with one value.
    asked = {n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in asked.items()}
    stated = {n: v for n, v in _of_file(file).items() if n not in asked}
    if asked.get("max_new_tokens") is not None:
        stated.pop("max_length", None)
    try:
        _check({**DEFAULTS, **stated})
    except OptionError as error:
        # Which of the two is not known here: the second counts where the first is missing.
        raise OptionError(
            f"the model's generation_config.json (or config.json): {error.found}",
            error.wanted,
            error.do or "correct the file, or give the option yourself",
        ) from error
    merged = {**DEFAULTS, **stated, **asked}
    _check(merged)
    _check_together(merged)
    return GenerationConfig(**merged)


def _of_file(file: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the model's file sets; an id of -1 there means that there is none."""
    values = GenerationConfig.from_json(file).set_options()
    for name in IDS:
        ids = values.get(name)
        if isinstance(ids, list):
            ids = values[name] = [i for i in ids if not (type(i) is int and i == -1)]
        if ids == [] or (type(ids) is int and ids == -1):
            del values[name]
    return values


def _refuse_methods(file: Mapping[str, Any]) -> None:
    """OptionError where the model's file asks for a method that is not offered."""
    neutral = {"num_beam_groups": 1, "diversity_penalty": 0.0}
    for name in sorted(REFUSED):
        if file.get(name) not in (None, False, neutral.get(name)):
            raise OptionError(
                f"the model's generation_config.json asks for {name}",
                do="remove it there, or write a generation_config.json of your own",
            )


def _check(values: Mapping[str, Any]) -> None:
    """OptionError for values of a wrong type or range."""
    for name in ("max_new_tokens", "max_length", "num_beams", "num_return_sequences"):
        if values.get(name) is not None:
            whole(name, values[name], 1)
    # Each is a row with a generator of its own, made before a step is run.
    for name in ("num_beams", "num_return_sequences"):
        if (values.get(name) or 0) > MOST_ROWS:
            raise OptionError(f"{name} is {values[name]}", wanted=f"at most {MOST_ROWS}")
    stops = values.get("stop_strings")
    if not isinstance(stops, str | list | tuple | set | frozenset | None):
        raise OptionError(f"stop_strings is {stops!r}"[:200], wanted="a text or a list of texts")
    for name in ("min_length", "min_new_tokens", "top_logprobs"):
        if values.get(name) is not None:
            whole(name, values[name], 0)
    least_one = ("prefill_chunk_size", "prompt_lookup_num_tokens", "max_matching_ngram_size")
    for name in least_one:
        if values.get(name) is not None:
            whole(name, values[name], 1)
    if values.get("max_time") is not None:
        number("max_time", values["max_time"], 0, 1e9)
    for name in FLAGS:
        if not isinstance(values.get(name), bool | None):
            raise OptionError(f"{name} is {values[name]!r}", wanted="True or False")
    for name in IDS:
        ids = values.get(name)
        for token in ids if isinstance(ids, list | tuple | set | frozenset) else [ids]:
            if token is not None and (type(token) is not int or not 0 <= token < MOST_ID):
                raise OptionError(f"{name} is {ids!r}"[:200], wanted=f"{_AN_ID} or a list of them")


def _check_together(values: Mapping[str, Any]) -> None:
    """OptionError for values that contradict each other."""
    beams, returned = values["num_beams"] or 1, values["num_return_sequences"] or 1
    if returned > beams > 1:
        raise OptionError(
            f"num_return_sequences is {returned}, num_beams {beams}",
            wanted="no more returned sequences than beams",
            do="raise num_beams",
        )
    if returned > 1 and beams == 1 and not values["do_sample"]:
        raise OptionError(
            f"num_return_sequences is {returned} with greedy decoding, which has one answer",
            do="set do_sample=True or num_beams",
        )
    early = values["early_stopping"]
    if not (
        early is None or isinstance(early, bool) or (isinstance(early, str) and early == "never")
    ):
        raise OptionError(f"early_stopping is {early!r}", wanted="True, False or 'never'")
    if values["length_penalty"] is not None:
        number("length_penalty", values["length_penalty"], -100, 100)


def stop_ids(config: GenerationConfig) -> frozenset[int]:
    """The ids of which any ends a row."""
    ids = config.eos_token_id
    if ids is None:
        return frozenset()
    return frozenset([ids] if isinstance(ids, int) else [i for i in ids if i is not None])


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
