"""The bytes that single tokens stand for, as stop strings compare them.

A token's string is what the decoder makes of it behind other text; where tokens are bytes
(ByteLevel, ByteFallback) it is these bytes, so that a character split over tokens still matches.
"""

import json
import re
from collections.abc import Callable
from functools import cache

from onnxgen.text.decoding import BYTE_OF
from onnxgen.text.native import native
from onnxgen.text.tokenizer import Tokenizer

PREFIX = "abcdef"  # some text that a token may stand behind
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def token_bytes(tokenizer: Tokenizer) -> Callable[[int], bytes]:
    """A function from an id to its token's bytes; special tokens count with their text."""
    decoder = tokenizer.backend.decoder
    state = json.loads(decoder.__getstate__()) if decoder is not None else {}
    kinds = set(re.findall(r'"type": ?"(\w+)"', json.dumps(state)))
    alphabet = BYTE_OF if "ByteLevel" in kinds else {}
    added = {t.content for t in tokenizer.backend.get_added_tokens_decoder().values()}
    base = tokenizer.backend.encode(PREFIX, add_special_tokens=False).tokens

    @cache
    def of_token(token_id: int) -> bytes:
        token = tokenizer.id_to_token(token_id)
        if token is None:
            return b""
        if token in added:
            return token.encode()
        if alphabet and all(char in alphabet for char in token):
            return bytes(alphabet[char] for char in token)
        if "ByteFallback" in kinds and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match[1], 16)])
        with native("decode a token"):
            text: str = decoder.decode([*base, token]) if decoder else token
        return text[text.index(PREFIX) + len(PREFIX) :].encode() if PREFIX in text else b""

    return of_token
