"""Makes fixtures/attacks/media: audio and images that lie, are cut off, or are far too large.

A case is a file of its name; what would be large in git is built by :func:`build`.
"""

import io
import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from PIL import Image

PLACE = Path(__file__).parents[2] / "fixtures" / "attacks" / "media"
AUDIO, IMAGE = "AudioError", "ImageError"
WORDS = b"These are words and no samples at all: xyzzy plugh.\n" * 8
HALF = 2_000  # samples


def wav(
    samples: bytes, *, rate: int = 16_000, channels: int = 1, width: int = 2, tag: int = 1,
    length: int | None = None,
) -> bytes:  # fmt: skip
    """A WAV file of ``samples``, which may say another ``length`` than theirs."""
    said = len(samples) if length is None else length
    form = struct.pack(
        "<HHIIHH", tag, channels, rate, rate * channels * width % 2**32, channels * width, 8 * width
    )
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", said)
    return b"RIFF" + struct.pack("<I", (len(body) + said) % 2**32) + body + samples


def pcm(frames: int, channels: int = 1) -> bytes:
    wave = np.sin(np.arange(frames) / 9) * 9000
    return np.repeat(wave[:, None], channels, 1).astype("<i2").tobytes()


def encoded(samples: np.ndarray, kind: str, subtype: str | None = None) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, 16_000, format=kind, subtype=subtype)
    return file.getvalue()


