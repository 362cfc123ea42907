"""Faults that other runtimes had, each shown by a test here not to be onnxgen's, or set aside.

``grep -rn "known problem" tests`` finds the tests: each names, in its docstring or in a comment at
its head, the faults that it would show. ``PROBLEMS`` lists all of them by what was seen there, in
the order of loading (L), caches and batches (C), sampling, beams and the loop (S), speech (A),
vision (V), memory and speed (P). ``ASIDE`` says why no test can show one.
"""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

PROBLEMS = {
    "L1": "external data is called missing although it is there",
    "L2": "external data in a Hub cache, which is links, is refused",
    "L3": "an older or newer exporter's file name or position_ids stop loading",
    "L4": "a decoder in two graphs is not taken as a pair",
    "L5": "first and second graph, or branch, are swapped",
    "L6": "of two layouts of one model only one runs",
    "L7": "an unknown model_type is taken for an encoder",
    "L8": "an empty fp16 past, or a Reshape to a shape of rank 2, fails without a reason",
    "L9": "per_layer_inputs are missing, or all caches are given one head size",
    "L10": "a cache is float32 though the graph wants float16",
    "L11": "CUDA was asked for, the CPU runs",
    "L12": "8-bit decoders print nonsense on WebGPU",
    "L13": "wrong logits on DirectML",
    "L14": "fp16 is taken on the CPU, where it is slower than fp32",
    "C1": "the capacity exceeds the rows of the rotary table",
    "C2": "text becomes garbage where a long-rope table is switched",
    "C3": "results of a batch differ from those of single runs",
    "C4": "a left-padded batch without position_ids is decoded wrongly",
    "C5": "T5's answer depends on how far its source is padded",
    "C6": "uninitialised rows of a buffer turn into NaN",
    "C7": "a local window is off by one",
    "C8": "ONNX Attention: a past without a present, a causal mask that ignores the past",
    "C9": "ONNX Attention reads the whole of a longer buffer",
    "C10": "a captured CUDA graph writes into the other of two buffers",
    "C11": "past and present are taken for one buffer where they are two",
    "C12": "shared caches give other results than separate ones after many runs",
    "C13": "a returned cache cannot be gone on with, or only with half the prompt",
    "C14": "a second turn fails on a kernel that takes one token only",
    "C15": "the past is empty in each step",
    "C16": "rows that have ended go on writing",
    "C17": "a cache is reused although the text before has changed",
    "C18": "an empty cache given to an encoder-decoder hides the encoder's",
    "C19": "the length of old Bloom keys is read from the wrong axis",
    "C20": "a prompt that is too long loses its end",
    "C21": "a cache overrun corrupts the answer without an error",
    "C22": "a returned cache is ahead of the returned tokens",
    "C23": "speculative decoding drifts by one row",
    "C24": "tokens verified several at a time differ from those one by one",
    "C25": "a ragged batch: padding is penalised, rows are empty or end early",
    "C26": "GroupQueryAttention refuses several tokens of a batch behind a past",
    "S1": "four beams give what greedy gives",
    "S2": "temperature of the config is ignored, or divides by 0",
    "S3": "repetition penalty acts once for each occurrence",
    "S4": "bad words ban the wrong tokens",
    "S5": "the start token is missing from text prompts",
    "S6": "a grammar is never told the chosen tokens, nor the order of beams",
    "S7": "beam search hangs, or its scores are no log-probabilities",
    "S8": "the search inside an exported graph is wrong",
    "S9": "NaN logits come out as token 0, an endless '!'",
    "S10": "a first token that ends the answer is counted here and not there",
    "S11": "chunks of a stream lose or repeat tokens",
    "S12": "times of tokens come in reverse",
    "S13": "an end token is made up",
    "S14": "streamed text has broken characters and lacks spaces",
    "S15": "repeated n-grams are banned one off",
    "S16": "forced tokens come at the wrong place",
    "S17": "the minimum length is off by the prompt",
    "S18": "top-k drops ties of its last",
    "S19": "top-p keeps one too many, or none",
    "S20": "renormalising in another place changes what is drawn",
    "S21": "nothing is left to choose, and token 0 is chosen",
    "S22": "default lengths and the first step's bans count the prompt twice",
    "S23": "a prompt is cut into the wrong pieces",
    "S24": "too few candidates for beams with several end tokens",
    "S25": "beams stop one step early or late where scores are equal",
    "S26": "beams stop with empty places, or go on behind their end",
    "S27": "the length penalty counts the prompt",
    "S28": "an end token behind the best beams becomes an answer",
    "S29": "a penalty on beams divides log-probabilities",
    "S30": "equal scores come in no fixed order",
    "S31": "a pad id 0 is taken for none",
    "S32": "of equal maxima not the lowest index is taken",
    "S33": "runs are not repeatable",
    "A1": "an encoder of half precision and a decoder of single do not fit",
    "A2": "an fp16 encoder on WebGPU gives one segment for all",
    "A3": "an encoder overflows, and the decoder loops",
    "A4": "an empty text is given without a word",
    "A5": "windows go on into the filling; the first timestamp is not bounded",
    "A6": "words are heard behind the end of the audio",
    "A7": "words pile up at the end of the window",
    "A8": "words and their times change with the stride of chunks",
    "A9": "audio that ends within a sentence is an error",
    "A10": "NaN samples, or integers without their scale, give endless '!'",
    "A11": "other languages come out as English",
    "A12": "a prompt of earlier words is ignored, or repeated in the answer",
    "A13": "a decoder of fewer layers than its encoder fails; beams share buffers",
    "A14": "words are aligned over twice the encoder's frames",
    "A15": "less than a second gives nothing",
    "A16": "timestamps miss pairs, go back, or lose to text",
    "V1": "the answer ignores the image, by a model's other spelling or too few image tokens",
    "V2": "text alone on a model of image positions is placed three times too far",
    "V3": "what follows an image is placed by the index",
    "V4": "features of an image go to the wrong row or piece",
    "V5": "a captioner with a cache gives other words than without",
    "P1": "a cache is made for the whole context length",
    "P2": "memory grows with each new length",
    "P3": "GPU memory grows with each new shape",
    "P4": "what was encoded is never freed",
    "P5": "intermediates of an image's prompt are kept",
    "P6": "logits of a whole prompt fill the memory",
    "P7": "4-bit products with 8-bit activations choose other tokens",
    "P8": "arrays with gaps, or let go, are read as garbage",
    "P9": "all outputs are bound anew in each step",
    "P10": "idle threads take the cores from the next session",
    "P11": "caches travel to the host and back in each step",
    "P12": "the encoder's caches pass through each step again",
    "P13": "the past is fed as an array in each step",
}

