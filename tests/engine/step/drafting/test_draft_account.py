"""A drafter that does not pay is asked ever more seldom; played with costs, without clocks."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from engine.step.drafting.draft_account import (
    CREDIT_SHARE,
    FIRST_CREDIT,
    MOST_STEPS,
    DraftAccount,
    DraftAccounts,
)


def played(account: DraftAccount, num_steps: int, gains: Callable[[int], float]) -> float:
    """What so many steps gained in all."""
    total = 0.0
    for number in range(num_steps):
        if account.is_resting:
            account.pass_by()
        else:
            gained = gains(number)
            total += gained
            account.note(gained)
    return total


@pytest.mark.parametrize("loss", [0.01, 0.1, 0.6, 3.0])
@pytest.mark.parametrize("num_steps", [1000, 20_000, 100_000])
def test_a_drafter_that_never_pays_costs_a_bounded_share_of_the_steps(
    loss: float, num_steps: int
) -> None:
    """Beside the first credit, and one step that goes beyond it."""
    total = played(DraftAccount(), num_steps, lambda number: -loss)
    bound = FIRST_CREDIT + loss + 1.1 * CREDIT_SHARE * num_steps
    assert FIRST_CREDIT <= -total <= bound


def test_so_does_one_that_loses_what_it_invests() -> None:
    account, lost = DraftAccount(), 0.0
    for _ in range(50_000):
        if account.is_resting:
            account.pass_by()
            continue
        account.invest(0.5)
        account.note(-0.1)
        lost += 0.6
    assert lost <= 40.0 + 1.2 * CREDIT_SHARE * 50_000  # a first credit goes far: it is charged late


def test_a_drafter_that_pays_never_rests() -> None:
    chance = random.Random(3)
    account = DraftAccount()
    for _ in range(5000):
        account.note(chance.choice([0.8, 0.4, -0.5]))
        assert not account.is_resting


def test_one_that_pays_now_and_then_is_found_again() -> None:
    """It lost for long enough to rest its longest; once it pays it is asked in every step."""
    account = DraftAccount()
    played(account, 50_000, lambda number: -0.3)
    assert played(account, 2 * MOST_STEPS, lambda number: 0.5) > 0.4 * MOST_STEPS
    assert not account.is_resting


def test_who_paid_for_long_loses_no_more_than_another() -> None:
    account = DraftAccount()
    played(account, 10_000, lambda number: 1.0)
    total = played(account, 1000, lambda number: -0.5)
    assert -total < 25.0


def test_a_rest_is_for_steps_of_about_as_many_sequences() -> None:
    accounts = DraftAccounts()
    while not accounts.of(16).is_resting:
        accounts.of(16).note(-1.0)
    assert [accounts.of(n).is_resting for n in (1, 2, 8, 11)] == [False] * 4
    assert [accounts.of(n).is_resting for n in (12, 15, 17, 22)] == [True] * 4
    assert not accounts.of(0).is_resting
