"""Audio features against transformers' extractors, live: made-up sounds, and the speech that
comes with the real models.

Letters: T samples, F frames, M mel bins.
"""

import os
import wave
from pathlib import Path

import numpy as np
import pytest

from onnxgen.audio.features import LogMel, RawWaveform, extractor, mel_filters
from onnxgen.audio.reading import read

pytestmark = pytest.mark.oracle

RATE, WINDOW = 16_000, 480_000
REAL = Path(os.environ.get("ONNXGEN_REAL_MODELS") or Path(__file__).parent.parent.parent / ".real")
LENGTHS = (1, 300, 16_000, 159_999, WINDOW - 41, WINDOW, WINDOW + 1, WINDOW + 160, 700_123)
MOST = 1e-4


def sounds():
    """Name to waveform (T,) float32."""
    rng = np.random.default_rng(0)
    time = np.arange(WINDOW) / RATE
    made = {f"noise of {length}": rng.normal(0, 0.1, length) for length in LENGTHS}
    made |= {f"silence of {length}": np.zeros(length) for length in LENGTHS}
    made["tone"] = np.sin(2 * np.pi * 440 * time)
    made["glide"] = 0.3 * np.sin(2 * np.pi * (50 + 125 * time) * time)
    made["loud"] = np.sign(np.sin(2 * np.pi * 97 * time)) * 30
    made["quiet"] = rng.normal(0, 1e-5, WINDOW)
    made["impulse"] = np.eye(1, WINDOW, 100_000)[0]
    made["speech-like, long"] = rng.normal(0, 0.1, 900_000) * np.sin(np.arange(900_000) / 9000) ** 8
    return {name: samples.astype(np.float32) for name, samples in made.items()}


def expected(theirs, samples):
    """transformers' features (M,F) of ``samples`` (T,) as its pipeline asks for them; real F."""
    long = {"truncation": False, "padding": "longest"} if len(samples) > WINDOW else {}
    answer = theirs(
        samples, sampling_rate=RATE, return_tensors="np", return_attention_mask=True, **long
    )
    return answer["input_features"][0], int(answer["attention_mask"].sum())


@pytest.fixture(scope="module", params=[80, 128])
def pair(request):
    import torch
    from transformers import WhisperFeatureExtractor

    torch.set_num_threads(1)
    theirs = WhisperFeatureExtractor(feature_size=request.param)
    return extractor(theirs.to_dict()), theirs


def compare(pair, samples):
    ours, theirs = pair
    features, frames = expected(theirs, samples)
    found = ours(samples)
    assert (found.shape, found.dtype) == (features.shape, features.dtype)
    np.testing.assert_allclose(found, features, rtol=0, atol=MOST)
    assert ours.frames(len(samples)) == frames
    assert ours.window_frames == theirs.nb_max_frames


@pytest.mark.parametrize("name", sounds())
def test_log_mel_of_made_up_sounds(pair, name):
    compare(pair, sounds()[name])


@pytest.mark.parametrize("seconds", [5, 30, 200])
def test_log_mel_of_speech(pair, seconds):
    paths = sorted((REAL / "audio").glob("*.wav"))
    assert paths, f"no speech in {REAL / 'audio'}: run scripts/real_models first"
    for path in paths:
        with wave.open(str(path)) as file:
            rate = file.getframerate()
        samples = read(path, rate)  # as fast as it is recorded: the comparison is the same
        repeats = -(-seconds * RATE // len(samples))
        compare(pair, np.tile(samples, repeats)[: seconds * RATE])


def test_mel_filters(pair):
    _, theirs = pair
    found = mel_filters(theirs.feature_size, theirs.n_fft, RATE)
    np.testing.assert_allclose(found, theirs.mel_filters.T, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    "geometry",
    [
        {"n_fft": 512, "hop_length": 128, "chunk_length": 10},
        {"sampling_rate": 8_000},
        {"feature_size": 40, "padding_value": 0.25},
    ],
)
def test_log_mel_of_other_configurations(geometry):
    from transformers import WhisperFeatureExtractor

    theirs = WhisperFeatureExtractor(**geometry)
    samples = np.random.default_rng(1).normal(0, 0.1, 70_001).astype(np.float32)
    answer = theirs(samples, sampling_rate=theirs.sampling_rate, return_tensors="np")
    found = LogMel(theirs.to_dict())(samples)
    np.testing.assert_allclose(found, answer["input_features"][0], rtol=0, atol=MOST)


@pytest.mark.parametrize("do_normalize", [False, True])
@pytest.mark.parametrize("padding_value", [0.0, -2.0])
def test_raw_waveforms(do_normalize, padding_value):
    from transformers import Wav2Vec2FeatureExtractor

    theirs = Wav2Vec2FeatureExtractor(
        do_normalize=do_normalize, padding_value=padding_value, return_attention_mask=True
    )
    ours = extractor(theirs.to_dict())
    assert isinstance(ours, RawWaveform)
    rng = np.random.default_rng(2)
    rows = [rng.normal(0.3, 0.2, length).astype(np.float32) for length in (16_000, 300, 1, 40_000)]
    answer = theirs(rows, sampling_rate=RATE, padding=True, return_tensors="np")
    values, mask = ours(rows)
    np.testing.assert_allclose(values, answer["input_values"], rtol=0, atol=1e-5)
    np.testing.assert_array_equal(mask, answer["attention_mask"])
