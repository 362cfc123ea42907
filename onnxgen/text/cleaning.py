"""What transformers does to decoded text, for whole texts and for streamed ones."""

import re

# One after the other over the whole text: the order matters where one makes another's pattern.
_ARTEFACTS = (
    *((f" {mark}", mark) for mark in ".?!,"),
    (" ' ", "'"),
    *((f" {end}", end) for end in ("n't", "'m", "'s", "'ve", "'re")),
)
# After any other character no pattern can go on, whatever follows and whatever was replaced.
_OPEN_ENDS = " 'nvr"


def clean_up(text: str) -> str:
    """``text`` without spaces before punctuation and English contractions."""
    for artefact, clean in _ARTEFACTS:
        text = text.replace(artefact, clean)
    return text


class CleanUp:
    """Stage of a stream: :func:`clean_up` of text that comes in pieces."""

    def __init__(self) -> None:
        self._held = ""

    def push(self, text: str) -> str:
        """As in :class:`onnxgen.text.decoding.Stage`."""
        text = self._held + text
        cut = len(text.rstrip(_OPEN_ENDS))
        self._held = text[cut:]
        return clean_up(text[:cut])

    def finish(self) -> str:
        """As in :class:`onnxgen.text.decoding.Stage`."""
        held, self._held = self._held, ""
        return clean_up(held)


_TIMESTAMP = re.compile(r"<\|\d+\.\d+\|>")
_TIMESTAMP_START = re.compile(r"<(\|(\d+(\.(\d+\|?)?)?)?)?")


def drop_timestamps(text: str) -> str:
    """``text`` without Whisper's timestamps."""
    return _TIMESTAMP.sub("", text)


class DropTimestamps:
    """Stage of a stream: :func:`drop_timestamps` of text that comes in pieces."""

    def __init__(self) -> None:
        self._held = ""

    def push(self, text: str) -> str:
        """As in :class:`onnxgen.text.decoding.Stage`."""
        text = self._held + text
        cut = text.rfind("<")
        if cut < 0 or not _TIMESTAMP_START.fullmatch(text, cut):
            cut = len(text)
        self._held = text[cut:]
        return drop_timestamps(text[:cut])

    def finish(self) -> str:
        """As in :class:`onnxgen.text.decoding.Stage`."""
        held, self._held = self._held, ""
        return held
