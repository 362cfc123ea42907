"""Florence-2's processor in small: BART's tokenizer with places and marks, CLIP's image processor.

The order of ids is that of the real files: BART's own, the marks around objects and text, a
thousand places, more marks, the image.
"""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import BartTokenizerFast, CLIPImageProcessor, Florence2Processor

from .seq2seq_tokens import WORDS
from .speech_tokens import compact, write_config

TEXT = 420  # ids of bytes and of pieces of words
SIDE = 40  # pixels
IMAGE_TOKENS = 26  # one for the whole image, 5 * 5 for its parts
PLACES = 1000
OPENING = ["<od>", "</od>", "<ocr>", "</ocr>"]
CLOSING = [
    *(f"<{slash}{name}>" for name in ("cap", "ncap", "dcap", "grounding", "seg")
      for slash in ("", "/")),
    "<sep>", "<region_cap>", "</region_cap>", "<region_to_desciption>",
    "</region_to_desciption>", "<proposal>", "</proposal>", "<poly>", "</poly>", "<and>",
]  # fmt: skip
MARKS = {
    "bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>",
    "cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>",
}  # fmt: skip
IMAGE = "<image>"
FIRST_PLACE = TEXT + 1 + len(OPENING)
AFTER_PLACES = FIRST_PLACE + PLACES
VOCAB = AFTER_PLACES + len(CLOSING) + 1
IDS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
#: what no answer should hold: no text, and no place
SPECIAL = frozenset({*range(4), *range(TEXT, FIRST_PLACE), *range(AFTER_PLACES, VOCAB)})

#: how parsing is told to go; the real list of words without a box is longer
PARSING = {
    "ocr": {
        "pattern": r"(.+?)" + r"<loc_(\d+)>" * 8,
        "area_threshold": 0.0,
    },
    "phrase_grounding": {"banned_grounding_tokens": ["it", "the image", "the", "a", "one"]},
    "pure_text": {},
    "description_with_bboxes": {},
    "description_with_polygons": {},
    "polygons": {},
    "bboxes": {},
    "description_with_bboxes_or_polygons": {},
}


#: of what the processor asks
CORPUS = [
    "What is the text in the image, with regions? What does the image describe?",
    "Describe in detail what is shown in the image. Describe with a paragraph what is shown.",
    "Locate the objects with category name in the image. Locate the region proposals in it.",
    "Locate the phrases in the caption: the polygon mask of region",
]


def tokenizer() -> BartTokenizerFast:
    """Byte-level, trained on the corpus and some words."""
    bpe = Tokenizer(models.BPE(unk_token="<unk>"))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TEXT,
        show_progress=False,
        special_tokens=[AddedToken(t, special=True) for t in ("<s>", "<pad>", "</s>", "<unk>")],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    bpe.train_from_iterator([*CORPUS, " " + " ".join(WORDS)], trainer)
    bpe.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    places = [f"<loc_{i}>" for i in range(PLACES)]
    added = ["<mask>", *OPENING, *places, *CLOSING, IMAGE]
    bpe.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in added])
    assert bpe.get_vocab_size() == VOCAB, bpe.get_vocab_size()
    return BartTokenizerFast(
        tokenizer_object=bpe, extra_special_tokens={"image_token": IMAGE}, model_max_length=1024,
        clean_up_tokenization_spaces=False,
    )  # fmt: skip


def unprintable() -> list[int]:
    """The ids of text that is no whole character, or none that one sees."""
    words = tokenizer()
    return [
        i for i in range(4, TEXT) if "\ufffd" in (t := words.decode([i])) or not t.isprintable()
    ]


def save(folder: Path) -> None:
    """Writes the files of the processor; tokenizer.json alone lists the added tokens."""
    image = CLIPImageProcessor(
        size={"height": SIDE, "width": SIDE}, do_center_crop=False,
        crop_size={"height": SIDE, "width": SIDE}, image_mean=[0.485, 0.456, 0.406],
        image_std=[0.229, 0.224, 0.225],
    )  # fmt: skip
    image.image_seq_length = IMAGE_TOKENS
    words = tokenizer()
    Florence2Processor(image, words, post_processor_config=PARSING).save_pretrained(folder)
    for path in folder.iterdir():
        if path.name not in ("preprocessor_config.json", "processor_config.json"):
            path.unlink()
    (folder / "tokenizer.json").write_text(compact(words))
    write_config(
        folder, tokenizer_class="BartTokenizer", **MARKS, image_token=IMAGE,
        extra_special_tokens={"image_token": IMAGE}, add_prefix_space=False,
        model_max_length=1024, clean_up_tokenization_spaces=False,
        processor_class="Florence2Processor",
    )  # fmt: skip


def load(folder: Path) -> Florence2Processor:
    """The processor of a folder, its image processor the slow one, its tokenizer the fast one."""
    image = CLIPImageProcessor.from_pretrained(folder)
    words = BartTokenizerFast.from_pretrained(folder)
    told = json.loads((folder / "processor_config.json").read_text())
    return Florence2Processor(image, words, post_processor_config=told["post_processor_config"])
