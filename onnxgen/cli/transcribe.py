"""``onnxgen transcribe``: what is said in recordings, as text, subtitles or JSON."""

import argparse
import errno
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter
from typing import Any

from onnxgen.cli import answers, options, output
from onnxgen.errors import OnnxgenError, OptionError

EPILOG = """\
Without -o the text goes to stdout, a line for each segment as soon as it is settled; of several
recordings behind the recording's name. With -o a file for each recording and format is written.
A recording that cannot be read is told of on stderr, the others are done all the same, and the
exit code is 1.

examples:
  onnxgen transcribe onnx-community/whisper-base interview.mp3
  onnxgen transcribe ./whisper-small talks/*.wav -f srt -o subtitles
  onnxgen transcribe ./whisper-base lecture.flac --language fr --task translate -f vtt > lecture.vtt
  ffmpeg -i film.mkv -f wav - | onnxgen transcribe ./whisper-base - --word-timestamps -f json
"""
FORMATS = ("txt", "vtt", "srt", "tsv", "json")
SPEECH = ("language", "task", "initial_prompt", "chunk_length_s", "stride_length_s", "batch_size")
THRESHOLDS = {"compression_ratio_threshold": 1.35, "logprob_threshold": -1.0,
              "no_speech_threshold": 0.6}  # fmt: skip
STEP = "temperature_increment_on_fallback"
FALLBACK, LEAST_STEP = 0.2, 0.01  # its default; the least, as each is an attempt
CUED = ("srt", "vtt")
LAYOUT = ("max_line_width", "max_line_count", "max_words_per_line")


def add_parser(commands: options.Commands) -> None:
    """Adds this command to the program."""
    parser = commands.add_parser(
        "transcribe",
        usage="%(prog)s MODEL AUDIO [AUDIO ...] [options]",
        help="write down what is said in recordings",
        description="Writes down, or translates, what is said in recordings of any length.",
        epilog=EPILOG,
    )
    options.add_model(parser)
    parser.add_argument(
        "audio", metavar="AUDIO", nargs="+", help="a file; - reads one recording from stdin"
    )
    group = parser.add_argument_group("what is written")
    group.add_argument(
        "-f",
        "--output-format",
        choices=(*FORMATS, "all"),
        help="default: txt; all of them need -o",
    )
    group.add_argument(
        "-o", "--output-dir", metavar="DIR", type=Path, help="a folder for a file per recording"
    )
    for name in LAYOUT:
        flag = "--" + name.replace("_", "-")
        group.add_argument(flag, type=int, metavar="N", help="of subtitles, by words' times")
    group.add_argument(
        "--highlight-words", action="store_true", help="underline each word as it is said"
    )
    _add_speech(parser.add_argument_group("speech"))
    options.add_run(parser, short=False)
    parser.set_defaults(run=run)


def _add_speech(group: Any) -> None:
    group.add_argument("--language", metavar="NAME", help="a code or a name; detected otherwise")
    group.add_argument("--task", choices=("transcribe", "translate"), help="translate: to English")
    group.add_argument("--word-timestamps", action="store_true", help="times of words too")
    group.add_argument("--initial-prompt", metavar="TEXT", help="names to spell, a style to keep")
    group.add_argument(
        "--condition-on-previous-text",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="let each window go on from what was heard before",
    )
    group.add_argument("--beam-size", type=int, metavar="N", help="the same as --num-beams")
    group.add_argument(
        "--temperature-increment-on-fallback",
        type=_number,
        default=argparse.SUPPRESS,
        metavar="T",
        help="what to add where an answer fails a threshold, up to 1 (default: 0.2; 0: never)",
    )
    for name, default in THRESHOLDS.items():
        group.add_argument(
            "--" + name.replace("_", "-"), type=_number, default=argparse.SUPPRESS, metavar="X",
            help=f"default: {default}" + ("; of bytes of tokens" if default == 1.35 else ""),
        )  # fmt: skip
    group.add_argument(
        "--chunk-length-s", type=float, metavar="S", help="chunks that overlap, many at a time"
    )
    group.add_argument("--stride-length-s", type=float, metavar="S", help="how far they overlap")
    group.add_argument("--batch-size", type=int, metavar="N", help="recordings or chunks at once")


def _number(text: str) -> float | None:
    try:
        return None if text.lower() == "none" else float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor none") from error


