"""Hub repositories against a fake Hub: what is asked for, what is kept, what goes wrong."""

import errno
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import numpy as np
import onnxruntime
import pytest
from huggingface_hub import constants, file_download

from onnxgen.errors import HubError, ModelFileError, ModelNotFoundError, OptionError
from onnxgen.files import external_data_locations, resolve
from tests.fake_hub import LFS_BYTES, FakeHub
from tests.tiny_graphs import in_parts, plain

REPO = "owner/name"
CONFIG = b'{"model_type": "any"}'

# A repository as people upload them: two dtypes with external data, one without, and much else.
FILES = {
    ".gitattributes": b"*",
    "README.md": b"# read me",
    "config.json": CONFIG,
    "generation_config.json": b'{"max_length": 20}',
    "tokenizer.json": b"{" + b" " * LFS_BYTES + b"}",
    "tokenizer_config.json": b'{"legacy": true}',
    "additional_chat_templates/tool_use.jinja": b"{{ tools }}",
    "model.safetensors": b"s" * 2 * LFS_BYTES,
    "quantize_config.json": b"{}",
    **{f"onnx/{name}": content for name, content in in_parts("model.onnx").items()},
    **{f"onnx/{name}": content for name, content in in_parts("model_q4.onnx").items()},
    "onnx/model_quantized.onnx": plain(8.0),
}
BESIDE = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "additional_chat_templates/tool_use.jinja",
}
FP32 = ["onnx/model.onnx", "onnx/model.onnx_data", "onnx/model.onnx_data_1"]
Q4 = ["onnx/model_q4.onnx", "onnx/model_q4.onnx_data", "onnx/model_q4.onnx_data_1"]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A Hub at HF_ENDPOINT, an empty cache, no waiting between tries, no other requests."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no token"))
    monkeypatch.setattr(file_download, "time", SimpleNamespace(sleep=lambda _: None))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    huggingface_hub.close_session()
    with FakeHub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        server.commit(REPO, FILES)
        yield server
    huggingface_hub.close_session()


def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache/models--owner--name"


def held(folder: Path) -> set[str]:
    """Files in a snapshot."""
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def cut_off(server: FakeHub) -> None:
    """Takes the Hub away, as if the network were down."""
    server.__exit__()
    huggingface_hub.close_session()  # its open connections would still be served


# ---------------------------------------------------------------- what is downloaded


def test_only_what_the_dtype_needs(hub: FakeHub, tmp_path: Path) -> None:
    files = resolve(f"{REPO}:q4")
    assert set(hub.fetched()) == BESIDE | set(Q4)
    assert held(files.folder) == BESIDE | set(Q4)
    # The choice comes before large files, the graph before its data.
    assert hub.fetched()[0] == "config.json"
    assert hub.fetched()[-3:] == Q4
    assert hub.kinds().count("list") == 1

    assert files.source == f"{REPO}:q4"
    assert files.layout == "transformers.js"
    assert files.dtypes == {"decoder": "q4"}
    assert files.variants == {
        "decoder": {
            "fp32": "onnx/model.onnx",
            "q8": "onnx/model_quantized.onnx",
            "q4": "onnx/model_q4.onnx",
        }
    }
    assert files.chosen == ""
    assert files.json("config.json") == {"model_type": "any"}
    relative = {path.relative_to(files.folder).as_posix() for path in files.files()}
    assert relative == BESIDE | set(Q4)


