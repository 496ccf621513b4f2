"""A conductor's step: nothing of it is used before all has landed in a group that is whole."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from cluster.errors import ConfigError, RankLost
from cluster.rank_facts import RankFacts
from engine.model.ragged_batch import RaggedBatch
from engine.runner.ranks.group import GroupTies, RankGroup, require_one_form
from engine.runner.ranks.group_runner import GroupRunner

LOGITS = torch.ones(1, 4)
CAUSE = RankLost("rank 1 of generation 7 ended (SIGKILL)", ranks=(1,))


class Device:
    """A stand-in of a collective whose results land later, and of the ranks' roster."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.landing_error: RankLost | None = None
        self.loss: RankLost | None = None
        self.is_serving = True

    def wait_until_landed(self, deadline_s: float | None = None) -> None:
        self.calls.append("land")
        if self.landing_error is not None:
            raise self.landing_error

    def take(self) -> None:
        """Reports."""

    def check(self) -> None:
        self.calls.append("check")
        if self.loss is not None:
            raise self.loss

    def cause_of(self, consequence: RankLost) -> RankLost:
        return CAUSE

    def send(self, kind: object, *parts: object) -> None:
        self.calls.append("publish")

    def copy_blocks(self, pairs: object) -> None:
        """Of the own runner."""

    def forward(self, batch: object) -> torch.Tensor:
        self.calls.append("enqueue")
        return LOGITS


@pytest.fixture
def device() -> Device:
    return Device()


def group_with(device: Device, closers: contextlib.ExitStack) -> RankGroup:
    launch = SimpleNamespace(generation=7)
    ties = SimpleNamespace(collective=device, roster=device, plans=device, launch=launch)
    return RankGroup(cast(GroupTies, ties), closers, lambda *_: None)


def runner_on(device: Device) -> GroupRunner:
    return GroupRunner(device, group_with(device, contextlib.ExitStack()))


def batch() -> Any:
    one = torch.zeros(1, dtype=torch.int64)
    return RaggedBatch(
        token_ids=one,
        positions=one,
        slots=one,
        block_tables=torch.zeros(1, 1, dtype=torch.int32),
        query_starts=torch.tensor([0, 1], dtype=torch.int32),
        context_lens=torch.ones(1, dtype=torch.int32),
        logit_rows=one,
        num_decodes=1,
        max_query_len=1,
        max_context_len=1,
    )


def test_logits_are_handed_on_once_they_have_landed_and_the_group_is_whole(device: Device) -> None:
    assert runner_on(device).forward(batch()) is LOGITS
    assert device.calls == ["publish", "enqueue", "land", "check"]


def test_what_a_group_leaves_that_has_given_a_collective_up_is_never_used(device: Device) -> None:
    device.landing_error = RankLost("NCCL gave a collective up")
    with pytest.raises(RankLost, match="SIGKILL"):
        runner_on(device).forward(batch())


def test_a_step_that_lands_after_a_rank_was_lost_is_never_used(device: Device) -> None:
    device.loss = CAUSE
    with pytest.raises(RankLost, match="SIGKILL"):
        runner_on(device).forward(batch())


def test_ranks_that_hold_unequal_forms_are_refused_with_what_each_has() -> None:
    def rank(number: int, loaded_as: str) -> RankFacts:
        return RankFacts(
            rank=number,
            pid=1,
            node="there",
            device="cuda:0",
            generation=7,
            kv_heads=(0,),
            loaded_as=loaded_as,
        )

    require_one_form([rank(0, "full, columns by 1"), rank(1, "full, columns by 1")])
    with pytest.raises(ConfigError, match=r"rank 1 on there \(cuda:0\): stored, columns by 32"):
        require_one_form([rank(0, "full, columns by 1"), rank(1, "stored, columns by 32")])


def test_a_rank_that_is_lost_while_others_capture_is_named(device: Device) -> None:
    device.landing_error = RankLost("NCCL gave a collective up")
    with pytest.raises(RankLost, match="SIGKILL"):
        group_with(device, contextlib.ExitStack()).settle()


def test_graphs_are_gone_before_the_collective_that_they_hold(device: Device) -> None:
    device.is_serving = False
    closers = contextlib.ExitStack()
    closers.callback(device.calls.append, "leave")
    group = group_with(device, closers)
    group.before_leaving(lambda: device.calls.append("forget graphs"))
    group.close()
    assert device.calls == ["forget graphs", "leave"]
