"""The bytes of single tokens, joined, are the text that they decode to."""

import numpy as np
import pytest

from onnxgen.generation.stopping import stop_strings
from onnxgen.text.token_bytes import token_bytes
from tests.text.goldens import load

TEXT = "Hello world, it's 😀 the end.\n你好 über"


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen", "gemma", "bloom", "phi3"])
def test_bytes_joined_are_the_text(name):
    tokenizer = load(name)
    of_token = token_bytes(tokenizer)
    ids = tokenizer.encode(TEXT, add_special_tokens=False)
    joined = b"".join(map(of_token, ids)).decode()
    assert joined.strip() == tokenizer.decode(ids).strip()


@pytest.mark.parametrize(
    ("tokens", "stop", "ends"),
    [
        (["st", "opera"], "stop", True),
        (["las", "topper"], "stop", True),
        (["stop", "at"], "stop", False),
        (["st", "opera", "tion"], "stop", False),
        (["a", "b", "c"], "abc", True),
        (["", "st", "", "op"], "stop", True),
        ([b"\xc3", b"\xa9"], "é", True),  # a character of two tokens
    ],
)
def test_stop_strings_as_transformers_means_them(tokens, stop, ends):
    spelled = [token.encode() if isinstance(token, str) else token for token in tokens]
    criterion = stop_strings([stop, "never"], lambda i: spelled[i])
    assert criterion(np.arange(len(tokens))) is ends
