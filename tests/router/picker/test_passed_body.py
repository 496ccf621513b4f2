"""What of a client's body a vLLM server gets."""

from __future__ import annotations

import json

import pytest

from router.api.reading.schema import ChatRequest
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
    body = json.dumps({"model": "m", "cache_salt": "mine", "prompt": "x"} | asked)
    told = passed_body(body.encode(), model="theirs", salt="s", schema=None, max_tokens=256)
    assert json.loads(told) == {"model": "theirs", "cache_salt": "s", "prompt": "x"} | limits


def test_of_fields_that_nobody_knows_none_is_passed_on_however_many_there_are() -> None:
    unknown = {f"dummy{number}": 1 for number in range(40)} | {"ä" * 99: 1}
    body = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "x", "bar": 1}]} | unknown
    )
    told = passed_body(body.encode(), model="m", salt="s", schema=ChatRequest, max_tokens=9)
    message = {"role": "user", "content": "x"}
    left = {"model": "m", "cache_salt": "s", "messages": [message], "max_tokens": 9}
    assert json.loads(told) == left


def test_what_only_a_server_may_choose_is_not_the_client_s() -> None:
    chosen = {"priority": -100, "request_id": "anothers", "mm_processor_kwargs": {}}
    body = json.dumps({"model": "m", "prompt": "x"} | chosen)
    told = passed_body(body.encode(), model="m", salt="s", schema=None, max_tokens=9)
    assert json.loads(told) == {"model": "m", "cache_salt": "s", "prompt": "x", "max_tokens": 9}
