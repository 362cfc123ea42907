"""``onnxgen chat``: one-shot, line by line, and at a terminal."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from onnxgen.cli import main
from onnxgen.files import resolve
from onnxgen.text.tokenizer import Tokenizer
from tests.cli.running import BLOOM, ENDLESS, LENGTH, LLAMA, ROOT, run

MODEL = str(LLAMA.folder)
CHAT = LLAMA.expected["chat"]
QUESTION = CHAT["messages"][0]["content"]
FEW = ["--max-new-tokens", "4", "-o", "eos_token_id=null"]


def length(text: str) -> int:
    return len(Tokenizer.from_files(resolve(LLAMA.folder)).encode(text, add_special_tokens=False))


def turn(role: str, content: str) -> str:
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


def test_one_shot_is_the_answer_of_transformers(capsys):
    assert main(["chat", MODEL, "-m", QUESTION, *LENGTH]) == 0
    assert capsys.readouterr().out == CHAT["text"] + "\n"
    assert main(["chat", MODEL, "-m", QUESTION, "--no-stream", *LENGTH]) == 0
    assert capsys.readouterr().out == CHAT["text"] + "\n"


def test_a_message_from_stdin():
    said = run("chat", MODEL, "-m", "-", *LENGTH, stdin=QUESTION + "\n")
    assert said == (0, CHAT["text"] + "\n", "")


def test_stdin_is_asked_for_once(capsys):
    assert main(["chat", MODEL, "-m", "-", "-m", "-"]) == 2
    assert "stdin is asked for twice" in capsys.readouterr().err


@pytest.mark.parametrize("piped", [False, True])
def test_the_conversation_is_kept(piped):
    asked = [QUESTION, "Yo"]
    given = [] if piped else [word for text in asked for word in ("-m", text)]
    words = ["chat", MODEL, "-s", "Be short.", *given, *FEW, "--json"]
    code, out, err = run(*words, stdin="\n".join(asked) if piped else "")
    assert (code, err) == (0, "")
    first, second = [json.loads(line) for line in out.splitlines()]
    system, opened = turn("system", "Be short."), "<|im_start|>assistant\n"
    said = system + turn("user", QUESTION)
    assert first["prompt_tokens"] == length(said + opened)
    said += turn("assistant", first["text"]) + turn("user", "Yo")
    assert second["prompt_tokens"] == length(said + opened)


def test_the_system_message_is_part_of_the_prompt(capsys):
    assert main(["chat", MODEL, "-m", QUESTION, "-s", "Be short.", *FEW, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    prompt = turn("system", "Be short.") + turn("user", QUESTION) + "<|im_start|>assistant\n"
    assert answer["prompt_tokens"] == length(prompt)


class Terminal:
    """``onnxgen chat`` behind a pseudo-terminal."""

    def __init__(self, *words: str) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "onnxgen", "chat", *words],
            env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb", "LC_ALL": "C.UTF-8"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        os.close(slave)
        self.seen = ""

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)

    def wait_for(self, text: str) -> str:
        """What came up to ``text``."""
        end = time.monotonic() + 60
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            self.seen += os.read(self.master, 4096).decode(errors="replace")
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def interrupt_prompt(self) -> None:
        """Ctrl-C at the prompt, again while nothing comes of it.

        Python's input() shows its prompt a moment before it waits for signals; one that comes in
        between it sees only with the next.
        """
        for _ in range(30):
            self.interrupt()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=1)
                return

    def ends_with(self) -> int:
        """The exit code, with all output read so that the process is not held up."""
        while True:
            try:
                if not os.read(self.master, 4096):
                    break
            except OSError:  # the terminal is closed on the other side
                break
        return self.process.wait(timeout=60)


def test_commands_at_the_prompt():
    with Terminal(MODEL, *FEW) as terminal:
        terminal.wait_for("> ")
        terminal.type("/help\n")
        assert "/clear" in terminal.wait_for("> ")
        terminal.type("/exot\n")
        assert "did you mean /exit?" in terminal.wait_for("> ")
        terminal.type("/exit\n")
        assert terminal.ends_with() == 0


def test_a_conversation_at_the_prompt_can_be_cleared():
    with Terminal(MODEL, *FEW, "--stats") as terminal:
        counts = []
        for text in ("Yo", "Yo", "/clear", "Yo"):
            terminal.wait_for("> ")
            terminal.type(text + "\n")
            if text == "Yo":
                counts.append(terminal.wait_for(" prompt tokens").rpartition(" ms, ")[2])
        alone = length(turn("user", "Yo") + "<|im_start|>assistant\n")
        assert [int(counts[0]), int(counts[2])] == [alone, alone]
        assert int(counts[1]) > alone
        terminal.wait_for("> ")
        terminal.type("\x04")
        assert terminal.ends_with() == 0


def test_ctrl_c_stops_an_answer_and_then_the_program():
    with Terminal(str(BLOOM.folder), *ENDLESS) as terminal:
        terminal.wait_for("> ")
        terminal.type(BLOOM.expected["chat"]["messages"][0]["content"] + "\n")
        terminal.wait_for(BLOOM.expected["chat"]["text"][-8:])
        terminal.interrupt()
        terminal.wait_for("> ")
        terminal.interrupt_prompt()
        assert terminal.ends_with() == 130


def test_an_error_does_not_end_the_conversation():
    with Terminal(MODEL, *FEW) as terminal:
        terminal.wait_for("> ")
        terminal.type("z " * 200 + "\n")
        assert "the prompt has" in terminal.wait_for("to do: ")
        terminal.wait_for("> ")
        terminal.type("\x04")
        assert terminal.ends_with() == 0
