"""A seeded storm: prefill workers are killed, frozen and robbed of their engines under load, and
once all of them are killed together.

Half of the requests come through the router, which avoids a worker that is away. The others are put
to the decode worker directly, under cache roots that nobody has cached and with one or two of the
prefill workers there last were, so that every one of them is a handoff, and some have no other.

Every answer that completes is the reference's, token for token; every other one is a typed error;
and afterwards nothing is left: no lease, no pinned block, no file descriptor.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import grpc
import httpx
import psutil
import pytest

from cluster.errors import InternalError, SplitserveError, from_code, status_of
from cluster.rpc import error_of
from protos import membership_pb2
from tests.fleet.put_directly import greedy_submit, members_of, submit_alone
from tests.fleet.support import Fleet, fleet_channel, wait_for
from tests.fleet.test_load import body, is_quiet
from tests.fleet.test_parity import generate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SEED = 20
NUM_CLIENTS = 4
TURNS_OF_A_STRIKE = 8
"""Requests that begin between a strike and the end of its healing: two of each client."""
PROMPTS = range(16)
"""Those of up to 512 tokens."""
LEAST_CROSSED = 5
SPARE_FDS = 12
"""A connection to each prefill worker there ever was, and a few that are being closed."""
ALLOWED = {"worker_lost", "no_worker", "draining", "not_ready", "cancelled"}


@dataclass
class Tally:
    """What the clients have seen."""

    ended: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    num_crossed: int = 0
    """Right answers behind a transfer."""

    @property
    def num_right(self) -> int:
        return self.ended["right"]

    def answer(self, what: str, found: object, expected: object) -> None:
        """One completed answer."""
        self.ended["right" if found == expected else "wrong"] += 1
        if found != expected:
            self.wrong.append(f"{what}: {found!r}, expected {expected!r}")

    def error(self, error: SplitserveError) -> None:
        """One request that ended with an error."""
        self.ended[status_of(error).code] += 1
        if isinstance(error, InternalError):
            self.wrong.append(error.message)


class Clients:
    """They ask by HTTP and gRPC, one request after the other, and sometimes leave in the middle.

    For each request they need a turn: workers that start again are not kept from it by requests
    that prove no more than those before them.
    """

    def __init__(self, fleet: Fleet, reference, router: grpc.aio.Channel) -> None:
        self.tally = Tally()
        self._router = router
        self._seen: dict[str, membership_pb2.Member] = {}
        self._fleet = fleet
        self._reference = reference
        self._is_over = False
        self._turns = asyncio.Semaphore(0)

    def give_turns(self, number: int) -> None:
        """So many more requests may begin."""
        for _ in range(number):
            self._turns.release()

    @property
    def has_turns(self) -> bool:
        return not self._turns.locked()

    def stop(self) -> None:
        """Each client finishes its request."""
        self._is_over = True
        self.give_turns(NUM_CLIENTS)

    async def run(self, rng: random.Random) -> None:
        """One client, until `stop`."""
        async with (
            httpx.AsyncClient(base_url=self._fleet.url, timeout=60) as http,
            fleet_channel(self._fleet.grpc_address) as channel,
        ):
            while await self._turns.acquire() and not self._is_over:
                index, length, kind = rng.choice(PROMPTS), rng.choice([1, 3, 16]), rng.random()
                if kind < 0.25:
                    asking = self._by_http(http, index, length)
                elif kind < 0.5:
                    asking = self._by_grpc(channel, index, length)
                else:
                    asking = self._by_hand(index, length, rng)
                await self._maybe_leave(asking, rng.uniform(0, 0.5) if rng.random() < 0.3 else 60)

    async def _maybe_leave(self, asking: Awaitable[None], patience_s: float) -> None:
        try:
            async with asyncio.timeout(patience_s):
                await asking
        except TimeoutError:
            self.tally.ended["left" if patience_s < 60 else "hung"] += 1

    async def _by_http(self, client: httpx.AsyncClient, index: int, length: int) -> None:
        request = body(self._reference.prompts[index], max_tokens=length)
        reply = await client.post("/v1/completions", json=request)
        if reply.status_code != 200:
            error = reply.json()["error"]
            self.tally.error(from_code(error["code"], error["message"]))
            return
        answer = self._reference.answers[index][:length]
        expected = self._reference.tokenizer.decode(answer, skip_special_tokens=True)
        self.tally.answer(f"prompt {index}", reply.json()["choices"][0]["text"], expected)

    async def _by_grpc(self, channel: grpc.aio.Channel, index: int, length: int) -> None:
        try:
            tokens, complete = await generate(channel, self._reference.prompts[index], length)
        except grpc.aio.AioRpcError as failure:
            self.tally.error(error_of(failure))
            return
        assert complete is not None
        self.tally.answer(f"prompt {index}", tokens, self._reference.answers[index][:length])

    async def _by_hand(self, index: int, length: int, rng: random.Random) -> None:
        workers = await members_of(self._router)
        self._seen |= {m.incarnation: m for m in workers if m.role == "prefill"}
        newest = list(self._seen.values())[-2:]
        prefill = rng.sample(newest, rng.randint(1, len(newest)))
        submit = greedy_submit(self._reference.prompts[index], length, prefill, rng)
        decode = next(m for m in workers if m.role == "decode")
        async with fleet_channel(decode.address) as channel:
            tokens, ended = await submit_alone(channel, decode, submit)
        if ended.HasField("error"):
            self.tally.error(from_code(ended.error.code, ended.error.message))
            return
        self.tally.num_crossed += ended.timing.kv_bytes > 0
        self.tally.answer(f"prompt {index}", tokens, self._reference.answers[index][:length])


def members(fleet: Fleet, role: str, *, check: bool = False) -> list[dict]:
    return [m for m in fleet.status(check=check)["members"] if m["role"] == role]


def num_fds(fleet: Fleet) -> dict[int, int]:
    """Of every process that lives through the storm."""
    return {
        pid: psutil.Process(pid).num_fds()
        for member in members(fleet, "decode", check=True)
        for pid in (member["pid"], member["engine_pid"])
    }


def kill_server(victim: dict) -> None:
    os.kill(victim["pid"], signal.SIGKILL)


def kill_engine(victim: dict) -> None:
    os.kill(victim["engine_pid"], signal.SIGKILL)


async def freeze(victim: dict) -> None:
    """Both processes stand still for three seconds and then go on as if nothing had been."""
    pids = (victim["pid"], victim["engine_pid"])
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(3)  # the fault itself, not a wait for anything
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


Fault = Callable[[dict], Awaitable[None] | None]
STRIKES: tuple[tuple[Fault, bool], ...] = (
    *((kill_server, False), (kill_engine, False), (freeze, False)),
    (kill_server, True),  # for a while there is no prefill worker
)
"""What happens, and whether to every prefill worker at once."""


async def strike(fleet: Fleet, fault: Fault, rng: random.Random, *, everybody: bool) -> None:
    """One prefill worker is hit, or every one; returns when all are ready again."""
    workers = await asyncio.to_thread(members, fleet, "prefill", check=True)
    victims = workers if everybody else [rng.choice(workers)]
    for victim in victims:
        struck = fault(victim)
        if struck is not None:
            await struck
    gone = set() if fault is freeze else {victim["pid"] for victim in victims}

    def healed() -> bool:
        now = members(fleet, "prefill")
        replaced = gone.isdisjoint(m["pid"] for m in now)
        return replaced and sum(m["state"] == "ready" for m in now) >= len(workers)

    await asyncio.to_thread(wait_for, healed, timeout_s=90, what=f"healed after {fault}")


async def answered(clients: Clients, is_enough: Callable[[Tally], bool]) -> None:
    """Returns once so much has been; the clients have as many turns as that takes."""
    async with asyncio.timeout(90):
        while not is_enough(clients.tally):
            if not clients.has_turns:
                clients.give_turns(NUM_CLIENTS)
            await asyncio.sleep(0.05)  # a poll


async def more_answers(clients: Clients, num_answers: int) -> None:
    """Returns after so many more right answers."""
    goal = clients.tally.num_right + num_answers
    await answered(clients, lambda tally: tally.num_right >= goal)


async def weather(fleet: Fleet, clients: Clients, seed: int) -> Tally:
    """The storm over one fleet, from the first request to the last."""
    rng = random.Random(seed)
    running = [
        asyncio.create_task(clients.run(random.Random(f"{seed}-{i}"))) for i in range(NUM_CLIENTS)
    ]
    try:
        for fault, everybody in rng.sample(STRIKES, len(STRIKES)):
            await more_answers(clients, 3)
            clients.give_turns(TURNS_OF_A_STRIKE)
            await strike(fleet, fault, rng, everybody=everybody)
        await more_answers(clients, 5)
        await answered(clients, lambda tally: tally.num_crossed >= LEAST_CROSSED)
    finally:
        clients.stop()
        await asyncio.gather(*running)
    print(f"seed {seed}: {dict(clients.tally.ended)}, {clients.tally.num_crossed} crossed")
    return clients.tally


async def test_after_a_storm_every_answer_was_right_and_nothing_is_left(stormy_fleet, reference):
    fleet = stormy_fleet
    async with fleet_channel(fleet.grpc_address) as channel:
        await generate(channel, reference.prompts[0])
        before = num_fds(fleet)
        tally = await weather(fleet, Clients(fleet, reference, channel), SEED)
    assert tally.wrong == []
    assert set(tally.ended) <= ALLOWED | {"right", "left"}
    assert tally.num_right >= 14
    assert tally.num_crossed >= LEAST_CROSSED
    wait_for(lambda: is_quiet(fleet), timeout_s=60, what="quiet after the storm")
    after = num_fds(fleet)
    assert set(after) == set(before), "a decode process was replaced"
    assert all(after[pid] <= before[pid] + SPARE_FDS for pid in before), (before, after)
    log = fleet.log_path.read_text()
    assert "broken invariant" not in log
    assert "Traceback" not in log
