"""How fast a text model is: prompts of random tokens, and so many tokens behind them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median, quantiles
from typing import Any

import numpy as np

from onnxgen.errors import CapacityError, OptionError
from onnxgen.tasks.text_generation import TextGeneration


@dataclass(frozen=True, slots=True)
class Speed:
    """The medians of some runs with ``rows`` prompts of ``prompt_tokens`` tokens each.

    ``prompt_speed`` and ``decode_speed`` are tokens a second of all rows together; ``step_ms`` are
    the 50th, 90th and 99th percentile of the steps after the first token.
    """

    prompt_tokens: int
    rows: int
    new_tokens: int
    first_token_ms: float
    prompt_speed: float
    decode_speed: float
    step_ms: tuple[float, float, float]


def measure(
    model: TextGeneration,
    lengths: Sequence[int],
    rows: Sequence[int],
    new_tokens: int,
    repeats: int,
    **options: Any,
) -> Iterator[Speed]:
    """The speed for each number of rows and length of prompt; a first run of each warms up.

    OptionError for numbers that make no run, CapacityError for more tokens than the model takes.
    """
    for name, values in (("prompt tokens", lengths), ("rows", rows), ("repeats", [repeats])):
        if not values or min(values) < 1:
            raise OptionError(f"{name} are {list(values)}", wanted="numbers of 1 or more")
    if new_tokens < 2:
        raise OptionError(f"new tokens are {new_tokens}", wanted="2 or more: the first is apart")
    longest, room = max(lengths) + new_tokens - 1, model.capacity  # the last one is not fed
    if room is not None and longest > room:
        raise CapacityError(
            f"a prompt of {max(lengths)} tokens and {new_tokens} new ones",
            wanted=f"at most {room + 1} together",
            do="shorten one of them",
        )
    settings = {"max_new_tokens": new_tokens, "eos_token_id": None, "do_sample": False, **options}
    for count, length in product(rows, lengths):
        random = np.random.default_rng(length)
        prompts = random.integers(0, model.model.vocab_size, (count, length)).tolist()
        runs = [model.generate(prompts, **settings)[0].timings for _ in range(repeats + 1)][1:]
        first = median(run.prefill_ms for run in runs)
        steps = [step for run in runs for step in run.per_token_ms]
        tenths = quantiles(steps, n=100) if len(steps) > 1 else steps * 99
        yield Speed(
            prompt_tokens=length,
            rows=count,
            new_tokens=new_tokens,
            first_token_ms=first,
            prompt_speed=1000 * count * length / first,
            decode_speed=1000 * count / median(steps),
            step_ms=(tenths[49], tenths[89], tenths[98]),
        )
