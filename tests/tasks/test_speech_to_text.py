"""Speech to text in the library: what comes back, and which options are refused."""

import io
import threading

import numpy as np
import pytest

import onnxgen
from onnxgen.errors import AudioError, CancelledError, InputNotFoundError, OptionError
from tests.audio.sounds import RATE, pcm16, tone
from tests.fixture_models import FIXTURES

MODELS = FIXTURES / "models"
SOUND = tone(0.5).astype(np.float32)  # (T,)
FEW = {"max_new_tokens": 5}


@pytest.fixture(scope="module")
def whisper():
    return onnxgen.load(MODELS / "whisper")


@pytest.fixture(scope="module")
def moonshine():
    return onnxgen.load(MODELS / "moonshine")


@pytest.fixture(params=["whisper", "moonshine"])
def model(request):
    return request.getfixturevalue(request.param)


def test_one_recording_gives_one_transcript_and_a_list_a_list(model):
    alone = model.generate(SOUND, **FEW)
    assert alone.duration == 0.5
    assert alone.text == "".join(segment.text for segment in alone.segments)
    for several in ([SOUND], [SOUND, SOUND], (SOUND, SOUND)):
        found = model.generate(several, **FEW)
        assert isinstance(found, list)
        assert [one.text for one in found] == [alone.text] * len(several)


def test_a_recording_may_be_given_in_many_ways(model, tmp_path):  # known problem A10
    data = pcm16(SOUND)
    path = tmp_path / "a.wav"
    path.write_bytes(data)
    samples = np.frombuffer(data[44:], "<i2")  # (T,)
    texts = {
        model.generate(source, **FEW).text
        for source in (
            path,
            str(path),
            data,
            io.BytesIO(data),
            samples,
            samples / np.float32(32768),
            np.stack([samples, samples]),
            (samples / 32768).tolist(),
            {"array": samples, "sampling_rate": RATE},
        )
    }
    assert len(texts) == 1
    assert model.generate(samples, sampling_rate=8_000, **FEW).duration == 1.0


def test_the_stream_is_the_segments(model):
    told = list(model.stream(SOUND, **FEW))
    assert tuple(told) == model.generate(SOUND, **FEW).segments


def test_what_is_no_recording_is_refused(model, tmp_path):  # known problem A10
    with pytest.raises(OptionError, match="there is no recording"):
        model.generate([])
    with pytest.raises(InputNotFoundError):
        model.generate(tmp_path / "none.wav")
    for source in (
        5,
        None,
        object(),
        "http://a/b.wav",
        b"",
        [[]],
        np.zeros(0),
        np.zeros((2, 2, 2)),
    ):
        with pytest.raises(AudioError):
            model.generate(source)
    for source in ({"array": SOUND}, {}, {"sampling_rate": RATE}):
        with pytest.raises(AudioError):
            model.generate(source)
    with pytest.raises(AudioError, match="NaN"):
        list(model.stream(np.array([0.0, np.nan])))


def test_limits_hold(model):
    with pytest.raises(AudioError, match="longer than"):
        model.generate(SOUND, max_seconds=0.1)
    with pytest.raises(AudioError, match="more than 100 bytes"):
        model.generate(SOUND, max_bytes=100)


def test_one_bad_recording_of_several_is_told_by_its_number(model):
    call = model.transcription([SOUND, b"", SOUND], None, FEW)
    for _ in call.run():
        pass
    assert list(call.failures) == [1]
    assert len(call.results()) == 2
    assert call.result(1) is None
    assert call.result(0).text == call.result(2).text == model.generate(SOUND, **FEW).text
    with pytest.raises(AudioError):
        model.generate([SOUND, b""], **FEW)


