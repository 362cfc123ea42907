"""Models on disk: how they are named, and how exporters lay them out."""

import os
from pathlib import Path

import pytest

from onnxgen.errors import ModelFileError, ModelNotFoundError, OptionError, UnsupportedModelError
from onnxgen.files import resolve
from onnxgen.files.resolve import _split
from tests.tiny_graphs import fill, found, in_parts

# ---------------------------------------------------------------- layouts


# known problems L3, L4
@pytest.mark.parametrize(
    ("names", "layout", "graphs"),
    [
        (["model.onnx"], "optimum", {"decoder": "model.onnx"}),
        (["onnx/model.onnx"], "transformers.js", {"decoder": "onnx/model.onnx"}),
        (
            ["model.onnx", "onnx/model.onnx"],
            "transformers.js",
            {"decoder": "onnx/model.onnx"},
        ),
        (
            ["onnx/encoder_model.onnx", "model.onnx"],
            "optimum",
            {"decoder": "model.onnx"},
        ),
        (
            ["onnx/decoder_model_merged.onnx"],
            "transformers.js",
            {"decoder": "onnx/decoder_model_merged.onnx"},
        ),
        (
            ["model.onnx", "decoder_model_merged.onnx", "decoder_with_past_model.onnx"],
            "optimum",
            {"decoder": "model.onnx"},
        ),
        (
            ["decoder_model_merged.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx"],
            "optimum",
            {"decoder": "decoder_model_merged.onnx"},
        ),
        (
            ["decoder_model.onnx", "decoder_with_past_model.onnx", "encoder_model.onnx"],
            "optimum",
            {
                "decoder": "decoder_model.onnx",
                "decoder_with_past": "decoder_with_past_model.onnx",
                "encoder": "encoder_model.onnx",
            },
        ),
        (["decoder_model.onnx"], "optimum", {"decoder": "decoder_model.onnx"}),
        (["decoder_with_past_model.onnx"], "optimum", {"decoder": "decoder_with_past_model.onnx"}),
        (
            [
                f"onnx/{name}.onnx"
                for name in (
                    "decoder_model_merged",
                    "embed_tokens",
                    "vision_encoder",
                    "audio_encoder",
                    "encoder_model",
                )
            ],
            "transformers.js",
            {
                "decoder": "onnx/decoder_model_merged.onnx",
                "embed_tokens": "onnx/embed_tokens.onnx",
                "vision_encoder": "onnx/vision_encoder.onnx",
                "audio_encoder": "onnx/audio_encoder.onnx",
                "encoder": "onnx/encoder_model.onnx",
            },
        ),
        (["my-gpt.onnx"], "optimum", {"decoder": "my-gpt.onnx"}),
        (["onnx/my-gpt.onnx"], "transformers.js", {"decoder": "onnx/my-gpt.onnx"}),
    ],
)
def test_layouts(tmp_path: Path, names: list[str], layout: str, graphs: dict[str, str]) -> None:
    fill(tmp_path, *names)
    files = resolve(tmp_path)
    assert files.layout == layout
    assert files.folder == tmp_path
    assert dict(files.graphs) == {role: tmp_path / name for role, name in graphs.items()}


def test_a_name_of_its_own_tells_no_dtype(tmp_path: Path) -> None:
    files = resolve(fill(tmp_path, "my-gpt.onnx"))
    assert files.dtypes == {"decoder": ""}
    assert files.variants == {"decoder": {"": "my-gpt.onnx"}}
    with pytest.raises(OptionError, match="no q4 file"):
        resolve(tmp_path, dtype="q4")


def test_two_names_of_their_own_are_not_guessed_at(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"found a\.onnx, b\.onnx"):
        resolve(fill(tmp_path, "a.onnx", "b.onnx"))


def test_onnx_folder_belongs_to_its_parent(tmp_path: Path) -> None:
    fill(tmp_path, "onnx/model.onnx", "onnx/model_q4.onnx", config={"model_type": "any"})
    files = resolve(tmp_path / "onnx", dtype="q4")
    assert files.folder == tmp_path
    assert files.graphs == {"decoder": tmp_path / "onnx/model_q4.onnx"}
    assert files.json("config.json") == {"model_type": "any"}


