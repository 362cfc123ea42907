"""Cuts what Whisper says of one window into segments, and tells where the next window begins.

A window is up to 30 s of audio. Whisper closes a segment by a timestamp and opens the next one by
another: two of them in a row are where to cut. What it says behind the last cut may lack the rest
of its sentence, so it is thrown away, and the next window begins there. The rules are those of
``WhisperGenerationMixin._retrieve_segment`` in transformers 4.57.6.
"""

from collections.abc import Sequence

import numpy as np

from onnxgen.audio.transcript import Segment, SpeechTokens

PRECISION = 0.02  # seconds from one timestamp to the next, and of one position of the encoder
STRIDE = 2  # frames of 0.01 s in one such position


def split(
    tokens: Sequence[int], speech: SpeechTokens, frames: int, offset: float = 0.0
) -> tuple[list[Segment], int]:
    """The segments of a window, and how many frames the next window begins after this one.

    Args:
        tokens: the answer, without its prompt, its end and padding.
        speech: which ids are timestamps.
        frames: of 0.01 s in the window that are audio, at least 1.
        offset: where the window begins, in seconds.

    The segments' tokens follow each other, and together begin ``tokens``. The answer is from 1 to
    ``frames``, also where timestamps that go nowhere would leave transformers at the same place
    for ever.
    """
    first = speech.timestamps
    times = [token - first for token in tokens]  # negative for text
    cuts = [i for i in range(1, len(times)) if times[i - 1] >= 0 and times[i] >= 0]
    if not cuts:
        end = offset + _last_position(times, frames) * PRECISION
        return [Segment(offset, end, speech.text(tokens), tuple(tokens))], frames

    complete = times[-1] >= 0 > times[-2]  # a single timestamp: silence up to the window's end
    if complete:
        cuts.append(len(tokens))
        advance = frames
    else:
        advance = times[cuts[-1] - 1] * STRIDE
        cuts[-1] += 1  # keeps both timestamps, which tell that this end was no single one
    segments = []
    for start, stop in zip([0, *cuts], cuts, strict=False):
        last = stop - 1 if complete or stop != cuts[-1] else stop - 2
        part = tuple(tokens[start:stop])
        # Text before the first timestamp begins with the window; transformers gives a time before.
        begin, end = (offset + max(times[i], 0) * PRECISION for i in (start, last))
        segments.append(Segment(begin, end, speech.text(part), part))
    return segments, advance if 0 < advance <= frames else frames


def _last_position(times: Sequence[int], frames: int) -> int:
    """Where a window's only segment ends: at its last timestamp, unless that is 0.00."""
    last = next((time for time in reversed(times) if time >= 0), 0)
    if last:
        return last
    # In single precision, as transformers does it: 30 frames end at position 14, not 15.
    return int(np.float32(frames) * np.float32(PRECISION / STRIDE) / np.float32(PRECISION))