def run(args: argparse.Namespace) -> int:
    """Carries the command out."""
    keywords = _keywords(args)
    names = ["stdin" if name == "-" else name for name in args.audio]
    layout = _check(args, names)
    model = options.load(args)
    if not hasattr(model, "extractor"):
        options.refuse_task(
            args, "speech", "caption" if hasattr(model, "processor") else "generate"
        )
    sources = [sys.stdin.buffer if name == "-" else name for name in args.audio]
    call = model.transcription(sources, None, _whole(args, model, keywords))
    said: set[int] = set()
    unwritten: list[OnnxgenError] = []
    start = perf_counter()
    with answers.interruptible(call.cancel), _bar(args) as bar:
        for index, segments in call.run():
            said.add(index)
            done = call.result(index)
            if args.no_stream:
                segments = done.segments if done else ()
            _show(args, names, index, segments)
            _advance(bar, call, said, segments)
            if done is not None:
                unwritten += _write(args, names[index], done, layout)
    for index, error in call.failures.items():
        output.report_of(names[index], error)
    if args.stats:
        output.note(_statistics(sum(call.duration.values()), perf_counter() - start))
    return _code([*call.failures.values(), *unwritten])


def _statistics(audio: float, spent: float) -> str:
    """One line: how long the recordings are, and how fast they were heard."""
    parts = [f"{audio:.1f} s of audio in {spent:.1f} s", f"{audio / spent:.1f} times real time"]
    if peak := answers.peak_memory():
        parts.append(f"peak memory {output.size(peak)}")
    return ", ".join(parts)


def _code(errors: Sequence[OnnxgenError]) -> int:
    """The exit code: that of a usage error if all that failed is that."""
    if not errors:
        return 0
    return 2 if all(isinstance(e, OptionError) for e in errors) else 1


def _keywords(args: argparse.Namespace) -> dict[str, Any]:
    """The keywords that are given. OptionError before anything slow is begun."""
    keywords = options.generation_arguments(args)
    keywords |= {n: getattr(args, n) for n in SPEECH if getattr(args, n) is not None}
    keywords |= {n: getattr(args, n) for n in THRESHOLDS if hasattr(args, n)}
    if args.beam_size is not None:
        if "num_beams" in keywords:
            raise OptionError("--beam-size and --num-beams are given", wanted="one of them")
        keywords["num_beams"] = args.beam_size
    if args.condition_on_previous_text is not None:
        keywords["condition_on_prev_tokens"] = args.condition_on_previous_text
    if args.word_timestamps:
        keywords["return_timestamps"] = "word"
    step = getattr(args, STEP, None)
    if step and not LEAST_STEP <= step <= 1:
        raise OptionError(f"{STEP} is {step:g}", wanted=f"{LEAST_STEP:g} to 1, or 0")
    if step and isinstance(keywords.get("temperature"), list):
        raise OptionError(f"{STEP} with a list of temperatures", do="give one of them")
    return keywords


def _whole(args: argparse.Namespace, model: Any, keywords: dict[str, Any]) -> dict[str, Any]:
    """``keywords`` with what holds where they say nothing: times, and more attempts."""
    if not hasattr(model.extractor, "window_frames"):
        if getattr(args, STEP, None):
            raise OptionError(f"{STEP} for a model that knows nothing of it", do="leave it out")
        return keywords
    seed = {} if "seeds" in keywords else {"seed": 0}
    whole: dict[str, Any] = {"return_timestamps": True, **seed, **keywords}
    first, step = whole.get("temperature", 0.0), getattr(args, STEP, FALLBACK)
    if step and isinstance(first, int | float) and first >= 0:
        count = int(round((1.0 - first) / step, 6)) + 1
        whole["temperature"] = tuple(round(first + step * i, 6) for i in range(max(count, 1)))
    if isinstance(whole.get("temperature"), list | tuple):
        whole = {**THRESHOLDS, **whole}
        if whole["logprob_threshold"] is None:  # which silence needs
            whole["no_speech_threshold"] = keywords.get("no_speech_threshold")
    return whole


