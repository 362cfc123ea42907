"""The border to the tokenizers library."""

from collections.abc import Iterator
from contextlib import contextmanager

from onnxgen.errors import OnnxgenError, TokenizerError

SAVE_AGAIN = "save it again with transformers' save_pretrained"


@contextmanager
def native(doing: str) -> Iterator[None]:
    """Turns whatever tokenizers raises into TokenizerError, panics too, which are no Exception."""
    try:
        yield
    except (OnnxgenError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise TokenizerError(
            f"the tokenizer failed to {doing} ({type(error).__name__})",
            do=f"if the input is sound, the tokenizer.json is not: {SAVE_AGAIN}",
        ) from error
