"""Encoder-decoders give transformers' tokens: alone, in ragged batches, merged and as a pair."""

import pytest

import onnxgen
from onnxgen.errors import OptionError, UnsupportedModelError
from tests.tasks.encoder_decoders import found, keywords, load, pair_of

MODELS = found()
every_model = pytest.mark.parametrize("fixture", MODELS, ids=lambda f: f.folder.name)
CASES = [
    (f, name) for f in MODELS for name, case in f.cases().items() if f.exact or "scores" not in case
]


def cases(found):
    ids = [f"{f.folder.name}-{name}" for f, name in found]
    return pytest.mark.parametrize(("fixture", "name"), found, ids=ids)


def answers(model, fixture, case, numbers):
    """What the model makes of some rows of a case, run together."""
    inputs = fixture.inputs()
    rows = [inputs[case["rows"][i]] for i in numbers]
    options = keywords(case, numbers)
    if case["settings"] and {"max_length", "max_new_tokens"} & model.defaults.keys():
        options.pop("max_new_tokens", None)
    return model.generate(rows, **options)


def tokens(model, fixture, case, numbers):
    return [list(answer.tokens) for answer in answers(model, fixture, case, numbers)]


@cases(CASES)
def test_each_row_alone(fixture, name):  # known problems L5, C18, S1, S28, V5
    case = fixture.cases()[name]
    model = load(fixture.folder, case["settings"])
    for i in range(len(case["tokens"])):
        (answer,) = answers(model, fixture, case, [i])
        assert list(answer.tokens) == fixture.alone(case, i)
        if "scores" in case:
            assert answer.sequence_score == pytest.approx(case["scores"][i], abs=fixture.noise)


@cases([(f, name) for f, name in CASES if f.exact])
@pytest.mark.parametrize("order", [(3, 0, 2, 1), (1, 3, 1, 0)], ids=str)
def test_ragged_batch_equals_single_runs(fixture, name, order):  # known problems C3, C5
    case = fixture.cases()[name]
    model = load(fixture.folder, case["settings"])
    order = [i % len(case["tokens"]) for i in order]
    assert tokens(model, fixture, case, order) == [case["tokens"][i] for i in order]


@pytest.mark.parametrize("fixture", [f for f in MODELS if f.has_pair], ids=lambda f: f.folder.name)
def test_the_pair_equals_the_merged_decoder(fixture, tmp_path):  # known problems L4, L5, V5
    model = onnxgen.load(pair_of(fixture.folder, tmp_path))
    assert model.model.later is not model.model.first
    for name in ("greedy", "beam"):
        case = fixture.cases()[name]
        numbers = list(range(len(case["tokens"])))
        model.defaults = load(fixture.folder, case["settings"]).defaults
        assert tokens(model, fixture, case, numbers) == case["tokens"]


@every_model
def test_streams_joined_are_the_answers(fixture):
    case = fixture.cases()["greedy"]
    model = load(fixture.folder, case["settings"])
    inputs = [fixture.inputs()[i] for i in case["rows"][:3]]
    got = [[] for _ in inputs]
    if fixture.exact:
        for piece in model.stream(inputs, **keywords(case, [0, 1, 2])):
            got[piece.row].append(piece.token)
    else:  # rows of a batch differ from those alone
        for i, one in enumerate(inputs):
            got[i] = [piece.token for piece in model.stream(one, **keywords(case, [i]))]
    assert got == [fixture.alone(case, i) for i in range(3)]


@pytest.mark.parametrize("fixture", [f for f in MODELS if f.exact], ids=lambda f: f.folder.name)
def test_sampling_repeats_by_its_seed_in_any_batch(fixture):
    model = load(fixture.folder, False)
    inputs = fixture.inputs()[:3]
    options = {"do_sample": True, "seed": 3, "max_new_tokens": 8}
    batch = [answer.tokens for answer in model.generate(inputs, **options)]
    assert batch == [model.generate(one, **options).tokens for one in inputs]


def test_the_task_is_told_by_the_encoder():
    tasks = {f.folder.name: f.expected()["task"] for f in MODELS}
    for fixture in MODELS:
        model = load(fixture.folder, True)
        image = tasks[fixture.folder.name] == "image-to-text"
        assert type(model).__name__ == ("ImageToText" if image else "TextToText")


@every_model
def test_another_task_is_refused(fixture):
    with pytest.raises(UnsupportedModelError, match="sessions"):
        onnxgen.load(fixture.folder, task="text-generation")


@every_model
@pytest.mark.parametrize(
    "options",
    [
        {"decoder_input_ids": [[5], [6]]},
        {"decoder_input_ids": [10**6]},
        {"decoder_input_ids": [[]]},
        {"guidance_scale": 1.5},
        {"cache": onnxgen.Cache()},
        {"decoder_start_token_id": [1, 2]},
        {"max_new_token": 5},
    ],
    ids=str,
)
def test_wrong_options_are_refused(fixture, options):  # known problem C18
    with pytest.raises(OptionError):
        load(fixture.folder, True).generate(fixture.inputs()[0], **options)
