"""Ways to run the command: in this process, and in one of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.fixture_models import FIXTURES, FixtureModel

ROOT = Path(__file__).parents[2]
LLAMA = FixtureModel(FIXTURES / "models/llama")
BLOOM = FixtureModel(FIXTURES / "models/bloom")  # nothing bounds the length of its answers
Z = "z"  # the text of the first prompt of the llama fixtures, which is one token
ENDLESS = ["--max-new-tokens", "100000", "-o", "eos_token_id=null"]
# As long as the expected answers of the fixtures, which nothing ended.
LENGTH = ["--max-new-tokens", "32", "-o", "eos_token_id=null"]


def start(*words: str, **options) -> subprocess.Popen:
    """``python -m onnxgen WORDS`` with pipes, Ctrl-C as at a terminal."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTHONIOENCODING": "utf-8",
        "HF_HUB_OFFLINE": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "onnxgen", *words],
        env=env | options.pop("env", {}),
        # Background jobs of a shell, and so maybe the tests, ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **pipes | options,
    )


def run(*words: str, stdin: str = "", **options) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of a process of its own."""
    process = start(*words, **options)
    try:
        out, err = process.communicate(stdin.encode(), timeout=60)
    finally:
        process.kill()
    return process.returncode, out.decode(), err.decode()


def python(code: str) -> tuple[int, str, str]:
    """What a fresh interpreter makes of ``code``."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=60,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr
