"""How the benchmark of freezes reads logs and judges answers."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from benchmarks.freeze_logs import GONE_ON, RETRIED, longest_wait_on_worker_s
from benchmarks.steady_load import Answer, is_right

FROZEN = datetime(2026, 1, 1, tzinfo=UTC)


def line(after_s: float, event: str, request_id: str, **values: str) -> str:
    moment = (FROZEN + timedelta(seconds=after_s)).isoformat().replace("+00:00", "Z")
    known = {"timestamp": moment, "event": event, "request_id": request_id, "process": "router"}
    return json.dumps(known | values) + "\n"


def test_a_request_waits_from_the_freeze_or_its_arrival_until_it_is_taken_away(
    tmp_path: Path,
) -> None:
    (tmp_path / "router.log").write_text(
        line(-5, RETRIED, "old", worker_id="decode-0")
        + line(1, "request accepted", "late")
        + line(3, GONE_ON, "early", worker_id="decode-0")
        + line(3.5, RETRIED, "late", worker_id="decode-0")
        + line(9, RETRIED, "other", worker_id="decode-1")
        + "not of ours {\n"
    )
    assert longest_wait_on_worker_s(tmp_path, "decode-0", FROZEN) == 3.0
    assert longest_wait_on_worker_s(tmp_path, "prefill-0", FROZEN) is None


@pytest.mark.parametrize(
    "text, error, right",
    [
        ("one two", "", True),
        ("one", "", False),
        ("one", "worker_lost", True),
        ("ono", "worker_lost", False),
        ("one", "no typed error: ReadError", False),
    ],
)
def test_an_answer_is_whole_or_a_true_beginning_behind_a_typed_error(
    text: str, error: str, right: bool
) -> None:
    assert is_right(Answer(0, 0.0, text=text, error=error), "one two") is right


def test_the_longest_wait_counts_from_the_freeze_on() -> None:
    answer = Answer(0, sent_s=10.0, arrivals_s=[14.0, 15.0, 18.0], ended_s=18.5)
    assert answer.longest_wait_s(from_s=0.0) == 4.0
    assert answer.longest_wait_s(from_s=14.5) == 3.0
    assert answer.longest_wait_s(from_s=19.0) == 0.0
