"""Faults of other runtimes in whole answers: layouts, batches, caches, chance, images."""

import json
import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxgen
from onnxgen.errors import LogitsError, OptionError
from onnxgen.runtime.binding import Binding
from onnxgen.runtime.caches import right_padded
from onnxgen.runtime.session import Cancel
from onnxgen.tasks.cache import Cache
from onnxgen.tasks.pictured import Features, Prompt
from tests.fixture_models import FIXTURES, FixtureModel
from tests.tasks.encoder_decoders import EncoderDecoder

MODELS = FIXTURES / "models"
FREE = {"eos_token_id": None, "max_new_tokens": 32}


def fixture(name):
    return FixtureModel(MODELS / name)


def copied(name, place, **config):
    """A copy of a model, with other values in its config.json."""
    folder = shutil.copytree(MODELS / name, place / "model", dirs_exist_ok=True)
    told = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(told | config))
    return folder


def tokens(results):
    return [list(result.tokens) for result in results]


# -- layouts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "bloom"])
@pytest.mark.parametrize("file", ["model.onnx", "decoder_model_merged.onnx", "decoder_model.onnx"])
def test_names_of_old_and_new_exporters_mean_the_same(name, file, tmp_path):
    """known problem L3: with position_ids and without; only what the graph declares is fed."""
    own, folder = fixture(name), copied(name, tmp_path)
    (folder / "model.onnx").rename(folder / file)
    model = onnxgen.load(folder)
    assert ("positions" in model.model.graph.inputs) == (name == "gpt2")
    assert tokens(model.generate(own.prompts, **FREE)) == own.greedy


def test_two_layouts_of_one_model_give_the_same_tokens():
    """known problem L6: optimum's and onnxruntime-genai's, which keep caches in other ways."""
    prompts = fixture("llama").prompts
    expected = fixture("llama").greedy
    for name in ("llama", "llama-tjs", "genai-llama", "genai-llama-pruned"):
        assert tokens(onnxgen.load(MODELS / name).generate(prompts, **FREE)) == expected


@pytest.mark.parametrize("kind", ["never-heard-of", "bert", None])
def test_no_model_type_is_needed(kind, tmp_path):
    """known problem L7"""
    own = fixture("llama")
    model = onnxgen.load(copied("llama", tmp_path, model_type=kind, architectures=None))
    assert tokens(model.generate(own.prompts, **FREE)) == own.greedy


def test_data_beside_the_graph_may_have_any_name():
    """known problem L1: ``model.onnx.data``, which no config tells of."""
    folder = MODELS / "genai-llama"
    assert (folder / "model.onnx.data").exists()
    assert tokens(onnxgen.load(folder).generate(fixture("llama").prompts, **FREE)) == (
        fixture("llama").greedy
    )


def test_truncation_is_no_option():
    """known problem C20: a prompt is never cut silently, at neither end."""
    with pytest.raises(OptionError, match="truncation"):
        onnxgen.load(MODELS / "llama").generate([5, 6], truncation=True)


# -- batches and caches ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["t5", "t5-gated", "bart", "bart-fp16"])
@pytest.mark.parametrize("longest", [16, 64])
def test_a_source_does_not_see_its_padding(name, longest):
    """known problem C5"""
    told = EncoderDecoder(MODELS / name)
    model, random = onnxgen.load(told.folder), np.random.default_rng(longest)
    long = random.integers(5, 40, longest).tolist()
    bound = model.encoder.graph.capacity.rows
    short = [ids for ids in told.inputs() if len(ids) < longest][:3]
    assert short
    options = {"max_new_tokens": 12, "eos_token_id": None}
    alone = tokens(model.generate(ids, **options) for ids in short)
    batch = model.generate([*short, long[:bound]], **options)
    assert tokens(batch)[: len(short)] == alone


