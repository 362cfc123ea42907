"""Keeps the table of fixtures/README.md: one row for each folder of fixtures/models."""

import json
from pathlib import Path

from . import fixtures, seq2seq_fixtures, speech_fixtures, vlm_fixtures, vlm_florence

BEGIN, END = "<!-- models: written by scripts/make_fixtures.py -->", "<!-- end of models -->"
HEAD = ["| folder | size | exporter | files | what is special |", "| --- | --- | --- | --- | --- |"]


def update(readme: Path, models: Path) -> None:
    """Writes the table anew between its two marks; folders that are not built are left out."""
    text = readme.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    rows, total = [], 0
    kinds = (fixtures, seq2seq_fixtures, speech_fixtures, vlm_fixtures, vlm_florence)
    for fixture in (each for kind in kinds for each in kind.ALL):
        folder = models / fixture.name
        if not folder.exists():
            continue
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        total += size
        exporter = json.loads((folder / "expected.json").read_text())["exporter"]
        files = ", ".join(fixture.files)
        rows.append(
            f"| `{fixture.name}` | {size / 1000:.0f} kB | {exporter} | {files} | {fixture.about} |"
        )
    table = "\n".join([*HEAD, *rows])
    summary = f"{len(rows)} folders, {total / 1e6:.1f} MB together."
    readme.write_text(f"{before}{BEGIN}\n{summary}\n\n{table}\n{END}{after}")
