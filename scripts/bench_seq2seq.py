"""An encoder-decoder in onnxgen beside optimum-onnx, on the same files in the same run.

    bench_seq2seq.py MODEL          a folder that optimum-onnx exported
    bench_seq2seq.py --make MODEL   writes one first: T5 of the small size with random weights

Both generate greedily and with 4 beams, a text of 64 tokens at a time, 48 new tokens each; tokens
are compared. Then, with onnxgen alone, the step time of 4 beams over texts of 50 and 1,500 tokens,
and ONNX Runtime's own profile of such a step: cross-attention itself reads 4 x 1,500 keys and
values in each layer; what grows beside it would be copies.
Runs where optimum-onnx and transformers are installed; prints medians, and exits with 1 where
tokens differ or onnxgen is not the faster one.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

NEW = 48
METHODS = {"greedy": 1, "4 beams": 4}


def make(folder: Path) -> None:
    """T5 with the sizes of t5-small, random weights, exported with the merged decoder."""
    import tempfile

    import torch
    from optimum.exporters.onnx import main_export
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    config = T5Config(
        vocab_size=32128, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8,
        initializer_factor=4.0, decoder_start_token_id=0,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as checkpoint:
        T5ForConditionalGeneration(config).eval().save_pretrained(checkpoint)
        main_export(
            checkpoint, str(folder), task="text2text-generation-with-past", do_validation=False
        )


def timed(run: Callable[[], list[int]], repeats: int) -> tuple[list[int], float]:
    """The tokens of a run and its median time in seconds, the first run left out."""
    tokens = run()
    laps = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        laps.append(time.perf_counter() - start)
    return tokens, statistics.median(laps)


def by_optimum(folder: Path, ids: list[int], threads: int) -> Callable[[int], list[int]]:
    import onnxruntime
    import torch
    from optimum.onnxruntime import ORTModelForSeq2SeqLM

    torch.set_num_threads(threads)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    model = ORTModelForSeq2SeqLM.from_pretrained(folder, session_options=options)
    inputs = torch.tensor([ids])

    def run(beams: int) -> list[int]:
        out = model.generate(
            inputs, num_beams=beams, do_sample=False, max_new_tokens=NEW, min_new_tokens=NEW
        )
        return out[0, 1:].tolist()

    return run


def by_onnxgen(folder: Path, ids: list[int], threads: int) -> Callable[[int], list[int]]:
    import onnxgen

    model = onnxgen.load(folder, task="text-to-text", threads=threads)

    def run(beams: int) -> list[int]:
        options = {"num_beams": beams, "max_new_tokens": NEW, "min_new_tokens": NEW}
        return list(model.generate(ids, **options).tokens)

    return run


def step_times(folder: Path, threads: int) -> dict[int, float]:
    """Median milliseconds of a step of 4 beams, by the length of the text."""
    import onnxgen

    model = onnxgen.load(folder, task="text-to-text", threads=threads)
    rng, found = np.random.default_rng(1), {}
    for length in (50, 1500):
        ids = rng.integers(3, 30000, length).tolist()
        answer = model.generate(ids, num_beams=4, max_new_tokens=NEW, min_new_tokens=NEW)
        found[length] = statistics.median(answer.timings.per_token_ms)
    return found


def profile(folder: Path, length: int, threads: int, steps: int = 20) -> tuple[float, float]:
    """Milliseconds of a step of 4 rows in cross-attention, and in all other nodes."""
    import json
    import tempfile

    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.intra_op_num_threads = True, threads
    with tempfile.TemporaryDirectory() as place:
        options.profile_file_prefix = f"{place}/profile"
        path = folder / "decoder_model_merged.onnx"
        session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
        rng, feeds = np.random.default_rng(0), {}
        sizes = {"encoder_sequence_length": length, "past_decoder_sequence_length": 24}
        for port in session.get_inputs():
            named = [sizes.get(d, 1 if "decoder_seq" in d else 4) if isinstance(d, str) else d
                     for d in port.shape]  # fmt: skip
            feeds[port.name] = rng.standard_normal(named, np.float32)
            if "int64" in port.type:
                feeds[port.name] = np.ones(named, np.int64)
            elif "bool" in port.type:
                feeds[port.name] = np.array([True])
        for _ in range(steps):
            session.run(["logits"], feeds)
        events = json.loads(Path(session.end_profiling()).read_text())
    kernels = [e for e in events if e.get("cat") == "Node" and e["name"].endswith("kernel_time")]
    kernels = [e for e in kernels if "/If" not in e["name"] and e["args"]["op_name"] != "If"]
    cross = sum(e["dur"] for e in kernels if "EncDecAttention" in e["name"])
    return cross / 1000 / steps, (sum(e["dur"] for e in kernels) - cross) / 1000 / steps


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.make and not arguments.model.exists():
        make(arguments.model)
    ids = [*np.random.default_rng(0).integers(3, 30000, 63).tolist(), 1]
    ours = by_onnxgen(arguments.model, ids, arguments.threads)
    theirs = by_optimum(arguments.model, ids, arguments.threads)
    wrong = 0
    for name, beams in METHODS.items():
        mine, my_time = timed(lambda beams=beams: ours(beams), arguments.repeats)
        other, other_time = timed(lambda beams=beams: theirs(beams), arguments.repeats)
        equal = mine == other
        wrong += not equal or my_time >= other_time
        print(
            f"{name:8} onnxgen {1000 * my_time:7.1f} ms, optimum-onnx {1000 * other_time:7.1f} ms, "
            f"{other_time / my_time:.2f} x, tokens {'equal' if equal else 'DIFFER'}"
        )
    steps = step_times(arguments.model, arguments.threads)
    print(f"4 beams over 50 tokens {steps[50]:.2f} ms a step, over 1,500 {steps[1500]:.2f} ms")
    for length in (50, 1500):
        cross, rest = profile(arguments.model, length, arguments.threads)
        print(f"  over {length:5} tokens: cross-attention {cross:6.2f} ms, all else {rest:6.2f} ms")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