def test_a_call_that_is_cancelled_ends(model):
    call = model.transcription([SOUND] * 3, None, FEW)
    call.cancel()
    with pytest.raises(CancelledError):
        list(call.run())
    call = model.transcription([SOUND] * 10_000, None, {**FEW, "batch_size": 1})
    timer = threading.Timer(0.2, call.cancel)
    timer.start()
    with pytest.raises(CancelledError):
        for _ in call.run():
            pass
    timer.join()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"language": 5}, "language is 5"),
        ({"language": "klingon"}, "no language 'klingon'"),
        ({"language": ["fr", "de"]}, "2 languages for 1 recordings"),
        ({"language": [["fr"]]}, "code or a name"),
        ({"language": b"fr"}, "language is b'fr'"),
        ({"task": "sing"}, "task is 'sing'"),
        ({"task": 3}, "task is 3"),
        ({"return_timestamps": "words"}, "return_timestamps"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": []}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"logprob_threshold": "x"}, "logprob_threshold"),
        ({"no_speech_threshold": 0.6}, "without logprob_threshold"),
        ({"compression_ratio_threshold": float("inf")}, "finite"),
        ({"initial_prompt": 5}, "initial_prompt is 5"),
        ({"initial_prompt": "<|en|>"}, "special tokens"),
        ({"initial_prompt": "a", "prompt_ids": [5]}, "one of them"),
        ({"prompt_ids": 5}, "prompt_ids"),
        ({"prompt_ids": "abc"}, "prompt_ids"),
        ({"prompt_ids": [1.5]}, "prompt_ids"),
        ({"prompt_ids": [10**6]}, "prompt_ids"),
        ({"prompt_ids": [-1]}, "prompt_ids"),
        ({"prompt_condition_type": "all"}, "prompt_condition_type"),
        ({"prompt_condition_type": "all-segments"}, "condition_on_prev_tokens"),
        ({"condition_on_prev_tokens": "yes"}, "condition_on_prev_tokens"),
        ({"chunk_length_s": 0}, "chunk_length_s"),
        ({"chunk_length_s": "long"}, "chunk_length_s"),
        ({"chunk_length_s": 3, "stride_length_s": [1, 1, 1]}, "stride_length_s"),
        ({"chunk_length_s": 3, "stride_length_s": (2, 1)}, "shorter than a chunk"),
        ({"stride_length_s": 1}, "without chunk_length_s"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 2.0}, "batch_size"),
        ({"num_return_sequences": 2, "num_beams": 2}, "num_return_sequences"),
        ({"output_scores": True}, "output_scores"),
        ({"seeds": [1, 2]}, "2 seeds for 1"),
        ({"suppress_tokens": [10**6]}, "suppress_tokens"),
        ({"sampling_rate": 16_000.5}, "sampling_rate"),
        ({"sampling_rate": 1}, "sampling_rate"),
        ({"max_seconds": -1}, "max_seconds"),
        ({"max_bytes": "1"}, "max_bytes"),
        ({"langauge": "fr"}, "'language'"),
        ({"guidance_scale": 2.0}, "guidance_scale"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(whisper, options, says):
    with pytest.raises(OptionError) as caught:
        whisper.generate(SOUND, **options)
    assert says in str(caught.value)


def test_sampling_rate_is_for_arrays_only(whisper, tmp_path):
    path = tmp_path / "a.wav"
    path.write_bytes(pcm16(SOUND))
    with pytest.raises(OptionError, match="has its own"):
        whisper.generate(path, sampling_rate=RATE)


@pytest.mark.parametrize("many", [False, True])
def test_a_long_recording_without_times_is_refused(whisper, many):
    long = np.zeros(31 * RATE, np.float32)
    with pytest.raises(OptionError, match="return_timestamps is False"):
        whisper.generate([SOUND, long] if many else long, return_timestamps=False, **FEW)


@pytest.mark.parametrize(
    "options",
    [
        {"language": "fr"},
        {"task": "transcribe"},
        {"return_timestamps": True},
        {"initial_prompt": "a"},
        {"prompt_ids": [5]},
        {"chunk_length_s": 3},
        {"logprob_threshold": -1.0},
        {"condition_on_prev_tokens": True},
    ],
    ids=str,
)
def test_a_model_of_waves_refuses_what_it_knows_nothing_of(moonshine, options):
    with pytest.raises(OptionError, match="knows nothing of it"):
        moonshine.generate(SOUND, **options)


def test_a_model_of_waves_bounds_the_answer_by_the_length(moonshine):  # known problem A15
    ends = moonshine.generate(SOUND, eos_token_id=None)
    assert len(ends.segments[0].tokens) == int(0.5 * 6.5) - 1
    assert (
        len(moonshine.generate(SOUND, eos_token_id=None, max_new_tokens=9).segments[0].tokens) == 9
    )


def test_several_threads_may_use_one_model(model):
    alone = model.generate(SOUND, **FEW).text
    texts: list[str] = []
    threads = [
        threading.Thread(target=lambda: texts.append(model.generate(SOUND, **FEW).text))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [alone] * 3
