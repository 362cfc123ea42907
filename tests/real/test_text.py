"""The tokenizer and the chat template of SmolLM2 give what transformers 4.57.6 gives."""

import time

import pytest

from onnxgen.text.stream import TextStream
from onnxgen.text.tokenizer import Tokenizer
from tests.text.goldens import golden, model_files

pytestmark = pytest.mark.real
EXPECTED = golden("real")


@pytest.fixture(scope="module")
def tokenizer(real_models):
    return Tokenizer.from_files(model_files(real_models / "hf" / "smollm2"))


def test_tokens(tokenizer):
    for text, ids in zip(golden("tokenizers")["texts"], EXPECTED["encoded"], strict=True):
        assert tokenizer.encode(text) == ids
    assert tokenizer.special_tokens == EXPECTED["special_tokens"]
    assert tokenizer.padding_side == EXPECTED["padding_side"]


def test_text_whole_and_streamed(tokenizer):
    for ids, whole, visible in EXPECTED["decoded"]:
        for skip, expected in ((False, whole), (True, visible)):
            stream = TextStream(tokenizer, skip_special_tokens=skip)
            assert tokenizer.decode(ids, skip_special_tokens=skip) == expected
            assert "".join([*map(stream.push, ids), stream.finish()]) == expected


def test_prompts(tokenizer):
    for name, prompt in EXPECTED["prompts"].items():
        messages = golden("chats")["chats"][name]
        assert tokenizer.apply_chat_template(messages, add_generation_prompt=True) == prompt


def test_encoding_costs_what_the_library_costs(tokenizer):
    text = "The quick brown fox jumps over the lazy dog. " * 1100  # about 10,000 words
    backend = tokenizer.backend

    def best(function):
        times = []
        for _ in range(5):
            started = time.perf_counter()
            function(text)
            times.append(time.perf_counter() - started)
        return min(times)

    assert best(tokenizer.encode) < 3 * best(backend.encode)
