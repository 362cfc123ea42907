"""``onnxgen transcribe``: what comes out in which form, what is told of bad recordings."""

import json
import os
import re
import signal

import numpy as np
import pytest

from onnxgen.cli import main
from tests.audio.sounds import FLOAT, RATE, chunk, fmt, pcm16, riff, tone
from tests.cli.loaded import keep
from tests.cli.running import LLAMA, run, start
from tests.fixture_models import FIXTURES

MODELS = FIXTURES / "models"
WHISPER, ENGLISH, TIMED, MOONSHINE = (
    str(MODELS / name) for name in ("whisper", "whisper-en", "whisper-timestamped", "moonshine")
)
# One attempt, a short one, with text in it whatever the tiny model makes of a tone.
FEW = ["--max-new-tokens", "5"]
ONCE = [*FEW, "--temperature-increment-on-fallback", "0"]
FORMS = ("txt", "vtt", "srt", "tsv", "json")


@pytest.fixture(autouse=True)
def _loaded_once(monkeypatch):
    keep(monkeypatch)


@pytest.fixture
def one(tmp_path) -> str:
    return wav(tmp_path, "one.wav", pcm16(tone(0.5)))


@pytest.fixture
def two(tmp_path) -> str:
    return wav(tmp_path, "two.wav", pcm16(tone(0.8, hertz=220)))


def wav(place, name: str, data: bytes) -> str:
    (place / name).write_bytes(data)
    return str(place / name)


def floats(value: float) -> bytes:
    samples = np.full(1600, value, "<f4").tobytes()
    return riff(fmt(FLOAT, 1, RATE, 4), chunk(b"data", samples))


def bad_recordings(place) -> dict[str, str]:
    """Files that are no recordings, with what the message says of each."""
    told = {
        "empty.wav": (b"", "is empty"),
        "text.wav": (b"a text that is named like a recording", "no audio that can be read"),
        "header.wav": (pcm16(tone())[:30], "ends before its samples begin"),
        "none.wav": (pcm16(np.zeros(0)), "holds no samples"),
        "nan.wav": (floats(np.nan), "NaN or infinity"),
        "infinite.wav": (floats(np.inf), "NaN or infinity"),
    }
    found = {wav(place, name, data): says for name, (data, says) in told.items()}
    return {**found, str(place / "missing.wav"): "there is no file", str(place): "Is a directory"}


