"""What is given back to a Ray that does not take it. No Ray."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cluster.launcher.protocol import NodeFacts
from cluster.launcher.ray.holdings import Holdings
from cluster.launcher.ray.hosting import Host
from cluster.launcher.ray.machine import HostFacts
from cluster.launcher.ray.placing import PlacedGroup
from cluster.launcher.ray.session import RaySession

ELSEWHERE = HostFacts(
    node_id="n",
    machine="other",
    host_name="other",
    gpus=(),
    pid=1,
    uid=0,
    born=0,
    niceness=0,
    node=NodeFacts(
        address="10.0.0.9", num_cores=1, free_memory_share=1.0, free_memory_share_now=1.0
    ),
)


def held(kill: Callable[..., None], removed: list[Any], *, patience_s: float = 60.0) -> Holdings:
    ray = SimpleNamespace(kill=kill, util=SimpleNamespace(remove_placement_group=removed.append))
    holdings = Holdings(cast(RaySession, SimpleNamespace(ray=ray)), patience_s=patience_s)
    holdings.open("decode-0-1")
    holdings.keep_group("decode-0-1", PlacedGroup("group", (), (), is_own=True))
    holdings.keep_host("decode-0-1", Host("actor", ELSEWHERE))
    return holdings


async def test_a_ray_that_does_not_answer_holds_up_neither_the_loop_nor_who_gives_back() -> None:
    asked, answers, removed = threading.Event(), threading.Event(), list[Any]()

    def kill(actor: Any, *, no_restart: bool) -> None:
        asked.set()
        answers.wait()

    holdings = held(kill, removed, patience_s=0.2)
    giving_back = asyncio.ensure_future(holdings.give_back("decode-0-1"))
    await asyncio.to_thread(asked.wait)  # this loop turns meanwhile
    await giving_back
    holdings.close()
    assert removed == []
    answers.set()


@pytest.mark.parametrize("at_the_end", [False, True])
async def test_what_ray_raises_for_an_actor_is_told_to_nobody_and_its_room_is_given_back(
    at_the_end: bool,
) -> None:
    removed = list[Any]()

    def kill(actor: Any, *, no_restart: bool) -> None:
        raise RuntimeError("the head is gone")

    holdings = held(kill, removed)
    if at_the_end:
        holdings.close()
    else:
        await holdings.give_back("decode-0-1")
    assert removed == ["group"]
