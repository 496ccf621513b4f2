"""What passes, what fails, and what is a whole JSON answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.offline.quality.json_answers import EXAMPLES, is_valid, validity
from engine.offline.quality.measurements import Measurements
from engine.offline.quality.needle import cells
from engine.offline.quality.reading import Reading
from engine.offline.quality.verdict import Thresholds, has_passed, judge
from tests.engine.offline.quality.word_subject import WordSubject

LIMITS = Thresholds(
    max_perplexity_increase=1.0, min_agreement=0.9, max_recall_loss=0.2, max_json_loss=0.1
)
CELLS = cells([256])
REFERENCE = Measurements(Reading([2.0] * 10, list(range(10))), dict.fromkeys(CELLS, True), 0.8)


def test_the_same_model_passes() -> None:
    lines = judge(REFERENCE, REFERENCE, LIMITS)
    assert has_passed(lines)
    assert [line.passed for line in lines].count(None) == len(CELLS)


@pytest.mark.parametrize(
    ("worse", "failing"),
    [
        (replace(REFERENCE, reading=Reading([2.0 + 0.011] * 10, list(range(10)))), "perplexity"),
        (replace(REFERENCE, reading=Reading([2.0] * 10, [0] * 10)), "likeliest"),
        (replace(REFERENCE, found=dict.fromkeys(CELLS, False)), "needles"),
        (replace(REFERENCE, json_validity=0.6), "JSON"),
    ],
)
def test_each_threshold_alone_can_fail(worse: Measurements, failing: str) -> None:
    lines = judge(REFERENCE, worse, LIMITS)
    assert not has_passed(lines)
    (failed,) = [line for line in lines if line.passed is False]
    assert failing in failed.test


def test_losses_up_to_the_threshold_pass() -> None:
    found = dict.fromkeys(CELLS, True) | {CELLS[0]: False}
    slightly = Measurements(Reading([2.0 + 0.0099] * 10, list(range(10))), found, 0.7)
    assert has_passed(judge(REFERENCE, slightly, LIMITS))


@pytest.mark.parametrize(
    ("answer", "valid"),
    [
        (' {"name": "A", "born": 1, "trade": "b", "cities": []}\n\nText: more', True),
        (' {"name": "A", "born": 1, "trade": "b"}', False),
        (' {"name": "A", "born": 1, "trade": "b", "cities": [', False),
        ("[1, 2]", False),
        ("", False),
        ("[" * 100_000, False),
    ],
)
def test_an_answer_is_valid_when_its_first_line_is_the_whole_object(
    answer: str, valid: bool
) -> None:
    assert is_valid(answer) is valid


def test_validity_is_the_share_of_whole_answers() -> None:
    assert all(is_valid(answer) for _, answer in EXAMPLES)
    subject = WordSubject(answer=lambda prompt: EXAMPLES[0][1] if "Born in" in prompt[-90:] else "")
    assert validity(subject) == pytest.approx(4 / 12)
