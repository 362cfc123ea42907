"""What Whisper's decoder begins with: language, task, whether it tells times.

The rules are those of ``WhisperGenerationMixin._retrieve_init_tokens`` in transformers 4.57.6.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from onnxgen.audio.languages import LANGUAGES, code_of
from onnxgen.errors import ModelFileError, OptionError


class Whisper:
    """The ids that generation_config.json (``file``) and config.json name."""

    def __init__(self, file: Mapping[str, Any], config: Mapping[str, Any], start: int) -> None:
        self.start = start  # <|startoftranscript|>
        self.languages: Mapping[str, int] = file.get("lang_to_id") or {}
        self.tasks: Mapping[str, int] = file.get("task_to_id") or {}
        self.multilingual = file.get("is_multilingual", True) is not False
        no_times = file.get("no_timestamps_token_id")
        self.no_times: int | None = no_times if isinstance(no_times, int) else None
        self.max_initial = file.get("max_initial_timestamp_index")
        self.heads: Sequence[Sequence[int]] = file.get("alignment_heads") or ()
        self.suppressed: Any = file.get("suppress_tokens")
        self._previous = file.get("prev_sot_token_id")
        self._forced = file.get("forced_decoder_ids")
        if self._forced is None:
            self._forced = config.get("forced_decoder_ids")

    @property
    def previous(self) -> int | None:
        """<|startofprev|>, which opens what was said before."""
        if self._previous is not None:
            return int(self._previous)
        listed = self.suppressed
        return int(listed[-2]) if isinstance(listed, list) and len(listed) > 1 else None

    def language_id(self, language: Any) -> int:
        """The id of a language's token; OptionError for one that the model lacks."""
        if not isinstance(language, str):
            raise OptionError(f"language is {language!r}", wanted="a code or a name")
        self._need_languages()
        code = code_of(language)
        if f"<|{code}|>" in self.languages:
            return self.languages[f"<|{code}|>"]
        codes = sorted(token[2:-2] for token in self.languages)
        names = {LANGUAGES.get(code, code): code for code in codes}
        near = get_close_matches(code, [*names, *codes], n=1, cutoff=0.6)
        shown = ", ".join(codes[:12]) + (f" and {len(codes) - 12} more" if len(codes) > 12 else "")
        raise OptionError(
            f"the model has no language {language!r}",
            wanted=f"one of {shown}",
            do=f"did you mean {near[0]!r}?" if near else "leave it out to have it detected",
        )

    def language_of(self, token: int) -> str | None:
        """The code of a language's token."""
        return next((text[2:-2] for text, i in self.languages.items() if i == token), None)

    def init(self, language: str | None, task: str | None, times: bool) -> list[int | None]:
        """The first ids; None in place of the language where it is to be detected."""
        ids: list[int | None] = [self.start]
        if not self.multilingual and (language or task):
            raise OptionError(
                f"{'language' if language else 'task'} is given, and the model knows English only",
                do="leave it out, or take a model of several languages",
            )
        if language is None and task is None:
            ids += self._forced_ids()
        if language is not None:
            ids[1:2] = [self.language_id(language)]
        elif self.languages and (len(ids) < 2 or ids[1] is None):
            ids[1:2] = [None]
        elif None in ids:
            ids.remove(None)
        if task is not None or (language is not None and self.tasks):
            self._set_task(ids, task)
        if self.no_times is not None:
            ids = [token for token in ids if token != self.no_times]
            ids += [] if times else [self.no_times]
        return ids

    def _forced_ids(self) -> list[int | None]:
        """The ids that old files force at places 1, 2, ..."""
        found: list[int | None] = []
        for place, token in self._forced or ():
            if place != len(found) + 1:
                raise ModelFileError(
                    f"forced_decoder_ids names place {place} after {len(found)}",
                    wanted="places from 1 on without a gap",
                )
            found.append(token)
        return found

    def _set_task(self, ids: list[int | None], task: str | None) -> None:
        known = set(self.tasks.values())
        if task is None and known & set(ids):
            return
        name = task or "transcribe"
        if name not in self.tasks:
            raise OptionError.unknown(name, self.tasks, "the model's task_to_id")
        ids[:] = [token for token in ids if token not in known]
        ids.append(self.tasks[name])

    def _need_languages(self) -> None:
        if not self.languages:
            raise OptionError(
                "language is given, and generation_config.json names no languages",
                do="leave it out, or download a newer generation_config.json",
            )
