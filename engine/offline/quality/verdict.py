"""Two settings of one model side by side, and whether the difference may pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.offline.quality.measurements import Measurements


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """What quantization may cost."""

    max_perplexity_increase: float
    """In percent of the reference's."""
    min_agreement: float
    """Share of tokens at which both would say the same."""
    max_recall_loss: float
    """Share of the needles."""
    max_json_loss: float
    """Share of the answers."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both settings in one test. `passed` is None where there is no threshold."""

    test: str
    reference: float | None
    subject: float
    change: str
    passed: bool | None


def judge(reference: Measurements, subject: Measurements, limits: Thresholds) -> list[Comparison]:
    """Every test; the needles by length and depth come after the sum of them."""
    return [
        _perplexity(reference, subject, limits),
        _agreement(reference, subject, limits),
        _loss("needles found", reference.recall, subject.recall, limits.max_recall_loss),
        *_needles(reference, subject),
        _loss(
            "JSON answers that parse",
            reference.json_validity,
            subject.json_validity,
            limits.max_json_loss,
        ),
    ]


def has_passed(lines: Sequence[Comparison]) -> bool:
    """No test went past its threshold."""
    return all(line.passed is not False for line in lines)


def _perplexity(reference: Measurements, subject: Measurements, limits: Thresholds) -> Comparison:
    before, after = reference.reading.perplexity, subject.reading.perplexity
    percent = (after / before - 1) * 100
    passed = percent <= limits.max_perplexity_increase
    return Comparison("perplexity of the shipped text", before, after, f"{percent:+.2f} %", passed)


def _agreement(reference: Measurements, subject: Measurements, limits: Thresholds) -> Comparison:
    share = subject.reading.agreement(reference.reading)
    return Comparison("same likeliest token", None, share, "", share >= limits.min_agreement)


def _loss(test: str, before: float, after: float, allowed: float) -> Comparison:
    passed = before - after <= allowed + 1e-9
    return Comparison(test, before, after, f"{after - before:+.2f}", passed)


def _needles(reference: Measurements, subject: Measurements) -> list[Comparison]:
    return [
        Comparison(
            f"  {cell.num_tokens} tokens, depth {cell.depth:.2f}",
            float(reference.found[cell]),
            float(subject.found[cell]),
            "" if reference.found[cell] == subject.found[cell] else "differs",
            None,
        )
        for cell in subject.found
    ]
