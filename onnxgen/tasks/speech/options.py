"""What may be asked of a transcription beside the options of generation.

Names and meanings are those of ``WhisperForConditionalGeneration.generate`` and of the pipeline for
speech recognition in transformers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import isfinite
from numbers import Integral
from typing import Any

from onnxgen.audio.quality import Thresholds
from onnxgen.errors import OptionError

CONDITIONS = ("first-segment", "all-segments")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechOptions:
    """Options of a transcription; None is unset, and left to the model's generation_config.json.

    - ``language``: a code or an English name, or one for each recording; None detects it.
    - ``task``: ``transcribe`` or ``translate`` (to English).
    - ``return_timestamps``: True for the times of segments, ``"word"`` for those of words too.
      Recordings beyond a window always have those of segments.
    - ``initial_prompt`` or ``prompt_ids``: what was said before, names to spell, a style.
    - ``condition_on_prev_tokens``: each window gets what was heard before as its prompt;
      ``prompt_condition_type`` says whether the prompt given stays in front of it.
    - ``temperature``: one, or several to try in turn while an answer fails a threshold.
    - ``compression_ratio_threshold``, ``logprob_threshold``: an answer beyond the one or below the
      other is tried again; ``no_speech_threshold`` drops an unlikely one where there is silence.
    - ``chunk_length_s``, ``stride_length_s``: chunks that overlap and know nothing of each other,
      many at a time, instead of one window after the other.
    - ``batch_size``: how many recordings, or chunks, run at once.
    """

    language: str | Sequence[str] | None = None
    task: str | None = None
    return_timestamps: bool | str | None = None
    initial_prompt: str | None = None
    prompt_ids: Sequence[int] | None = None
    prompt_condition_type: str | None = None
    condition_on_prev_tokens: bool | None = None
    temperature: float | Sequence[float] | None = None
    compression_ratio_threshold: float | None = None
    logprob_threshold: float | None = None
    no_speech_threshold: float | None = None
    chunk_length_s: float | None = None
    stride_length_s: float | tuple[float, float] | None = None
    batch_size: int | None = None

    @classmethod
    def of(cls, keywords: Mapping[str, Any], file: Mapping[str, Any]) -> "SpeechOptions":
        """Those of a call, with what generation_config.json sets in the place of None.

        ``temperature`` is not taken from the file, as transformers does not. OptionError for
        values of a wrong type or range.
        """
        values = {name: keywords.get(name) for name in NAMES}
        for name in NAMES & file.keys() - {"temperature"}:
            # The official files say return_timestamps: false, which would refuse long recordings.
            if values[name] is None and not (name == "return_timestamps" and not file[name]):
                values[name] = file[name]
        if isinstance(values["stride_length_s"], list):
            values["stride_length_s"] = tuple(values["stride_length_s"])
        options = cls(**values)
        options._check()
        return options

    def given(self) -> list[str]:
        """The names of those that are set, but for how many run at once."""
        return sorted(n for n in NAMES if getattr(self, n) is not None and n != "batch_size")

    @property
    def words(self) -> bool:
        """Whether words get times."""
        return self.return_timestamps == "word"

    @property
    def temperatures(self) -> tuple[float, ...]:
        """Those to try, in turn."""
        value = self.temperature
        if value is None:
            return (0.0,)
        return tuple(value) if isinstance(value, Sequence) else (value,)

    @property
    def thresholds(self) -> Thresholds:
        """When an answer is not good enough."""
        return Thresholds(
            self.compression_ratio_threshold, self.logprob_threshold, self.no_speech_threshold
        )

    def _check(self) -> None:
        if self.return_timestamps not in (None, True, False, "word"):
            raise OptionError(
                f"return_timestamps is {self.return_timestamps!r}", wanted="True, False or 'word'"
            )
        if self.task not in (None, "transcribe", "translate"):
            raise OptionError(f"task is {self.task!r}", wanted="'transcribe' or 'translate'")
        temperatures = self.temperatures
        if not temperatures or not all(_number(t) and t >= 0 for t in temperatures):
            raise OptionError(
                f"temperature is {self.temperature!r}", wanted="a number from 0 on, or several"
            )
        for name in ("compression_ratio_threshold", "logprob_threshold", "no_speech_threshold"):
            value = getattr(self, name)
            if value is not None and not _number(value):
                raise OptionError(f"{name} is {value!r}", wanted="a finite number")
        self._check_chunks()
        if self.batch_size is not None and not _whole(self.batch_size):
            raise OptionError(f"batch_size is {self.batch_size!r}", wanted="1 or more")
        if not isinstance(self.condition_on_prev_tokens, bool | None):
            raise OptionError(
                f"condition_on_prev_tokens is {self.condition_on_prev_tokens!r}",
                wanted="True or False",
            )
        self._check_prompt()
        _ = self.thresholds  # checks those that belong together

    def _check_chunks(self) -> None:
        length, stride = self.chunk_length_s, self.stride_length_s
        if length is not None and not (_number(length) and length > 0):
            raise OptionError(f"chunk_length_s is {length!r}", wanted="a number above 0")
        if stride is None:
            return
        both = stride if isinstance(stride, tuple) else (stride, stride)
        if len(both) != 2 or not all(_number(one) and one >= 0 for one in both):
            raise OptionError(
                f"stride_length_s is {stride!r}", wanted="a number from 0 on, or one for each side"
            )
        if length is None:
            raise OptionError("stride_length_s without chunk_length_s", do="give both")

    def _check_prompt(self) -> None:
        if not isinstance(self.initial_prompt, str | None):
            raise OptionError(f"initial_prompt is {self.initial_prompt!r}", wanted="a text")
        if self.prompt_ids is not None:
            ids: Any = self.prompt_ids
            ids = ids.tolist() if hasattr(ids, "tolist") else ids
            if not isinstance(ids, list | tuple) or not all(isinstance(i, Integral) for i in ids):
                raise OptionError(f"prompt_ids is {self.prompt_ids!r}", wanted="a list of ids")
        if self.initial_prompt is not None and self.prompt_ids is not None:
            raise OptionError("initial_prompt and prompt_ids are given", wanted="one of them")
        if self.prompt_condition_type not in (None, *CONDITIONS):
            raise OptionError(
                f"prompt_condition_type is {self.prompt_condition_type!r}",
                wanted=" or ".join(map(repr, CONDITIONS)),
            )
        if self.prompt_condition_type == "all-segments" and not self.condition_on_prev_tokens:
            raise OptionError(
                "prompt_condition_type is 'all-segments' without condition_on_prev_tokens",
                do="set condition_on_prev_tokens=True",
            )


NAMES = frozenset(field.name for field in fields(SpeechOptions))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _whole(value: Any) -> bool:
    return type(value) is int and value >= 1
