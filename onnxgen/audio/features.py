"""From waveforms to what the encoder of a speech model reads, as its preprocessor_config.json says.

Two ways: a log-mel spectrogram (Whisper and its kin) or the waveform itself (Moonshine). Values
are those of transformers' WhisperFeatureExtractor and Wav2Vec2FeatureExtractor.

Letters: T samples, F frames, n frames of a block, N samples of a frame's window, K frequencies
(N // 2 + 1), M mel bins, m of them, B rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from onnxgen.audio.decoded import Floats
from onnxgen.errors import AudioError, ModelFileError, UnsupportedModelError

Ints = NDArray[np.int64]
Doubles = NDArray[np.float64]

_FLOOR = 1e-10  # the least power; its logarithm is that of silence
_SILENCE = -10.0
_RANGE = 8.0  # orders of magnitude of power below the loudest that are kept
_TOP = 8_000.0  # Hz, the upper end of the last mel filter, whatever the sample rate is
_FRAMES = 384  # of a block, which stays in a processor's cache
_BAND = 8  # neighbouring filters that are applied together

# Bounds on what a file may ask for, far beyond any model's; Whisper's largest has n_fft 400,
# hop_length 160, feature_size 128 and 480,000 samples a window.
_MOST_SIZE = 1 << 13  # N
_MOST_BINS = 1 << 10  # M
_MOST_WINDOW = 1 << 21  # samples
_MOST_FEATURES = 1 << 16  # a second, M of each frame
_MOST_OVERLAP = 16  # N over the hop: how often a sample is transformed
_LOUDEST = 1_000.0  # of what fills up; full scale is 1


def extractor(config: Mapping[str, Any]) -> "LogMel | RawWaveform":
    """The extractor that a preprocessor_config.json asks for.

    Raises:
        UnsupportedModelError: it asks for another kind.
        ModelFileError: a value in it makes no sense.
    """
    nested = config.get("feature_extractor")  # where transformers 5 writes one file for all parts
    if isinstance(nested, Mapping):
        config = nested
    kind = config.get("feature_extractor_type")
    if kind is None:  # old files do not say
        spectral = all(name in config for name in ("n_fft", "hop_length", "chunk_length"))
        raw = config.get("feature_size") == 1
        kind = "WhisperFeatureExtractor" if spectral else "Wav2Vec2FeatureExtractor" if raw else ""
    if kind == "WhisperFeatureExtractor":
        return LogMel(config)
    if kind in RAW_KINDS:
        return RawWaveform(config)
    raise UnsupportedModelError(
        f"the model wants audio prepared by {kind or 'a feature extractor that it does not name'}",
        wanted=f"WhisperFeatureExtractor, {' or '.join(RAW_KINDS)}",
    )


class LogMel:
    """Log-mel spectrograms, scaled to the loudest moment of the whole waveform.

    Attributes:
        sampling_rate: samples a second.
        feature_size: M.
        hop_length: samples from frame to frame.
        window_samples: what an encoder hears at once; shorter waveforms are filled up to it.
        window_frames: the same in frames.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.sampling_rate = _whole(config, "sampling_rate", 16_000, most=1_000_000)
        self.feature_size = _whole(config, "feature_size", 80, most=_MOST_BINS)
        self.hop_length = _whole(config, "hop_length", 160, most=1 << 16)
        size = _whole(config, "n_fft", 400, most=_MOST_SIZE, least=2)  # N
        seconds = _whole(config, "chunk_length", 30, most=_MOST_WINDOW)
        self.window_samples = self.sampling_rate * seconds
        self.window_frames = self.window_samples // self.hop_length
        self._check_window(size, seconds)
        self._padding = _number(config, "padding_value", 0.0)
        self._dither = _number(config, "dither", 0.0)
        _refuse_left_padding(config)
        turns = np.arange(size) / size
        self._hann = (0.5 - 0.5 * np.cos(2 * np.pi * turns)).astype(np.float32)  # (N,), periodic
        filters = mel_filters(self.feature_size, size, self.sampling_rate)  # (M,K)
        self._bands = [_band(filters[i : i + _BAND]) for i in range(0, len(filters), _BAND)]

    def __call__(self, samples: Floats) -> Floats:
        """The features (M,F) of a waveform ``samples`` (T,), of any length.

        One that is shorter than a window is filled up with silence to ``window_frames`` frames;
        any other gives T // ``hop_length``. The values depend on the loudest frame of all, so a
        long waveform is given whole and cut into windows afterwards.

        Raises:
            AudioError: no samples, another shape, or values that are not finite or far too loud.
        """
        samples, real = self._filled(_waveform(samples))
        features = np.full(
            (self.feature_size, len(samples) // self.hop_length), _SILENCE, np.float32
        )
        # No later frame reaches back to a real sample.
        used = min(features.shape[1], -(-(real + len(self._hann) // 2) // self.hop_length))
        room = np.empty((_FRAMES, len(self._hann)), np.float32)  # (n,N)
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, used, _FRAMES):
                stop = min(start + _FRAMES, used)
                self._block(samples, start, features[:, start:stop], room)
        loudest = features.max(initial=_SILENCE)
        if not np.isfinite(loudest):
            raise AudioError(
                "the waveform holds NaN, infinity or samples far beyond full scale",
                wanted="samples from -1 to 1",
            )
        np.maximum(features, loudest - np.float32(_RANGE), out=features)
        features += 4
        features /= 4
        return features

    def frames(self, samples: int) -> int:
        """How many frames of a waveform of ``samples`` samples are not filling.

        The sum of transformers' attention mask: a frame that is begun counts, except at the end of
        a waveform longer than a window.
        """
        if samples > self.window_samples:
            return samples // self.hop_length
        return min(-(-samples // self.hop_length), self.window_frames)

    def window(self, features: Floats, start: int) -> Floats:
        """The ``window_frames`` frames of ``features`` (M,F) from ``start`` on.

        Behind the last one come zeros, as in transformers' long form. That is no silence: the
        frames of silence that fill up a short waveform are the least value of its features.
        """
        cut = features[:, start : start + self.window_frames]
        window = np.zeros((len(features), self.window_frames), np.float32)
        window[:, : cut.shape[1]] = cut
        return window

    def _check_window(self, size: int, seconds: int) -> None:
        """ModelFileError for frames of ``size`` samples and windows that no memory is for."""
        if self.window_samples > _MOST_WINDOW:
            raise _nonsense("chunk_length", seconds, f"at most {_MOST_WINDOW} samples a window")
        least = max(1, -(-size // _MOST_OVERLAP))
        if not least <= self.hop_length <= self.window_samples:
            raise _nonsense("hop_length", self.hop_length, f"{least} to {self.window_samples}")
        features = self.feature_size * self.sampling_rate // self.hop_length
        if features > _MOST_FEATURES:
            raise _nonsense(
                "hop_length",
                self.hop_length,
                f"at most {_MOST_FEATURES} features a second; with a feature_size of "
                f"{self.feature_size} there are {features}",
            )

    def _filled(self, samples: Floats) -> tuple[Floats, int]:
        """``samples`` (T,), filled up to a window, and how many of them decide the features."""
        real = len(samples)
        if real < self.window_samples:
            filled = np.full(self.window_samples, self._padding, np.float32)
            filled[:real] = samples
            samples, real = filled, len(filled) if self._padding else real
        if self._dither:  # the same noise each time
            noise = np.random.default_rng(0).standard_normal(len(samples), np.float32)
            return samples + np.float32(self._dither) * noise, len(samples)
        return samples, real

    def _block(self, samples: Floats, start: int, mel: Floats, room: Floats) -> None:
        """Puts the logarithms of the power of the frames from ``start`` on into ``mel`` (M,n)."""
        size, count = len(self._hann), mel.shape[1]
        first = start * self.hop_length - size // 2  # a frame's middle is a multiple of the hop
        last = first + (count - 1) * self.hop_length + size
        if first < 0 or last > len(samples):
            piece = samples[_mirrored(np.arange(first, last), len(samples))]
        else:
            piece = samples[first:last]
        frames = sliding_window_view(piece, size)[:: self.hop_length]  # (n,N), a view
        windowed = np.multiply(frames, self._hann, out=room[:count])  # (n,N)
        spectrum = np.fft.rfft(windowed).astype(np.complex64, copy=False)  # (n,K)
        parts = spectrum.view(np.float32)  # (n,2K), real and imaginary parts in turns
        parts *= parts
        power = (parts[:, ::2] + parts[:, 1::2]).T  # (K,n)
        # A product of all filters at once would be mostly zeros. It would also wake the threads of
        # BLAS, which costs many times the product where other threads keep the processors busy.
        for i, (low, weights) in enumerate(self._bands):
            out = mel[i * _BAND : (i + 1) * _BAND]
            np.matmul(weights, power[low : low + weights.shape[1]], out=out)
        np.maximum(mel, np.float32(_FLOOR), out=mel)
        np.log(mel, out=mel)  # three times as fast as log10
        mel *= np.float32(1 / np.log(10))


def mel_filters(bins: int, size: int, sampling_rate: int) -> Doubles:
    """Triangles (M,K) over the frequencies of a transform of ``size`` samples, of area 1 in Hz.

    Their corners lie evenly on the mel scale of Slaney's Auditory Toolbox: a line up to 1000 Hz,
    which is 15 mel, and a logarithm above, where 27 mel are a factor of 6.4.
    """
    step = np.log(6.4) / 27
    highest = 15 + np.log(_TOP / 1000) / step
    mels = np.linspace(0, highest, bins + 2)
    corners = np.where(mels < 15, mels * 200 / 3, 1000 * np.exp((mels - 15) * step))  # (M+2,) in Hz
    frequencies = np.linspace(0, sampling_rate // 2, size // 2 + 1)  # (K,)
    low, middle, high = corners[:-2, None], corners[1:-1, None], corners[2:, None]  # (M,1) each
    rising = (frequencies - low) / (middle - low)
    falling = (high - frequencies) / (high - middle)
    filters: Doubles = np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)
    return filters


def _band(filters: Doubles) -> tuple[int, Floats]:
    """A few ``filters`` (m,K) without the zeros around them all: where they begin, what is left."""
    used = np.flatnonzero(filters.any(0))
    low, high = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
    return low, filters[:, low:high].astype(np.float32)


RAW_KINDS = ("Wav2Vec2FeatureExtractor", "MoonshineFeatureExtractor")


class RawWaveform:
    """Waveforms as they are, or each with mean 0 and variance 1, filled up to a batch.

    Attributes:
        sampling_rate: samples a second.
        do_normalize: whether each waveform is brought to mean 0 and variance 1.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.sampling_rate = _whole(config, "sampling_rate", 16_000, most=1_000_000)
        if _whole(config, "feature_size", 1, most=4_096) != 1:
            raise UnsupportedModelError(
                f"a waveform of {config['feature_size']} features a sample", wanted="1"
            )
        # transformers' class normalises unless the file says no; transformers.js' own never does.
        default = config.get("feature_extractor_type") != "MoonshineFeatureExtractor"
        self.do_normalize = config.get("do_normalize", default)
        if not isinstance(self.do_normalize, bool):
            raise _nonsense("do_normalize", self.do_normalize, "true or false")
        self._padding = _number(config, "padding_value", 0.0)
        _refuse_left_padding(config)

    def __call__(self, waveforms: Sequence[Floats]) -> tuple[Floats, Ints]:
        """The batch (B,T) of ``waveforms`` (T',) each, and its mask (B,T), 1 at real samples.

        Each row is what it would be alone: filling never enters its mean and variance.

        Raises:
            AudioError: no waveforms, or one without samples, of another shape or not finite.
        """
        rows = [_waveform(samples) for samples in waveforms]
        if not rows:
            raise AudioError("there are no waveforms", wanted="one or more")
        values = np.full((len(rows), max(map(len, rows))), self._padding, np.float32)  # (B,T)
        mask = np.zeros(values.shape, np.int64)  # (B,T)
        for i, row in enumerate(rows):
            if not np.isfinite(row).all():
                raise AudioError(f"waveform {i} holds NaN or infinity")
            values[i, : len(row)] = _normalised(row) if self.do_normalize else row
            mask[i, : len(row)] = 1
        return values, mask


def _normalised(samples: Floats) -> Floats:
    """``samples`` (T,) with mean 0 and variance 1; silence stays silence."""
    scale = np.sqrt(samples.var() + np.float32(1e-7))
    normalised: Floats = (samples - samples.mean()) / scale
    return normalised


def _waveform(samples: Any) -> Floats:
    """``samples`` (T,) as float32; AudioError for all else."""
    array = np.asarray(samples)
    if array.ndim != 1 or not len(array) or array.dtype.kind != "f":
        raise AudioError(
            f"a waveform is given with the shape {array.shape} and the type {array.dtype}",
            wanted="floats (T,)",
            do="read it with onnxgen.audio.reading.read",
        )
    return array.astype(np.float32, copy=False)


def _mirrored(index: Ints, length: int) -> Ints:
    """``index`` of any shape, walking back where it would leave the samples 0 to ``length`` - 1."""
    turn = max(1, 2 * (length - 1))
    folded = index % turn
    return np.minimum(folded, turn - folded)


def _whole(config: Mapping[str, Any], name: str, default: int, *, most: int, least: int = 1) -> int:
    value = config.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise _nonsense(name, value, f"a whole number from {least} to {most}")
    return value


def _number(config: Mapping[str, Any], name: str, default: float) -> float:
    value = config.get(name, default)
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not real or not -_LOUDEST <= value <= _LOUDEST:
        raise _nonsense(name, value, f"a number from {-_LOUDEST:g} to {_LOUDEST:g}")
    return float(value)


def _refuse_left_padding(config: Mapping[str, Any]) -> None:
    if (side := config.get("padding_side", "right")) != "right":
        raise UnsupportedModelError(f"waveforms are to be filled up at {side!r}", wanted="right")


def _nonsense(name: str, value: Any, wanted: str) -> ModelFileError:
    return ModelFileError(f"preprocessor_config.json: {name} is {value!r}"[:200], wanted=wanted)
