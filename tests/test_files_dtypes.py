"""Which dtype is taken: what exists, what the repository names, what the user asks for."""

from pathlib import Path

import pytest

from onnxgen.errors import OptionError
from onnxgen.files import resolve
from tests.tiny_graphs import fill, found

ALL = {
    "fp32": "model.onnx",
    "fp16": "model_fp16.onnx",
    "q8": "model_quantized.onnx",
    "int8": "model_int8.onnx",
    "uint8": "model_uint8.onnx",
    "q4": "model_q4.onnx",
    "q4f16": "model_q4f16.onnx",
    "bnb4": "model_bnb4.onnx",
    "q2": "model_q2.onnx",
    "q2f16": "model_q2f16.onnx",
    "q1": "model_q1.onnx",
    "q1f16": "model_q1f16.onnx",
}


def js(dtype: object) -> dict[str, object]:
    return {"transformers.js_config": {"dtype": dtype}}


def test_every_dtype_by_name(tmp_path: Path) -> None:
    files = resolve(fill(tmp_path, *ALL.values()))
    assert files.variants == {"decoder": ALL}
    for dtype, name in ALL.items():
        assert found(tmp_path, dtype=dtype) == {"decoder": name}


def test_quality_order(tmp_path: Path) -> None:  # known problem L14
    fill(tmp_path, *ALL.values())
    taken = []
    for name in ALL.values():
        taken.append(found(tmp_path)["decoder"])
        (tmp_path / name).unlink()
    assert taken == list(ALL.values())


@pytest.mark.parametrize(
    ("config", "dtype", "chosen"),
    [
        ({}, "fp32", "dtype fp32 of fp32, q8 and q4: none was asked for"),
        (js("q4"), "q4", "dtype q4 of fp32, q8 and q4: config.json asks for it"),
        (js({"model": "q8"}), "q8", "dtype q8 of fp32, q8 and q4: config.json asks for it"),
        (js("fp16"), "fp32", "dtype fp32 of fp32, q8 and q4: fp16 of config.json is missing"),
        (js("auto"), "fp32", "dtype fp32 of fp32, q8 and q4: none was asked for"),
        (js({"embed_tokens": "q4"}), "fp32", "dtype fp32 of fp32, q8 and q4: none was asked for"),
        (js(4), "fp32", "dtype fp32 of fp32, q8 and q4: none was asked for"),
        (js({"model": ["q4"]}), "fp32", "dtype fp32 of fp32, q8 and q4: none was asked for"),
        (
            {"transformers.js_config": "q4"},
            "fp32",
            "dtype fp32 of fp32, q8 and q4: none was asked for",
        ),
    ],
)
def test_default_of_the_repository(
    tmp_path: Path, config: dict[str, object], dtype: str, chosen: str
) -> None:
    fill(tmp_path, "onnx/model.onnx", "onnx/model_quantized.onnx", "onnx/model_q4.onnx")
    files = resolve(fill(tmp_path, config=config))
    assert files.dtypes == {"decoder": dtype}
    assert files.chosen == chosen


def test_what_is_asked_for_wins_and_is_no_choice_of_ours(tmp_path: Path) -> None:
    fill(tmp_path, "model.onnx", "model_q4.onnx", config=js("q4"))
    files = resolve(tmp_path, dtype="fp32")
    assert files.dtypes == {"decoder": "fp32"}
    assert files.chosen == ""


def test_a_single_dtype_is_no_choice(tmp_path: Path) -> None:
    assert resolve(fill(tmp_path, "model_q4.onnx")).chosen == ""


def roles(**dtypes: str) -> list[str]:
    """File names of a vision model: base name -> dtypes separated by spaces."""
    suffix = {"fp32": "", "q8": "_quantized"}
    return [
        f"onnx/{base}{suffix.get(dtype, '_' + dtype)}.onnx"
        for base, names in dtypes.items()
        for dtype in names.split()
    ]


def test_one_dtype_for_all_roles_if_possible(tmp_path: Path) -> None:
    names = roles(
        decoder_model_merged="fp32 fp16 q4", embed_tokens="fp16 q4", vision_encoder="q4 fp16"
    )
    files = resolve(fill(tmp_path, *names))
    assert set(files.dtypes.values()) == {"fp16"}
    assert files.chosen == "dtype fp16 of fp32, fp16 and q4: none was asked for"


def test_else_the_best_of_each(tmp_path: Path) -> None:
    names = roles(decoder_model_merged="q8 q4", embed_tokens="fp32 fp16")
    files = resolve(fill(tmp_path, *names))
    assert files.dtypes == {"decoder": "q8", "embed_tokens": "fp32"}
    assert files.chosen == (
        "dtypes decoder q8 and embed_tokens fp32 of fp32, fp16, q8 and q4: none was asked for"
    )


def test_map_of_the_repository(tmp_path: Path) -> None:
    names = roles(decoder_model_merged="fp32 q4", encoder_model="fp32 q4")
    fill(tmp_path, *names, config=js({"decoder_model_merged": "q4", "encoder_model": "fp32"}))
    assert resolve(tmp_path).dtypes == {"decoder": "q4", "encoder": "fp32"}


def test_map_of_the_user(tmp_path: Path) -> None:
    names = roles(decoder_model_merged="fp32 q4", encoder_model="fp32 q8")
    fill(tmp_path, *names, config=js("q8"))
    by_base = resolve(tmp_path, dtype={"decoder_model_merged": "q4", "encoder_model": "q8"})
    by_role = resolve(tmp_path, dtype={"decoder": "q4", "encoder": "q8"})
    assert by_base.dtypes == by_role.dtypes == {"decoder": "q4", "encoder": "q8"}
    # As in transformers.js, a role left out takes the general default, not the repository's.
    assert resolve(tmp_path, dtype={"decoder": "q4"}).dtypes == {"decoder": "q4", "encoder": "fp32"}
    auto = resolve(tmp_path, dtype={"decoder": "q4", "encoder": "auto"})
    assert auto.dtypes == {"decoder": "q4", "encoder": "q8"}

    with pytest.raises(OptionError, match="has none"):
        resolve(tmp_path, dtype={"vision_encoder": "q4"})
    with pytest.raises(OptionError, match="two dtypes"):
        resolve(tmp_path, dtype={"decoder": "q4", "decoder_model_merged": "fp32"})
    with pytest.raises(OptionError) as caught:
        resolve(tmp_path, dtype="q4")
    assert caught.value.found.endswith("has no q4 file for the encoder")
    assert caught.value.wanted == "decoder: fp32, q4; encoder: fp32, q8"


def test_each_dtype_of_the_decoder_is_settled_by_itself(tmp_path: Path) -> None:
    fill(
        tmp_path,
        "decoder_model.onnx",
        "decoder_with_past_model.onnx",
        "decoder_model_merged_quantized.onnx",
        "decoder_model_quantized.onnx",
        "decoder_with_past_model_quantized.onnx",
        "model_q4.onnx",
        "decoder_model_merged_q4.onnx",
    )
    files = resolve(tmp_path)
    assert files.variants == {
        "decoder": {
            "fp32": "decoder_model.onnx",
            "q8": "decoder_model_merged_quantized.onnx",
            "q4": "model_q4.onnx",
        },
        "decoder_with_past": {"fp32": "decoder_with_past_model.onnx"},
    }
    assert files.dtypes == {"decoder": "fp32", "decoder_with_past": "fp32"}
    assert found(tmp_path, dtype="q8") == {"decoder": "decoder_model_merged_quantized.onnx"}
