"""Whisper's rules after the model has spoken, against transformers' functions on random inputs.

Letters: A alignment heads, N tokens, T positions, V vocabulary.
"""

import random
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from onnxgen.audio import alignment, merging, quality, segments, words
from onnxgen.audio.transcript import SpeechTokens

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(900)]

BEGIN, END = 100, 90  # first timestamp, first id that is no text, where no tokenizer is needed
LANGUAGES = {"en": "english", "de": "german", "ja": "japanese", "zh": "chinese", "th": "thai"}
LANGUAGES |= {"lo": "lao", "my": "myanmar", "yue": "cantonese"}
LANGUAGE_CODES = {name: code for code, name in LANGUAGES.items()}
NAMES = ("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps")
CORPUS = [
    " The capital of France is Paris, and the capital of Japan is Tokyo.",
    " He said: \"there is nothing (like it)!\" - and left... didn't he? Yes; I'm sure.",
    " Die Straße über die Brücke führt zu den schönen alten Häusern: «wirklich».",
    " ¿Qué más? ¡El niño comió una piña mañana, señor!",
    "日本の首都は東京です。「日本の歌」、そうですか？",  # noqa: RUF001
    "这是一个测试，你好吗？",  # noqa: RUF001
    "ภาษาไทยไม่มีช่องว่าง ພາສາລາວ မြန်မာစာ 👍🏽 👩‍👩‍👧 e\u0301",
]


@pytest.fixture(scope="module")
def whisper():
    """transformers' functions."""
    from transformers.models.whisper import generation_whisper

    return generation_whisper


@pytest.fixture(scope="module")
def tokenizer():
    """A tiny tokenizer of Whisper's kind: text, then special tokens, then timestamps."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import WhisperTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(CORPUS * 3, trainer)
    specials = ["startoftranscript", *LANGUAGES, *NAMES]
    backend.add_special_tokens(["<|endoftext|>", *(f"<|{name}|>" for name in specials)])
    times = [f"<|{i * 0.02:.2f}|>" for i in range(1501)]
    backend.add_tokens([AddedToken(time, normalized=False) for time in times])
    return WhisperTokenizerFast(
        tokenizer_object=backend,
        additional_special_tokens=[f"<|{name}|>" for name in specials],
        clean_up_tokenization_spaces=False,
    )


@pytest.fixture(scope="module")
def speech(tokenizer):
    first, end = tokenizer.convert_tokens_to_ids(["<|0.00|>", "<|endoftext|>"])
    return SpeechTokens(end, first, tokenizer.decode)


@pytest.fixture(scope="module")
def texts(tokenizer, speech):
    """Draws ids of text: sentences, and with ``wild`` anything between."""
    sentences = [tokenizer(text, add_special_tokens=False).input_ids for text in CORPUS]

    def draw(rng: random.Random, wild: bool = False) -> list[int]:
        ids = list(rng.choice(sentences))
        start = rng.randrange(len(ids))
        ids = ids[start : start + rng.randint(1, 25)]
        while wild and rng.random() < 0.7:
            ids.insert(rng.randint(0, len(ids)), rng.randrange(speech.end))
        return ids

    return draw


# --- segments and their quality


def drawn_window(rng: random.Random) -> list[int]:
    """An answer, now and then with timestamps in places where they don't belong."""
    chance = rng.choice([0, 0.1, 0.4, 0.9])
    few = rng.choice([3, 40, 1501])
    return [
        BEGIN + rng.randrange(few) if rng.random() < chance else rng.randrange(END)
        for _ in range(rng.randint(0, 12))
    ]


