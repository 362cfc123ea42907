"""Hostile inputs: what each tries and how it must end; each module here writes its own kind."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PLACE = Path(__file__).parent.parent.parent / "fixtures/attacks"
Build = Callable[[Path], Path]


@dataclass(frozen=True)
class Case:
    """One attack: ``build`` puts it into an empty folder and says what is to be loaded.

    ``must`` is the class of the error, or "loads", "runs". ``kept``: its files lie in the
    repository, and the test takes those; links and large files are built by the test.
    """

    name: str
    tries: str
    must: str
    build: Build
    kept: bool


class Cases(dict[str, Case]):
    """The attacks of one kind, in order."""

    def case(self, tries: str, must: str, *, kept: bool = False) -> Callable[[Build], Build]:
        """Enters the function below under its name."""

        def enter(build: Build) -> Build:
            self[build.__name__] = Case(build.__name__, tries, must, build, kept)
            return build

        return enter

    def write(self, kind: str) -> None:
        """Writes ``cases.json`` and the files that are kept."""
        place = PLACE / kind
        place.mkdir(parents=True, exist_ok=True)
        lines = [
            json.dumps({"name": case.name, "tries": case.tries, "must": case.must})
            for case in self.values()
        ]
        (place / "cases.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
        for case in self.values():
            if case.kept:
                folder = place / case.name
                folder.mkdir(exist_ok=True)
                case.build(folder)
