"""``python -m onnxgen`` is the command ``onnxgen``."""

import sys

from onnxgen.cli import main

if __name__ == "__main__":
    sys.exit(main())