def test_segments_of_a_window(whisper):
    import torch

    rng = random.Random(1)
    for _ in range(4000):
        tokens = drawn_window(rng)
        frames = rng.choice([3000, 3000, rng.randint(1, 3000)])
        offset = rng.randrange(100_000) * 0.02 / 2
        theirs, advance = whisper.WhisperGenerationMixin._retrieve_segment(
            seek_sequence=torch.tensor(tokens, dtype=torch.long),
            seek_outputs=[None],
            time_offset=torch.tensor([offset], dtype=torch.float64),
            timestamp_begin=BEGIN,
            seek_num_frames=torch.tensor([frames]),
            time_precision=0.02,
            time_precision_features=0.01,
            input_stride=2,
            prev_idx=0,
            idx=0,
            return_token_timestamps=False,
            decoder_input_ids=torch.zeros(1, 3),
        )
        speech = SpeechTokens(END, BEGIN, lambda ids: f"{ids}")
        ours, our_advance = segments.split(tokens, speech, frames, offset)
        # Where text comes before the first timestamp, transformers has a time before the window.
        expected = [
            (max(float(s["start"]), offset), float(s["end"]), s["tokens"].tolist()) for s in theirs
        ]
        assert [(s.start, s.end, list(s.tokens)) for s in ours] == expected
        # Transformers stays for ever where the last pair is 0.00, and may go beyond the end.
        assert our_advance == (min(int(advance), frames) or frames)
        starts = np.cumsum([0, *(len(s.tokens) for s in ours)])
        assert [(a + 3, b + 3) for a, b in pairwise(starts)] == [s["idxs"] for s in theirs]


def test_ends_of_windows_without_timestamps():
    import torch

    frames = range(1, 3001)
    # The expression of _retrieve_segment, whose single precision is a tick short here and there.
    ends = [int(one * 0.01 / 0.02) * 0.02 for one in torch.tensor(list(frames))]
    speech = SpeechTokens(END, BEGIN, str)
    assert [segments.split([1], speech, n)[0][0].end for n in frames] == ends
    assert ends[29] == 14 * 0.02


def test_compression_ratios(whisper):
    import torch

    rng = random.Random(2)
    for _ in range(500):
        vocab = rng.choice([2, 200, 256, 257, 51865, 51864, 65535, 65536, 70000, 1 << 24])
        few = rng.randint(1, vocab)
        tokens = [rng.randrange(few) for _ in range(rng.randint(1, 200))]
        ratio = whisper.WhisperGenerationMixin._retrieve_compression_ratio
        assert quality.compression_ratio(tokens, vocab) == ratio(torch.tensor(tokens), vocab)


def test_verdicts(whisper):
    import torch

    mixin = whisper.WhisperGenerationMixin
    rng = np.random.default_rng(3)
    seen = set()
    for _ in range(1000):
        n, vocab = int(rng.integers(1, 12)), 300
        tokens = rng.integers(0, int(rng.choice([1, 300])), n)
        temperature = float(rng.choice([0.0, 0.2, 1.0]))
        scores = rng.normal(0, 3, (n, vocab)).astype(np.float32)
        scores[rng.random(scores.shape) < 0.3] = -np.inf
        scores[np.arange(n), tokens] = rng.normal(6, 3, n)
        no_speech = float(rng.random())
        names = ("compression_ratio_threshold", "logprob_threshold", "no_speech_threshold")
        values = [float(rng.uniform(0.5, 2)), float(rng.uniform(-4, 0)), float(rng.random())]
        given = [None if rng.random() < 0.3 else value for value in values]
        if given[1] is None:
            given[2] = None

        class Detector(whisper.WhisperNoSpeechDetection):
            no_speech_prob = (no_speech,)

            def __init__(self):
                pass

        fallback, skip = mixin._need_fallback(
            mixin,
            torch.from_numpy(tokens),
            [{"scores": list(torch.from_numpy(scores))}],
            0,
            [Detector()],
            SimpleNamespace(**dict(zip(names, given, strict=True))),
            vocab,
            temperature,
        )
        average = quality.average_logprob(quality.token_logprobs(scores, tokens, temperature))
        theirs = mixin._retrieve_avg_logprobs(
            list(torch.from_numpy(scores)), torch.from_numpy(tokens), temperature
        )
        assert average == pytest.approx(float(theirs), abs=1e-5)
        ratio = quality.compression_ratio(tokens, vocab)
        verdict = quality.Thresholds(*given).judge(ratio, average, no_speech)
        assert verdict.value == ("skip" if skip else "retry" if fallback else "keep")
        seen.add(verdict)
    assert len(seen) == 3


# --- when tokens were spoken


