"""``onnxgen download``: local folders are listed, repositories fetched."""

import json

from onnxgen.cli import main
from tests.cli.running import LENGTH, LLAMA, run
from tests.fake_hub import FakeHub

NAMES = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "model.onnx",
}


def test_a_folder_is_listed_with_sizes(capsys):
    assert main(["download", str(LLAMA.folder)]) == 0
    out, err = capsys.readouterr()
    first, *rows, last = out.splitlines()
    assert first == str(LLAMA.folder)
    assert {row.split()[0] for row in rows} == NAMES
    total = sum((LLAMA.folder / name).stat().st_size for name in NAMES)
    assert last.split() == ["6", "files", f"{total / 1000:.1f}", "kB"]
    assert err == ""


def test_a_repository_is_fetched_in_one_dtype(tmp_path):
    files = {path.name: path.read_bytes() for path in LLAMA.folder.iterdir()}
    with FakeHub() as hub:
        hub.commit("owner/name", files | {"model_q4.onnx": files["model.onnx"]})
        env = {
            "HF_ENDPOINT": hub.endpoint,
            "HF_HOME": str(tmp_path),
            "HF_HUB_OFFLINE": "0",
            "NO_PROXY": "127.0.0.1",
        }
        code, out, err = run("download", "owner/name:q4", "--json", env=env)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert {file["name"] for file in found["files"]} == NAMES - {"model.onnx"} | {"model_q4.onnx"}
    assert found["dtypes"] == {"decoder": "q4"}
    assert found["bytes"] == sum(file["bytes"] for file in found["files"])
    assert found["folder"].startswith(str(tmp_path))

    # The Hub is gone now; the cached copy does, with a warning or, when asked for, without.
    words = ["generate", "owner/name:q4", "z", "--json", *LENGTH]
    code, out, err = run(*words, env=env)
    assert (code, json.loads(out)["tokens"]) == (0, LLAMA.greedy[0])
    assert err.startswith("onnxgen: warning: the Hub cannot be reached")
    assert err.count("\n") == 1
    code, out, err = run(*words, "--offline", env=env)
    assert (code, err, json.loads(out)["tokens"]) == (0, "", LLAMA.greedy[0])