def _check(args: argparse.Namespace, names: list[str]) -> Any:
    """The layout of subtitles, None for the usual one; OptionError for what does not fit."""
    from onnxgen.audio.subtitles import Layout

    if args.audio.count("-") > 1:
        raise OptionError("stdin is named twice", do="give - once")
    if args.output_dir is None:
        _check_stdout(args)
    else:
        _check_folder(args.output_dir, [Path(name).stem for name in names])
    given = {name: getattr(args, name) for name in LAYOUT if getattr(args, name) is not None}
    if not given and not args.highlight_words:
        return None
    if not args.word_timestamps:
        raise OptionError("a layout of subtitles without --word-timestamps", do="give both")
    if args.output_format not in (*CUED, "all"):
        form = args.output_format or "txt"
        raise OptionError(f"a layout of subtitles for -f {form}", wanted=" or ".join(CUED))
    return Layout(**given, highlight_words=args.highlight_words)


def _check_stdout(args: argparse.Namespace) -> None:
    """OptionError for what cannot go to stdout."""
    form, do = args.output_format, "add -o DIR"
    if form == "all":
        raise OptionError("-f all without -o", wanted="a folder for the files", do=do)
    if args.json and form is not None:
        raise OptionError(f"--json and -f {form} both want stdout", do=f"{do}, or give one of them")
    if len(args.audio) > 1 and form == "json":
        raise OptionError("-f json of several recordings", do=f"{do}, or give --json")
    if len(args.audio) > 1 and form not in (None, "txt"):
        raise OptionError(f"-f {form} of several recordings", do=do)


def _check_folder(folder: Path, stems: list[str]) -> None:
    """Makes the folder; OptionError where that fails, or two files would have one name."""
    if len(set(stems)) < len(stems):
        twice = next(stem for stem in stems if stems.count(stem) > 1)
        raise OptionError(
            f"two recordings are called {twice!r}, and would write the same files",
            do="transcribe them into two folders",
        )
    key, equals, _ = str(folder).partition("=")
    if equals and key in options.VALUES and not folder.exists():
        raise OptionError(f"-o {folder} names a folder here", do=f"write --option {folder}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, "Permission denied")
    except (OSError, ValueError) as error:  # ValueError: NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise OptionError(
            f"nothing can be written to {folder} ({reason})", wanted="a folder, new or not"
        ) from error


def _show(args: argparse.Namespace, names: list[str], index: int, segments: Any) -> None:
    """The text of segments on stdout, if that is where it goes."""
    plain = args.output_format in (None, "txt") and not args.json
    if args.output_dir is not None or not plain:
        return
    for segment in segments:
        text = segment.text.strip()
        output.line(f"{names[index]}\t{output.on_one_line(text)}" if len(names) > 1 else text)


def _write(
    args: argparse.Namespace, name: str, transcript: Any, layout: Any
) -> Iterator[OnnxgenError]:
    """Writes what is to be written of a recording once it is done; the errors of what fails."""
    from onnxgen.audio.subtitles import render
    from onnxgen.files.whole import whole

    if args.json:
        told = {"audio": name, "duration": transcript.duration}
        output.json_line({**told, **output.from_json(render(transcript, "json"))})
    if args.output_dir is None:
        if args.output_format not in (None, "txt"):
            form = args.output_format
            text = render(transcript, form, layout if form in CUED else None)
            output.write(text if text.endswith("\n") or not text else text + "\n")
        return
    forms = FORMATS if args.output_format == "all" else (args.output_format or "txt",)
    for form in forms:
        path = args.output_dir / f"{Path(name).stem}.{form}"
        try:
            with whole(path) as part:
                part.write_text(render(transcript, form, layout if form in CUED else None), "utf-8")
        except OSError as error:
            failed = OnnxgenError(f"{path} cannot be written ({error.strerror})")
            output.report(failed)
            yield failed
            continue
        output.note(f"onnxgen: wrote {path}")


def _bar(args: argparse.Namespace) -> Any:
    """Seconds of audio on stderr, where stdout does not show the progress itself."""
    from tqdm import tqdm

    if args.output_dir is None and sys.stdout.isatty():
        return nullcontext()
    form = "{l_bar}{bar}| {n:.0f}/{total:.0f} s [{elapsed}<{remaining}]"
    return tqdm(total=0, bar_format=form, leave=False, disable=None)


def _advance(bar: Any, call: Any, said: set[int], segments: Any) -> None:
    if bar is None:
        return
    bar.total = sum(call.duration.values())
    ends = [s.end for s in segments if s.end is not None]
    if ends and len(call.duration) == 1:
        bar.n = min(max(ends), bar.total)
    elif len(call.duration) > 1:
        bar.n = sum(call.duration[i] for i in said if call.result(i) is not None)
    bar.refresh()