def test_ways_through_costs(whisper):
    rng = np.random.default_rng(4)
    for i in range(1500):
        n, t = rng.integers(1, 30), rng.integers(1, 40)
        costs = rng.normal(size=(n, t)) if i % 3 else rng.integers(-2, 3, (n, t))  # many ties
        costs = costs.astype(np.float32)
        theirs = whisper._dynamic_time_warping(costs.astype(np.float64))
        for ours, expected in zip(alignment.warp(costs), theirs, strict=True):
            assert ours.tolist() == expected.tolist()


def test_a_way_through_a_whole_window(whisper):
    costs = np.random.default_rng(5).normal(size=(220, 1500)).astype(np.float32)
    theirs = whisper._dynamic_time_warping(costs.astype(np.float64))
    for ours, expected in zip(alignment.warp(costs), theirs, strict=True):
        assert np.array_equal(ours, expected)


@pytest.mark.parametrize("width", [1, 3, 5, 7, 9, 11])
def test_medians(whisper, width):
    import torch

    rng = np.random.default_rng(width)
    for _ in range(100):
        shape = (int(rng.integers(1, 6)), int(rng.integers(1, 40)))
        values = rng.choice([rng.normal(size=shape), rng.integers(0, 4, shape)]).astype(np.float32)
        theirs = whisper._median_filter(torch.from_numpy(values)[None, None], width)[0, 0]
        assert np.array_equal(alignment.median_filter(values, width), theirs.numpy())


class Outputs(dict):
    """What transformers' generate gives."""

    __getattr__ = dict.__getitem__


