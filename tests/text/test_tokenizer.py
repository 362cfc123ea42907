"""Tokenizers load, encode and decode as transformers 4.57.6 does."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from onnxgen.errors import TokenizerError
from onnxgen.text.tokenizer import Tokenizer
from tests.text.goldens import FIXTURES, TOKENIZERS, golden, load, model_files

TEXTS = golden("tokenizers")["texts"]


@pytest.fixture(params=TOKENIZERS)
def pair(request):
    """A tokenizer and what transformers says about it."""
    return load(request.param), golden("tokenizers")["tokenizers"][request.param]


def test_encodes(pair):  # known problem S5
    tokenizer, expected = pair
    assert [tokenizer.encode(text) for text in TEXTS] == expected["encoded"]
    bare = [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]
    assert bare == expected["encoded_bare"]


def test_decodes(pair):
    tokenizer, expected = pair
    for ids, whole, visible in expected["decoded"]:
        assert tokenizer.decode(ids, skip_special_tokens=False) == whole
        assert tokenizer.decode(ids) == visible
        assert tokenizer.decode(np.array(ids, np.int64)) == visible


def test_special_tokens(pair):
    tokenizer, expected = pair
    assert tokenizer.special_tokens == expected["special_tokens"]
    ids = [tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id]
    assert ids == expected["ids"]
    assert tokenizer.vocab_size == expected["size"]
    assert tokenizer.padding_side == expected["padding_side"]


def test_ids_and_tokens_are_inverse(pair):
    tokenizer, expected = pair
    for i in range(expected["size"]):
        token = tokenizer.id_to_token(i)
        assert token is None or tokenizer.token_to_id(token) == i
    assert tokenizer.token_to_id("no such token") is None
    assert tokenizer.id_to_token(10**6) is None


@pytest.mark.parametrize("ids", [[-1], [2**32], [2**64], [1, -5], [0.5], ["1"], [None], [[1]]])
def test_wrong_ids_are_refused(ids):
    with pytest.raises(TokenizerError, match="no id"):
        load("gpt2").decode(ids)
    with pytest.raises(TokenizerError, match="no id"):
        load("gpt2").id_to_token(ids[-1])


def test_ids_beyond_the_vocabulary_are_no_text(pair):
    tokenizer, expected = pair
    ids = expected["encoded"][2]
    beyond = [expected["size"] + 500, 2**32 - 1]
    assert tokenizer.decode(ids + beyond) == tokenizer.decode(ids)


@pytest.mark.parametrize("text", ["\ud800", b"bytes", None, 3, ["a"]])
def test_texts_that_are_none(text):
    with pytest.raises(TokenizerError, match="failed to encode"):
        load("gpt2").encode(text)


def test_says_what_is_there_instead(tmp_path):
    with pytest.raises(TokenizerError) as caught:
        Tokenizer.from_files(model_files(tmp_path))
    assert caught.value.found.endswith("has no tokenizer.json")
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(TokenizerError, match=r"only tokenizer\.model") as caught:
        Tokenizer.from_files(model_files(tmp_path))
    assert "save_pretrained" in caught.value.do


def copied(tmp_path: Path, name: str, **changes: object) -> Path:
    """A copy of a fixture with keys of its tokenizer_config.json changed."""
    folder = tmp_path / name
    shutil.copytree(FIXTURES / "tokenizers" / name, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config | changes))
    return folder


@pytest.mark.parametrize(
    ("name", "changes", "match"),
    [
        ("llama", {"bos_token": None}, "no bos_token"),
        ("llama", {"add_eos_token": True, "eos_token": None}, "no eos_token"),
        ("llama", {"padding_side": "top"}, "padding_side"),
        ("llama", {"added_tokens_decoder": {"x": {}}}, "tokens of its configuration"),
        ("llama", {"added_tokens_decoder": 3}, "tokens of its configuration"),
        ("gpt2", {"added_tokens_decoder": {"0": {"content": "x", "lstrip": 1}}}, "configuration"),
        ("gpt2", {"bos_token": {"lstrip": True}}, "special token"),
        ("gpt2", {"tokenizer_class": ["x"]}, "read its configuration"),
        ("t5", {"extra_ids": 2**63}, "extra_ids"),
        ("t5", {"extra_ids": "many"}, "configuration"),
        ("gpt2", {"additional_special_tokens": [1]}, "special token"),
        ("gpt2", {"additional_special_tokens": 1}, "configuration"),
        ("gpt2", {"extra_special_tokens": {"x": 1}}, "special token"),
        ("gpt2", {"extra_special_tokens": "x"}, "configuration"),
    ],
)
def test_broken_configuration(tmp_path, name, changes, match):
    with pytest.raises(TokenizerError, match=match):
        Tokenizer.from_files(model_files(copied(tmp_path, name, **changes)))


@pytest.mark.parametrize("name", ["bos_token", "eos_token", "pad_token", "unk_token"])
@pytest.mark.parametrize("value", [3, True, ["a"], 1.5])
def test_special_tokens_that_are_no_texts(tmp_path, name, value):
    folder = copied(tmp_path, "gpt2", **{name: value})
    with pytest.raises(TokenizerError, match="special token"):
        Tokenizer.from_files(model_files(folder))


def test_special_tokens_as_a_list_like_transformers_5(tmp_path):
    plain = Tokenizer.from_files(model_files(copied(tmp_path / "a", "gpt2")))
    listed = copied(tmp_path / "b", "gpt2", extra_special_tokens=["<image>"])
    tokenizer = Tokenizer.from_files(model_files(listed))
    assert tokenizer.token_to_id("<image>") == plain.vocab_size
    assert tokenizer.special_tokens["additional_special_tokens"] == ["<image>"]
    assert tokenizer.decode([plain.vocab_size]) == ""
