"""What a row of a draft is said to cost: as measured, and as expected where it was not of late."""

from __future__ import annotations

import pytest

from engine.contract.draft_numbers import DrafterKind
from engine.step.meters.draft_price import DraftPrice
from engine.step.meters.load_meter import LoadMeter
from engine.step.meters.verified_drafts import VerifiedDraft, VerifiedRows


def test_the_price_is_expected_of_plain_steps_before_the_first_draft() -> None:
    price = DraftPrice()
    assert price.ms == 0.0
    price.note_plain(1, 2.5, 2.5)
    assert price.ms == pytest.approx(0.25)
    price.note_plain(16, 8.0, 2.8)
    assert price.ms == pytest.approx(0.275)


def test_it_becomes_what_is_measured() -> None:
    price = DraftPrice()
    price.note_plain(1, 2.5, 2.5)
    for weight in (3.0, 16.0, 7.0) * 20:
        price.add(weight, 0.4 * weight)
    assert price.ms == pytest.approx(0.4, rel=0.03)


def test_what_a_step_takes_beside_its_rows_is_told_from_them() -> None:
    price = DraftPrice()
    price.note_plain(16, 8.0, 2.8)
    for weight in (3.0, 16.0, 30.0) * 40:
        price.add(weight, 0.6 + 0.2 * weight)
    assert price.ms == pytest.approx(0.2, rel=0.05)
    assert price.base_ms == pytest.approx(0.6, rel=0.15)


def test_rows_of_one_number_share_what_was_measured_as_is_expected() -> None:
    price = DraftPrice()
    price.note_plain(16, 8.0, 2.8)
    for _ in range(200):
        price.add(10.0, 4.0)
    assert price.base_ms + 10.0 * price.ms == pytest.approx(4.0, rel=0.02)
    assert 0.0 < price.base_ms < 1.5


def test_a_step_that_lost_its_core_does_not_end_drafts_for_good() -> None:
    price = DraftPrice()
    price.note_plain(1, 2.5, 2.5)
    price.add(4.0, 500.0)
    assert price.ms <= 0.5 and price.base_ms <= 0.5
    for _ in range(1000):
        price.note_plain(1, 2.5, 2.5)
    assert price.ms == pytest.approx(0.25, rel=0.05)


def test_a_step_with_drafts_counts_as_the_steps_that_it_saved() -> None:
    meter = LoadMeter(price=DraftPrice())
    for start_s in (0.0, 1.0):
        meter.begin(start_s)
        meter.end(start_s + 0.010, has_work=True, chunks=(), num_decodes=2)
    meter.begin(2.0)
    draft = VerifiedDraft(DrafterKind.NGRAM, num_tokens=4, context=0, num_kept=4)
    verified = VerifiedRows(num_decodes=2, num_tokens=6, drafts=[draft])
    meter.end_drafted(2.015, has_work=False, verified=verified)
    assert meter.num_decoded_tokens == 2 + 2 + 6
    assert meter.decode_busy_s == pytest.approx(0.035)
    assert meter.decode.mean_ms < 10.0
    assert meter.costs.cost.draft_row_ms == pytest.approx(5.0 / 4, rel=0.2)
    assert meter.costs.cost.decodes_ms(2) == pytest.approx(10.0)
