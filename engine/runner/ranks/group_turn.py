"""What each turn of an engine does for the group that it conducts."""

from __future__ import annotations

from engine.contract.expert_numbers import ExpertNumbers
from engine.contract.messages import Frame
from engine.model.experts.balance import ExpertBalance
from engine.runner.ranks.group import RankGroup
from engine.runner.ranks.group_runner import GroupRunner


class ConductorTurn:
    """A GroupTurn."""

    def __init__(
        self, group: RankGroup, runner: GroupRunner, balance: ExpertBalance | None = None
    ) -> None:
        """`balance`: None where no experts change their ranks."""
        self._group, self._runner, self._balance = group, runner, balance
        self._told = self._numbers()

    def check(self) -> None:
        """See GroupTurn."""
        self._group.check()

    def enrich(self, frame: Frame) -> None:
        """See GroupTurn."""
        if frame.load is not None:
            frame.rank_waits = self._group.waits
        if (numbers := self._numbers()) != self._told:
            frame.experts = self._told = numbers

    def idle_turn(self) -> None:
        """See GroupTurn."""
        self._runner.idle_turn()

    def _numbers(self) -> ExpertNumbers | None:
        return None if self._balance is None else self._balance.numbers()
