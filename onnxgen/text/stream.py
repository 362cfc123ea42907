"""Text while it is generated: token ids in, pieces of text out."""

from onnxgen.errors import TokenizerError
from onnxgen.text.cleaning import CleanUp, DropTimestamps
from onnxgen.text.decoding import Row, Stage
from onnxgen.text.tokenizer import Tokenizer


class TextStream:
    """Decodes ids one by one; the pieces joined are ``decode`` of all ids, wherever one stops.

    A piece is empty while its characters could still change. A few decoders need all tokens to
    decode any (see :func:`onnxgen.text.decoding.plan`); then the whole text comes at the end.

    Args:
        tokenizer: of the model.
        skip_special_tokens: as in :meth:`Tokenizer.decode`.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True) -> None:
        self._tokenizer, self._skip = tokenizer, skip_special_tokens
        self._row = _row(tokenizer)
        self._all: list[int] = []  # where there is no row
        self._prompt = tokenizer.prompt_ids if skip_special_tokens else None
        self._hidden_until: int | None = None
        self._done = False

    def push(self, token_id: int) -> str:
        """The text that became certain with ``token_id``, "" if none did.

        Raises:
            TokenizerError: ``token_id`` is no id, or :meth:`finish` was called before.
        """
        if self._done:
            raise TokenizerError("a token was pushed after the end of its text stream")
        token = self._tokenizer.visible_token(token_id, self._skip)
        if self._row is None:
            self._all.append(token_id)
            return ""
        if self._prompt is not None and self._hides(token_id):
            return ""
        return "" if token is None else self._row.push(token)

    def _hides(self, token_id: int) -> bool:
        """Whether ``token_id`` is of a leading prompt, which the end of ``_prompt`` closes."""
        if self._hidden_until is None:  # the very first token
            start, end = self._prompt or (-1, -1)
            if token_id != start:
                self._prompt = None
                return False
            self._hidden_until = end
            return True
        if token_id != self._hidden_until:
            return True
        self._prompt = None
        return False

    def finish(self) -> str:
        """The rest of the text; an incomplete character becomes U+FFFD."""
        if self._done:
            return ""
        self._done = True
        if self._row is None:
            return self._tokenizer.decode(self._all, self._skip)
        return self._row.finish()


def _row(tokenizer: Tokenizer) -> Row | None:
    plan = tokenizer.stream_plan
    if plan is None:
        return None
    cleaners: list[Stage] = [CleanUp()] if tokenizer.cleans_up else []
    if tokenizer.drops_timestamps:
        cleaners.append(DropTimestamps())
    return Row([*(make() for make in plan), *cleaners])
