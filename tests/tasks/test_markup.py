"""Donut's answers as JSON: what transformers' token2json makes of the same texts."""

import pytest

from onnxgen.tasks.markup import to_json

# Each with what DonutProcessor.token2json of transformers 4.57.6 gives.
CASES = [
    ("<s_total>5.00</s_total>", {"total": "5.00"}),
    ("<s_a>1</s_a><s_b> x </s_b>", {"a": "1", "b": "x"}),
    (
        "<s_menu><s_nm>tea</s_nm><s_price>2</s_price></s_menu>",
        {"menu": {"nm": "tea", "price": "2"}},
    ),
    (
        "<s_menu><s_nm>tea</s_nm><sep/><s_nm>pie</s_nm></s_menu>",
        {"menu": [{"nm": "tea"}, {"nm": "pie"}]},
    ),
    ("<s_a>one<sep/>two</s_a>", {"a": ["one", "two"]}),
    ("<s_a>1</s_a><sep/><s_a>2</s_a>", [{"a": "1"}, {"a": "2"}]),
    ("<s_a>1</s_a><sep/>", [{"a": "1"}]),
    ("<s_open>never closed", {"text_sequence": "never closed"}),
    ("plain text", {"text_sequence": "plain text"}),
    ("", {"text_sequence": ""}),
    ("<s_a></s_a>", {"a": ""}),
    ("<s_lost><s_a>1</s_a>", {"a": "1"}),
    ("<s_a.b>1</s_a.b>", {"a.b": "1"}),
    ("<s_answer>yes</s_answer> more", {"answer": "yes"}),
    ("</s_a><s_a>x</s_a>", {"a": "x"}),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_fields(text, expected):
    assert to_json(text) == expected


def test_added_tokens_are_values():
    assert to_json("<s_ok><yes/></s_ok>", {"<yes/>"}) == {"ok": "yes"}
    assert to_json("<s_ok><yes/></s_ok>") == {"ok": "<yes/>"}