def test_paths_are_absolute_and_links_are_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "real", "model.onnx")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path)
    assert resolve("link").graphs["decoder"] == tmp_path / "link/model.onnx"


# ---------------------------------------------------------------- genai


def genai(**sections: object) -> dict[str, object]:
    return {"model": {"type": "llama", **sections}}


def test_genai_roles(tmp_path: Path) -> None:
    sections = {
        "decoder": "text.onnx",
        "encoder": "enc.onnx",
        "embedding": "./embedding.onnx",
        "vision": "parts/vision.onnx",
        "speech": "speech.onnx",
    }
    config = genai(**{name: {"filename": file} for name, file in sections.items()})
    fill(tmp_path, *sections.values(), genai_config=config)
    files = resolve(tmp_path)
    assert files.layout == "genai"
    assert found(tmp_path) == {
        "decoder": "text.onnx",
        "encoder": "enc.onnx",
        "embed_tokens": "embedding.onnx",
        "vision_encoder": "parts/vision.onnx",
        "audio_encoder": "speech.onnx",
    }
    assert set(files.dtypes.values()) == {""}
    assert files.chosen == ""


def test_genai_against_the_other_layouts(tmp_path: Path) -> None:
    config = genai(decoder={"filename": "model.onnx"})
    fill(tmp_path, "model.onnx", "model_q4.onnx", genai_config=config)
    assert resolve(tmp_path).layout == "genai"
    fill(tmp_path, "onnx/model_q4.onnx")
    assert resolve(tmp_path).layout == "transformers.js"


@pytest.mark.parametrize(
    ("config", "error", "says"),
    [
        (genai(decoder={"filename": "gone.onnx"}), ModelFileError, "gone.onnx, which is missing"),
        (genai(decoder={"filename": "../model.onnx"}), ModelFileError, "leaves the folder"),
        (genai(decoder={"filename": "/etc/passwd"}), ModelFileError, "leaves the folder"),
        (genai(decoder={"filename": "..\\model.onnx"}), ModelFileError, "leaves the folder"),
        (genai(decoder={"filename": 5}), ModelFileError, "leaves the folder"),
        (genai(decoder={"pipeline": [{"a": {}}]}), UnsupportedModelError, "pipeline"),
        (genai(vision={"filename": "model.onnx"}), ModelFileError, "names no decoder"),
        ({"model": ["decoder"]}, ModelFileError, "names no decoder"),
        ({}, ModelFileError, "names no decoder"),
        ([], ModelFileError, "holds a list"),
    ],
)
def test_broken_genai_config(
    tmp_path: Path, config: object, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        resolve(fill(tmp_path / "m", "model.onnx", genai_config=config))


# ---------------------------------------------------------------- nothing to run


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ([], "found nothing"),
        (["encoder_model.onnx"], r"found encoder_model\.onnx"),
        (["model.safetensors", "config.json"], r"found model\.safetensors[^$]*optimum-cli"),
        (
            ["cpu/genai_config.json", "cpu/model.onnx"],
            r"cpu/genai_config\.json[^$]*the folder it is in",
        ),
        (["config.json"], r"found config\.json"),
        ([f"{i}.txt" for i in range(9)], "and 3 more"),
    ],
)
def test_no_decoder(tmp_path: Path, names: list[str], says: str) -> None:
    folder = fill(tmp_path / "m", *names)
    folder.mkdir(exist_ok=True)
    with pytest.raises(ModelNotFoundError, match=says) as caught:
        resolve(folder)
    assert "model.onnx" in caught.value.wanted


@pytest.mark.parametrize(
    "name",
    [
        "",
        "nothing",
        "./nothing/here",
        "/no/such/folder",
        "~/no/such/folder",
        "~no-such-user/model",
        "C:\\models\\llama",
        "a/b/c",
        "owner/model.onnx",
        "https://huggingface.co/owner/name",
        "owner/na me",
        "x" * 5000,
        "nul\0byte",
    ],
)
def test_names_of_nothing(name: str) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        resolve(name)
    assert "owner/name" in caught.value.wanted


def test_a_file_that_is_no_graph(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"x")
    with pytest.raises(ModelFileError, match=r"no \.onnx file"):
        resolve(tmp_path / "model.safetensors")


# ---------------------------------------------------------------- name:dtype


