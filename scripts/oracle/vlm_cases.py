"""What the vision-language models are asked."""

from dataclasses import dataclass, field
from typing import Any

JSON = dict[str, Any]
NEW = 14
ASK = "What is in this picture?"


@dataclass(frozen=True)
class Case:
    """A prompt or a chat, with its images.

    `@` in a prompt stands for the family's mark of an image, `%` for that of a video. `images` are
    files of fixtures/images; `video` are frames of such files. `options` go to `generate`,
    `processing` to the processor.
    """

    name: str
    prompt: str = ""
    images: tuple[str, ...] = ()
    messages: list[JSON] = field(default_factory=list)
    video: tuple[tuple[str, int], ...] = ()
    options: JSON = field(default_factory=dict)
    processing: JSON = field(default_factory=dict)


def user(text: str, images: int = 0) -> JSON:
    parts: list[JSON] = [{"type": "image"}] * images
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


def assistant(text: str) -> JSON:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


PLAIN = [
    Case("one image", f"@{ASK}", ("photo.jpg",)),
    Case("another image", f"@{ASK}", ("palette.png",)),
    Case("image after text", "The red house is here: @", ("cmyk.jpg",)),
    Case("image within text", "The picture @ is by the", ("turned.jpg",)),
    Case("two images", "One @ and two @How many cats?", ("grey.jpg", "photo.jpg")),
    Case("wide image", "@Describe it.", ("panorama.png",)),
    Case("tall image", "@Describe it.", ("page.png",)),
    Case("small image", "@Describe it.", ("alpha.webp",)),
    Case("text only", "The capital of France is"),
]
CHAT = [
    Case("chat", images=("photo.jpg",), messages=[user(ASK, 1)]),
    Case("chat of two turns", images=("palette.png",),
         messages=[user(ASK, 1), assistant("A red house."), user("Where is the cat?")]),
    Case("chat without image", messages=[user("What is the capital of France?")]),
]  # fmt: skip
BEAMS = [
    Case("beams", f"@{ASK}", ("photo.jpg",), options={"num_beams": 3}),
    Case("beams of text", "The capital of France is", options={"num_beams": 3}),
]
#: for LLaVA transformers mixes the images of the beams up
MORE_BEAMS = [
    Case("beams of two images", "@@How many cats?", ("palette.png", "cmyk.jpg"),
         options={"num_beams": 3}),
]  # fmt: skip
VIDEO = [
    Case("video", "%Describe it.", video=tuple(("moving.gif", i) for i in (0, 1, 2, 0))),
    Case("video of three frames", "The dog saw % in the rain",
         video=tuple(("moving.gif", i) for i in (2, 0, 1))),
    Case("image and video", "@ and %Describe it.", ("palette.png",),
         video=(("moving.gif", 0), ("moving.gif", 2))),
]  # fmt: skip
CROPS = {"do_pan_and_scan": True, "pan_and_scan_min_crop_size": 16}
PAN_AND_SCAN = [
    Case("pan and scan", "@Describe it.", ("photo.jpg",), processing=CROPS),
    Case("pan and scan of two", "First @ then @", ("panorama.png", "grey.jpg"), processing=CROPS),
]
#: rows of a batch
BATCH = [
    Case("batch", "There is a red house on the"),
    Case("batch", "@What is in the picture?", ("cmyk.jpg",)),
    Case("batch", "First @ then @", ("grey.jpg", "turned.jpg")),
]