ASIDE = {
    "L12": "needs WebGPU: onnxgen runs on cpu and cuda, and refuses other devices by name",
    "L13": "needs DirectML: onnxgen runs on cpu and cuda, and refuses other devices by name",
    "A2": "needs a GPU: what fp16 loses there does not show on the CPU, which computes in float32",
}

NAMED = re.compile(r"known problems? ((?:[LCSAVP]\d+(?:, )?)+)")


def marks():
    """(file, line number, ids) of each place in a test that names known problems."""
    for path in sorted(TESTS.rglob("*.py")):
        if path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text().split("\n"), start=1):
            for found in NAMED.finditer(line):
                yield path, number, re.findall(r"[LCSAVP]\d+", found[1])


def heads(path):
    """The lines of each test of a file where its marks may stand: from above it to its docstring"""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            yield range(first - 1, node.body[0].end_lineno + 1)


SHOWN = {id_ for _, _, ids in marks() for id_ in ids}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_each_is_shown_by_a_test_or_set_aside(problem):
    assert (problem in SHOWN) != (problem in ASIDE), PROBLEMS[problem]


def test_no_other_is_named():
    assert {*SHOWN, *ASIDE} <= set(PROBLEMS)


@pytest.mark.parametrize("path", sorted({path for path, _, _ in marks()}), ids=lambda p: p.stem)
def test_names_stand_at_tests(path):
    inside = list(heads(path))
    for at, number, _ in marks():
        assert at != path or any(number in lines for lines in inside), f"{path.name}:{number}"


def test_the_list_is_whole():
    counts = {"L": 14, "C": 26, "S": 33, "A": 16, "V": 5, "P": 13}
    assert list(PROBLEMS) == [f"{k}{i}" for k, n in counts.items() for i in range(1, n + 1)]