def test_dtype_in_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "m", "model.onnx", "model_q4.onnx")
    files = resolve(f"{tmp_path / 'm'}:q4")
    assert files.source == f"{tmp_path / 'm'}:q4"
    assert found(tmp_path / "m", dtype="q4") == {"decoder": "model_q4.onnx"}
    assert files.graphs == {"decoder": tmp_path / "m/model_q4.onnx"}
    monkeypatch.chdir(tmp_path)
    assert resolve("m:q4").graphs == files.graphs
    assert resolve("m:q4", dtype="q4").graphs == files.graphs
    assert resolve("m:auto").dtypes == {"decoder": "fp32"}
    with pytest.raises(OptionError, match="q4, the option for fp32"):
        resolve("m:q4", dtype="fp32")


def test_colons_in_real_names(tmp_path: Path) -> None:
    fill(tmp_path / "a:q4", "model.onnx", "model_q4.onnx")
    assert resolve(tmp_path / "a:q4").dtypes == {"decoder": "fp32"}
    assert resolve(f"{tmp_path / 'a:q4'}:q4").dtypes == {"decoder": "q4"}
    fill(tmp_path / "b:c", "d/model.onnx")
    assert found(tmp_path / "b:c" / "d") == {"decoder": "model.onnx"}


def test_windows_drives(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _split("C:\\models\\llama") == ("C:\\models\\llama", None)
    assert _split("C:/models/llama") == ("C:/models/llama", None)
    assert _split("C:\\models\\llama:q4") == ("C:\\models\\llama", "q4")
    monkeypatch.setattr(os, "name", "nt")
    assert _split("C:llama") == ("C:llama", None)


def test_unknown_dtypes(tmp_path: Path) -> None:
    fill(tmp_path, "model.onnx")
    with pytest.raises(OptionError, match="did you mean 'q4f16'"):
        resolve(f"{tmp_path}:q4fp16")
    with pytest.raises(OptionError, match="did you mean 'fp16'"):
        resolve(tmp_path, dtype="bf16")
    with pytest.raises(OptionError, match="did you mean 'decoder_model'"):
        resolve(tmp_path, dtype={"decoder_modell": "q4"})
    with pytest.raises(OptionError, match="a dtype is a int"):
        resolve(tmp_path, dtype={"decoder": 4})  # type: ignore[dict-item]
    with pytest.raises(OptionError, match="valid options"):
        resolve(f"{tmp_path}:")


def test_local_folder_wins_over_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "owner/name", "model.onnx")
    monkeypatch.chdir(tmp_path)
    assert resolve("owner/name").folder == tmp_path / "owner/name"
    with pytest.raises(OptionError, match="on this disk"):
        resolve("owner/name", revision="main")


# ---------------------------------------------------------------- one file


def test_single_file(tmp_path: Path) -> None:
    fill(tmp_path, "odd.onnx", "onnx/model_q4.onnx", "onnx/model.onnx", config={"a": 1})
    files = resolve(tmp_path / "onnx/model_q4.onnx")
    assert files.layout == "file"
    assert files.folder == tmp_path
    assert files.graphs == {"decoder": tmp_path / "onnx/model_q4.onnx"}
    assert files.dtypes == {"decoder": "q4"}
    assert files.variants == {"decoder": {"q4": "onnx/model_q4.onnx"}}
    assert files.json("config.json") == {"a": 1}
    assert files.chosen == ""

    assert resolve(tmp_path / "odd.onnx").dtypes == {"decoder": ""}
    assert resolve(f"{tmp_path}/onnx/model_q4.onnx:q4").dtypes == {"decoder": "q4"}
    with pytest.raises(OptionError, match="no fp32 file"):
        resolve(tmp_path / "onnx/model_q4.onnx", dtype="fp32")


def test_single_file_with_missing_data(tmp_path: Path) -> None:  # known problem L1
    for name, content in in_parts("net.onnx").items():
        (tmp_path / name).write_bytes(content)
    assert resolve(tmp_path / "net.onnx").graphs == {"decoder": tmp_path / "net.onnx"}
    (tmp_path / "net.onnx_data_1").unlink()
    with pytest.raises(ModelFileError, match=r"net\.onnx_data_1, which is missing"):
        resolve(tmp_path / "net.onnx")
