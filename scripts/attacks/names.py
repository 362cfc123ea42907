"""Hostile names of models, revisions and dtypes."""

from pathlib import Path
from typing import Any

from scripts.attacks import Cases

CASES = Cases()
NAMES: dict[str, dict[str, Any]] = {}  # name of the attack -> arguments of load


def _name(name: str, tries: str, must: str, **given: Any) -> None:
    def build(folder: Path) -> Path:
        return folder

    build.__name__ = name
    CASES.case(tries, must)(build)
    NAMES[name] = given


_name("nul", "a name with a NUL", "ModelNotFoundError", model="a\0b")
_name("empty", "no name", "ModelNotFoundError", model="")
_name("parent", "a repository above the cache", "ModelNotFoundError", model="../..")
_name("owner_parent", "an owner ..", "ModelNotFoundError", model="../name")
_name("name_parent", "a name ..", "ModelNotFoundError", model="owner/..")
_name("deep", "a repository with a subfolder", "ModelNotFoundError", model="owner/name/../../x")
_name("url", "an address", "ModelNotFoundError", model="https://example.org/model.onnx")
_name("file_url", "an address of a file", "ModelNotFoundError", model="file:///etc/passwd")
_name("long", "a name of 100,000 letters", "ModelNotFoundError", model="x" * 100_000)
_name("surrogate", "a name that is no text", "ModelNotFoundError", model="a\udcffb")
_name("new_line", "a repository with a line's end", "ModelNotFoundError", model="owner/name\n")
_name("home_of_nobody", "the home of a user that is not", "ModelNotFoundError", model="~nobody9/x")
_name("device", "a device", "ModelFileError", model="/dev/zero")
_name("no_graph", "a file that is no graph", "ModelFileError", model="/etc/passwd")
_name("dtype_path", "a dtype with a path", "OptionError", model="{folder}", dtype="q4/../../x")
_name("dtype_suffix", "a dtype with a path in the name", "OnnxgenError", model="{folder}:../x")
_name("dtype_nul", "a dtype with a NUL", "OptionError", model="{folder}", dtype="q4\0")
_name("dtype_number", "a dtype that is a number", "OptionError", model="{folder}", dtype=4)
_name("dtype_role", "a dtype for a role with a path", "OptionError", model="{folder}",
      dtype={"../decoder": "q4"})  # fmt: skip
_name("revision_parent", "a revision above the cache", "OptionError", model="owner/name",
      revision="../../x", offline=True)  # fmt: skip
_name("revision_nul", "a revision with a NUL", "OptionError", model="owner/name", revision="a\0b",
      offline=True)  # fmt: skip
_name("revision_absolute", "a revision that is a path", "OptionError", model="owner/name",
      revision="/etc/passwd", offline=True)  # fmt: skip

if __name__ == "__main__":
    CASES.write("names")
