"""Generations of mixed lengths leave the process as large as it was."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]
SCRIPT = Path(__file__).parent.parent.parent / "scripts/bench_memory.py"


@pytest.mark.parametrize("name", ["smollm2-gqa-int4", "smollm2-optimum"])
def test_memory_stays_flat_over_mixed_lengths(name, real_models):  # known problem P2
    bounds = ["--generations", "10", "--longest", "1200", "--max-growth", "1.0"]
    command = [sys.executable, SCRIPT, real_models / name, *bounds]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