def picture(mode: str = "RGB", size: tuple[int, int] = (16, 12)) -> Image.Image:
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), np.uint8))
    return image if mode == "RGB" else image.convert(mode)


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png(width: int, height: int, data: bytes, *, more: bytes = b"") -> bytes:
    """A PNG that says this size and holds ``data``, compressed."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = chunk(b"IHDR", header) + more + chunk(b"IDAT", zlib.compress(data, 9))
    return b"\x89PNG\r\n\x1a\n" + chunks + chunk(b"IEND", b"")


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def turned() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return saved(picture(), "JPEG", exif=exif)


def transparent() -> bytes:
    image = picture("P")
    return saved(image, "PNG", transparency=bytes(range(256)))


def frames(count: int) -> bytes:
    many = [Image.new("L", (2, 2), i % 256) for i in range(count)]
    return saved(many[0], "GIF", save_all=True, append_images=many[1:], duration=10)


def text_bomb() -> bytes:
    text = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(100_000_000), 9))
    return png(1, 1, b"\0\0", more=text)


# File: what it tries, what must happen, its content. It is an image where its name says so.
FILES: dict[str, tuple[str, str, Callable[[], bytes]]] = {
    "length-more.wav": ("says 1 GB of samples", "loads", lambda: wav(pcm(HALF), length=2**30)),
    "length-all.wav": ("says 4 GB of samples", "loads", lambda: wav(pcm(HALF), length=2**32 - 1)),
    "length-none.wav": ("says no samples and has some", "loads", lambda: wav(pcm(HALF), length=0)),
    "length-odd.wav": ("says half a sample more", "loads", lambda: wav(pcm(HALF) + b"\1")),
    "no-samples.wav": ("has no samples", AUDIO, lambda: wav(b"")),
    "one-sample.wav": ("has one sample", "loads", lambda: wav(pcm(1))),
    "half-a-sample.wav": ("has half a sample", AUDIO, lambda: wav(b"\1")),
    "nan.wav": (
        "holds NaN",
        AUDIO,
        lambda: wav(np.array([0, np.nan, 0], "<f4").tobytes(), width=4, tag=3),
    ),
    "infinity.wav": (
        "holds what is infinite as float32",
        AUDIO,
        lambda: wav(np.array([0, 1e300, 0], "<f8").tobytes(), width=8, tag=3),
    ),
    "channels-32.wav": ("has 32 channels", "loads", lambda: wav(pcm(500, 32), channels=32)),
    "channels-20000.wav": ("says 20,000 channels", AUDIO, lambda: wav(pcm(99), channels=20_000)),
    "channels-none.wav": ("says no channels", AUDIO, lambda: wav(pcm(99), channels=0)),
    "rate-none.wav": ("says 0 Hz", AUDIO, lambda: wav(pcm(99), rate=0)),
    "rate-huge.wav": ("says 4 GHz", AUDIO, lambda: wav(pcm(99), rate=2**32 - 1)),
    "rate-8000.wav": ("has 8 kHz", "loads", lambda: wav(pcm(HALF), rate=8_000)),
    "rate-192000.wav": ("has 192 kHz", "loads", lambda: wav(pcm(HALF), rate=192_000)),
    "width-none.wav": ("says samples of no bytes", AUDIO, lambda: wav(pcm(99), width=0)),
    "cut-in-header.wav": ("ends within its header", AUDIO, lambda: wav(pcm(99))[:30]),
    "cut-before-samples.wav": ("ends before its samples", AUDIO, lambda: wav(pcm(99))[:36]),
    "cut-in-samples.wav": ("ends within its samples", "loads", lambda: wav(pcm(HALF))[:-999]),
    "text.wav": ("is a text", AUDIO, lambda: WORDS),
    "image.wav": ("is an image", AUDIO, lambda: saved(picture(), "PNG")),
    "flac.wav": ("is FLAC by another name", "loads", lambda: encoded(np.zeros(HALF), "FLAC")),
    "wav.flac": ("is WAV by another name", "loads", lambda: wav(pcm(HALF))),
    "silence.flac": (
        "becomes a thousand times as large, 60 s: over a limit of 10 s",
        AUDIO,
        lambda: encoded(np.zeros(16_000 * 60), "FLAC"),
    ),
    "cut.flac": (
        "ends within its header",
        AUDIO,
        lambda: encoded(np.zeros(HALF), "FLAC")[:40],
    ),
    "cut.ogg": (
        "ends within its first page",
        AUDIO,
        lambda: encoded(np.zeros(HALF), "OGG", "VORBIS")[:50],
    ),
    "header.png": ("says 12000 x 12000 pixels", IMAGE, lambda: png(12000, 12000, b"\0")),
    "header-largest.png": ("says 2^31 - 1 squared", IMAGE, lambda: png(2**31 - 1, 2**31 - 1, b"")),
    "header-none.png": ("says no pixels", IMAGE, lambda: png(0, 0, b"")),
    "header-line.png": ("says one row of 60 million", IMAGE, lambda: png(60_000_000, 1, b"\0")),
    "header-wrong.png": ("has fewer pixels than it says", IMAGE, lambda: png(64, 64, b"\0" * 99)),
    "cut.png": ("ends within its pixels", IMAGE, lambda: saved(picture(), "PNG")[:300]),
    "cut-in-header.png": ("ends within its header", IMAGE, lambda: saved(picture(), "PNG")[:20]),
    "cut.jpg": ("ends within its header", IMAGE, lambda: saved(picture(), "JPEG")[:100]),
    "cut.gif": ("ends within its palette", IMAGE, lambda: saved(picture(), "GIF")[:40]),
    "text.png": ("is a text", IMAGE, lambda: WORDS),
    "audio.png": ("is audio", IMAGE, lambda: wav(pcm(99))),
    "empty.png": ("is empty", IMAGE, lambda: b""),
    "jpeg.png": ("is JPEG by another name", "loads", lambda: saved(picture(), "JPEG")),
    "page.svg": ("is SVG", IMAGE, lambda: b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
    "page.eps": (
        "is EPS, which another program would have to run",
        IMAGE,
        lambda: saved(picture(), "EPS")[:400],
    ),
    "frame-beyond.gif": (
        "has a frame far larger than its screen",
        IMAGE,
        lambda: (
            b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0, 0, 0) + b","
            + struct.pack("<HHHHB", 0, 0, 20_000, 20_000, 0) + b"\2\2\x4c\1\0;"
        ),
    ),
    "text-bomb.png": ("holds a text of 100 MB", IMAGE, text_bomb),
    "turned.jpg": ("lies on its side, as EXIF says", "loads", turned),
    "one-pixel.png": ("is one pixel", "loads", lambda: saved(picture(size=(1, 1)), "PNG")),
    "cmyk.jpg": ("is CMYK", "loads", lambda: saved(picture("CMYK"), "JPEG")),
    "grey-16.png": (
        "has 16 bits",
        "loads",
        lambda: saved(Image.fromarray(np.full((12, 16), 40_000, np.uint16)), "PNG"),
    ),
    "palette.png": ("has a palette with transparency", "loads", transparent),
}  # fmt: skip

# Built by the test.
BUILT: dict[str, tuple[str, str, Callable[[], bytes]]] = {
    "animated.gif": ("has 10,000 frames", "loads", lambda: frames(10_000)),
    "bomb.png": (
        "is 100 kB that become 144 million pixels",
        IMAGE,
        lambda: png(12000, 12000, bytes(12001 * 12000)),
    ),
    "jpeg2000.jp2": (
        "is JPEG 2000",
        IMAGE,
        lambda: b"\0\0\0\x0cjP  \r\n\x87\n" + b"\0\0\0\x14ftypjp2 \0\0\0\0jp2 " + bytes(99),
    ),
}


def build(name: str) -> bytes:
    """The content of the case ``name``."""
    return (FILES | BUILT)[name][2]()


def main() -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (PLACE / name).write_bytes(build(name))
    lines = [
        json.dumps({"name": name, "tries": tries, "must": must})
        for name, (tries, must, _) in (FILES | BUILT).items()
    ]
    text = ",\n".join(f"  {line}" for line in lines)
    (PLACE / "cases.json").write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
