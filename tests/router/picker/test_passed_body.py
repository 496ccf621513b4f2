"""What of a client's body a vLLM server gets."""

from __future__ import annotations

import json

import pytest

from router.picker.passed_body import passed_body


@pytest.mark.parametrize(
    ("asked", "limits"),
    [
        ({}, {"max_tokens": 256}),
        ({"max_tokens": None}, {"max_tokens": 256}),
        ({"max_tokens": 7}, {"max_tokens": 7}),
        ({"max_completion_tokens": 7}, {"max_completion_tokens": 7}),
        ({"max_tokens": 0}, {"max_tokens": 0}),
        ({"max_tokens": 900}, {"max_tokens": 256}),
        (
            {"max_tokens": 900, "max_completion_tokens": 800},
            {"max_tokens": 256, "max_completion_tokens": 256},
        ),
    ],
)
def test_no_answer_is_longer_than_was_admitted(
    asked: dict[str, int | None], limits: dict[str, int]
) -> None:
    body = json.dumps({"model": "m", "cache_salt": "mine", "foo": 1, "prompt": "x"} | asked)
    told = passed_body(body.encode(), model="theirs", salt="s", left_out=["foo"], max_tokens=256)
    assert json.loads(told) == {"model": "theirs", "cache_salt": "s", "prompt": "x"} | limits