@pytest.mark.parametrize("options", [{}, {"prompt_lookup_num_tokens": 4}], ids=str)
def test_a_cache_holds_what_was_returned_though_a_stop_came_early(options):
    """known problem C22: all but the last token, which was never fed."""
    model, cache = onnxgen.load(MODELS / "llama"), Cache()
    prompt = [5, 9, 12, 40, 41, 42, 43, 5, 9, 12, 40, 41]
    free = model.generate(prompt, max_new_tokens=20, eos_token_id=None).tokens
    for stop in dict.fromkeys(free):
        keywords = {"max_new_tokens": 20, "eos_token_id": stop, **options}
        answer = model.generate(prompt, cache=cache, **keywords)
        assert answer.tokens == free[: free.index(stop) + 1]
        assert cache.tokens == [*prompt, *answer.tokens[:-1]]
        assert cache._decoder.lengths.tolist() == [len(cache.tokens)]


def test_the_new_part_of_a_chat_alone_is_another_prompt():
    """known problem C13: a cache only saves work; the prompt is what is given, as a whole."""
    model, cache = onnxgen.load(MODELS / "llama"), Cache()
    prompt, more = [5, 9, 12, 40], [7, 8, 11]
    first = model.generate(prompt, cache=cache, **FREE)
    whole = [*prompt, *first.tokens, *more]
    assert model.generate(whole, cache=cache, **FREE).tokens == model.generate(whole, **FREE).tokens
    assert model.generate(more, cache=cache, **FREE).tokens == model.generate(more, **FREE).tokens


# -- rules and chance --------------------------------------------------------------------------


@pytest.mark.parametrize("beams", [1, 3])
def test_a_grammar_binds_every_row_and_beam(beams):
    """known problem S6: after an id that is 0, 1 or 2 mod 3 comes one that is 1, 2 or 0."""
    model = onnxgen.load(MODELS / "genai-llama")
    prompts = [[5, 6, 7], [9, 10], [11, 4, 8, 12]]

    def allowed(prompt, ids):
        assert ids[: len(prompts[prompt])].tolist() == prompts[prompt]
        return list(range((int(ids[-1]) + 1) % 3, model.model.vocab_size, 3))

    options = {"num_beams": beams, "num_return_sequences": beams, **FREE}
    answers = model.generate(prompts, prefix_allowed_tokens_fn=allowed, **options)
    for prompt, own in zip(prompts, answers, strict=True):
        for answer in own if isinstance(own, list) else [own]:
            ids = np.array([prompt[-1], *answer.tokens])
            assert (np.diff(ids % 3) % 3 == 1).all()


def test_runs_repeat():
    """known problem S33: 25 equal runs, and 257 answers asked for in two orders."""
    model = onnxgen.load(MODELS / "llama")
    options = {"do_sample": True, "temperature": 1.5, "max_new_tokens": 8, "eos_token_id": None}
    runs = {model.generate([5, 6, 7], seed=4, **options).tokens for _ in range(25)}
    assert len(runs) == 1
    options["max_new_tokens"] = 3
    seeds = list(range(257))
    there = {seed: model.generate([5, 6], seed=seed, **options).tokens for seed in seeds}
    back = {seed: model.generate([5, 6], seed=seed, **options).tokens for seed in seeds[::-1]}
    assert there == back
    assert len(set(there.values())) > 100


@pytest.mark.parametrize("name", ["llama", "genai-llama", "gemma3_text"])
def test_a_text_begins_with_the_start_token(name, monkeypatch):
    """known problem S5: where the tokenizer says so, and only there."""
    model = onnxgen.load(MODELS / name)
    bare = model.tokenizer.encode("one two", add_special_tokens=False)
    for adds in (True, False):
        start = [model.tokenizer.bos_token_id] if adds else []
        monkeypatch.setattr(
            model.tokenizer,
            "encode",
            lambda text, *, add_special_tokens=True, start=start: (
                (start if add_special_tokens else []) + bare
            ),
        )
        assert model.request(["one two"], None, FREE)._prompts == [start + bare]


@pytest.mark.parametrize(
    "options", [{}, {"prompt_lookup_num_tokens": 3}, {"selection": "onnx"}], ids=str
)
def test_a_stop_that_comes_first_is_the_answer(options):
    """known problem S10: in whole answers and in streams, with guesses, chosen by a graph."""
    chosen = {k: options[k] for k in ("selection",) if k in options}
    asked = {k: v for k, v in options.items() if k not in chosen}
    model, prompt = onnxgen.load(MODELS / "llama", **chosen), [5, 9, 12]
    first = model.generate(prompt, max_new_tokens=1, eos_token_id=None).tokens[0]
    keywords = {"max_new_tokens": 9, "eos_token_id": first, **asked}
    answer = model.generate(prompt, **keywords)
    assert (answer.tokens, answer.finish_reason, answer.text) == ((first,), "stop", answer.text)
    (piece,) = model.stream(prompt, **keywords)
    assert (piece.token, piece.finish_reason, piece.text) == (first, "stop", answer.text)


