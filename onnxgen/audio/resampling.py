"""From one sample rate to another, as a stream: soxr's filter, whose memory is a few samples.

Letters: t samples of a block.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from onnxgen.audio.decoded import Floats
from onnxgen.errors import MissingPackageError


def resampled(blocks: Iterable[Floats], rate: int, new_rate: int) -> Iterator[Floats]:
    """Blocks (t,) at ``rate`` as blocks (t,) at ``new_rate``; some may be empty.

    Cut anywhere, they make the same waveform.

    Raises:
        MissingPackageError: soxr is not installed.
    """
    if rate == new_rate:
        yield from blocks
        return
    try:
        import soxr
    except ImportError as error:
        raise MissingPackageError(
            f"the audio has {rate} samples a second; making it {new_rate} needs soxr",
            wanted=f"audio at {new_rate} Hz, or the package soxr",
            do="pip install 'onnxgen[audio]', or convert it, for example: "
            f"ffmpeg -i IN -ac 1 -ar {new_rate} OUT.wav",
        ) from error
    stream = soxr.ResampleStream(rate, new_rate, 1, dtype="float32")
    for block in blocks:
        yield stream.resample_chunk(block)
    yield stream.resample_chunk(np.zeros(0, np.float32), last=True)
