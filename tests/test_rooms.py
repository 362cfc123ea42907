"""Each room of the package imports only rooms to its left; importing the package costs nothing."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixture_models import FIXTURES

PACKAGE = Path(__file__).parent.parent / "onnxgen"
ROOMS = {
    "errors": set(),
    "wire": {"errors"},
    "files": {"errors", "wire"},
    "graph": {"errors", "wire", "files"},
    "runtime": {"errors", "wire", "files", "graph"},
    "generation": {"errors"},
    "text": {"errors", "files"},
    "audio": {"errors", "files"},
    "vision": {"errors", "files"},
    "tasks": {"errors", "files", "graph", "runtime", "generation", "text", "audio", "vision"},
    "cli": {
        "errors",
        "files",
        "graph",
        "runtime",
        "generation",
        "text",
        "audio",
        "vision",
        "tasks",
    },
}


def imported(path: Path) -> set[str]:
    """The rooms that a module imports, those for type checking alone left out."""
    found = set()
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("onnxgen."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.ImportFrom) and node.module == "onnxgen":
            found.update(alias.name for alias in node.names if alias.name in ROOMS)
        elif isinstance(node, ast.Import):
            names = (alias.name.split(".") for alias in node.names)
            found.update(name[1] for name in names if name[0] == "onnxgen" and len(name) > 1)
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_imports_go_one_way(room):
    modules = [PACKAGE / f"{room}.py", *(PACKAGE / room).glob("**/*.py")]
    modules = [path for path in modules if path.exists()]
    assert modules
    for path in modules:
        assert imported(path) <= ROOMS[room] | {room}, path


def test_generation_knows_numpy_alone():
    for path in (PACKAGE / "generation").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                top = name.split(".")[0]
                assert top in {"numpy", "onnxgen"} | sys.stdlib_module_names, (path, name)


def test_importing_the_package_imports_nothing_else():
    code = (
        "import sys, onnxgen; "
        "print([m for m in ('numpy', 'onnx', 'onnxruntime', 'tokenizers', 'huggingface_hub') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("model", ["genai-llama", "llama"])  # whose cache is shared, and grows
def test_ids_need_neither_templates_nor_hashes(model):
    code = (
        "import sys, onnxgen; "
        "onnxgen.load(sys.argv[1]).generate([5, 6], max_new_tokens=2); "
        "print([m for m in ('jinja2', 'asyncio', 'hashlib', 'onnx.reference') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code, FIXTURES / "models" / model]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_files_stay_short():
    for path in PACKAGE.glob("**/*.py"):
        assert len(path.read_text().splitlines()) <= 500, path
