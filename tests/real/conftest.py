"""The real models that ``scripts/real_models`` builds; these tests are asked for by path."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def real_models() -> Path:
    folder = Path(os.environ.get("ONNXGEN_REAL_MODELS") or ROOT / ".real")
    if not (folder / "smollm2-gqa").exists():
        pytest.fail(f"no real models in {folder}: run scripts/real_models first")
    return folder
