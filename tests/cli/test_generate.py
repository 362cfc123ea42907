"""``onnxgen generate``: what comes out, from where prompts come, and how it ends."""

import json
import os
import re
import shutil
import signal

import pytest

from onnxgen.cli import main
from tests.cli.running import BLOOM, ENDLESS, LENGTH, LLAMA, Z, run, start
from tests.fixture_models import FIXTURES

MODEL = str(LLAMA.folder)
GREEDY = LLAMA.greedy[0]
CHAT = LLAMA.expected["chat"]  # its prompt as a text is a text like any other


def objects(out: str) -> list[dict]:
    return [json.loads(line) for line in out.splitlines()]


def test_json_holds_the_tokens_of_transformers_and_nothing_else(capsys):
    assert main(["generate", MODEL, Z, "--json", *LENGTH]) == 0
    out, err = capsys.readouterr()
    (answer,) = objects(out)
    assert answer["tokens"] == GREEDY
    assert answer["prompt_tokens"] == 1
    assert answer["finish_reason"] == "length"
    assert set(answer) == {"text", "tokens", "finish_reason", "prompt_tokens", "timings"}
    timings = answer["timings"]
    assert len(timings["per_token_ms"]) == len(GREEDY) - 1
    laps = timings["prefill_ms"] + sum(timings["per_token_ms"])
    assert timings["total_ms"] == pytest.approx(laps, abs=0.1)
    assert err == ""


@pytest.mark.parametrize("more", [[], ["--no-stream"]])
def test_text_is_that_of_transformers(more, capsys):
    assert main(["generate", MODEL, CHAT["rendered"], *LENGTH, *more]) == 0
    assert capsys.readouterr().out == CHAT["text"] + "\n"


@pytest.mark.parametrize("prompt", [[], ["-"]])
def test_stdin_is_the_prompt_without_its_last_line_break(prompt):
    code, out, err = run("generate", MODEL, *prompt, *LENGTH, stdin=CHAT["rendered"] + "\n")
    assert (code, out, err) == (0, CHAT["text"] + "\n", "")


def test_options_reach_the_generation(capsys):
    stop = GREEDY[7]
    end = GREEDY.index(stop) + 1
    assert main(["generate", MODEL, Z, "--json", "-o", f"eos_token_id=[{stop},2]"]) == 0
    (answer,) = objects(capsys.readouterr().out)
    assert (answer["tokens"], answer["finish_reason"]) == (GREEDY[:end], "stop")
    assert main(["generate", MODEL, "--max-new-tokens", "3", Z, "--json", "--threads", "1"]) == 0
    (answer,) = objects(capsys.readouterr().out)
    assert answer["tokens"] == GREEDY[:3]


def test_a_prompt_may_stand_behind_options_and_begin_with_a_dash(capsys):
    assert main(["generate", "--max-new-tokens", "2", MODEL, "--json", "--", "-x"]) == 0
    (answer,) = objects(capsys.readouterr().out)
    assert len(answer["tokens"]) == 2


def test_a_file_runs_as_one_batch_in_order(tmp_path, capsys):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text(f"{Z}\nWhat is\r\n{Z}\n")
    assert main(["generate", MODEL, "What is", "--json", *LENGTH]) == 0
    (other,) = objects(capsys.readouterr().out)
    assert main(["generate", MODEL, "-f", str(prompts), "--json", *LENGTH]) == 0
    out, err = capsys.readouterr()
    assert [a["tokens"] for a in objects(out)] == [GREEDY, other["tokens"], GREEDY]
    assert err == ""


def test_answers_of_a_file_take_a_line_each(capsys, monkeypatch, tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text(f"{Z}\n{Z}\n")
    newline = 201  # what the tokenizer of the fixtures makes of a line break
    assert newline in CHAT["prompt"]
    monkeypatch.setattr("onnxgen.generation.loop.Row.push", _push_newlines(newline))
    assert main(["generate", MODEL, "-f", str(prompts), "--max-new-tokens", "3"]) == 0
    assert capsys.readouterr().out == "\\n\\n\\n\n" * 2


def _push_newlines(newline):
    def push(row, token):
        row.tokens.append(newline)
        row.finish_reason = "length" if len(row.tokens) == row.budget else None

    return push


@pytest.mark.parametrize(
    ("content", "says"), [("", "line 1 of"), (f"{Z}\n\n{Z}", "line 2 of"), (None, "cannot be read")]
)
def test_a_file_without_prompts_is_a_usage_error(content, says, tmp_path, capsys):
    file = tmp_path / "prompts.txt"
    if content is not None:
        file.write_text(content)
    assert main(["generate", MODEL, "-f", str(file)]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["generate", MODEL], ["chat", MODEL], ["chat", MODEL, "-m", "-"]]
)
def test_stdin_that_is_no_text_is_a_usage_error(words):
    process = start(*words, env={"PYTHONIOENCODING": "utf-8:strict"})
    out, err = process.communicate(b"caf\xe9", timeout=60)
    assert (process.returncode, out) == (2, b"")
    assert err.startswith(b"onnxgen: error: stdin is no text")


