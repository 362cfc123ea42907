"""Sources of translation models are encoded as transformers 4.57.6 does, in every language."""

import json
import shutil
from functools import cache
from pathlib import Path

import pytest

from onnxgen.errors import OptionError, TokenizerError
from onnxgen.text.languages import LanguageRule, Languages
from onnxgen.text.stream import TextStream
from onnxgen.text.tokenizer import Tokenizer
from tests.text.goldens import FIXTURES, golden, model_files

FOLDERS = FIXTURES / "translation"
TEXTS = golden("translation")["texts"]
CASES = golden("translation")["cases"]


@cache
def load(name: str) -> Tokenizer:
    return Tokenizer.from_files(model_files(FOLDERS / name))


def changed(parent: Path, name: str, changes: dict) -> Path:
    """A copy of a folder with keys of its tokenizer_config.json changed, or taken out by None.

    Without added_tokens_decoder its tokenizer.json has no languages among the added tokens either.
    """
    folder = parent / name
    shutil.copytree(FOLDERS / name, folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    if config["added_tokens_decoder"] is None:
        path = folder / "tokenizer.json"
        state = json.loads(path.read_text(encoding="utf-8"))
        state["added_tokens"] = [t for t in state["added_tokens"] if t["content"][0] == "<"]
        path.write_text(json.dumps(state))
    return folder


@pytest.fixture(params=CASES, ids=lambda case: " ".join([case["folder"], *case["config"]]))
def pair(request, tmp_path):
    """A tokenizer and what transformers says about it."""
    case = request.param
    folder = changed(tmp_path, case["folder"], case["config"])
    return Tokenizer.from_files(model_files(folder)), case


def test_encodes_in_every_language(pair):
    tokenizer, expected = pair
    for code, encoded in expected["sources"].items():
        assert [tokenizer.encode_source(text, code) for text in TEXTS] == encoded


def test_encodes_in_the_default_language(pair):
    tokenizer, expected = pair
    assert [tokenizer.encode(text) for text in TEXTS] == expected["plain"]
    assert [tokenizer.encode_source(text) for text in TEXTS] == expected["plain"]


def test_no_language_stays_behind(pair):
    tokenizer, expected = pair
    for index, text in enumerate(TEXTS):
        for code, encoded in expected["sources"].items():
            assert tokenizer.encode_source(text, code) == encoded[index]
            assert tokenizer.encode(text) == expected["plain"][index]


def test_targets(pair):
    tokenizer, expected = pair
    place = "decoder_start_token_id" if expected["folder"] == "mbart" else "forced_bos_token_id"
    for code, token_id in expected["targets"].items():
        assert tokenizer.languages.target(code) == token_id
        assert tokenizer.target_options(code) == {place: token_id}
        # a target asked for beside the source changes nothing in the source
        assert tokenizer.encode_source(TEXTS[1], tgt_lang=code) == expected["plain"][1]


def test_decodes_without_languages(pair):
    tokenizer, expected = pair
    for ids, text in expected["decoded"]:
        assert tokenizer.decode(ids) == text
        stream = TextStream(tokenizer)
        assert "".join([*map(stream.push, ids), stream.finish()]) == text


def test_special_tokens(pair):
    tokenizer, expected = pair
    ids = [tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id]
    assert ids == expected["special"]
    assert tokenizer.vocab_size == expected["size"]


def test_fixtures_are_what_they_say():
    """Both orders, a code behind the end, unknown tokens and unknown codes are among them."""
    by_folder = {(case["folder"], *case["config"]): case for case in CASES}
    assert by_folder["nllb",]["plain"][1][-1] == 2
    assert by_folder["nllb", "legacy_behaviour"]["plain"][1][-2] == 2
    assert by_folder["marian",]["class"] == "MarianTokenizer"
    known, unknown = (
        by_folder["marian",]["plain"][TEXTS.index(text)]
        for text in (">>fra<<Paris", ">>xyz<< Berlin")
    )
    assert known[0] == load("marian").token_to_id(">>fra<<")
    assert unknown[0] == load("marian").token_to_id("<unk>") == 1
    assert {case["folder"] for case in CASES} == {path.name for path in FOLDERS.iterdir()}


@pytest.mark.parametrize(
    ("folder", "same"),
    [
        ("nllb", ["fra_Latn", "FRA_LATN", "fra_latn"]),
        ("mbart", ["fr_XX", "fr_xx"]),
        ("m2m100", ["fr", "FR", "__fr__", "__FR__"]),
        ("seamless", ["cmn_Hant", "__cmn_Hant__", "CMN_hant"]),
        ("marian", ["fra", ">>fra<<", "Fra", ">>FRA<<"]),
    ],
)
def test_names_of_a_language(folder, same):
    languages = load(folder).languages
    assert same[0] in languages.codes
    assert len({languages.target(name) for name in same}) == 1


def rule_with(*codes: str) -> Languages:
    ids = {f"__{code}__": i for i, code in enumerate(codes)}
    return Languages(LanguageRule(marks=("__", "__")), ids, 9, {})


def test_names_that_differ_in_case_only():
    languages = rule_with("sr_Latn", "sr_LATN", "de")
    assert [languages.target("sr_Latn"), languages.target("__sr_LATN__")] == [0, 1]
    with pytest.raises(OptionError) as caught:
        languages.target("SR_latn")
    assert "sr_LATN" in caught.value.wanted
    assert "de" not in caught.value.wanted.split(", ")


@pytest.mark.parametrize("name", ["xx", "", "__", "____", ">>fra<<", "eng", 5, ["fr"], b"fr"])
@pytest.mark.parametrize("folder", ["nllb", "mbart", "m2m100"])
def test_unknown_languages(folder, name):
    tokenizer = load(folder)
    for call in (
        lambda: tokenizer.encode_source("Hi", name),
        lambda: tokenizer.encode_source("Hi", tgt_lang=name),
        lambda: tokenizer.target_options(name),
    ):
        with pytest.raises(OptionError, match="no language"):
            call()


def test_the_nearest_languages_come_first():
    with pytest.raises(OptionError) as caught:
        load("nllb").encode_source("Hi", "fra")
    assert caught.value.wanted.startswith("one of fra_Latn, ")
    assert caught.value.wanted.endswith("(202 in all)")
    assert len(caught.value.wanted) < 120
    with pytest.raises(OptionError) as caught:
        load("nllb").encode_source("Hi", "en_Latn")
    assert "eng_Latn" in caught.value.wanted
    with pytest.raises(OptionError) as caught:
        load("seamless").target_options("fr")
    assert caught.value.wanted.startswith("one of fra, ")
    assert set(caught.value.wanted[7:].split(", ")) == set(load("seamless").languages.codes)


@pytest.mark.parametrize("folder", ["marian-pair", "pegasus", "bart", "blenderbot"])
def test_models_without_languages(folder):
    tokenizer = load(folder)
    assert tokenizer.languages is None
    for call in (
        lambda: tokenizer.encode_source("Hi", "en"),
        lambda: tokenizer.encode_source("Hi", tgt_lang="fr"),
        lambda: tokenizer.target_options("fr"),
    ):
        with pytest.raises(OptionError, match="has none"):
            call()


def test_marian_takes_its_target_in_the_text():
    tokenizer = load("marian")
    assert tokenizer.languages.codes == ("fra", "ita", "spa_Latn")
    assert tokenizer.target_options("ita") == {}
    asked = tokenizer.encode_source("Berlin", tgt_lang="ita")
    assert asked == tokenizer.encode_source(">>ita<< Berlin")
    with pytest.raises(OptionError, match="src_lang"):
        tokenizer.encode_source("Berlin", "fra")


def test_a_default_that_is_none_of_the_languages(tmp_path):
    folder = changed(tmp_path, "nllb-tuned", {"src_lang": "deu_Latn"})
    tokenizer = Tokenizer.from_files(model_files(folder))
    with pytest.raises(OptionError, match="no src_lang") as caught:
        tokenizer.encode_source("Hi")
    assert "tyv_Cyrl" in caught.value.wanted
    tuned = next(case for case in CASES if case["folder"] == "nllb-tuned")
    assert tokenizer.encode_source(TEXTS[1], "tyv_Cyrl") == tuned["sources"]["tyv_Cyrl"][1]


@pytest.mark.parametrize(
    ("folder", "model_type"), [("mbart", "mbart"), ("m2m100", "m2m_100"), ("marian", "marian")]
)
def test_the_model_type_decides_where_no_class_is_named(tmp_path, folder, model_type):
    copy = changed(tmp_path, folder, {"tokenizer_class": None})
    (copy / "config.json").write_text(json.dumps({"model_type": model_type}))
    tokenizer = Tokenizer.from_files(model_files(copy))
    assert tokenizer.languages.codes == load(folder).languages.codes
    assert tokenizer.encode(TEXTS[1]) == load(folder).encode(TEXTS[1])


def test_languages_as_transformers_5_lists_them(tmp_path):
    config = json.loads((FOLDERS / "nllb-tuned" / "tokenizer_config.json").read_text())
    listed = {"extra_special_tokens": config["additional_special_tokens"]}
    folder = changed(tmp_path, "nllb-tuned", listed | {"additional_special_tokens": None})
    tokenizer = Tokenizer.from_files(model_files(folder))
    assert tokenizer.languages.codes == load("nllb-tuned").languages.codes
    assert tokenizer.special_tokens == load("nllb-tuned").special_tokens


def test_languages_that_the_vocabulary_lacks_are_not_added(tmp_path):
    """The class of mBART would give them ids that its model has no rows for."""
    folder = changed(tmp_path, "mbart", {"additional_special_tokens": None})
    path = folder / "tokenizer.json"
    state = json.loads(path.read_text(encoding="utf-8"))
    cut = {t["content"] for t in state["added_tokens"] if t["content"] > "fr"}
    state["added_tokens"] = [t for t in state["added_tokens"] if t["content"] not in cut]
    state["model"]["vocab"] = [
        [f"<unused{i}>" if token in cut else token, score]
        for i, (token, score) in enumerate(state["model"]["vocab"])
    ]
    path.write_text(json.dumps(state))
    settings = folder / "tokenizer_config.json"
    config = json.loads(settings.read_text(encoding="utf-8"))
    decoder = config["added_tokens_decoder"].items()
    config["added_tokens_decoder"] = {i: t for i, t in decoder if t["content"] not in cut}
    settings.write_text(json.dumps(config))
    tokenizer = Tokenizer.from_files(model_files(folder))
    assert tokenizer.languages.codes == load("mbart").languages.codes[:7]
    assert tokenizer.vocab_size == load("mbart").vocab_size


def test_no_end_token(tmp_path):
    path = changed(tmp_path, "mbart", {}) / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | {"eos_token": None}))
    with pytest.raises(TokenizerError, match="no eos_token"):
        Tokenizer.from_files(model_files(path.parent))


