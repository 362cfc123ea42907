"""Features against a slow reference in float64, written from the definition, and against numbers
worked out on paper. ``tests/oracle`` compares them with transformers itself.

Letters: T samples, F frames, N samples of a frame, K frequencies, M mel bins, B rows.
"""

import tracemalloc

import numpy as np
import pytest

from onnxgen.audio.features import LogMel, RawWaveform, extractor, mel_filters
from onnxgen.errors import AudioError, ModelFileError, UnsupportedModelError

RATE = 16_000
SECONDS_30 = 480_000
WHISPER = {
    "feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 80, "sampling_rate": RATE,
    "hop_length": 160, "n_fft": 400, "chunk_length": 30, "n_samples": SECONDS_30,
    "nb_max_frames": 3000, "padding_side": "right", "padding_value": 0.0, "dither": 0.0,
    "return_attention_mask": False, "processor_class": "WhisperProcessor",
}  # fmt: skip
MOONSHINE = {
    "feature_extractor_type": "Wav2Vec2FeatureExtractor", "feature_size": 1, "sampling_rate": RATE,
    "do_normalize": False, "padding_side": "right", "padding_value": 0.0,
    "return_attention_mask": True, "processor_class": "Wav2Vec2Processor",
}  # fmt: skip


def hertz_of_mel(mel):
    """Slaney's scale: 66 2/3 Hz a mel up to 1000 Hz, then 27 mel are a factor of 6.4."""
    return mel * 200 / 3 if mel < 15 else 1000 * 6.4 ** ((mel - 15) / 27)


