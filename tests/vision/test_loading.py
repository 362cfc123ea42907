"""Whatever users call an image becomes RGB and stands upright; all else is one of our errors."""

import base64
import contextlib
import io
import struct
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from onnxgen.errors import ImageError, InputNotFoundError, MissingPackageError, OptionError
from onnxgen.vision.loading import FORMATS, load
from onnxgen.vision.processor import ImageProcessor
from tests.vision.goldens import FIXTURES, IMAGES

PHOTO = FIXTURES / "photo.jpg"
DATA = PHOTO.read_bytes()
BASE64 = base64.b64encode(DATA).decode()
# One picture of 2 rows and 3 columns, all pixels unlike.
PIXELS = np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 14


def png(width, height, depth=8, colour=2, body=b""):
    """A PNG file with this header, whatever the body holds."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(body)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def saved(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def test_all_sources_give_the_same():
    wanted = np.asarray(Image.open(PHOTO))
    written = io.BytesIO()
    written.write(DATA)  # and not rewound
    pipe = io.BufferedReader(io.BytesIO(DATA))
    pipe.seekable = lambda: False
    sources = [
        str(PHOTO),
        PHOTO,
        DATA,
        bytearray(DATA),
        memoryview(DATA),
        io.BytesIO(DATA),
        written,
        pipe,
        Image.open(PHOTO),
        np.asarray(Image.open(PHOTO)),
        f"data:image/jpeg;base64,{BASE64}",
        f"DATA:;BASE64,{BASE64}",
        BASE64,
        base64.encodebytes(DATA).decode(),
        base64.urlsafe_b64encode(DATA).decode().rstrip("="),
    ]
    for source in sources:
        image = load(source)
        assert image.mode == "RGB"
        np.testing.assert_array_equal(np.asarray(image), wanted)
    with PHOTO.open("rb") as file:
        np.testing.assert_array_equal(np.asarray(load(file)), wanted)
        assert not file.closed


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
def test_exif_orientation(orientation, kind):
    """Row 0 and column 0 of the stored pixels are these sides of the upright picture (EXIF 2.3)."""
    upright = {
        1: PIXELS,
        2: PIXELS[:, ::-1],
        3: PIXELS[::-1, ::-1],
        4: PIXELS[::-1],
        5: PIXELS.transpose(1, 0, 2),
        6: PIXELS.transpose(1, 0, 2)[:, ::-1],
        7: PIXELS.transpose(1, 0, 2)[::-1, ::-1],
        8: PIXELS.transpose(1, 0, 2)[::-1],
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if kind == "WEBP" else {}
    data = saved(Image.fromarray(PIXELS), kind, exif=exif, **options)
    np.testing.assert_array_equal(np.asarray(load(data)), upright)
    np.testing.assert_array_equal(np.asarray(load(load(data))), upright)  # turned once
    np.testing.assert_array_equal(np.asarray(load(Image.open(io.BytesIO(data)))), upright)


@pytest.mark.parametrize("orientation", [0, 9, 600])
def test_exif_orientations_that_are_none(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = saved(Image.fromarray(PIXELS), exif=exif)
    np.testing.assert_array_equal(np.asarray(load(data)), PIXELS)


def test_broken_exif_turns_nothing():
    data = saved(Image.fromarray(PIXELS), exif=b"Exif\x00\x00MM\x00\x2a\x00\x00\x00\xffgarbage")
    np.testing.assert_array_equal(np.asarray(load(data)), PIXELS)


def test_transparency_is_dropped_and_the_colour_stays():
    clear = Image.fromarray(np.dstack([PIXELS, np.zeros((2, 3), np.uint8)]))
    np.testing.assert_array_equal(np.asarray(load(saved(clear))), PIXELS)
    palette = Image.new("P", (2, 1))
    palette.putpalette([255, 0, 0, 0, 0, 255])
    palette.putdata([0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for transparency in (0, b"\x00\x80"):
            image = load(saved(palette, transparency=transparency))
            assert np.asarray(image).tolist() == [[[255, 0, 0], [0, 0, 255]]]


def test_sixteen_bits_are_scaled():
    grey = np.array([[0, 128, 129, 257], [0x7FFF, 0x8000, 0xFF7E, 0xFF7F]], np.uint16)
    wanted = np.array([[0, 0, 1, 1], [127, 128, 254, 255]])  # of 257 each
    image = Image.fromarray(grey)
    pgm = b"P5 4 2 65535\n" + grey.astype(">u2").tobytes()
    for source in (grey, image, saved(image), saved(image, "TIFF"), pgm):
        np.testing.assert_array_equal(np.asarray(load(source)), np.dstack([wanted] * 3))


def test_wide_modes():
    floats = np.array([[0, 0.5, 1]], np.float32)
    assert np.asarray(load(Image.fromarray(floats)))[0, :, 0].tolist() == [0, 128, 255]
    assert np.asarray(load(Image.new("I", (1, 1), 77))).tolist() == [[[77] * 3]]
    for wrong in (Image.fromarray(floats * 255), Image.new("I", (1, 1), 300)):
        with pytest.raises(ImageError):
            load(wrong)
    with pytest.raises(ImageError, match="from 0 to 65536"):
        load(saved(Image.fromarray(np.array([[0, 65536]], np.int32)), "TIFF"))


def test_other_modes():
    for mode in ("1", "L", "LA", "PA", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV"):
        assert load(Image.new(mode, (3, 2))).size == (3, 2)
    bits = np.array([[True, False]])
    assert np.asarray(load(Image.fromarray(bits)))[0, :, 0].tolist() == [255, 0]


def test_the_first_frame_counts():
    with Image.open(FIXTURES / "moving.gif") as image:
        first = np.asarray(image.convert("RGB"))
        image.seek(2)
        assert (np.asarray(image.convert("RGB")) != first).any()
    np.testing.assert_array_equal(np.asarray(load(FIXTURES / "moving.gif")), first)


@pytest.mark.parametrize("image", IMAGES)
def test_a_cut_file_is_an_error(image):
    data = (FIXTURES / image).read_bytes()
    for share in (0.02, 0.25):
        with pytest.raises(ImageError):
            load(data[: int(len(data) * share)])


@pytest.mark.parametrize("image", IMAGES)
def test_a_damaged_file_loads_or_is_an_error(image):
    data = np.frombuffer((FIXTURES / image).read_bytes(), np.uint8)
    rng = np.random.default_rng(len(data))
    for _ in range(40):
        damaged = data.copy()
        # Half of them in the header, where the formats keep what can go wrong.
        end = min(len(data), 200) if rng.random() < 0.5 else len(data)
        damaged[rng.integers(0, end, 3)] = rng.integers(0, 256, 3)
        with contextlib.suppress(ImageError):
            assert load(damaged.tobytes(), max_pixels=10**6).mode == "RGB"


def test_pixels_are_counted_before_they_are_decoded():
    data = png(8001, 8000)  # holds no pixel at all
    with pytest.raises(ImageError, match="too many pixels: 8000 x 8001"):
        load(data)
    with pytest.raises(ImageError, match="cut off"):
        load(data, max_pixels=64_008_000)
    with pytest.raises(ImageError, match="too many pixels: 67 x 101"):
        load(PHOTO, max_pixels=67 * 101 - 1)
    assert load(PHOTO, max_pixels=67 * 101).size == (101, 67)
    for source in (Image.new("L", (4, 5)), np.zeros((5, 4))):
        with pytest.raises(ImageError, match="too many pixels: 5 x 4"):
            load(source, max_pixels=19)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [9500, 12_000, 65_000])
def test_decompression_bombs(side):
    with pytest.raises(ImageError, match="too many pixels"):
        load(png(side, side))


def test_a_bomb_is_an_error_where_warnings_are():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ImageError, match="too many pixels"):
            load(png(9500, 9500))


def test_a_file_that_never_ends():
    class Endless:
        def read(self, count):
            return b"\x00" * count

    with pytest.raises(ImageError, match="more than 1048584 bytes"):
        load(Endless(), max_pixels=1)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("", "cannot read '': Is a directory"),
        ("a\0b.png", "cannot read"),
        ("x" * 5000 + ".png", "cannot read 'xxx"),
        (FIXTURES, "Is a directory"),
        (PHOTO / "x.png", "Not a directory"),
        (FIXTURES / "expected.json", "is no image"),
        (b"", "the bytes is no image"),
        (b"hello", "is no image"),
        (io.StringIO("text"), "gives text"),
        ("data:image/png;base64,", "is no image"),
        ("data:image/png;base64,@@@", "broken base64"),
        ("data:image/png,abc", "a data: URI without base64"),
        ("data:image/png;base64", "a data: URI without base64"),
        ("https://example.org/a.png?token=secret", r"an address \(https://\.\.\.\)"),
        ("file:///etc/passwd", r"an address \(file://\.\.\.\)"),
        ("A" * 300, "the base64 text is no image"),
        ("A" * 301, "broken base64"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "is no image"),
        (b"\x00\x00\x00\x0cjP  \r\n\x87\n" + bytes(50), "is no image"),
        (5, "a int is no image"),
        (None, "a NoneType is no image"),
        ([[1, 2], [3, 4]], "a list is no image"),
        (np.zeros((0, 3), np.uint8), "is no image"),
        (Image.new("RGB", (0, 5)), "5 rows and 0 columns"),
        (Image.new("La", (2, 2)), "conversion from La"),
    ],
)
def test_no_images(source, says):
    with pytest.raises(ImageError, match=says) as caught:
        load(source)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("path", ["no/such.png", "photo", Path("none.png"), "A" * 200])
def test_files_that_are_not_there(path):
    with pytest.raises(InputNotFoundError, match="no file '"):
        load(path)


def test_a_file_that_fails():
    class Broken:
        def read(self, count):
            raise TimeoutError("gone")

    with pytest.raises(ImageError, match="cannot be read: gone"):
        load(Broken())
    closed = Image.open(PHOTO)
    closed.close()
    with pytest.raises(ImageError):
        load(closed)


@pytest.mark.parametrize("max_pixels", [0, -5, 1.5, "9", None, True])
def test_wrong_max_pixels(max_pixels):
    with pytest.raises(OptionError, match="max_pixels"):
        load(PHOTO, max_pixels=max_pixels)
    with pytest.raises(OptionError, match="max_pixels"):
        ImageProcessor({"image_processor_type": "ViTImageProcessor"}, max_pixels=max_pixels)


def test_without_pillow(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'onnxgen\[vision\]'"):
        load(PHOTO)


def test_no_format_that_runs_programs_or_is_known_for_faults():
    assert not {"EPS", "JPEG2000", "WMF", "PSD"} & set(FORMATS)
    Image.init()
    assert set(FORMATS) - {"AVIF"} <= set(Image.OPEN)
