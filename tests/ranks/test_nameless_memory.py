"""The memory that ranks share is to be had wherever the check for it says so."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

from cluster.errors import WrongGeneration
from ranks.collectives.segment import SharedSegment
from ranks.plans.segment import PlanSegment

NOEXEC_SEAL = 8
given = os.memfd_create


def strict(label: str, flags: int) -> int:
    """As with vm.memfd_noexec=2."""
    if not flags & NOEXEC_SEAL:
        raise PermissionError(errno.EACCES, "Permission denied")
    return given(label, flags & ~NOEXEC_SEAL)


def old(label: str, flags: int) -> int:
    """As before Linux 6.3."""
    if flags & NOEXEC_SEAL:
        raise OSError(errno.EINVAL, "Invalid argument")
    return given(label, flags)


@pytest.mark.parametrize("system", [strict, old])
def test_all_that_a_group_shares_is_had_from_strict_systems_and_from_old_ones(
    system: Callable[[str, int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "memfd_create", system)
    for segment in (SharedSegment.create(2, 1), PlanSegment.create(2, 1)):
        assert (segment.generation, segment.world_size) == (1, 2)
        segment.close()


def test_the_memory_of_collectives_is_not_taken_for_that_of_plans() -> None:
    ranks = SharedSegment.create(2, 1)
    with pytest.raises(WrongGeneration, match="of no group"):
        PlanSegment.attach(os.dup(ranks.fd), world_size=2, generation=1)
    ranks.close()