def test_a_temperature_of_the_models_file_counts(tmp_path):
    """known problem S2"""
    folder = copied("llama", tmp_path)
    file = {"do_sample": True, "temperature": 0.4, "top_k": 0, "eos_token_id": 2}
    (folder / "generation_config.json").write_text(json.dumps(file))
    model, plain = onnxgen.load(folder), onnxgen.load(MODELS / "llama")
    options = {"max_new_tokens": 24, "eos_token_id": None, "seed": 3}
    told = model.generate([5, 6, 7], **options).tokens
    same = {"do_sample": True, "top_k": 0, **options}
    assert told == plain.generate([5, 6, 7], temperature=0.4, **same).tokens
    assert told != plain.generate([5, 6, 7], temperature=1.0, **same).tokens


def test_room_is_made_for_the_request_not_for_the_model():
    """known problem P1: the prompt and the 256 new tokens that are the default."""
    model = onnxgen.load(MODELS / "llama")
    assert model.capacity is None or model.capacity >= 128
    for asked, room in [({}, 256), ({"max_new_tokens": 7}, 7)]:
        request = model.request([[5, 6, 7], [5]], None, asked)
        bound = model.capacity or 1 << 40
        assert request._capacity == min(3 + room - 1, bound)


# -- encoders ----------------------------------------------------------------------------------


def recast(path, name, kind, *, output):
    """Gives an input or output of a float32 graph the type ``kind``, by a Cast at the border."""
    proto = onnx.load(path)
    ports = proto.graph.output if output else proto.graph.input
    port = next(p for p in ports if p.name == name)
    inner = f"{name}/inner"
    for node in proto.graph.node:
        names = node.output if output else node.input
        names[:] = [inner if n == name else n for n in names]
    port.type.tensor_type.elem_type = kind
    if output:
        proto.graph.node.append(helper.make_node("Cast", [inner], [name], to=kind))
    else:
        cast = helper.make_node("Cast", [name], [inner], to=TensorProto.FLOAT)
        proto.graph.node.insert(0, cast)
    onnx.save(proto, path)


@pytest.mark.parametrize("name", ["bart", "t5", "vit-gpt2"])
def test_sessions_may_differ_in_precision(name, tmp_path):
    """known problem A1: an encoder that takes and gives half precision, a decoder of single."""
    told = EncoderDecoder(MODELS / name)
    folder = copied(name, tmp_path)
    recast(folder / "encoder_model.onnx", "last_hidden_state", TensorProto.FLOAT16, output=True)
    if name == "vit-gpt2":
        recast(folder / "encoder_model.onnx", "pixel_values", TensorProto.FLOAT16, output=False)
    model = onnxgen.load(folder)
    options = {"max_new_tokens": 12, "eos_token_id": None, "logprobs": True}
    wanted = onnxgen.load(told.folder).generate(told.inputs()[:2], **options)
    for half, single in zip(model.generate(told.inputs()[:2], **options), wanted, strict=True):
        assert half.tokens == single.tokens
        assert half.token_logprobs == pytest.approx(single.token_logprobs, abs=2e-2)


def overflowing(path, after):
    """Has the states of an encoder go through a half precision that is too small for them."""
    proto = onnx.load(path)
    for node in proto.graph.node:
        node.output[:] = ["finite" if n == after else n for n in node.output]
    big = onnx.numpy_helper.from_array(np.float32(1e38), "big")
    proto.graph.initializer.append(big)
    proto.graph.node.append(helper.make_node("Mul", ["finite", "big"], ["bigger"]))
    proto.graph.node.append(helper.make_node("Mul", ["bigger", "big"], [after]))
    onnx.save(proto, path)


