"""The task on the exported fixtures: prompts of each kind, batches, streams, chats, wrong input."""

import shutil
import threading

import pytest

import onnxgen
from onnxgen.errors import CapacityError, OnnxgenError, OptionError, TokenizerError
from tests.fixture_models import FIXTURES, found

# Those whose embeddings are no graph of their own cannot run from their folder.
MODELS = [f for f in found("models") if not (f.folder / "embeddings.npy").exists()]
every_model = pytest.mark.parametrize("fixture", MODELS, ids=lambda f: f.name)
KEYWORDS = {"max_new_tokens": 32, "eos_token_id": None}


def load(fixture):
    return onnxgen.load(fixture.folder)


@pytest.fixture(scope="module")
def llama():
    return onnxgen.load(FIXTURES / "models/llama")


@every_model
def test_tokens_alone_in_batches_and_streamed(fixture):  # known problems L4, L5, C3, S10
    model = load(fixture)
    single = [model.generate(prompt, **KEYWORDS) for prompt in fixture.prompts]
    assert [list(result.tokens) for result in single] == fixture.greedy
    for order in [(0, 1, 2), (2, 1, 0)]:
        batch = model.generate([fixture.prompts[i] for i in order], **KEYWORDS)
        assert [list(result.tokens) for result in batch] == [fixture.greedy[i] for i in order]
        assert [r.prompt_tokens for r in batch] == [len(fixture.prompts[i]) for i in order]
        pieces = list(model.stream([fixture.prompts[i] for i in order], **KEYWORDS))
        for row, i in enumerate(order):
            own = [piece for piece in pieces if piece.row == row]
            assert [piece.token for piece in own] == fixture.greedy[i]
            assert "".join(piece.text for piece in own) == batch[row].text
            assert [piece.finish_reason for piece in own] == [None] * 31 + ["length"]


@every_model
def test_a_row_ends_with_its_stop_token(fixture):
    eos = fixture.expected["eos"]
    prompt = fixture.prompts[eos["prompt"]]
    result = load(fixture).generate(prompt, max_new_tokens=32, eos_token_id=eos["eos_token_id"])
    assert (list(result.tokens), result.finish_reason) == (eos["tokens"], "stop")


def test_times_of_a_result(llama):
    result = llama.generate([5, 6, 7], max_new_tokens=4, eos_token_id=None)
    timings = result.timings
    assert len(timings.per_token_ms) == 3
    assert timings.total_ms == pytest.approx(timings.prefill_ms + sum(timings.per_token_ms))


def test_text_prompts_are_encoded_and_answers_decoded(llama):
    result = llama.generate("one two", **KEYWORDS)
    ids = llama.tokenizer.encode("one two")
    assert result == llama.generate(ids, **KEYWORDS) or (
        result.tokens == llama.generate(ids, **KEYWORDS).tokens
    )
    assert result.text == llama.tokenizer.decode(result.tokens)


def test_chats_go_through_the_template(llama):
    messages = [{"role": "user", "content": "hello"}]
    text = llama.tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    ids = llama.tokenizer.encode(text, add_special_tokens=False)
    expected = llama.generate(ids, **KEYWORDS).tokens
    assert llama.generate(messages, **KEYWORDS).tokens == expected
    batch = llama.generate([messages, messages], **KEYWORDS)
    assert [result.tokens for result in batch] == [expected, expected]


@pytest.mark.parametrize(
    ("prompt", "wanted"),
    [
        ("", "empty"),
        ([], "empty"),
        ([[]], "empty"),
        (5, "int"),
        (None, "NoneType"),
        ([1.5], "list"),
        ([10**9], "id"),
        ([-1], "id"),
        (b"bytes", "bytes"),
        ([["a"]], "list"),
    ],
)
def test_what_is_no_prompt_is_refused(llama, prompt, wanted):  # known problem C25
    with pytest.raises(OptionError, match=wanted):
        llama.generate(prompt)


def test_wrong_options_are_refused_before_the_stream_starts(llama):
    with pytest.raises(OptionError, match="max_new_tokens"):
        llama.stream([1], max_new_tokns=3)


def test_prompt_at_under_and_over_the_capacity(llama):  # known problems C1, C20, C21
    bound = llama.capacity
    prompt = [5, 9] * (bound // 2)
    result = llama.generate(prompt, max_new_tokens=10, eos_token_id=None)
    assert (len(result.tokens), result.finish_reason) == (1, "length")
    result = llama.generate(prompt[1:], max_new_tokens=10, eos_token_id=None)
    assert (len(result.tokens), result.finish_reason) == (2, "length")
    with pytest.raises(CapacityError, match=str(bound)):
        llama.generate([*prompt, 5])


def test_a_model_without_tokenizer_takes_ids_and_refuses_text():
    model = onnxgen.load(FIXTURES / "handmade/gqa_values")
    assert len(model.generate([1, 2], max_new_tokens=3).tokens) == 3
    with pytest.raises(TokenizerError, match="tokenizer"):
        model.generate("text")


def test_a_stream_that_is_dropped_frees_its_caches(llama):
    stream = llama.stream([1, 2, 3], **KEYWORDS)
    next(stream)
    stream.close()
    assert llama.generate([1, 2, 3], **KEYWORDS).finish_reason == "length"


def test_threads_share_a_model(llama):
    fixture = next(f for f in MODELS if f.folder.name == "llama")
    results = {}

    def work(index):
        results[index] = [llama.generate(p, **KEYWORDS).tokens for p in fixture.prompts]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [tuple(tokens) for tokens in fixture.greedy]
    assert results == dict.fromkeys(range(4), expected)


def test_unknown_task_device_and_threads_are_refused():
    folder = FIXTURES / "models/llama"
    devices = [{"device": device} for device in ("cudda", "webgpu", "dml", "cuda:x", "")]
    for options in ({"task": "text-generatoin"}, {"threads": 0}, *devices):
        with pytest.raises(OptionError):
            onnxgen.load(folder, **options)


def test_a_broken_tokenizer_does_not_load(tmp_path):
    shutil.copytree(FIXTURES / "models/llama", tmp_path / "model")
    (tmp_path / "model/tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerError):
        onnxgen.load(tmp_path / "model")


def test_cuda_on_a_machine_without_it_says_how_to_get_it():  # known problem L11
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        expected = "libraries|fell back"
    else:
        expected = r"onnxgen\[gpu\]"
    with pytest.raises(OnnxgenError, match=expected):
        onnxgen.load(FIXTURES / "models/llama", device="cuda")
