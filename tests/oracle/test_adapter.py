"""The adapter answers as transformers' classes do, so that their own tests judge onnxgen fairly."""

import numpy as np
import pytest

pytestmark = pytest.mark.oracle

BIASES = [[[2, 3], 1.5], [[4], -2.0]]
CALLS = {
    "SequenceBiasLogitsProcessor": ((BIASES,), {}),
    "EncoderRepetitionPenaltyLogitsProcessor": ((), {"penalty": 2.0, "encoder_input_ids": True}),
    "RepetitionPenaltyLogitsProcessor": ((), {"penalty": 2.0, "prompt_ignore_length": 2}),
    "NoRepeatNGramLogitsProcessor": ((2,), {}),
    "EncoderNoRepeatNGramLogitsProcessor": ((2,), {"encoder_input_ids": True}),
    "NoBadWordsLogitsProcessor": (([[3], [2, 5], [1]],), {"eos_token_id": 1}),
    "MinLengthLogitsProcessor": ((), {"min_length": 9, "eos_token_id": [1, 2], "device": "cpu"}),
    "MinNewTokensLengthLogitsProcessor": ((2, 9, 1), {}),
    "PrefixConstrainedLogitsProcessor": ((lambda batch, ids: [batch, ids[-1].item()], 1), {}),
    "ForcedBOSTokenLogitsProcessor": ((), {"bos_token_id": 3}),
    "ForcedEOSTokenLogitsProcessor": ((), {"max_length": 7, "eos_token_id": 3, "device": "cpu"}),
    "InfNanRemoveLogitsProcessor": ((), {}),
    "ExponentialDecayLengthPenalty": (((1, 1.5), 3, 2), {}),
    "SuppressTokensLogitsProcessor": (([3, 4],), {}),
    "SuppressTokensAtBeginLogitsProcessor": (([3, 4], 6), {}),
    "TemperatureLogitsWarper": ((), {"temperature": 0.5}),
    "TopKLogitsWarper": ((3,), {"min_tokens_to_keep": 4, "filter_value": 0.0}),
    "TopPLogitsWarper": ((), {"top_p": 0.7}),
    "MinPLogitsWarper": ((0.3,), {}),
    "TypicalLogitsWarper": ((), {"mass": 0.5}),
    "EpsilonLogitsWarper": ((0.1,), {}),
    "EtaLogitsWarper": ((0.1,), {"device": "cpu"}),
    "WatermarkLogitsProcessor": ((), {"vocab_size": 40, "device": "cpu", "hashing_key": 15}),
    "LogitNormalization": ((), {}),
}


def test_all_names_are_called():
    from tests.oracle.adapter import NAMES

    assert set(CALLS) == set(NAMES)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("seed", range(20))
def test_adapted(name, seed):
    import torch
    from transformers.generation import logits_process

    from tests.oracle.adapter import NAMES

    rng = np.random.default_rng(seed)
    ids = torch.from_numpy(rng.integers(0, 6, (2, 6)))
    scores = torch.from_numpy(rng.normal(0, 3, (2, 40)).astype(np.float32))
    args, options = CALLS[name]
    options = {k: ids if k == "encoder_input_ids" else v for k, v in options.items()}
    expected = getattr(logits_process, name)(*args, **options)(ids, scores.clone())
    found = NAMES[name](*args, **options)(ids, scores.clone())
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_transformers_names_are_replaced_for_a_file(tmp_path):
    """In a process of its own, since the names stay replaced."""
    import subprocess
    import sys

    path = tmp_path / "test_given.py"
    path.write_text(
        "from transformers.generation import TopKLogitsWarper\n"
        "from transformers.generation.logits_process import TopPLogitsWarper\n"
        "def test_names():\n"
        "    for build in (TopKLogitsWarper, TopPLogitsWarper):\n"
        "        assert type(build(1)).__module__ == '__main__'\n"  # the program's
    )
    command = [sys.executable, "-m", "tests.oracle.adapter", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