def drawn_attention(rng, n: int, t: int) -> np.ndarray:
    """Attention (n,t) that follows speech, in one pace or another.

    It is nowhere 0: where it is for all tokens, transformers' times are NaN and its way goes wrong.
    """
    centres = np.sort(rng.uniform(0, t, n))[:, None]
    logits = -(((np.arange(t) - centres) / rng.uniform(2, 8)) ** 2) + rng.normal(0, 1, (n, t))
    weights = np.exp(logits) + rng.uniform(1e-4, 1e-3, (n, t))
    return (weights / weights.sum(1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("beams", [None, 3])
def test_times_of_tokens(whisper, beams):
    import torch

    rng = np.random.default_rng(6)
    layers, heads = 3, 2
    for _ in range(100):
        t, rows = int(rng.integers(20, 150)), beams or 1
        # Of two rows the standard scores are 1 and -1, so that rounding alone decides; not of one.
        prompt, new = int(rng.integers(1, 6)), int(rng.choice([1, 2, *range(4, 25)]))
        chosen = [(layer, head) for layer in range(layers) for head in range(heads)]
        chosen = [chosen[i] for i in rng.permutation(len(chosen))[: rng.integers(1, 5)]]
        frames = int(rng.integers(10, 2 * t + 1))
        n = prompt + new - 1
        attention = np.array(
            [
                [[drawn_attention(rng, n, t) for _ in range(heads)] for _ in range(rows)]
                for _ in range(layers)
            ]
        )
        sizes = [prompt] + [1] * (new - 1)
        cuts = np.cumsum([0, *sizes])
        steps = [attention[:, :, :, a:b] for a, b in pairwise(cuts)]
        outputs = Outputs(
            cross_attentions=[[torch.from_numpy(layer) for layer in step] for step in steps],
            sequences=torch.zeros(1, prompt + new),
        )
        of_steps = [0] * new
        if beams:
            of_steps = rng.integers(0, beams, new).tolist()
            outputs["beam_indices"] = torch.tensor([of_steps])
        config = SimpleNamespace(decoder_layers=layers, median_filter_width=7)
        theirs = whisper.WhisperGenerationMixin._extract_token_timestamps(
            SimpleNamespace(config=config),
            outputs,
            chosen,
            num_frames=torch.tensor([frames]),
            num_input_ids=prompt,
        )
        kept = [np.stack([step[layer][:, head] for layer, head in chosen], 1) for step in steps]
        ours = alignment.token_times(alignment.along(kept, of_steps), prompt, frames)
        assert theirs[0, :prompt].tolist() == [0] * prompt
        np.testing.assert_allclose(ours, theirs[0, prompt:].numpy(), atol=1e-6)


# --- words


def words_of(tokenizer, tokens, code):
    """Transformers' words; None where it fails or loses tokens, as of a broken character's end."""
    from transformers.models.whisper.tokenization_whisper import _combine_tokens_into_words

    try:
        found = _combine_tokens_into_words(tokenizer, list(tokens), LANGUAGES.get(code))
    except IndexError:
        return None
    return found if sum(map(len, found[1])) == len(tokens) else None


def test_words(tokenizer, speech, texts):
    rng = random.Random(7)
    compared = 0
    for i in range(3000):
        tokens = texts(rng, wild=i % 2 == 1)
        code = rng.choice([None, *LANGUAGES])
        pieces = words.split_words(tokens, speech.decode, code)
        assert [i for piece in pieces for i in range(*piece[1:])] == list(range(len(tokens)))
        theirs = words_of(tokenizer, tokens, code)
        if theirs is None:
            continue
        compared += 1
        assert [piece.text for piece in pieces] == theirs[0]
        assert [tokens[piece.start : piece.stop] for piece in pieces] == theirs[1]
        assert [list(range(piece.start, piece.stop)) for piece in pieces] == theirs[2]
    assert compared > 2500


# --- chunks


def test_chunks():
    from transformers.pipelines.automatic_speech_recognition import chunk_iter

    def features(chunk, sampling_rate, **_):
        return {"chunk": chunk}

    rng = random.Random(8)
    extractor = type("Extractor", (), {"sampling_rate": 1, "__call__": staticmethod(features)})()
    for _ in range(1000):
        audio = np.arange(rng.randint(0, 300))
        length = rng.randint(1, 60)
        left = rng.randint(0, length - 1)
        right = rng.randint(0, length - 1 - left)
        theirs = list(chunk_iter(audio, extractor, length, left, right))
        ours = merging.spans(len(audio), 1, length, (left, right))
        strides = [(span.stop - span.start, span.left, span.right) for span in ours]
        assert strides == [item["stride"] for item in theirs]
        for span, item in zip(ours, theirs, strict=True):
            assert np.array_equal(audio[span.start : span.stop], item["chunk"])


def test_overlaps():
    from transformers.models.whisper.tokenization_whisper import _find_longest_common_sequence

    rng = random.Random(9)
    for _ in range(3000):
        few = rng.choice([2, 5, 50])
        rows = [
            [rng.randrange(few) for _ in range(rng.randint(0, 12))]
            for _ in range(rng.randint(1, 4))
        ]
        for left, right in pairwise(rows):
            if left and rng.random() < 0.6:
                right[: rng.randint(0, 2)] = left[-rng.randint(1, 6) :]
        sequences = [[words.Heard(token) for token in row] for row in rows]
        assert [one.token for one in merging.join(sequences)] == _find_longest_common_sequence(rows)
        times = [[(rng.randrange(6) / 2, rng.randrange(6) / 2) for _ in row] for row in rows]
        timed = [
            [words.Heard(token, *time) for token, time in zip(row, spans, strict=True)]
            for row, spans in zip(rows, times, strict=True)
        ]
        joined = merging.join(timed)
        theirs = _find_longest_common_sequence(rows, times)
        assert ([one.token for one in joined], [one[1:3] for one in joined]) == theirs


class Recording:
    """A random recording in chunks, as a model would hear it: not quite the same in each."""

    def __init__(self, rng: random.Random, speech: SpeechTokens, texts, strided: bool, marks: bool):
        self.rng, self.speech, self.texts = rng, speech, texts
        self.marks = marks
        script, time = [], 0.0  # what is said: ids, from, to
        while len(script) < rng.randint(1, 8):
            end = time + rng.randint(10, 300) / 50
            script.append((texts(rng, wild=rng.random() < 0.3), time, end))
            time = end + rng.choice([0, 0, rng.randint(1, 100) / 50])
        self.parts = []
        if strided:
            length = rng.choice([8.0, 10.0, 7.37])
            left, right = (rng.choice([0, 1.0, 1.5, length / 6]) for _ in range(2))
            spans = merging.spans(int(time * 16000) + 1, 16000, length, (left, right))
            for start, stop, before, after in spans:
                tokens = self.heard(script, start / 16000, stop / 16000)
                stride = ((stop - start) / 16000, before / 16000, after / 16000)
                self.parts.append((tokens, stride))
        else:
            tokens, start = [], 0.0
            while start < time:
                tokens += self.heard(script, start, start + rng.choice([4.0, 8.0]))
                start += rng.choice([3.0, 4.0, 30.0])
            self.parts.append((tokens, None))

    def heard(self, script, start: float, stop: float) -> list[int]:
        """The tokens of the audio between two times, now and then with a slip."""
        rng, begin = self.rng, self.speech.timestamps
        tokens = []
        for ids, first, last in script:
            if last <= start or first >= stop:
                continue
            said = list(ids)
            if rng.random() < 0.2:
                said[rng.randrange(len(said))] = rng.randrange(self.speech.end)
            cut = int(len(said) * max(0.0, (start - first) / (last - first)))
            said = said[
                cut : max(cut + 1, int(len(said) * min(1.0, (stop - first) / (last - first))))
            ]
            opening, closing = (
                begin + min(1500, max(0, round((t - start) * 50) + rng.choice([0, 0, 0, 1, -1])))
                for t in (first, last)
            )
            if not self.marks:
                tokens += said
            elif last > stop and rng.random() < 0.5:
                tokens += [opening, *said]  # not closed
            else:
                tokens += [opening, *said, closing]
        return tokens


def theirs_of(tokenizer, outputs, mode):
    import torch
    from transformers.models.whisper.tokenization_whisper import _decode_asr

    for output in outputs:
        output["tokens"] = torch.tensor([output["tokens"]], dtype=torch.long)
        if "token_timestamps" in output:
            output["token_timestamps"] = torch.tensor([output["token_timestamps"]])
    return _decode_asr(
        tokenizer, outputs, return_timestamps=mode, return_language=True, time_precision=0.02
    )


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("mode", [False, True, "word"])
def test_merging(tokenizer, speech, texts, strided, mode):
    rng = random.Random(f"{strided} {mode}")
    several = compared = 0
    for _ in range(400):
        marks = bool(mode) or rng.random() < 0.2
        recording = Recording(rng, speech, texts, strided, marks)
        parts, outputs = [], []
        language = rng.choice([None, *LANGUAGES])
        for tokens, stride in recording.parts:
            if language and rng.random() < 0.2:
                language = rng.choice(list(LANGUAGES))
            output, times = {"tokens": list(tokens)}, None
            if stride:
                output["stride"] = stride
            if mode == "word":
                ends = np.cumsum([rng.choice([0, 1, 5, 20]) for _ in tokens]) * 0.02
                times = output["token_timestamps"] = ends.astype(np.float32).tolist()
            if language:
                named = tokenizer.convert_tokens_to_ids(f"<|{language}|>")
                output["tokens"].insert(0, named)
                if times is not None:
                    output["token_timestamps"] = [0.0, *times]
            parts.append(merging.Part(tokens, times, stride, language))
            outputs.append(output)
        ours = merging.merge(parts, speech, timestamps=bool(mode))
        assert all(set(one.tokens) <= set(range(speech.end)) for one in ours)
        if mode == "word" and None in [words_of(tokenizer, s.tokens, s.language) for s in ours]:
            continue
        text, rest = theirs_of(tokenizer, outputs, mode)
        compared += 1
        several += len(rest["chunks"]) > 1
        assert "".join(one.text for one in ours) == text
        if mode == "word":
            said = [(word.text, (word.start, word.end)) for one in ours for word in one.words]
            assert said == [(one["text"], one["timestamp"]) for one in rest["chunks"]]
            continue
        for one, chunk in zip(ours, rest["chunks"], strict=True):
            assert one.text == chunk["text"]
            assert one.language == LANGUAGE_CODES.get(chunk["language"])
            if mode:
                assert (one.start, one.end) == chunk["timestamp"]
    assert compared > 250
    assert several > 30
