"""What the config files of a model say, and which of them counts."""

import json
import shutil

import pytest

import onnxgen
from onnxgen.files import resolve
from onnxgen.tasks.defaults import context_length, generation_defaults
from tests.fixture_models import FIXTURES


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(FIXTURES / "handmade/gqa_values", tmp_path / "model")
    return tmp_path / "model"


def write(folder, name, values):
    (folder / name).write_text(json.dumps(values))


def test_generation_config_counts_alone(folder):  # trap T15
    write(folder, "config.json", {"eos_token_id": 2, "num_beams": 4})
    assert generation_defaults(resolve(folder))["num_beams"] == 4
    write(folder, "generation_config.json", {"max_length": 30})
    assert generation_defaults(resolve(folder)) == {"max_length": 30}
    result = onnxgen.load(folder).generate([1, 2, 3])
    assert len(result.tokens) == 27  # no stop token: config.json's is not looked at


def test_nested_configs_give_what_the_outer_one_leaves_open(folder):
    inner = {"eos_token_id": 5, "bos_token_id": 1, "max_position_embeddings": 48}
    write(folder, "config.json", {"text_config": inner, "eos_token_id": 7, "pad_token_id": None})
    defaults = generation_defaults(resolve(folder))
    assert (defaults["eos_token_id"], defaults["bos_token_id"]) == (7, 1)
    assert context_length(resolve(folder)) == 48
    assert onnxgen.load(folder).capacity == 48  # below the 64 rows of the rotary table


def test_genai_config_gives_ids_and_length_where_nothing_else_does():
    files = resolve(FIXTURES / "models/genai-llama")
    model = files.json("genai_config.json")["model"]
    assert generation_defaults(files)["eos_token_id"] == model["eos_token_id"]
    assert context_length(files) == model["context_length"]
