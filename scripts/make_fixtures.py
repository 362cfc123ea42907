#!/usr/bin/env python3
"""Rebuilds fixtures/models: tiny random models by the real exporters, and what transformers says.

    scripts/make_fixtures.py [NAME ...] [--oracle PYTHON] [--builder PYTHON]

A NAME is a folder of fixtures/models or a family (`llama` rebuilds every folder of that family);
without one everything is rebuilt. Two environments are made once, under .cache in the repository,
unless existing interpreters are given. What the exporters print goes to .cache/fixtures/log.txt.
"""

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
SHARED = ["torch==2.13.0", "onnx", "onnxruntime", "sentencepiece", "accelerate"]
ORACLE = ["transformers==4.57.6", "optimum-onnx==0.1.0", "optimum==2.1.0", "onnxscript", "pillow"]
BUILDER = ["onnxruntime-genai==0.18.0", "transformers==5.24.0", "onnx_ir"]


def environment(name: str, packages: list[str]) -> Path:
    """The interpreter of .cache/NAME, which is made and filled first if it is not there."""
    folder = CACHE / name
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    wanted = "\n".join(SHARED + packages)
    if ready.exists() and ready.read_text() == wanted:
        return python
    print(f"making the environment {folder.relative_to(ROOT)}", file=sys.stderr)
    venv.create(folder, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "-q", *SHARED, *packages], check=True)
    ready.write_text(wanted)
    return python


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--oracle", type=Path, help="Python with torch, transformers, optimum-onnx")
    parser.add_argument("--builder", type=Path, help="Python with onnxruntime-genai")
    options = parser.parse_args()
    oracle = options.oracle or environment("oracle", ORACLE)
    builder = options.builder or environment("builder", BUILDER)
    command = [oracle, "-m", "oracle", "--builder", builder, "--work", CACHE / "fixtures"]
    result = subprocess.run(
        [*command, "--out", ROOT / "fixtures" / "models", *options.names],
        cwd=ROOT / "scripts",
        # some tools walk through sets of names while they write
        env=os.environ | {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "PYTHONHASHSEED": "0"},
    )
    sys.exit(result.returncode)


if __name__ == "__main__":
    main()
