"""Texts, languages and tasks of text-to-text models."""

import json
import shutil

import pytest

import onnxgen
from onnxgen.errors import CapacityError, OptionError
from tests.fixture_models import FIXTURES
from tests.tasks.encoder_decoders import EncoderDecoder

M2M = EncoderDecoder(FIXTURES / "models/m2m_100")
T5 = FIXTURES / "models/t5"


@pytest.fixture(scope="module")
def m2m():
    return onnxgen.load(M2M.folder)


def test_a_text_is_what_its_ids_are():
    told = M2M.expected()
    case, model = told["cases"]["greedy"], onnxgen.load(M2M.folder)
    model.defaults = {k: v for k, v in model.defaults.items() if k.endswith("_token_id")}
    for i, expected in zip(case["rows"], case["tokens"], strict=True):
        text = told["inputs"]["texts"][i]
        assert list(model.generate(text, **case["options"]).tokens) == expected


def test_the_target_language_is_what_transformers_forces(m2m):
    told = M2M.expected()
    case = told["cases"]["language"]
    token = m2m.tokenizer.id_to_token(case["options"]["forced_bos_token_id"])
    texts = [told["inputs"]["texts"][i] for i in case["rows"]]
    answers = m2m.generate(texts, src_lang="eng_Latn", tgt_lang=token)
    assert [list(answer.tokens) for answer in answers] == case["tokens"]


def test_nothing_of_a_call_is_left_for_the_next(m2m):
    text = M2M.expected()["inputs"]["texts"][0]
    before = m2m.generate(text).tokens
    m2m.generate(text, src_lang="fra_Latn", tgt_lang="deu_Latn")
    assert m2m.generate(text).tokens == before


def test_the_languages_are_named_where_one_is_unknown(m2m):
    with pytest.raises(OptionError, match="fra_Latn"):
        m2m.generate("very", tgt_lang="fra_Latin")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """T5 with the tasks that its real config names."""
    folder = tmp_path_factory.mktemp("t5") / "t5"
    shutil.copytree(T5, folder)
    config = json.loads((folder / "config.json").read_text())
    config["prefix"] = "two "
    config["task_specific_params"] = {
        "summarization": {"prefix": "house ", "max_length": 6, "num_beams": 2},
        "translation_en_to_de": {"prefix": "wind ", "max_length": 5},
    }
    (folder / "config.json").write_text(json.dumps(config))
    return onnxgen.load(folder)


def ids(model, text):
    return model.tokenizer.encode(text)


def test_a_task_brings_its_prefix_and_options(tasks):
    told = tasks.generate(ids(tasks, "house dog bird"), max_length=6, num_beams=2)
    assert tasks.generate("dog bird", task="summarization").tokens == told.tokens
    told = tasks.generate(ids(tasks, "wind dog bird"), max_length=5)
    assert tasks.generate("dog bird", src_lang="en", tgt_lang="de").tokens == told.tokens


def test_a_keyword_beats_the_task(tasks):
    assert len(tasks.generate("dog bird", task="summarization", max_new_tokens=2).tokens) <= 2


def test_the_prefix_of_the_config_stands_before_texts(tasks):
    told = tasks.generate(ids(tasks, "two dog bird"), max_new_tokens=6).tokens
    assert tasks.generate("dog bird", max_new_tokens=6).tokens == told
    plain = tasks.generate(ids(tasks, "dog bird"), max_new_tokens=6).tokens
    assert tasks.generate("dog bird", prefix="", max_new_tokens=6).tokens == plain


def test_an_unknown_task_is_refused_with_those_there_are(tasks):
    with pytest.raises(OptionError, match="summarization"):
        tasks.generate("dog", task="sumarization")


@pytest.mark.parametrize("text", ["", "  ", [], [10**6]], ids=repr)
def test_texts_that_are_none_are_refused(tasks, text):
    with pytest.raises(OptionError):
        tasks.generate(text)


def test_a_text_beyond_the_encoders_positions_is_refused():
    model = onnxgen.load(FIXTURES / "models/bart")
    bound = model.encoder.graph.capacity.rows
    assert (
        bound
        == json.loads((model.files.folder / "config.json").read_text())["max_position_embeddings"]
    )
    model.generate([5] * bound, max_new_tokens=2)
    with pytest.raises(CapacityError, match=str(bound)):
        model.generate([5] * (bound + 1))


def test_a_graph_with_relative_positions_sets_no_bound():
    assert onnxgen.load(T5).encoder.graph.capacity.rows is None
