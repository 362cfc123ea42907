"""Whole configurations, drawn at random, on one model in torch and as an export of it."""

import random

import pytest

import onnxgen

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(1800)]
VOCAB, RUNS = 120, 300


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A tiny random llama in torch, and its export by optimum."""
    import torch
    from optimum.exporters.onnx import onnx_export_from_model
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.4,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config).eval()
    folder = tmp_path_factory.mktemp("llama")
    onnx_export_from_model(model, folder, task="text-generation-with-past", do_validation=False)
    (folder / "generation_config.json").write_text("{}")
    return model, onnxgen.load(folder)


def drawn(rng: random.Random, prompt: list[int]) -> dict:
    """A configuration that both versions of transformers understand alike."""

    def ids(count):
        return rng.sample(range(3, VOCAB), count)

    options = {"max_new_tokens": rng.randint(4, 24), "eos_token_id": ids(rng.choice([1, 1, 2, 30]))}
    may = {
        "repetition_penalty": lambda: rng.choice([0.7, 1.1, 1.8]),
        "encoder_repetition_penalty": lambda: rng.choice([0.8, 1.4]),
        "no_repeat_ngram_size": lambda: rng.randint(1, 4),
        "encoder_no_repeat_ngram_size": lambda: rng.randint(1, 4),
        "bad_words_ids": lambda: [ids(n) for n in (1, 1, 2)],
        "sequence_bias": lambda: [[ids(1), 4.0], [ids(1), -6.0], [ids(2), 9.0]],
        "min_new_tokens": lambda: rng.randint(1, 6),
        "suppress_tokens": lambda: ids(20),
        "begin_suppress_tokens": lambda: ids(30),
        "forced_eos_token_id": lambda: options["eos_token_id"][0],
        "renormalize_logits": lambda: True,
        "remove_invalid_values": lambda: True,
    }
    for name in rng.sample(sorted(may), rng.randint(0, 5)):
        options[name] = may[name]()
    method = rng.choice(["greedy", "sample", "sample", "beams"])
    if method == "beams":
        beams = rng.randint(2, 4)
        options |= {
            "num_beams": beams,
            "num_return_sequences": rng.randint(1, beams),
            "length_penalty": rng.choice([-1.0, 0.0, 1.0, 2.0]),
            "early_stopping": rng.choice([True, False, "never"]),
        }
    if method == "sample":
        options |= {"do_sample": True, "top_k": rng.choice([0, 5, 50])}
        warpers = {
            "temperature": [0.6, 1.7],
            "top_p": [0.5, 0.9],
            "min_p": [0.05],
            "typical_p": [0.6],
            "epsilon_cutoff": [0.01],
            "eta_cutoff": [0.01],
        }
        for name in rng.sample(sorted(warpers), rng.randint(0, 3)):
            options[name] = rng.choice(warpers[name])
        options["num_return_sequences"] = rng.choice([1, 1, 3])
    if max(options.get("num_beams", 1), options.get("num_return_sequences", 1)) > 1:
        # transformers 4.57 gives this penalty to the first row only; 5.24, and onnxgen, to all.
        options.pop("encoder_repetition_penalty", None)
    return options


def ended(tokens: list[int], eos: list[int]) -> list[int]:
    """A row of a padded array without its filler."""
    stops = [i for i, token in enumerate(tokens) if token in eos]
    return tokens[: stops[0] + 1] if stops else tokens


@pytest.mark.parametrize("seed", range(RUNS))
def test_tokens_equal(seed, pair):
    import torch

    model, ours = pair
    rng = random.Random(seed)
    prompt = [rng.randrange(3, VOCAB) for _ in range(rng.randint(4, 20))]
    options = drawn(rng, prompt)
    torch.manual_seed(seed)
    given = {"do_sample": False, "top_k": None} | options
    mask = torch.ones(1, len(prompt))
    told = {"return_dict_in_generate": True, "output_scores": True}
    out = model.generate(torch.tensor([prompt]), attention_mask=mask, **given, **told)
    rows = out.sequences[:, len(prompt) :].tolist()
    expected = [ended(row, options["eos_token_id"]) for row in rows]
    more = {"rng": "torch", "seed": seed} if options.get("do_sample") else {}
    try:
        found = ours.generate(prompt, **options, **more)
    except onnxgen.errors.LogitsError:
        # Where nothing is left to choose, onnxgen says so and transformers takes any token.
        assert any((step == -torch.inf).all(dim=-1).any() for step in out.scores), options
        return
    found = found if isinstance(found, list) else [found]
    assert [list(answer.tokens) for answer in found] == expected, options