def printed(capsys, *words: str) -> str:
    assert main(["transcribe", *words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refused(capsys, code: int, *words: str) -> str:
    assert main(["transcribe", *words]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert "unexpected" not in err
    return err


def objects(out: str) -> list[dict]:
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("model", [WHISPER, MOONSHINE])
def test_json_is_one_object_a_line(model, one, two, capsys):
    words = [*(ONCE if model == WHISPER else FEW), "--json"]
    for audio in ([one], [one, two]):
        found = objects(printed(capsys, model, *audio, *words))
        assert sorted(answer["audio"] for answer in found) == audio
        for answer in found:
            assert set(answer) == {"audio", "duration", "text", "segments", "language"}
            assert answer["duration"] == {one: 0.5, two: 0.8}[answer["audio"]]
            assert "".join(s["text"] for s in answer["segments"]).strip() == answer["text"].strip()
            assert answer["segments"]


def test_text_is_a_line_for_each_segment_behind_names_if_there_are_several(one, two, capsys):
    words = [WHISPER, one, two, *ONCE]
    found = {answer["audio"]: answer for answer in objects(printed(capsys, *words, "--json"))}
    lines = {name: [s["text"].strip() for s in found[name]["segments"]] for name in found}
    for more in ([], ["--no-stream"], ["-f", "txt"]):
        assert printed(capsys, WHISPER, one, *ONCE, *more).splitlines() == lines[one]
        several = printed(capsys, *words, *more).splitlines()
        wanted = [f"{name}\t{text}" for name in (one, two) for text in lines[name]]
        assert sorted(several) == sorted(wanted)


@pytest.mark.parametrize("model", [WHISPER, MOONSHINE])
def test_recordings_run_together_say_what_they_say_alone(model, one, two, capsys):
    words = [*(ONCE if model == WHISPER else FEW), "--json"]
    alone = [objects(printed(capsys, model, audio, *words))[0] for audio in (one, two)]
    for size in ("1", "2"):
        out = printed(capsys, model, one, two, "--batch-size", size, *words)
        found = {answer["audio"]: answer for answer in objects(out)}
        for answer in alone:
            assert found[answer["audio"]]["text"] == answer["text"]


def test_each_form_on_stdout_is_that_of_the_file(one, tmp_path, capsys):
    folder = tmp_path / "made" / "here"
    assert main(["transcribe", WHISPER, one, *ONCE, "-f", "all", "-o", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [f"onnxgen: wrote {folder}/one.{form}" for form in FORMS]
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"one.{f}" for f in FORMS)
    for form in FORMS:
        out = printed(capsys, WHISPER, one, *ONCE, "-f", form)
        assert out.endswith("\n")
        assert out.rstrip("\n") == (folder / f"one.{form}").read_text().rstrip("\n")
    stamp = r"\d\d:\d\d:\d\d,\d{3}"
    subtitles = (folder / "one.srt").read_text()
    assert re.match(rf"1\n{stamp} --> {stamp}\n", subtitles)
    assert (folder / "one.vtt").read_text().startswith("WEBVTT\n\n00:00.000 --> ")
    assert (folder / "one.tsv").read_text().startswith("start\tend\ttext\n0\t")
    assert set(json.loads((folder / "one.json").read_text())) == {"text", "segments", "language"}


def test_json_lines_go_with_files(one, tmp_path, capsys):
    words = ["--json", "-f", "srt", "-o", str(tmp_path / "o"), *ONCE]
    assert main(["transcribe", WHISPER, one, *words]) == 0
    out, err = capsys.readouterr()
    assert len(objects(out)) == 1
    assert err == f"onnxgen: wrote {tmp_path}/o/one.srt\n"


@pytest.mark.parametrize("form", ["vtt", "srt", "tsv", "json", "all"])
def test_several_recordings_need_a_folder_for_all_but_text(form, one, two, capsys):
    assert "add -o DIR" in refused(capsys, 2, WHISPER, one, two, "-f", form)


@pytest.mark.parametrize("form", FORMS)
def test_stdout_holds_one_form(form, one, capsys):
    assert "both want stdout" in refused(capsys, 2, WHISPER, one, "-f", form, "--json")


def test_names_that_collide_are_refused_before_anything_is_written(one, tmp_path, capsys):
    (tmp_path / "sub").mkdir()
    folder = str(tmp_path / "o")
    pairs = [
        (one, wav(tmp_path / "sub", "one.wav", b""), "one"),
        (one, wav(tmp_path, "one.mp3", b""), "one"),
        (one, one, "one"),
        ("-", wav(tmp_path, "stdin.wav", b""), "stdin"),
    ]
    for first, second, name in pairs:
        err = refused(capsys, 2, WHISPER, first, second, "-o", folder)
        assert f"two recordings are called '{name}'" in err
    assert not (tmp_path / "o").exists()


def test_a_folder_that_cannot_be_is_refused_before_the_model_is_loaded(one, tmp_path, capsys):
    for folder in (one, f"{one}/below", "/proc/none/here"):
        err = refused(capsys, 2, "no/such/model", one, "-o", folder)
        assert f"nothing can be written to {folder}" in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_rights_is_refused(one, tmp_path, capsys):
    (tmp_path / "locked").mkdir(mode=0o500)
    err = refused(capsys, 2, WHISPER, one, "-o", str(tmp_path / "locked"))
    assert "Permission denied" in err


def test_a_file_that_cannot_be_written_loses_nothing_of_the_others(one, two, tmp_path, capsys):
    folder = tmp_path / "o"
    (folder / "one.srt").mkdir(parents=True)
    words = ["-f", "all", "-o", str(folder), *FEW]
    assert main(["transcribe", MOONSHINE, one, two, *words]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert f"onnxgen: error: {folder}/one.srt cannot be written (Is a directory)" in err
    assert err.count("onnxgen: wrote ") == 2 * len(FORMS) - 1
    assert (folder / "one.json").is_file()
    assert (folder / "two.srt").is_file()


def test_an_option_behind_o_is_no_folder(one, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert "--option top_k=3" in refused(capsys, 2, WHISPER, one, "-o", "top_k=3")
    assert not (tmp_path / "top_k=3").exists()


@pytest.mark.parametrize("model", [WHISPER, MOONSHINE])
def test_stdin_is_a_recording(model, one, capsys):
    words = ONCE if model == WHISPER else FEW
    expected = printed(capsys, model, one, *words)
    with open(one, "rb") as file:  # noqa: PTH123
        process = start("transcribe", model, "-", *words, stdin=file)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out.decode(), err) == (0, expected, b"")


def test_a_pipe_is_a_recording_called_stdin(one, tmp_path):
    words = ["-f", "srt", "-o", str(tmp_path / "o"), *FEW]
    process = start("transcribe", MOONSHINE, "-", "--json", *words)
    with open(one, "rb") as file:  # noqa: PTH123
        out, _ = process.communicate(file.read(), timeout=60)
    assert process.returncode == 0
    assert objects(out.decode())[0]["audio"] == "stdin"
    assert (tmp_path / "o/stdin.srt").exists()


def test_an_empty_stdin_is_an_error():
    code, out, err = run("transcribe", MOONSHINE, "-")
    assert (code, out) == (1, "")
    assert "stdin" in err
    assert "is empty" in err


def test_stdin_is_asked_for_once(capsys):
    assert "stdin is named twice" in refused(capsys, 2, WHISPER, "-", "-")


@pytest.mark.parametrize("model", [WHISPER, MOONSHINE])
def test_a_bad_recording_alone_is_an_error(model, tmp_path, capsys):
    for name, says in bad_recordings(tmp_path).items():
        err = refused(capsys, 1, model, name)
        assert err.startswith(f"onnxgen: error: {name} ") or err.endswith(f"no file {name}\n")
        assert says in err
        assert err.count(name) == 1


@pytest.mark.parametrize("model", [WHISPER, MOONSHINE])
def test_bad_recordings_lose_nothing_of_the_others(model, one, two, tmp_path, capsys):
    words = ONCE if model == WHISPER else FEW
    bad = bad_recordings(tmp_path)
    good = printed(capsys, model, one, two, *words)
    for more in ([], ["--batch-size", "1"]):
        assert main(["transcribe", model, one, *bad, two, *words, *more]) == 1
        out, err = capsys.readouterr()
        assert sorted(out.splitlines()) == sorted(good.splitlines())
        assert err.count("onnxgen: error: ") == len(bad)
        assert [says for says in bad.values() if says not in err] == []


def test_a_recording_far_too_loud_loses_nothing_of_the_others(one, two, tmp_path, capsys):
    loud = wav(tmp_path, "loud.wav", floats(1e30))
    for more in ([], ["--chunk-length-s", "3"]):
        words = ["--json", *ONCE, *more]
        good = objects(printed(capsys, WHISPER, one, two, *words))
        assert main(["transcribe", WHISPER, one, loud, two, *words]) == 1
        out, err = capsys.readouterr()
        assert objects(out) == good
        assert err.startswith(f"onnxgen: error: {loud}: ")
        assert "full scale" in err


def test_a_recording_too_short_for_the_model_loses_nothing_of_the_others(
    one, two, tmp_path, capsys
):
    short = wav(tmp_path, "short.wav", pcm16(np.zeros(1)))
    good = printed(capsys, MOONSHINE, one, two, *FEW)
    assert main(["transcribe", MOONSHINE, one, short, two, *FEW]) == 1
    out, err = capsys.readouterr()
    assert out == good
    assert err.startswith(f"onnxgen: error: {short}: 0.000 s are too short for the model")
    (answer,) = objects(printed(capsys, WHISPER, short, "--json", *ONCE))
    assert answer["duration"] == 1 / RATE


def test_a_recording_that_is_cut_off_gives_what_is_there(tmp_path, capsys):
    whole = pcm16(tone(1.0))
    cut = wav(tmp_path, "cut.wav", whole[: len(whole) // 2])
    assert main(["transcribe", MOONSHINE, cut, "--json", *FEW]) == 0
    out, err = capsys.readouterr()
    assert objects(out)[0]["duration"] == pytest.approx(0.5, abs=0.01)
    assert err.startswith(f"onnxgen: warning: {cut} is cut off")


@pytest.mark.parametrize(
    ("rate", "channels"), [(8_000, 1), (192_000, 1), (44_100, 2), (16_000, 8), (48_000, 8)]
)
def test_any_rate_and_number_of_channels(rate, channels, tmp_path, capsys):
    samples = np.repeat(tone(0.5, rate=rate)[:, None], channels, axis=1)  # (T,C)
    name = wav(tmp_path, "a.wav", pcm16(samples, channels, rate))
    (answer,) = objects(printed(capsys, MOONSHINE, name, "--json", *FEW))
    assert answer["duration"] == pytest.approx(0.5, abs=1e-3)


def test_languages_are_codes_or_names(one, capsys):
    for name in ("fr", "french", "French", "<|fr|>"):
        (answer,) = objects(printed(capsys, WHISPER, one, "--json", "--language", name, *ONCE))
        assert answer["language"] == "fr"
    (answer,) = objects(printed(capsys, WHISPER, one, "--json", *ONCE))
    assert answer["language"] in {"en", "zh", "de", "es", "fr", "ja"}


@pytest.mark.parametrize("name", ["klingon", "welsh", "cy", "", "xx"])
def test_a_language_that_the_model_lacks_is_refused_with_the_valid_ones(name, one, capsys):
    err = refused(capsys, 2, WHISPER, one, "--language", name)
    assert f"no language {name!r}" in err
    assert "de, en, es, fr, ja, zh" in err


@pytest.mark.parametrize("words", [["--language", "fr"], ["--task", "translate"]])
def test_a_model_of_english_has_neither_languages_nor_tasks(words, one, capsys):
    assert "English only" in refused(capsys, 2, ENGLISH, one, *words)


def test_words_have_times_where_the_export_tells_them(one, capsys):
    (answer,) = objects(printed(capsys, TIMED, one, "--json", "--word-timestamps", *ONCE))
    words = [word for segment in answer["segments"] for word in segment["words"]]
    assert "".join(word["word"] for word in words).strip() == answer["text"].strip()
    assert all(0 <= word["start"] <= word["end"] for word in words)
    err = refused(capsys, 1, ENGLISH, one, "--word-timestamps", *ONCE)
    assert "cross-attention" in err


def test_subtitles_may_be_laid_out_by_words(one, capsys):
    words = ["--word-timestamps", "-f", "srt", "--max-words-per-line", "1", *ONCE]
    plain = printed(capsys, TIMED, one, *words)
    assert plain.startswith("1\n00:00:0")
    assert "<u>" in printed(capsys, TIMED, one, *words[:3], "--highlight-words", *ONCE)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--max-line-width", "9", "-f", "srt"], "--word-timestamps"),
        (["--highlight-words", "--word-timestamps"], "for -f txt"),
        (["--max-line-width", "9", "--word-timestamps", "-f", "json"], "for -f json"),
        (["--max-line-width", "0", "--word-timestamps", "-f", "srt"], "max_line_width is 0"),
        (["--max-line-width", "x"], "--max-line-width"),
        (["--beam-size", "2", "--num-beams", "2"], "--beam-size and --num-beams"),
        (["--beam-size", "0"], "num_beams is 0"),
        (["--batch-size", "0"], "batch_size is 0"),
        (["--chunk-length-s", "0"], "chunk_length_s is 0.0"),
        (["--chunk-length-s", "nan"], "chunk_length_s is nan"),
        (["--stride-length-s", "2"], "without chunk_length_s"),
        (["--chunk-length-s", "3", "--stride-length-s", "-1"], "stride_length_s is -1.0"),
        (["--chunk-length-s", "3", "--stride-length-s", "2"], "shorter than a chunk"),
        (["--temperature-increment-on-fallback", "nan"], "is nan"),
        (["--temperature-increment-on-fallback", "1e-9"], "is 1e-09"),
        (["--temperature-increment-on-fallback", "-0.2"], "is -0.2"),
        (["--temperature-increment-on-fallback", "x"], "neither a number nor none"),
        (["--temperature", "[0,1]", "--temperature-increment-on-fallback", "0.5"], "list"),
        (["--temperature", "hot"], "temperature is 'hot'"),
        (["--temperature", "-1"], "temperature is -1.0"),
        (["--logprob-threshold", "nan"], "logprob_threshold is nan"),
        (["--no-speech-threshold", "0.5", "--logprob-threshold", "none"], "no_speech_threshold"),
        (["--initial-prompt", "<|en|>"], "special tokens"),
        (["--seeds", "[1,2]"], "2 seeds for 1 recordings"),
        (["--num-beams", "2", "--num-return-sequences", "2"], "num_return_sequences"),
        (["--logprobs"], "logprobs for speech"),
        (["--option", "topk=1"], "topk"),
        (["--task", "sing"], "sing"),
        (["-f", "doc"], "doc"),
    ],
)
def test_options_that_make_no_sense_are_refused(words, says, one, capsys):
    assert says in refused(capsys, 2, WHISPER, one, *words)


@pytest.mark.parametrize(
    "words",
    [
        ["--language", "fr"],
        ["--task", "translate"],
        ["--word-timestamps"],
        ["--initial-prompt", "a"],
        ["--condition-on-previous-text"],
        ["--chunk-length-s", "3"],
        ["--logprob-threshold", "-2"],
        ["--temperature-increment-on-fallback", "0.5"],
    ],
)
def test_a_model_of_waves_refuses_what_it_knows_nothing_of(words, one, capsys):
    assert "knows nothing of it" in refused(capsys, 2, MOONSHINE, one, *words)


def test_a_model_of_waves_samples_by_its_seed(one, capsys):
    words = ["--json", "--do-sample", "--temperature", "1.5", *FEW]
    texts = [
        objects(printed(capsys, MOONSHINE, one, *words, "--seed", seed))[0]["text"]
        for seed in ("1", "1", "2", "3")
    ]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1


def test_attempts_end_with_a_temperature_of_one(one, capsys):
    never = ["--logprob-threshold", "5", "--no-speech-threshold", "none", *FEW, "--json"]
    for step, last in (("0.5", 1.0), ("0.4", 0.8), ("0", 0.0), ("none", 0.0)):
        words = [*never, "--temperature-increment-on-fallback", step]
        (answer,) = objects(printed(capsys, WHISPER, one, *words))
        assert {segment["temperature"] for segment in answer["segments"]} <= {last}
    (answer,) = objects(printed(capsys, WHISPER, one, *never, "--temperature", "[0,0.3]"))
    assert {segment["temperature"] for segment in answer["segments"]} <= {0.3}


@pytest.mark.parametrize(
    ("model", "command"),
    [
        (str(LLAMA.folder), "generate"),
        (str(MODELS / "t5"), "generate"),
        (str(MODELS / "vit-gpt2"), "caption"),
    ],
)
def test_models_of_other_senses_name_their_command(model, command, one, capsys):
    assert f"onnxgen {command} {model}" in refused(capsys, 1, model, one)


def test_no_recording_is_a_usage_error(capsys):
    assert "AUDIO" in refused(capsys, 2, WHISPER)


def test_stats_tell_how_fast_it_was(one, two, capsys):
    assert main(["transcribe", MOONSHINE, one, two, "--stats", *FEW]) == 0
    number = r"[\d.,]+"
    pattern = (
        rf"1\.3 s of audio in {number} s, {number} times real time, peak memory {number} [MG]B\n"
    )
    assert re.fullmatch(pattern, capsys.readouterr().err)


def test_help_shows_its_options(capsys):
    out = printed(capsys, "--help")
    for word in ("--language", "--word-timestamps", "-f", "-o", "exit code is 1", *FORMS):
        assert word in out


def test_a_closed_pipe_is_silent(one):
    read, write = os.pipe()
    process = start("transcribe", MOONSHINE, one, *FEW, stdout=write)
    os.close(write)
    os.close(read)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (141, b"")


@pytest.mark.parametrize("model", [WHISPER, MOONSHINE])
def test_ctrl_c_ends_it_with_the_lines_so_far(model, one):
    words = ONCE if model == WHISPER else FEW
    process = start("transcribe", model, *[one] * 20_000, "--batch-size", "1", *words)
    head = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")
    assert head.startswith(one.encode() + b"\t")
    assert rest == b"" or rest.endswith(b"\n")


def test_ctrl_c_ends_the_wait_for_stdin():
    process = start("transcribe", MOONSHINE, "-", "--stats")
    process.stdin.write(pcm16(tone(5.0)))  # more than a pipe holds: it is being read
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")
