"""Threads that share a model get the tokens that each would get alone."""

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest

import onnxgen
from scripts.stress_jobs import FIXTURES, KINDS, Job, jobs, model
from tests.tasks.vision_language import told

THREADS = 8


def in_threads(work, items):
    """What ``work`` gives for each item, all threads begun at once."""
    gate = threading.Barrier(THREADS)

    def begin(_):
        gate.wait()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(begin, range(THREADS)))
        return list(pool.map(work, items))


@pytest.mark.parametrize("name", KINDS)
def test_answers_of_mixed_lengths_and_options_equal_the_serial_ones(name):
    """Greedy, drawn and beams; batches, scores, guidance and prompts in pieces."""
    count = 24 if KINDS[name] in {"text", "translation"} else 10
    own = list(islice(jobs(7, only=name), count))
    serial = [job.answers() for job in own]
    assert len({str(answers) for answers in serial}) > count // 2
    assert in_threads(Job.answers, own) == serial


def test_all_kinds_of_models_at_once():
    own = list(islice(jobs(11), 60))
    assert len({job.model for job in own}) > 10
    serial = [job.answers() for job in own]
    assert in_threads(Job.answers, own) == serial


@pytest.mark.parametrize("name", ["llama", "genai-llama", "gemma3_text", "t5", "smolvlm"])
def test_a_model_whose_first_calls_come_together(name):
    """What is made when first needed: the tokenizer, the vision session, a graph's trial."""
    own = list(islice(jobs(3, only=name), THREADS))
    serial = [job.answers() for job in own]
    fresh = onnxgen.load(FIXTURES / "models" / name, threads=1)
    assert in_threads(lambda job: job.answers(fresh), own) == serial


@pytest.mark.parametrize("name", ["llama", "genai-llama"])
def test_selection_graphs_are_shared_too(name):
    """More options than a model keeps selection sessions for."""
    own = onnxgen.load(FIXTURES / "models" / name, threads=1, selection="onnx")
    options = [
        {"do_sample": True, "top_k": 5 + number % 20, "seed": number, "temperature": 1.3}
        for number in range(40)
    ]

    def answer(given):
        return own.generate([5, 6, 7], max_new_tokens=8, eos_token_id=None, **given).tokens

    serial = [answer(given) for given in options]
    assert in_threads(answer, options) == serial
    assert serial == [
        model(name).generate([5, 6, 7], max_new_tokens=8, eos_token_id=None, **given).tokens
        for given in options
    ]


def test_texts_chats_and_stop_strings_share_a_tokenizer():
    own = model("llama")
    whole = own.generate("z", max_new_tokens=20, eos_token_id=None).text
    stop = next(char for char in whole[4:] if char.isascii() and char.strip())

    def answer(number):
        options = {"max_new_tokens": 12, "eos_token_id": None}
        if number % 3 == 0:
            return own.generate([{"role": "user", "content": f"Hi {number}"}], **options).text
        if number % 3 == 1:
            return own.generate("z", stop_strings=[stop], **options).text
        pieces = own.stream(["z" * (1 + number), "zz"], **options)
        return [(piece.row, piece.text) for piece in pieces]

    serial = [answer(number) for number in range(24)]
    assert in_threads(answer, range(24)) == serial


def test_images_are_encoded_once_or_more_but_alike():
    """Features are kept by image; threads that ask for one at once may each make it."""
    case = told("smolvlm")["cases"][0]
    fresh = onnxgen.load(FIXTURES / "models" / "smolvlm", threads=1)
    images = [FIXTURES / "images" / name for name in case["images"]]

    def answer(_):
        return list(fresh.generate(case["prompt"], images=images, **case["options"]).tokens)

    assert in_threads(answer, range(16)) == [case["tokens"]] * 16
