"""``onnxgen generate`` with encoder-decoders: languages, tasks, prefixes, and how it refuses."""

import json
import shutil
from pathlib import Path

import pytest

from onnxgen.cli import main
from tests.cli.loaded import keep
from tests.cli.running import LLAMA, run
from tests.fixture_models import FIXTURES

MODELS = FIXTURES / "models"
T5, MARIAN, NLLB, MBART = (str(MODELS / name) for name in ("t5", "marian", "m2m_100", "mbart"))
FEW = ["--num-beams", "1", "--max-new-tokens", "6"]
FRENCH, GERMAN = 125, 126  # in the vocabulary of m2m_100, which has NLLB's tokenizer
TASK = {"prefix": "summarize: ", "max_new_tokens": 3}


@pytest.fixture(autouse=True)
def _loaded_once(monkeypatch):
    keep(monkeypatch)


def answers(capsys, *words: str) -> list[dict]:
    assert main(["generate", *words, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return [json.loads(line) for line in out.splitlines()]


def refused(capsys, code: int, *words: str) -> str:
    assert main(["generate", *words]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("onnxgen: error: ")
    assert "unexpected" not in err
    return err


def with_config(place: Path, **more) -> str:
    """A copy of T5 with more in its config.json."""
    folder = Path(shutil.copytree(MODELS / "t5", place / "model"))
    config = json.loads((folder / "config.json").read_text()) | more
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.mark.parametrize(("code", "token"), [("fra_Latn", FRENCH), ("deu_Latn", GERMAN)])
def test_an_answer_begins_with_the_token_of_its_language(code, token, capsys):
    words = ["--src-lang", "eng_Latn", "--tgt-lang", code]
    (answer,) = answers(capsys, NLLB, "good day", *words, *FEW)
    assert answer["tokens"][0] == token
    assert code not in answer["text"]


def test_the_source_language_is_one_token_of_the_text(capsys):
    either = [answers(capsys, NLLB, "day", "--src-lang", s, "--tgt-lang", "deu_Latn", *FEW)[0]
              for s in ("eng_Latn", "fra_Latn")]  # fmt: skip
    assert either[0]["prompt_tokens"] == either[1]["prompt_tokens"]


def test_the_text_streams_and_comes_from_stdin(capsys):
    words = ["--tgt-lang", "fra_Latn", *FEW]
    (answer,) = answers(capsys, NLLB, "good day", *words)
    assert main(["generate", NLLB, "good day", *words]) == 0
    assert capsys.readouterr() == (answer["text"] + "\n", "")
    assert run("generate", NLLB, "-", *words, stdin="good day\n") == (0, answer["text"] + "\n", "")


def test_a_file_gives_each_line_what_it_gets_alone(tmp_path, capsys):
    texts = ["good day", "a", "the night falls"]
    (tmp_path / "lines").write_text("\n".join(texts))
    alone = [answers(capsys, T5, text, *FEW)[0]["tokens"] for text in texts]
    together = answers(capsys, T5, "-f", str(tmp_path / "lines"), *FEW)
    assert [answer["tokens"] for answer in together] == alone


def test_a_prefix_stands_before_each_text(capsys):
    def told(*words):
        (answer,) = answers(capsys, T5, *words, *FEW)
        return answer["tokens"], answer["prompt_tokens"]

    assert told("day", "--prefix", "good ") == told("good day")
    assert told("day", "--prefix", "") == told("day")


def test_a_task_brings_its_prefix_and_options(tmp_path, capsys):
    tasks = {"summarization": TASK, "translation_en_to_fr": {"prefix": "good "}}
    model = with_config(tmp_path, task_specific_params=tasks)
    (told,) = answers(capsys, T5, "summarize: day", "--max-new-tokens", "3")
    (answer,) = answers(capsys, model, "day", "--task", "summarization")
    assert answer["tokens"] == told["tokens"]
    (told,) = answers(capsys, T5, "good day", *FEW)
    by_pair = ["--src-lang", "en", "--tgt-lang", "fr"]
    for words in (["--task", "translation_en_to_fr"], by_pair):
        (answer,) = answers(capsys, model, "day", *words, *FEW)
        assert answer["tokens"] == told["tokens"]
    (answer,) = answers(capsys, model, "day", "--task", "summarization", "--max-new-tokens", "2")
    assert len(answer["tokens"]) == 2


@pytest.mark.parametrize("option", ["--src-lang", "--tgt-lang"])
@pytest.mark.parametrize("given", ["xx", "", "english"])
def test_an_unknown_language_is_refused_with_the_valid_ones(option, given, capsys):
    words = {"--src-lang": "eng_Latn", "--tgt-lang": "fra_Latn", option: given}
    err = refused(capsys, 2, NLLB, "day", *(word for pair in words.items() for word in pair))
    for code in ("eng_Latn", "fra_Latn", "deu_Latn"):
        assert code in err


def test_of_many_languages_the_nearest_are_shown(capsys):
    err = refused(capsys, 2, MBART, "day", "--src-lang", "en_XX", "--tgt-lang", "fr_FR")
    assert "fr_XX" in err
    assert "52 in all" in err


@pytest.mark.parametrize("model", [T5, MARIAN])
@pytest.mark.parametrize("option", ["--src-lang", "--tgt-lang"])
def test_a_language_for_a_model_without_any_is_refused(model, option, capsys):
    assert "none to choose from" in refused(capsys, 2, model, "day", option, "fr")


def test_an_unknown_task_is_refused(tmp_path, capsys):
    assert "has no task_specific_params" in refused(capsys, 2, T5, "day", "--task", "summarization")
    model = with_config(tmp_path, task_specific_params={"summarization": TASK, "broken": None})
    assert "'summarization'" in refused(capsys, 2, model, "day", "--task", "summarisation")
    assert "valid options: " in refused(capsys, 2, model, "day", "--task", "sing")
    refused(capsys, 2, model, "day", "--task", "broken")


@pytest.mark.parametrize(
    "words", [["--src-lang", "a"], ["--tgt-lang", "a"], ["--task", "a"], ["--prefix", "a"]]
)
def test_decoders_alone_have_no_such_options(words, capsys):
    err = refused(capsys, 2, str(LLAMA.folder), "day", *words)
    assert words[0] in err


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_an_empty_text_is_refused(text, capsys):
    assert "the text is empty" in refused(capsys, 2, T5, text)


def test_a_text_beyond_the_encoders_positions_is_refused(capsys):
    err = refused(capsys, 1, NLLB, "day " * 100, "--tgt-lang", "fra_Latn")
    assert "at most 64" in err


@pytest.mark.parametrize(
    ("name", "command"),
    [("vit-gpt2", "caption"), ("whisper", "transcribe"), ("moonshine", "transcribe")],
)
def test_models_of_other_senses_name_their_command(name, command, capsys):
    assert f"onnxgen {command} " in refused(capsys, 1, str(MODELS / name), "day")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-o", "guidance_scale=2"], "guidance_scale"),
        (["-o", "forced_bos_token_id=99999"], "99999"),
        (["-o", "decoder_start_token_id=-3"], "-3"),
        (["-o", "src_language=fr"], "src_language"),
        (["--num-return-sequences", "2", "--num-beams", "1"], "num_return_sequences"),
    ],
)
def test_options_that_make_no_sense_are_refused(words, says, capsys):
    assert says in refused(capsys, 2, T5, "day", *words)


def test_help_tells_of_languages_and_tasks(capsys):
    assert main(["generate", "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for word in ("--src-lang", "--tgt-lang", "--task", "--prefix", "eng_Latn"):
        assert word in out