@pytest.mark.parametrize("wrong", [b"bytes", None, 3, "\ud800"])
def test_texts_that_are_none(wrong):
    for folder in ("nllb", "marian"):
        with pytest.raises(TokenizerError, match="failed to encode"):
            load(folder).encode_source(wrong)


@pytest.mark.parametrize(
    ("kind", "files", "advice"),
    [
        ("MarianTokenizer", ["source.spm", "target.spm", "vocab.json"], "transformers.js"),
        ("M2M100Tokenizer", ["sentencepiece.bpe.model", "vocab.json"], "transformers.js"),
        ("NllbTokenizer", ["sentencepiece.bpe.model"], "save_pretrained"),
    ],
)
def test_says_where_a_tokenizer_json_comes_from(tmp_path, kind, files, advice):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
    for name in files:
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(TokenizerError, match=f"only {files[0]}") as caught:
        Tokenizer.from_files(model_files(tmp_path))
    assert advice in caught.value.do


@pytest.mark.parametrize("nested", [False, True])
def test_a_normalizer_without_its_table(tmp_path, nested):
    """Converters write null; SentencePiece's default is meant: NFKC, and spaces of all kinds."""
    normalizer = {"type": "Precompiled", "precompiled_charsmap": None}
    if nested:
        normalizer = {"type": "Sequence", "normalizers": [normalizer, {"type": "Lowercase"}]}
    model = {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "fi a\uff5e": 1}}
    state = {"version": "1.0", "normalizer": normalizer, "model": model}
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    tokenizer = Tokenizer.from_files(model_files(tmp_path))
    assert tokenizer.encode("\ufb01\u3000a\uff5e\u0007") == [1]
    assert tokenizer.encode("\ufb01\u3000a~") == [0]
    assert tokenizer.encode("\ufb01\u3000A\uff5e") == [1 if nested else 0]
