"""Writes ``fixtures/text``: small tokenizers, and what transformers 4.57.6 makes of everything.

Run in the oracle environment (transformers 4.57.6, sentencepiece, protobuf; no hub needed)::

    HF_HUB_OFFLINE=1 python scripts/make_text_fixtures.py [FOLDER]

FOLDER is that of ``scripts/real_models``; with it ``real.json`` is written too, for the tokenizer
of SmolLM2, which is too large for a fixture.
Templates (``templates/*.jinja``) and chats (``chats.json``) are written by hand and stay.
"""

# ruff: noqa: RUF001  (tokens with full-width bars are in use)

import datetime
import importlib.util
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import transformers
from text_tokenizers import make_all
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils import chat_template_utils, get_json_schema
from translation_tokenizers import make_translation

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "fixtures" / "text"
NOW = datetime.datetime(2024, 2, 3, 4, 5, 6)

TEXTS = [
    "",
    " ",
    "Hello world",
    "  Hello   world  ",
    "It 's what they 've said , isn't it ? Yes ! do n't ' quote ' .",
    "The quick brown fox\n\njumps\tover\r\nthe lazy dog\n",
    "def f(x):\n    return x  # done\n",
    "naïve café Übergrößenträger Ångström e\u0301",
    "東京は日本の首都です。",
    "한국어 문장 中文 ไทย العربية",
    "👍🏽 👩‍👩‍👧‍👦 🇫🇷 😀x😀",
    "1234567 3.14159 2024-01-01",
    "<s> </s> <unk> <pad>",
    "<|endoftext|><|im_start|>user\nHi<|im_end|> <|eot_id|>",
    "<|user|> \n Hi<|end|>  <lstrip>x <extra><bos><first><word>",
    "Hi<s>Hello</s>there <flag>x<sep>",
    "<extra_id_0> fills <extra_id_3>[MASK] [SEP]",
    "<｜User｜>a<｜odd｜>b<tool_call>c<|image|>d<|new|><|missing|>",
    "<|startofprev|> before<|startoftranscript|><|0.00|> Hello<|0.20|>",
    "▁under ▁▁scores _ <0x41> Ġ",
    "\u200bzero\u00a0width\ufeff \ufffd \u0000 \x7f",
    "a" * 70 + "!!!!!!",
]


def ids_of(tokenizer: PreTrainedTokenizerFast, seed: int) -> list[list[int]]:
    """Lists of random ids: anything at all, only the rarest, and some beyond the vocabulary."""
    rng = random.Random(seed)
    size = len(tokenizer)
    anything = [[rng.randrange(size) for _ in range(rng.randrange(1, 24))] for _ in range(25)]
    low = [[rng.randrange(min(size, 262)) for _ in range(12)] for _ in range(15)]
    beyond = [[rng.randrange(size + 40) for _ in range(10)] for _ in range(5)]
    return anything + low + beyond


def tokenizer_golden(folder: Path) -> dict[str, Any]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    encoded = [tokenizer.encode(text) for text in TEXTS]
    bare = [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]
    lists = ids_of(tokenizer, len(folder.name)) + bare
    return {
        "class": type(tokenizer).__name__,
        "size": len(tokenizer),
        "special_tokens": tokenizer.special_tokens_map,
        "ids": [tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id],
        "padding_side": tokenizer.padding_side,
        "encoded": encoded,
        "encoded_bare": bare,
        "decoded": [
            [ids, tokenizer.decode(ids), tokenizer.decode(ids, skip_special_tokens=True)]
            for ids in lists
        ],
    }


def real_golden(folder: Path) -> dict[str, Any]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompts = {
        name: tokenizer.apply_chat_template(CHATS[name], tokenize=False, add_generation_prompt=True)
        for name in ("hello", "turns", "system", "unicode")
    }
    return tokenizer_golden(folder) | {"prompts": prompts}


def render_golden(case: dict[str, Any], tools: dict[str, Any]) -> dict[str, Any]:
    """``case`` with the prompt, or the class of what transformers raises and its text."""
    tokenizer = AutoTokenizer.from_pretrained(FIXTURES / "tokenizers" / "llama")
    source = (FIXTURES / "templates" / case["template"]).read_text(encoding="utf-8")
    arguments = dict(case.get("arguments", {}))
    if "functions" in case:
        arguments["tools"] = [getattr(tools, name) for name in case["functions"]]
    try:
        prompt = tokenizer.apply_chat_template(
            CHATS[case["chat"]], chat_template=source, tokenize=False, **arguments
        )
    except Exception as error:
        return case | {"error": type(error).__name__, "message": str(error)}
    return case | {"prompt": prompt}


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz: Any = None) -> "FixedTime":
        return cls(*NOW.timetuple()[:6])


def save(name: str, data: Any) -> None:
    text = json.dumps(data, ensure_ascii=False, indent=None, separators=(",", ":"))
    text = text.replace("],[[", "],\n[[").replace('},{"', '},\n{"')
    (FIXTURES / name).write_text(text + "\n", encoding="utf-8")


def load_tools() -> Any:
    spec = importlib.util.spec_from_file_location(
        "tool_functions", ROOT / "tests" / "text" / "tool_functions.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def schema_golden(function: Any) -> Any:
    try:
        return get_json_schema(function)
    except Exception as error:
        return {"error": type(error).__name__}


CHATS = json.loads((FIXTURES / "chats.json").read_text(encoding="utf-8"))["chats"]


def main() -> None:
    if transformers.__version__ != "4.57.6":
        sys.exit(f"transformers {transformers.__version__}, wanted 4.57.6")
    with tempfile.TemporaryDirectory() as scratch:
        folders = make_all(FIXTURES / "tokenizers", Path(scratch))
    golden = {folder.name: tokenizer_golden(folder) for folder in folders}
    save("tokenizers.json", {"texts": TEXTS, "tokenizers": golden})
    for model in FIXTURES.glob("tokenizers/*/*.model"):
        model.write_bytes(b"")  # that there is one is all that counts from here on
    make_translation()

    if sys.argv[1:]:
        save("real.json", real_golden(Path(sys.argv[1]) / "hf" / "smollm2"))

    chat_template_utils.datetime = FixedTime
    tools = load_tools()
    cases = json.loads((FIXTURES / "chats.json").read_text(encoding="utf-8"))["cases"]
    save("renders.json", [render_golden(case, tools) for case in cases])
    save("schemas.json", {f.__name__: schema_golden(f) for f in tools.ALL})


if __name__ == "__main__":
    main()
