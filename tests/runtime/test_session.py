"""What sessions do to the process around them."""

import subprocess
import sys

from tests.fixture_models import FIXTURES

PROGRAM = """
import sys
import onnxgen
onnxgen.load(sys.argv[1], rewrites=False).generate([1, 2, 3], max_new_tokens=2)
print(5e-324 == 0)
"""


def test_the_callers_thread_still_knows_denormal_numbers():
    command = [sys.executable, "-c", PROGRAM, str(FIXTURES / "models/genai-llama")]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "False\n"
