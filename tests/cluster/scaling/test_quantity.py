"""Amounts as Kubernetes writes them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from cluster.scaling.quantity import in_words, quantity


@pytest.mark.parametrize(
    ("written", "amount"),
    [
        ("2", Fraction(2)),
        (4, Fraction(4)),
        ("500m", Fraction(1, 2)),
        ("1.5", Fraction(3, 2)),
        (".5", Fraction(1, 2)),
        ("2Gi", Fraction(2 * 1024**3)),
        ("2G", Fraction(2 * 1000**3)),
        ("1e3", Fraction(1000)),
        ("12E3", Fraction(12_000)),
        ("1E", Fraction(10**18)),
        ("100n", Fraction(1, 10**7)),
        ("0", Fraction(0)),
    ],
)
def test_an_amount_is_read_exactly(written: object, amount: Fraction) -> None:
    assert quantity(written) == amount


@pytest.mark.parametrize("written", ["", "Gi", "1 Gi", "one", "1ki", "0x1", "--1", "1e1000", "."])
def test_what_is_no_amount_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="no amount"):
        quantity(written)


def test_bytes_are_told_in_gib_and_all_else_as_numbers() -> None:
    assert in_words("requests.memory", quantity("1536Mi")) == "1.5 GiB"
    assert in_words("limits.cpu", quantity("2500m")) == "2.5"
    assert in_words("requests.nvidia.com/gpu", quantity("8")) == "8"
    assert in_words("memory", quantity("0")) == "0"
