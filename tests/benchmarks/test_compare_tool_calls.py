"""What ends a comparison with vLLM's parsers of tool calls."""

from __future__ import annotations

import pytest

from benchmarks import compare_tool_calls
from tests.router.tools.recorded_calls import FROM_FAMILIES, MALFORMED, RECORDED, Recorded


def ended(monkeypatch: pytest.MonkeyPatch, recorded: Recorded, told: object) -> int:
    monkeypatch.setattr(compare_tool_calls, "RECORDED", (recorded,))
    monkeypatch.setattr(compare_tool_calls, "FROM_FAMILIES", ())
    monkeypatch.setattr(compare_tool_calls, "MALFORMED", ())
    monkeypatch.setattr(compare_tool_calls, "_told", lambda python, asked: [told])
    return compare_tool_calls.main()


def test_a_difference_without_a_reason_and_a_reason_without_one_end_with_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["compare_tool_calls"])
    plain = next(each for each in RECORDED if each.format == "hermes")
    assert ended(monkeypatch, plain, list(plain.calls)) == 0
    assert ended(monkeypatch, plain, []) == 1
    known = next(each for each in RECORDED if "days:2" in each.text)
    assert ended(monkeypatch, known, []) == 0
    assert ended(monkeypatch, known, list(known.calls)) == 1


def test_every_reason_is_of_an_answer_that_is_asked() -> None:
    asked = [
        (compare_tool_calls._parser_of(each), each.text)
        for each in (*RECORDED, *FROM_FAMILIES, *MALFORMED)
    ]
    for who, sign in compare_tool_calls._REASONS:
        assert any(parser == who and sign in text for parser, text in asked), sign