def reference(samples, bins, size=400, hop=160, rate=RATE, least=SECONDS_30):
    """(M,F) in float64, as slow as the definition is."""
    filled = np.zeros(max(least, len(samples)))
    filled[: len(samples)] = samples
    mirrored = np.concatenate(
        [filled[size // 2 : 0 : -1], filled, filled[-2 : -2 - size // 2 : -1]]
    )
    count = len(filled) // hop
    window = np.sin(np.pi * np.arange(size) / size) ** 2
    frames = np.stack([mirrored[f * hop : f * hop + size] * window for f in range(count)])  # (F,N)
    turns = np.outer(np.arange(size), np.arange(size // 2 + 1)) % size / size  # (N,K)
    power = np.abs(frames @ np.exp(-2j * np.pi * turns)) ** 2  # (F,K)
    top = 15 + 27 * np.log(8) / np.log(6.4)  # 8000 Hz
    corners = [hertz_of_mel(top * i / (bins + 1)) for i in range(bins + 2)]
    frequencies = np.arange(size // 2 + 1) * rate / size
    mel = []
    for low, middle, high in zip(corners, corners[1:], corners[2:], strict=False):
        triangle = np.interp(frequencies, [low, middle, high], [0, 2 / (high - low), 0])
        mel.append(power @ triangle)
    logs = np.log10(np.maximum(mel, 1e-10))
    return (np.maximum(logs, logs.max() - 8) + 4) / 4


def waveforms():
    rng = np.random.default_rng(0)
    rising = np.sin(np.cumsum(np.linspace(0.01, 2.5, 40_000)))
    return {
        "noise": rng.normal(0, 0.1, 50_000),
        "a glide, then silence": np.concatenate([rising, np.zeros(20_000)]),
        "an impulse": np.eye(1, 9_000, 5_000)[0],
        "one sample": np.ones(1),
        "quiet": rng.normal(0, 1e-4, 30_000),
        "to the last sample": rng.normal(0, 0.1, SECONDS_30),
        "almost a window": rng.normal(0, 0.1, SECONDS_30 - 30),
        "longer than a window": rng.normal(0, 0.1, SECONDS_30 + 161),
    }


@pytest.mark.parametrize("bins", [80, 128])
@pytest.mark.parametrize("name", waveforms())
def test_features_equal_the_reference(name, bins):
    samples = waveforms()[name].astype(np.float32)
    found = LogMel(WHISPER | {"feature_size": bins})(samples)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, reference(samples, bins), atol=2e-5)


@pytest.mark.parametrize(
    "geometry",
    [
        {"n_fft": 512, "hop_length": 128},
        {"n_fft": 100, "hop_length": 100, "feature_size": 20},
        {"n_fft": 64, "hop_length": 160, "feature_size": 10},  # frames that leave samples out
        {"sampling_rate": 8_000},
        {"chunk_length": 3},
        {"feature_size": 300},  # more bins than frequencies: some are empty
    ],
)
def test_every_number_comes_from_the_configuration(geometry):
    config = WHISPER | {"chunk_length": 5} | geometry
    samples = np.random.default_rng(1).normal(0, 0.1, 30_123).astype(np.float32)
    expected = reference(
        samples, config["feature_size"], config["n_fft"], config["hop_length"],
        config["sampling_rate"], config["sampling_rate"] * config["chunk_length"],
    )  # fmt: skip
    np.testing.assert_allclose(LogMel(config)(samples), expected, atol=2e-5)


def test_filters_have_area_one_and_their_peaks_on_the_scale():
    filters = mel_filters(80, 16_000, RATE)  # one frequency for each Hz
    np.testing.assert_allclose(filters[3:].sum(1), 1, rtol=1e-3)
    top = 15 + 27 * np.log(8) / np.log(6.4)
    peaks = [hertz_of_mel(top * (i + 1) / 81) for i in range(80)]
    assert np.abs(filters.argmax(1) - peaks).max() < 1
    assert hertz_of_mel(15) == 1000
    assert hertz_of_mel(42) == 6400


def test_the_features_of_silence():
    # log10(1e-10) is -10, (-10 + 4) / 4 is -1.5; nothing is louder, so nothing is raised to it.
    for length in (1, 16_000, SECONDS_30, SECONDS_30 + 800):
        found = LogMel(WHISPER)(np.zeros(length, np.float32))
        assert found.shape == (80, max(SECONDS_30, length) // 160)
        np.testing.assert_allclose(found, -1.5, atol=1e-6)


def test_the_features_of_a_constant():
    # A frame of ones has the power 200^2 at 0 Hz and 100^2 in the bin beside it, at 40 Hz. Only
    # the lowest filter, which rises to its peak at 200 / 3 * 45.245640 / 81 = 37.24 Hz, has that.
    found = LogMel(WHISPER)(np.ones(SECONDS_30, np.float32))
    corner = 200 / 3 * (15 + 27 * np.log(8) / np.log(6.4)) / 81
    weight = (2 * corner - 40) / corner * 2 / (2 * corner)
    np.testing.assert_allclose(found[0], (np.log10(weight * 1e4) + 4) / 4, atol=1e-5)
    assert (found >= found.max() - 2).all()
    np.testing.assert_allclose(found[20:], found.max() - 2, atol=1e-6)


def test_the_loudest_moment_counts_for_the_whole_waveform():
    quiet = np.random.default_rng(2).normal(0, 1e-3, 20 * RATE).astype(np.float32)
    click = np.zeros(20 * RATE, np.float32)
    click[-RATE] = 1000
    found = LogMel(WHISPER)(np.concatenate([quiet, click]))
    alone = LogMel(WHISPER)(quiet)
    assert found.shape == (80, 4000)
    assert found[:, 100].min() == found.max() - 2  # raised by what comes 38 s later
    assert alone[:, 100].min() < found[:, 100].min() - 0.1


def test_frames_that_are_no_filling_are_counted():
    mel = LogMel(WHISPER)
    lengths = {1: 1, 160: 1, 161: 2, 16_000: 100, 479_999: 3000, 480_000: 3000}  # begun frames
    longer = {480_001: 3000, 480_159: 3000, 480_160: 3001, 500_000: 3125}  # whole frames
    for samples, frames in (lengths | longer).items():
        assert mel.frames(samples) == frames
    assert (mel.window_samples, mel.window_frames, mel.sampling_rate) == (480_000, 3000, RATE)


def test_windows_are_cut_and_filled_with_zeros():
    mel = LogMel(WHISPER)
    features = np.arange(1, 80 * 4500 + 1, dtype=np.float32).reshape(80, 4500)
    np.testing.assert_array_equal(mel.window(features, 700), features[:, 700:3700])
    last = mel.window(features, 3000)
    assert last.shape == (80, 3000)
    assert last.flags.c_contiguous
    np.testing.assert_array_equal(last[:, :1500], features[:, 3000:])
    assert not last[:, 1500:].any()
    assert not mel.window(features, 4500).any()
    last[:] = 0
    assert features[0, 0] == 1
    assert features.min() == 1


def test_samples_are_never_changed():
    samples = np.random.default_rng(3).normal(0, 0.1, 20_000).astype(np.float32)
    before = samples.copy()
    for config in (WHISPER, WHISPER | {"dither": 0.1}):
        LogMel(config)(samples)
    RawWaveform(MOONSHINE | {"do_normalize": True})([samples])[0][:] = 0
    RawWaveform(MOONSHINE)([samples])[0][:] = 0
    assert (samples == before).all()


def test_dither_is_noise_of_its_strength_and_the_same_each_time():
    dithered = LogMel(WHISPER | {"dither": 0.1})
    silence = np.zeros(SECONDS_30, np.float32)
    found = dithered(silence)
    assert (found == dithered(silence)).all()
    # The mean power of white noise in any bin: variance times the window's sum of squares, 150.
    power = 10 ** (found * 4.0 - 4)[40:].mean()
    filters = mel_filters(80, 400, RATE)[40:].sum(1).mean()
    assert 0.4 < power / (0.1**2 * 150 * filters) < 1  # a mean of logarithms is below a mean


def test_a_padding_value_is_heard():
    samples = np.zeros(1_000, np.float32)
    found = LogMel(WHISPER | {"padding_value": 0.5})(samples)
    filled = np.full(SECONDS_30, 0.5)
    filled[:1_000] = 0
    np.testing.assert_allclose(found, reference(filled, 80), atol=2e-5)


def test_memory_beyond_the_result_does_not_grow_with_the_length():
    mel = LogMel(WHISPER)

    def beyond(seconds):
        samples = np.zeros(seconds * RATE, np.float32)
        tracemalloc.start()
        result = mel(samples)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most - result.nbytes

    assert beyond(240) < beyond(60) + 200_000
    assert beyond(240) < 6_000_000


@pytest.mark.parametrize(
    "samples",
    [
        np.zeros(0, np.float32), np.zeros((2, 100), np.float32), np.zeros(100, np.int16), None, "a",
        [], [1, 2], np.float32(1),
    ],
)  # fmt: skip
def test_what_is_no_waveform_is_refused(samples):
    with pytest.raises(AudioError, match="a waveform is given"):
        LogMel(WHISPER)(samples)
    with pytest.raises(AudioError, match="a waveform is given"):
        RawWaveform(MOONSHINE)([samples])


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e25])
@pytest.mark.filterwarnings("error")
def test_values_that_are_no_sound_are_refused(bad):
    samples = np.zeros(60_000, np.float32)
    samples[30_000] = bad
    with pytest.raises(AudioError, match="NaN, infinity or samples far beyond"):
        LogMel(WHISPER)(samples)
    if not np.isfinite(bad):
        with pytest.raises(AudioError, match="waveform 1 holds NaN or infinity"):
            RawWaveform(MOONSHINE)([np.zeros(3), samples])


# The waveform itself.


def test_waveforms_of_unlike_lengths_are_filled_up_at_the_right():
    values, mask = RawWaveform(MOONSHINE)([np.array([0.5, -0.5, 0.25]), np.array([1.0])])
    assert values.tolist() == [[0.5, -0.5, 0.25], [1, 0, 0]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert (values.dtype, mask.dtype) == (np.float32, np.int64)
    filled, _ = RawWaveform(MOONSHINE | {"padding_value": -1})([np.zeros(2), np.zeros(1)])
    assert filled.tolist() == [[0, 0], [0, -1]]


def test_each_row_is_normalised_as_if_it_were_alone():
    raw = RawWaveform(MOONSHINE | {"do_normalize": True})
    # Mean 3, variance 4: (1 - 3) / sqrt(4 + 1e-7) is -1.
    rows = [np.array([1.0, 5.0]), np.array([3.0]), np.array([2.0, 2.0, 2.0, 10.0])]
    values, _ = raw(rows)
    np.testing.assert_allclose(values[0], [-1, 1, 0, 0], atol=1e-6)
    np.testing.assert_allclose(values[1], 0, atol=1e-6)
    np.testing.assert_allclose(values[2], np.array([-2, -2, -2, 6]) / 12**0.5, atol=1e-6)
    for row, alone in zip(values, rows, strict=True):
        np.testing.assert_array_equal(row[: len(alone)], raw([alone])[0][0])


def test_no_waveforms():
    with pytest.raises(AudioError, match="there are no waveforms"):
        RawWaveform(MOONSHINE)([])


# Which of the two.


def test_the_configuration_decides():
    assert isinstance(extractor(WHISPER), LogMel)
    assert isinstance(extractor({"feature_extractor": WHISPER}), LogMel)
    assert isinstance(extractor(MOONSHINE), RawWaveform)
    assert not extractor(MOONSHINE).do_normalize
    assert extractor({"feature_extractor_type": "Wav2Vec2FeatureExtractor"}).do_normalize
    assert not extractor({"feature_extractor_type": "MoonshineFeatureExtractor"}).do_normalize
    bare = [
        {k: v for k, v in c.items() if k != "feature_extractor_type"} for c in (WHISPER, MOONSHINE)
    ]
    assert isinstance(extractor(bare[0]), LogMel)
    assert isinstance(extractor(bare[1]), RawWaveform)
    large = extractor(WHISPER | {"feature_size": 128})
    assert (large.feature_size, large.hop_length) == (128, 160)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"feature_extractor_type": "ClapFeatureExtractor"},
        {"image_processor_type": "ViTImageProcessor", "size": 224},
        WHISPER | {"padding_side": "left"},
        MOONSHINE | {"padding_side": "left"},
        MOONSHINE | {"feature_size": 2},
    ],
)
def test_other_kinds_are_unsupported(config):
    with pytest.raises(UnsupportedModelError):
        extractor(config)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_fft": 0}, {"n_fft": 1}, {"n_fft": 10**9}, {"hop_length": 0}, {"hop_length": "160"},
        {"feature_size": -80}, {"feature_size": 80.0}, {"sampling_rate": True},
        {"chunk_length": None}, {"chunk_length": 10**9}, {"dither": "much"},
        {"padding_value": float("nan")},
    ],
)  # fmt: skip
def test_values_without_sense_are_a_broken_file(wrong):
    with pytest.raises(ModelFileError, match=f"preprocessor_config.json: {next(iter(wrong))} is"):
        extractor(WHISPER | wrong)


def test_raw_values_without_sense_are_a_broken_file():
    for wrong in ({"do_normalize": "yes"}, {"padding_value": None}, {"sampling_rate": 0}):
        with pytest.raises(ModelFileError):
            extractor(MOONSHINE | wrong)