# known problem L2
def test_the_standard_cache_layout_which_ort_can_load(hub: FakeHub, tmp_path: Path) -> None:
    sha = hub.repositories[REPO].branches["main"]
    files = resolve(REPO)
    assert files.folder == cache(tmp_path) / "snapshots" / sha
    assert (cache(tmp_path) / "refs/main").read_text() == sha
    graph = files.graphs["decoder"]
    assert graph == files.folder / "onnx/model.onnx"  # the link, not the blob
    assert graph.is_symlink()
    for part in external_data_locations(graph):
        assert (graph.parent / part).is_symlink()
        assert (graph.parent / part).resolve().parent == cache(tmp_path) / "blobs"

    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    x = np.linspace(0, 1, 4096, dtype=np.float32)
    (y,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(y, 2 * x + np.arange(4096, dtype=np.float32))

    # What huggingface_hub itself makes of it.
    info = huggingface_hub.scan_cache_dir(tmp_path / "cache")
    assert not info.warnings
    (repo,) = info.repos
    (revision,) = repo.revisions
    assert (repo.repo_id, revision.commit_hash, revision.refs) == (REPO, sha, {"main"})
    path = huggingface_hub.hf_hub_download(
        REPO, "onnx/model.onnx", cache_dir=tmp_path / "cache", local_files_only=True
    )
    assert Path(path) == graph


@pytest.mark.parametrize(
    ("config", "dtype", "parts"),
    [
        ({}, "fp32", FP32),
        ({"transformers.js_config": {"dtype": "q4"}}, "q4", Q4),
        (
            {"transformers.js_config": {"dtype": {"model": "q8"}}},
            "q8",
            ["onnx/model_quantized.onnx"],
        ),
    ],
)
def test_default_dtype(
    hub: FakeHub, config: dict[str, object], dtype: str, parts: list[str]
) -> None:
    hub.commit(REPO, FILES | {"config.json": json.dumps(config).encode()})
    files = resolve(REPO)
    assert files.dtypes == {"decoder": dtype}
    assert files.chosen.startswith(f"dtype {dtype} of fp32, q8 and q4: ")
    assert [name for name in hub.fetched() if name.startswith("onnx/")] == parts


def test_best_that_exists(hub: FakeHub) -> None:
    hub.commit(REPO, {name: c for name, c in FILES.items() if name not in FP32})
    assert resolve(REPO).dtypes == {"decoder": "q8"}


def test_absent_dtype_is_told_before_anything_large_comes(hub: FakeHub) -> None:
    with pytest.raises(OptionError) as caught:
        resolve(f"{REPO}:fp16")
    assert caught.value.wanted == "decoder: fp32, q8, q4"
    assert hub.fetched() == ["config.json"]


def test_no_decoder(hub: FakeHub) -> None:
    hub.commit(REPO, {"config.json": CONFIG, "model.safetensors": b"s"})
    with pytest.raises(ModelNotFoundError, match=r"found model\.safetensors[^$]*optimum-cli"):
        resolve(REPO)
    hub.commit(REPO, {})
    with pytest.raises(ModelNotFoundError, match="found nothing"):
        resolve(REPO)


def test_genai_and_split_repositories(hub: FakeHub) -> None:
    config = {"model": {"decoder": {"filename": "net.onnx"}}}
    hub.commit(REPO, {"genai_config.json": json.dumps(config).encode(), **in_parts("net.onnx")})
    files = resolve(REPO)
    assert files.layout == "genai"
    assert held(files.folder) == {"genai_config.json", *in_parts("net.onnx")}

    pair = ("encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx")
    hub.commit("owner/pair", {name: plain(i) for i, name in enumerate(pair)})
    assert set(resolve("owner/pair").graphs) == {"decoder", "decoder_with_past", "encoder"}
    assert held(resolve("owner/pair").folder) == set(pair)


def test_part_that_the_repository_lacks(hub: FakeHub) -> None:
    hub.commit(REPO, {name: c for name, c in FILES.items() if name != FP32[2]})
    with pytest.raises(
        ModelFileError, match=r"onnx/model\.onnx_data_1, which the repository lacks"
    ):
        resolve(REPO)


def test_location_that_leaves_the_repository(hub: FakeHub) -> None:
    graph = FILES["onnx/model.onnx"].replace(b"model.onnx_data_1", b"../../../../x.bin")
    hub.commit(REPO, FILES | {"onnx/model.onnx": graph})
    with pytest.raises(ModelFileError, match="keeps weights at"):
        resolve(REPO)


def test_listed_names_that_leave_the_folder_are_never_fetched(hub: FakeHub, tmp_path: Path) -> None:
    evil = ("../../evil.jinja", "..\\..\\evil.jinja")
    hub.commit(REPO, FILES | {f"additional_chat_templates/{name}": b"x" for name in evil})
    files = resolve(f"{REPO}:q8")
    assert held(files.folder) == BESIDE | {"onnx/model_quantized.onnx"}
    assert not list(tmp_path.rglob("*evil*"))


# ---------------------------------------------------------------- what is asked for again


def test_second_time_asks_for_the_listing_alone(hub: FakeHub) -> None:
    first = resolve(REPO)
    hub.requests.clear()
    assert resolve(REPO) == first
    assert hub.kinds() == ["list"]


def test_at_a_commit_nothing_is_asked_for(hub: FakeHub) -> None:
    sha = hub.repositories[REPO].branches["main"]
    first = resolve(REPO, revision=sha)
    hub.requests.clear()
    assert resolve(REPO, revision=sha) == first
    assert hub.kinds() == []
    # Other dtypes of that commit are known too, though not yet here.
    assert resolve(f"{REPO}:q8", revision=sha).dtypes == {"decoder": "q8"}
    assert hub.fetched() == ["onnx/model_quantized.onnx"]
    # The choice does not depend on what happens to be cached.
    assert resolve(REPO, revision=sha) == first


def test_at_a_commit_that_another_program_downloaded(hub: FakeHub, tmp_path: Path) -> None:
    sha = hub.repositories[REPO].branches["main"]
    for name in [*BESIDE, *Q4]:
        huggingface_hub.hf_hub_download(
            REPO, name, cache_dir=tmp_path / "cache", endpoint=hub.endpoint
        )
    hub.requests.clear()
    resolve(f"{REPO}:q4", revision=sha)
    assert hub.kinds() == ["list"]
    hub.requests.clear()
    resolve(f"{REPO}:q4", revision=sha)
    assert hub.kinds() == []


def test_a_new_commit_takes_only_what_changed(hub: FakeHub) -> None:
    old = resolve(f"{REPO}:q4")
    hub.commit(REPO, FILES | {"config.json": b'{"model_type": "new"}'})
    hub.requests.clear()
    new = resolve(f"{REPO}:q4")
    assert new.folder != old.folder
    assert new.json("config.json") == {"model_type": "new"}
    assert hub.fetched() == ["config.json"]  # the rest is linked to the same blobs


def test_revisions(hub: FakeHub) -> None:
    sha = hub.commit(REPO, FILES | {"config.json": b'{"branch": "dev"}'}, branch="refs/pr/1")
    assert resolve(f"{REPO}:q8", revision="refs/pr/1").json("config.json") == {"branch": "dev"}
    assert resolve(f"{REPO}:q8", revision=sha).json("config.json") == {"branch": "dev"}
    assert resolve(f"{REPO}:q8").json("config.json") == {"model_type": "any"}
    with pytest.raises(ModelNotFoundError, match="no revision 'nope'"):
        resolve(REPO, revision="nope")
    for revision in ("../../etc", "/etc/passwd", "a\0b"):
        with pytest.raises(OptionError, match="is no revision"):
            resolve(REPO, revision=revision)


def test_another_cache(hub: FakeHub, tmp_path: Path) -> None:
    files = resolve(f"{REPO}:q8", cache_dir=tmp_path / "other")
    assert files.folder.is_relative_to(tmp_path / "other/models--owner--name/snapshots")
    assert not (tmp_path / "cache").exists()


# ---------------------------------------------------------------- without a connection


@pytest.mark.parametrize("how", ["option", "environment"])
def test_offline(hub: FakeHub, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    first = resolve(f"{REPO}:q4")
    hub.requests.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", how == "environment")
    offline = True if how == "option" else None
    assert resolve(f"{REPO}:q4", offline=offline) == first
    # Without a dtype, the choice is among what is here.
    free = resolve(REPO, offline=offline)
    assert free.dtypes == {"decoder": "q4"}
    assert free.chosen == (
        "dtype q4 of fp32, q8 and q4: none was asked for, and not all are in the cache"
    )
    with pytest.raises(ModelNotFoundError, match="not in the cache"):
        resolve(f"{REPO}:q8", offline=offline)
    with pytest.raises(OptionError, match="no fp16 file"):
        resolve(f"{REPO}:fp16", offline=offline)
    with pytest.raises(ModelNotFoundError, match="not in the cache"):
        resolve("owner/never-seen", offline=offline)
    with pytest.raises(ModelNotFoundError, match="owner/name at revision dev is no folder here"):
        resolve(REPO, revision="dev", offline=offline)
    assert hub.kinds() == []


def test_offline_with_what_another_program_downloaded(hub: FakeHub, tmp_path: Path) -> None:
    for name in ["config.json", *Q4]:
        huggingface_hub.hf_hub_download(
            REPO, name, cache_dir=tmp_path / "cache", endpoint=hub.endpoint
        )
    files = resolve(REPO, offline=True)
    assert files.variants == {"decoder": {"q4": "onnx/model_q4.onnx"}}


def test_offline_with_an_incomplete_copy(hub: FakeHub, tmp_path: Path) -> None:
    two_roles = FILES | {"onnx/vision_encoder.onnx": plain(), "onnx/embed_tokens.onnx": plain()}
    hub.commit(REPO, two_roles)
    files = resolve(REPO)
    sha = files.folder.name
    for name in ("onnx/vision_encoder.onnx", "tokenizer.json"):
        (files.folder / name).unlink()
        with pytest.raises(ModelNotFoundError, match=f"{name}, which is not in the cache"):
            resolve(REPO, offline=True)
        assert resolve(REPO, revision=sha) == files  # online, it is mended
    # A dtype without its data does not count; one that is whole does.
    (files.folder / "onnx/model.onnx_data_1").unlink()
    with pytest.raises(ModelNotFoundError, match=r"the decoder needs onnx/model\.onnx_data_1, wh"):
        resolve(REPO, offline=True)
    (files.folder / "onnx/model_quantized.onnx").write_bytes(plain())
    assert resolve(REPO, offline=True).dtypes["decoder"] == "q8"
    with pytest.raises(ModelNotFoundError, match=r"onnx/model\.onnx_data_1, which is not"):
        resolve(REPO, dtype={"decoder": "fp32"}, offline=True)


def test_offline_with_half_a_pair(hub: FakeHub) -> None:
    names = ("decoder_model.onnx", "decoder_with_past_model.onnx", "model_q4.onnx")
    hub.commit(REPO, {name: plain(i) for i, name in enumerate(names)})
    files = resolve(REPO, dtype="fp32")
    (files.folder / names[1]).unlink()
    with pytest.raises(ModelNotFoundError, match=f"needs {names[1]}"):
        resolve(REPO, offline=True)
    resolve(f"{REPO}:q4")
    (files.folder / names[1]).unlink(missing_ok=True)
    assert resolve(REPO, offline=True).dtypes == {"decoder": "q4"}
    with pytest.raises(ModelNotFoundError, match=f"needs {names[1]}"):
        resolve(f"{REPO}:fp32", offline=True)


@pytest.mark.parametrize("failure", ["refused", 500, 503, 429])
def test_hub_down_but_cached(hub: FakeHub, failure: int | str) -> None:
    first = resolve(f"{REPO}:q4")
    if failure == "refused":
        cut_off(hub)
    else:
        hub.status = int(failure)
    with pytest.warns(UserWarning, match=r"cannot be reached .* using the cached copy") as warned:
        assert resolve(f"{REPO}:q4") == first
    assert warned[0].filename == __file__


def test_hub_that_does_not_answer(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    first = resolve(f"{REPO}:q4")
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.1)
    hub.silent.set()
    with pytest.warns(UserWarning, match="using the cached copy"):
        assert resolve(f"{REPO}:q4") == first
    hub.silent.clear()


def test_hub_down_and_nothing_cached(hub: FakeHub) -> None:
    hub.status = 503
    with pytest.raises(HubError, match=r"cannot be reached \(HTTP 503\)"):
        resolve(REPO)
    hub.status = None
    cut_off(hub)
    with pytest.raises(HubError, match=r"cannot be reached \(ConnectError\)"):
        resolve(REPO)


def test_cached_graph_that_is_broken_hinders_no_other(hub: FakeHub) -> None:
    resolve(f"{REPO}:q8")
    files = resolve(f"{REPO}:q4")
    graph = files.folder / "onnx/model_quantized.onnx"
    graph.unlink()
    graph.write_bytes(b"")
    assert resolve(f"{REPO}:q4", offline=True).graphs == files.graphs
    with pytest.raises(ModelFileError, match=r"model_quantized\.onnx is empty"):
        resolve(f"{REPO}:q8", offline=True)


def test_local_models_do_not_wait_for_the_hub_client() -> None:
    code = "import sys, onnxgen.files; sys.exit('huggingface_hub' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_hub_that_is_none(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "nonsense")
    with pytest.raises(HubError, match="HF_ENDPOINT"):
        resolve(REPO)


# ---------------------------------------------------------------- interruptions


def test_dropped_connection_is_resumed(hub: FakeHub) -> None:
    hub.drops = {FP32[1]: [5000, 3000]}
    files = resolve(REPO)
    assert (files.folder / FP32[1]).read_bytes() == FILES[FP32[1]]
    starts = [r.start for r in hub.requests if r.path.endswith("/model.onnx_data") and r.start]
    assert starts == [5000, 8000]


def test_broken_download_is_never_taken_for_whole(
    hub: FakeHub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hub.drops = {FP32[1]: [5000] + [0] * 5}
    with pytest.raises(HubError, match=r"model\.onnx_data from owner/name broke off") as caught:
        resolve(REPO)
    assert "model.onnx_data" in caplog.text  # huggingface_hub tells of each new try,
    assert "SECRET" not in caplog.text + str(caught.value)  # but not the signature
    assert "run it again" in caught.value.do
    (snapshot,) = (cache(tmp_path) / "snapshots").iterdir()
    assert not (snapshot / FP32[1]).exists()
    assert not (cache(tmp_path) / "refs/main").exists()
    with pytest.raises(ModelNotFoundError, match="not in the cache"):
        resolve(REPO, offline=True)
    # A killed process leaves its partial file behind: that is no blob either.
    partial = cache(tmp_path) / "blobs" / "0123.incomplete"
    partial.write_bytes(b"half")

    before = len(hub.fetched())
    files = resolve(REPO)
    assert hub.fetched()[before:] == FP32[1:]  # what was whole is kept
    starts = [
        r.start for r in hub.requests if r.path.endswith("/model.onnx_data") and r.path[1] == "c"
    ]
    assert starts == [0, *[5000] * 5, 0]  # what was not begins anew
    for name in FP32:
        assert (files.folder / name).read_bytes() == FILES[name]


def test_copy_cut_short_between_two_graphs_is_known_to_be(hub: FakeHub) -> None:
    vision = "onnx/vision_encoder_quantized.onnx"
    sha = hub.commit(REPO, FILES | {vision: plain(9.0)})
    hub.drops = {vision: [0] * 6}
    with pytest.raises(HubError, match="broke off"):
        resolve(f"{REPO}:q8", revision=sha)
    # The decoder is whole, and by itself would pass for a model of text.
    with pytest.raises(ModelNotFoundError, match=f"the vision_encoder needs {vision}"):
        resolve(REPO, revision=sha, offline=True)


def test_broken_update_leaves_the_old_copy_in_use(hub: FakeHub) -> None:
    old = resolve(REPO)
    changed = FILES | {FP32[2]: b"\0" * 4 * 4096}
    hub.commit(REPO, changed)
    hub.drops = {FP32[2]: [0] * 6}
    with pytest.raises(HubError, match="broke off"):
        resolve(REPO)
    assert resolve(REPO, offline=True).graphs == old.graphs
    assert resolve(REPO).folder != old.folder


def test_file_that_is_listed_but_not_given(hub: FakeHub) -> None:
    hub.repositories[REPO].withheld.add("tokenizer.json")
    with pytest.raises(ModelNotFoundError, match=r"lists the file tokenizer\.json"):
        resolve(REPO)


@pytest.mark.parametrize(
    ("code", "says"), [(errno.ENOSPC, "the disk is full"), (errno.EROFS, "cannot be written")]
)
def test_disk_troubles(hub: FakeHub, monkeypatch: pytest.MonkeyPatch, code: int, says: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(file_download, "http_get", fail)
    with pytest.raises(HubError, match=says):
        resolve(REPO)


# ---------------------------------------------------------------- refusals


def test_no_such_repository(hub: FakeHub) -> None:
    for token in (None, "hf_mine"):
        with pytest.raises(ModelNotFoundError) as caught:
            resolve("owner/nothing", token=token)
        assert "owner/nothing" in caught.value.found
        assert "token" in caught.value.do


@pytest.mark.parametrize("name", ["a--b/c", "a/b..c", "a/b.git", "owner/" + "n" * 200])
def test_impossible_repositories(hub: FakeHub, name: str) -> None:
    with pytest.raises(ModelNotFoundError, match="no repository can have that name"):
        resolve(name)
    assert hub.requests == []


def test_private_repository(hub: FakeHub) -> None:
    hub.repositories[REPO].token = "hf_mine"
    with pytest.raises(ModelNotFoundError, match=r"is private[^$]*HF_TOKEN"):
        resolve(REPO)
    with pytest.raises(ModelNotFoundError) as caught:
        resolve(REPO, token="hf_wrong")
    assert "hf_wrong" not in str(caught.value)
    files = resolve(REPO, token="hf_mine")
    assert files.dtypes == {"decoder": "fp32"}
    # The token goes to the Hub, never to the content network that it sends us to.
    for request in hub.requests[-20:]:
        if request.path.startswith("/cdn/"):
            assert request.authorization is None
    assert any(request.path.startswith("/cdn/") for request in hub.requests[-20:])
    # Once here, it opens without a token, but only offline: the Hub has refused, not failed.
    assert resolve(REPO, offline=True).graphs == files.graphs
    with pytest.raises(ModelNotFoundError, match="is private"):
        resolve(REPO)


def test_token_of_the_environment(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repositories[REPO].token = "hf_mine"
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    assert resolve(REPO).dtypes == {"decoder": "fp32"}
    with pytest.raises(ModelNotFoundError, match="is private"):
        resolve(REPO, token=False)


def test_no_saved_token(hub: FakeHub) -> None:
    with pytest.raises(HubError, match=r"there is none[^$]*hf auth login"):
        resolve(REPO, token=True)


@pytest.mark.parametrize("token", [None, "hf_other"])
def test_gated_repository(hub: FakeHub, token: str | None) -> None:
    hub.repositories[REPO].token = "hf_mine"
    hub.repositories[REPO].gated = True
    with pytest.raises(HubError, match=r"owner/name is gated[^$]*accept them at https"):
        resolve(REPO, token=token)
    assert resolve(REPO, token="hf_mine").dtypes == {"decoder": "fp32"}


@pytest.mark.parametrize("status", [401, 403])
def test_refused_token(hub: FakeHub, status: int) -> None:
    hub.status = status
    with pytest.raises(HubError, match=rf"refuses access to owner/name \(HTTP {status}\)"):
        resolve(REPO, token="hf_expired")


# ---------------------------------------------------------------- progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("terminal", "progress", "shown"),
    [(False, None, False), (True, None, True), (True, False, False), (False, True, True)],
)
def test_progress(
    hub: FakeHub,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    terminal: bool,
    progress: bool | None,
    shown: bool,
) -> None:
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    hub.drops = {FP32[1]: [5000]}
    resolve(REPO, progress=progress)
    lines = stream.getvalue()
    total = sum(len(FILES[name]) for name in [*BESIDE, *FP32]) / 1024
    assert bool(lines) == shown
    if shown:
        last = lines.rstrip().rpartition("\r")[2]
        assert last.startswith("owner/name: 100%")
        assert f"{total:.1f}k/{total:.1f}k" in last
        assert lines.count("\n") == 1  # one line, whatever the number of files
    assert capsys.readouterr().out == ""

    stream.truncate(0)
    stream.seek(0)
    resolve(REPO, progress=progress)
    assert stream.getvalue() == ""  # nothing to download, nothing to show