def test_no_prompt_at_a_terminal_is_a_usage_error(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert main(["generate", MODEL]) == 2
    assert "there is no prompt" in capsys.readouterr().err


def test_stats_go_to_stderr(capsys):
    assert main(["generate", MODEL, Z, "--stats", "--json", *LENGTH]) == 0
    out, err = capsys.readouterr()
    assert len(objects(out)) == 1
    number = r"[\d.,]+"
    pattern = (
        rf"32 tokens, {number} tok/s after the first, first token {number} ms, "
        rf"1 prompt tokens, peak memory {number} [MG]B, selection by numpy\n"
    )
    assert re.fullmatch(pattern, err)


@pytest.mark.parametrize(
    ("options", "by"),
    [
        ([], "onnx"),
        (["--num-beams", "2"], "onnx"),
        (["--no-repeat-ngram-size", "3"], "numpy (because of no_repeat_ngram_size)"),
    ],
)
def test_stats_tell_what_chose_the_tokens(capsys, options, by):
    command = ["generate", MODEL, Z, "--stats", "--selection", "onnx", *options, *LENGTH]
    assert main(command) == 0
    assert capsys.readouterr().err.endswith(f", selection by {by}\n")


def test_other_selections_are_refused(capsys):
    assert main(["generate", MODEL, Z, "--selection", "torch"]) == 2
    assert "selection is 'torch'" in capsys.readouterr().err


def test_it_says_which_dtype_it_took(capsys):
    tjs = FIXTURES / "models/llama-tjs"
    assert main(["generate", str(tjs), Z, "--max-new-tokens", "1"]) == 0
    assert "onnxgen: dtype fp32 of " in capsys.readouterr().err
    assert main(["generate", f"{tjs}:fp32", Z, "--max-new-tokens", "1"]) == 0
    assert capsys.readouterr().err == ""


def test_warnings_are_one_clean_line(tmp_path, capsys):
    folder = tmp_path / "model"
    shutil.copytree(LLAMA.folder, folder)
    config = json.loads((folder / "generation_config.json").read_text())
    config |= {"min_length": 3, "min_new_tokens": 2, "max_new_tokens": 2}
    (folder / "generation_config.json").write_text(json.dumps(config))
    assert main(["generate", str(folder), Z]) == 0
    err = capsys.readouterr().err
    assert err.startswith("onnxgen: warning: ")
    assert "min_length" in err
    assert err.count("\n") == 1


def test_pieces_come_while_the_answer_goes_on():
    process = start("generate", str(BLOOM.folder), "a", *ENDLESS)
    try:
        assert process.stdout.read(1)
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


def test_a_closed_pipe_is_silent():
    read, write = os.pipe()
    process = start("generate", MODEL, Z, stdout=write)
    os.close(write)
    os.close(read)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (141, b"")


def test_ctrl_c_keeps_what_was_printed():
    chat = BLOOM.expected["chat"]
    process = start("generate", str(BLOOM.folder), chat["rendered"], *ENDLESS)
    whole = chat["text"].rstrip("\N{REPLACEMENT CHARACTER}").encode()
    head = process.stdout.read(len(whole))
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert head == whole
    assert rest.endswith(b"\n")
    assert err == b""


def test_options_go_by_the_names_of_transformers(capsys):
    words = ["generate", MODEL, Z, "--json", *LENGTH]
    drawing = ["--do-sample", "--seed", "5", "--temperature", "2", "--top-k", "40"]
    answers = []
    for more in ([], drawing, drawing, [*drawing, "--num-return-sequences", "2"]):
        assert main([*words, *more]) == 0
        answers.append([answer["tokens"] for answer in objects(capsys.readouterr().out)])
    assert answers[1] == answers[2] != answers[0]
    assert len(answers[3]) == 2
    assert answers[3][0] == answers[1][0]
    assert main([*words, "--num-beams", "3", "--logprobs"]) == 0
    (answer,) = objects(capsys.readouterr().out)
    assert answer["sequence_score"] < 0
    assert len(answer["token_logprobs"]) == 32
