"""Runs transformers' Whisper and writes down what it did, window by window."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from transformers import GenerationMixin, LogitsProcessor, WhisperFeatureExtractor
from transformers import WhisperForConditionalGeneration as Model
from transformers import WhisperTokenizerFast as Words

JSON = dict[str, Any]
NOISE = 3e-5  # what two computations of log-mel features differ by, and a little more
RATE = 16_000


class Margins(LogitsProcessor):
    """The last processor: keeps the gap of the two best scores, where there are two."""

    def __init__(self) -> None:
        self.least = float("inf")

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        best = scores.topk(2, dim=-1).values  # (B,2)
        self.least = min(self.least, float((best[:, 0] - best[:, 1]).min()))
        return scores


class Speaker:
    """A model with its tokenizer, and `sound`: the waveform (N,) of a clip at 16 kHz."""

    def __init__(self, model: Model, words: Words, sound: Callable[[str], np.ndarray]) -> None:
        self.model, self.words, self.sound = model, words, sound
        self.extract = WhisperFeatureExtractor()

    def features(self, clips: tuple[str, ...]) -> dict[str, torch.Tensor]:
        """Features (B,80,F) and the mask (B,F) of clips, all of 30 s or less, or all longer."""
        sounds = [self.sound(name) for name in clips]
        long = max(map(len, sounds)) > 30 * RATE
        return dict(
            self.extract(
                sounds, sampling_rate=RATE, return_tensors="pt", return_attention_mask=True,
                truncation=not long, padding="longest" if long else "max_length",
            )
        )  # fmt: skip

    def run(
        self, clips: tuple[str, ...], arguments: JSON, dtype: torch.dtype = torch.float32,
        noise: int = 0,
    ) -> list[JSON]:  # fmt: skip
        """What transformers says of each clip; with `noise` as a seed, of features near theirs."""
        heard = self.features(clips)
        features = heard["input_features"].to(dtype)
        if noise:
            generator = torch.Generator().manual_seed(noise)
            features = features + NOISE * torch.randn(features.shape, generator=generator)
        margins = Margins()
        greedy = arguments.get("num_beams", 1) == 1 and "seed" not in arguments
        model = self.model if dtype == torch.float32 else copy.deepcopy(self.model).to(dtype)
        if "seed" in arguments:
            torch.manual_seed(arguments["seed"])
        with torch.inference_mode(), watched(model) as calls:
            out = model.generate(
                features, attention_mask=heard["attention_mask"], return_segments=True,
                logits_processor=[margins], **self.keywords(arguments),
            )  # fmt: skip
        rows = [self.row(out, i) for i in range(len(clips))]
        if len(rows) == 1:
            rows[0]["calls"] = calls
            if greedy:
                rows[0]["margin"] = round(margins.least, 5)
        return rows

    def row(self, out: JSON, index: int) -> JSON:
        """Tokens, text and segments of one item; times in seconds."""
        segments = []
        for found in out["segments"][index]:
            said = found["tokens"].tolist()
            segments.append(
                {
                    "start": round(float(found["start"]), 4),
                    "end": round(float(found["end"]), 4),
                    "tokens": said,
                    "text": self.text(said),
                }
            )
            if "token_timestamps" in found:
                segments[-1]["token_timestamps"] = rounded(found["token_timestamps"])
        tokens = [token for segment in segments for token in segment["tokens"]]
        padded = [int(token) for token in out["sequences"][index].tolist()]
        assert padded[: len(tokens)] == tokens, (padded, tokens)
        row = {"tokens": tokens, "text": self.text(tokens), "segments": segments}
        if "token_timestamps" in out:
            times = [time for segment in segments for time in segment["token_timestamps"]]
            row["words"] = self.spoken(tokens, times)
        return row

    def spoken(self, tokens: list[int], times: list[float]) -> list[JSON]:
        """The words with the times that the pipeline gives them."""
        heard = {"tokens": np.array([tokens]), "token_timestamps": np.array([times])}
        _, more = self.words._decode_asr(
            [heard], return_timestamps="word", return_language=False, time_precision=0.02
        )
        return [
            {"text": word["text"], "start": word["timestamp"][0], "end": word["timestamp"][1]}
            for word in more["chunks"]
        ]

    def text(self, tokens: list[int]) -> str:
        """Without special tokens and timestamps, which not every tokenizer knows."""
        end = self.model.generation_config.eos_token_id
        spoken = [token for token in tokens if token < end]
        return self.words.decode(spoken, skip_special_tokens=True)

    def keywords(self, arguments: JSON) -> JSON:
        """The arguments for transformers: a prompt in ids, tuples where it wants some."""
        given = {key: value for key, value in arguments.items() if key not in {"prompt", "seed"}}
        if "prompt" in arguments:
            given["prompt_ids"] = torch.tensor(self.words.get_prompt_ids(arguments["prompt"]))
        if isinstance(given.get("temperature"), list):
            given["temperature"] = tuple(given["temperature"])
        return given

    def language(self, clip: str) -> JSON:
        """Which language the clip is taken for, and by how much."""
        config = self.model.generation_config
        heard = self.features((clip,))["input_features"][..., :3000]
        start = torch.tensor([[config.decoder_start_token_id]])
        with torch.inference_mode():
            found = self.model.detect_language(heard).item()
            logits = self.model(input_features=heard, decoder_input_ids=start).logits[0, -1]
        best = logits[list(config.lang_to_id.values())].topk(2).values
        (language,) = (token for token, number in config.lang_to_id.items() if number == found)
        return {"language": language, "margin": round(float(best[0] - best[1]), 5)}


def rounded(times: torch.Tensor) -> list[float]:
    return [round(float(time), 4) for time in times]


def like(row: JSON, other: JSON) -> bool:
    """Whether two results are the same, margins and measures apart."""
    if row["segments"] != other["segments"]:
        return False
    steps = [[{k: v for k, v in c.items() if k != "measured"} for c in r.get("calls", [])]
             for r in (row, other)]  # fmt: skip
    return steps[0] == steps[1]


@contextmanager
def watched(model: Model) -> Iterator[list[JSON]]:
    """Notes each inner call of `generate`: prompt, temperature, beams, and what became of it."""
    calls: list[JSON] = []
    inner, judge = GenerationMixin.generate, model._need_fallback

    def generate(self: Model, inputs: torch.Tensor, **given: Any) -> Any:
        config, beams = given["generation_config"], given.get("num_beams")
        call = {
            "prompt": given["decoder_input_ids"][0].tolist(),
            "temperature": config.temperature if config.do_sample else 0.0,
            "num_beams": beams or config.num_beams or 1,
            "skipped": False,
        }
        calls.append(call)
        return inner(self, inputs, **given)

    def need_fallback(
        sequence: torch.Tensor, outputs: list[JSON], index: int, processors: Any, config: Any,
        vocab_size: int, temperature: float | None,
    ) -> tuple[bool, bool]:  # fmt: skip
        verdict = judge(sequence, outputs, index, processors, config, vocab_size, temperature)
        measured = {}
        if config.compression_ratio_threshold is not None:
            ratio = model._retrieve_compression_ratio(sequence, vocab_size)
            measured["compression_ratio"] = round(ratio, 4)
        if config.logprob_threshold is not None:
            scores = outputs[index]["scores"]
            average = model._retrieve_avg_logprobs(scores, sequence, temperature)
            measured["avg_logprob"] = round(float(average), 4)
        if config.no_speech_threshold is not None:
            (heard,) = (p for p in processors if hasattr(p, "no_speech_prob"))
            measured["no_speech_prob"] = float(f"{float(heard.no_speech_prob[index]):.4g}")
        if measured and index == 0:
            calls[-1]["measured"] = measured
        calls[-1]["skipped"] = bool(verdict[1])
        return verdict

    GenerationMixin.generate, model._need_fallback = generate, need_fallback
    try:
        yield calls
    finally:
        GenerationMixin.generate = inner
        del model._need_fallback