@pytest.mark.parametrize("beams", [1, 2])
@pytest.mark.parametrize("name", ["bart", "trocr"])
def test_an_encoder_whose_states_overflow_is_named(name, beams, tmp_path):
    """known problem A3"""
    told, folder = EncoderDecoder(MODELS / name), copied(name, tmp_path)
    overflowing(folder / "encoder_model.onnx", "last_hidden_state")
    with pytest.raises(LogitsError, match=r"encoder_model\.onnx .*not finite"):
        onnxgen.load(folder).generate(told.inputs()[0], max_new_tokens=3, num_beams=beams)


def test_logits_that_break_behind_the_encoder_are_not_its_fault():
    """known problem A3, the other way round"""
    told = EncoderDecoder(MODELS / "bart")

    def broken(ids, scores):
        return np.full_like(scores, np.nan)

    model, options = onnxgen.load(told.folder), {"logits_processor": [broken]}
    with pytest.raises(LogitsError, match=r"row 0 is nan in step 1"):
        model.generate(told.inputs()[0], max_new_tokens=3, **options)


@pytest.mark.parametrize("name", ["marian", "t5", "t5-gated-pair", "trocr"])
def test_caches_of_the_encoder_are_made_once_and_never_handed_on(name, monkeypatch):
    """known problem P12: what later steps return in their place is not even asked for."""
    told = EncoderDecoder(MODELS / name)
    model, runs = onnxgen.load(told.folder), []
    run = Binding.run

    def running(binding, *rest, **named):
        run(binding, *rest, **named)
        if model.model.graph.logits.name in binding._outputs:
            runs.append(set(binding._outputs))

    monkeypatch.setattr(Binding, "run", running)
    for inputs in (told.inputs()[0], told.inputs()[:2]):
        model.generate(inputs, max_new_tokens=6, eos_token_id=None)
        first, *later = runs
        cross = set(model.model.cross.outputs.values())
        assert cross <= first
        assert len(later) == 5
        assert not any(cross & outputs for outputs in later)
        runs.clear()


# -- images ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["qwen2-vl", "qwen2_vl", "qwen2_5-vl", "qwen2_5_vl"])
def test_a_model_type_may_be_spelled_either_way(kind, tmp_path):
    """known problem V1"""
    name = "qwen2-vl" if "5" not in kind else "qwen2_5-vl"
    told = json.loads((MODELS / name / "expected.json").read_text())
    case = next(c for c in told["cases"] if c["name"] == "two images")
    model = onnxgen.load(copied(name, tmp_path, model_type=kind))
    images = [FIXTURES / "images" / image for image in case["images"]]
    answer = model.generate(case["prompt"], images=images, **case["options"])
    assert list(answer.tokens) == case["tokens"]


class Shown:
    """An image of so many features, each of which is its own number."""

    digest, feeds = b"", {}

    def __init__(self, first, tokens):
        self.first = first
        self.picture = type("Picture", (), {"tokens": tokens})


class Numbers(Features):
    """Stands for a vision session."""

    def of(self, image, cancel):
        numbers = np.arange(image.first, image.first + image.picture.tokens)
        return np.stack([numbers, numbers], axis=1).astype(np.float32)  # (R,2)


def test_features_go_on_from_row_to_row_and_piece_to_piece():
    """known problem V4: 3 and 2 image tokens; the first image is cut after its second token."""
    image = 5
    rows = [[9, image, image, image, 8], [image, image, 8, 8, 8]]
    shown = [Shown(100, 3), Shown(200, 2)]
    prompts = [
        Prompt(ids, (one,), frozenset({image}), None) for ids, one in zip(rows, shown, strict=True)
    ]
    scene = Numbers(None, None).scene(prompts, False, Cancel(), 0)
    assert scene.features[:, 0].tolist() == [100, 101, 102, 200, 201]
    ids = np.array(rows)

    def places(start, stop):
        counts = np.full(2, stop - start)
        layout = right_padded(ids[:, start:stop], counts, np.full(2, start))
        return scene.laid(layout).places.tolist()

    assert places(0, 5) == [[-1, 0, 1, 2, -1], [3, 4, -1, -1, -1]]
    assert places(0, 3) == [[-1, 0, 1], [3, 4, -1]]
    assert places(3, 5) == [[2, -1], [-1, -1]]
    turned = scene.gather([1, 1, 0])
    assert turned.places.tolist() == [[3, 4, -1, -1, -1]] * 2 + [[-1, 0, 1, 2, -1]]
