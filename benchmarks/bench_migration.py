"""Decode workers lost under their streams after every token: does anybody notice?

    python -m benchmarks.bench_migration [--how killed ...] [--tokens 40] [--points 200]

`splitserve serve` with one prefill and two decode workers, and streams of every kind: greedy,
seeded with penalties, two choices, a stop string, logprobs. A decode worker is killed (SIGKILL),
frozen (SIGSTOP to its engine, or to all of it) or drained (SIGTERM) under them, until every kind
has gone on after each of its first tokens, by the router's own log. Each answer is compared with
the undisturbed one: text, finish reasons, logprobs and usage; one that differs is exit code 1. The
pause is what a client saw: the longest time between two pieces of a text that went on. Before that
the engine alone takes every kind of answer up after exactly each of these tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median_low
from typing import Any

import httpx

from benchmarks.fleet_state import state_of
from benchmarks.freeze_logs import GONE_ON, RETRIED
from benchmarks.local_fleet import LocalFleet, whole_fleet
from benchmarks.migration_streams import KINDS, MAX_TOKENS, Answer, Client
from benchmarks.report import Row, exit_code, median_row, print_table, write_json
from benchmarks.resume_points import try_every_place
from cli.fleet_status import MemberStatus

RESULTS = Path(__file__).parent / "results" / "migration.json"
NUM_DECODE = 2
MOST_TOKENS = 40
NUM_STREAMS = 30
"""At once: the router spreads them over the decode workers."""
STEP_S, ARRIVES_S = 0.006, 0.025
"""Of an engine; and what it has said is with the clients by then."""
FEW_LEFT = 20
KEPT = 15
"""How many of the last answers of a kind tell how far the router is ahead of its client."""
POINTS_PER_FLEET = 8
BACK_TIMEOUT_S, REQUEST_TIMEOUT_S = 180.0, 120.0
WAYS = ("killed", "frozen", "drained")


@dataclass(slots=True)
class Seen:
    """What the points of one way have shown."""

    way: str
    most_tokens: int
    """An answer of each kind is to go on after each of so many."""
    num_answers: int = 0
    wrong: list[str] = field(default_factory=list)
    pauses_ms: list[float] = field(default_factory=list)
    """Of answers that went on."""
    tokens: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By kind: after how many tokens answers have gone on."""
    ahead: defaultdict[str, deque[int]] = field(
        default_factory=lambda: defaultdict(partial(deque, [0], KEPT))
    )
    """By kind: the tokens that the router had of late above the pieces that the client had."""

    def num_tokens(self, answer: Answer) -> int:
        """That its router has by now, as far as one can tell."""
        return answer.num_pieces + median_low(self.ahead[answer.kind])

    @property
    def missing(self) -> dict[str, list[int]]:
        """By kind, where none has gone on yet."""
        wanted = set(range(1, self.most_tokens + 1))
        return {kind: left for kind in KINDS if (left := sorted(wanted - self.tokens[kind]))}


def measure(way: str, num_tokens: int, max_points: int) -> Seen:
    """Loses workers until every kind has gone on after each of so many tokens, or it is enough.
    Of one fleet only so many: its supervisor waits ever longer before it restarts them again."""
    seen = Seen(way, num_tokens)
    flags = ("--prefill", "1", "--decode", str(NUM_DECODE), "--niceness", "1")
    for first in range(0, max_points, POINTS_PER_FLEET):
        if not seen.missing:
            break
        points = range(first, min(first + POINTS_PER_FLEET, max_points))
        with whole_fleet(*flags, num_workers=1 + NUM_DECODE) as fleet:
            asyncio.run(_measure_one(fleet, seen, points))
    return seen


async def _measure_one(fleet: LocalFleet, seen: Seen, points: range) -> None:
    chance = random.Random(points.start)
    url = f"http://127.0.0.1:{fleet.port}"
    async with httpx.AsyncClient(base_url=url, timeout=REQUEST_TIMEOUT_S) as http:
        client = Client(http)
        await client.learn()
        for number in points:
            missing = seen.missing
            if not missing:
                break
            kinds = islice(cycle(missing), NUM_STREAMS)
            wanted = [(kind, chance.choice(missing[kind])) for kind in kinds]
            await lose_one(fleet, client, seen, number, wanted)


async def lose_one(
    fleet: LocalFleet, client: Client, seen: Seen, number: int, wanted: Sequence[tuple[str, int]]
) -> None:
    """A worker is lost when answers of these kinds have about as many tokens as `wanted`: each
    begins so much later than the one that is to have most. Then all must come to their end."""
    members, name = await _all_ready(fleet), f"{seen.way}-{number}"
    answers = [Answer(kind, f"{name}-{index}") for index, (kind, _) in enumerate(wanted)]
    counts = [count for _, count in wanted]
    order = sorted(zip(counts, answers, strict=True), key=lambda pair: -pair[0])
    most, first = order[0]
    asking = []
    for count, answer in order:
        await _has_pieces(first, most - count)
        asking.append(asyncio.create_task(client.ask(answer.kind, answer.request_id, answer)))
    lost = members.pop(number % NUM_DECODE)
    steps = _Steps([lost.engine_pid, *(member.engine_pid for member in members)])
    await _stand_well(seen, answers, first, steps)
    pieces = {answer.request_id: answer.num_pieces for answer in answers}
    _lose(lost, seen.way, is_whole=number % 4 > 1)
    for member in members:
        os.kill(member.engine_pid, signal.SIGCONT)
    await asyncio.gather(*asking)
    told = _told(fleet.log_dir / "router.log", name)
    gone_on = {_client_id(r): r["num_tokens"] for r in told if r["event"] == GONE_ON}
    for answer in answers:
        if answer.request_id in gone_on:
            ahead = gone_on[answer.request_id] - pieces[answer.request_id]
            seen.ahead[answer.kind].append(ahead)
    _judge(client, seen, answers, told, gone_on)


class _Steps:
    """Engines that compute a step or two at a time, and then stand still."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids

    def stand(self) -> None:
        for pid in self._pids:
            os.kill(pid, signal.SIGSTOP)

    def go(self) -> None:
        for pid in self._pids:
            os.kill(pid, signal.SIGCONT)


async def _stand_well(seen: Seen, answers: Sequence[Answer], first: Answer, steps: _Steps) -> None:
    """Until many of the answers have as many tokens as none of their kind has gone on after: fewer
    are enough with every token of the first one, and it is over with its end. The engines stand
    still then, and all that they have said has arrived."""
    missing = seen.missing
    began = first.num_pieces
    while not first.usage and not first.error:
        steps.stand()
        await asyncio.sleep(ARRIVES_S)
        standing = sum(seen.num_tokens(each) in missing.get(each.kind, ()) for each in answers)
        left = max(0, MAX_TOKENS - first.num_pieces) / max(1, MAX_TOKENS - began)
        if standing and standing >= left**2 * len(answers):
            return
        steps.go()
        await asyncio.sleep(STEP_S)


def _judge(
    client: Client,
    seen: Seen,
    answers: list[Answer],
    told: list[dict[str, Any]],
    gone_on: dict[str, int],
) -> None:
    """`told`: what the router has logged of them."""
    retried = {_client_id(r) for r in told if r["event"] == RETRIED}
    for answer in answers:
        seen.num_answers += 1
        if not client.is_right(answer, was_retried=answer.request_id in retried):
            seen.wrong.append(f"{answer.request_id} {answer.kind}: {answer.content}")
        if (count := gone_on.get(answer.request_id)) is not None:
            seen.tokens[answer.kind].add(count)
            seen.pauses_ms.append(answer.longest_gap_ms)
    missing = seen.missing
    left = sum(map(len, missing.values()))
    print(
        f"  after {sorted(gone_on.values())} tokens; {len(seen.wrong)} wrong, left: "
        f"{missing if left <= FEW_LEFT else left}",
        flush=True,
    )


async def _has_pieces(answer: Answer, count: int) -> None:
    """Or is over."""
    while answer.num_pieces < count and not answer.usage and not answer.error:
        await asyncio.sleep(0.001)


def _lose(member: MemberStatus, way: str, *, is_whole: bool) -> None:
    if way == "drained":
        os.kill(member.pid, signal.SIGTERM)
        os.kill(member.engine_pid, signal.SIGCONT)
        return
    how = signal.SIGKILL if way == "killed" else signal.SIGSTOP
    pids = [member.engine_pid, member.pid] if is_whole else [member.engine_pid]
    for pid in pids:
        os.kill(pid, how)


def _told(log: Path, name: str) -> list[dict[str, Any]]:
    """Requests of that name that have left their worker."""
    lines = [line for line in log.read_text().splitlines() if f'"{name}-' in line]
    records = [json.loads(line) for line in lines if line.startswith("{")]
    return [record for record in records if record["event"] in (GONE_ON, RETRIED)]


def _client_id(record: dict[str, Any]) -> str:
    """As the client named the request."""
    return str(record["request_id"]).rpartition("-")[0]


async def _all_ready(fleet: LocalFleet) -> list[MemberStatus]:
    """The decode workers, once all of them serve. Raises TimeoutError."""
    deadline_s = time.monotonic() + BACK_TIMEOUT_S
    while time.monotonic() < deadline_s:
        status = await state_of(fleet)
        decode = [m for m in status.members if m.role == "decode" and m.router_state == "ready"]
        if len(decode) == NUM_DECODE and all(member.engine_pid for member in decode):
            return sorted(decode, key=lambda member: member.worker_id)
        await asyncio.sleep(0.2)
    raise TimeoutError(f"{NUM_DECODE} decode workers were not ready within {BACK_TIMEOUT_S:.0f} s")


def rows_of(seen: Seen) -> list[Row]:
    """No goal for the pause: it is the prompt's and the answer's own computing, and the notice."""
    missing = sum(len(left) for left in seen.missing.values())
    rows = [
        Row(f"{seen.way}: wrong answers of {seen.num_answers}", len(seen.wrong), "answers", goal=0),
        Row(f"{seen.way}: places where no answer has gone on", missing, "places"),
    ]
    if seen.pauses_ms:
        rows.append(median_row(f"{seen.way}: pause", seen.pauses_ms, "ms"))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 when an answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--how", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--tokens", type=int, default=MOST_TOKENS)
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    places = try_every_place(options.tokens)
    rows = [Row(f"engine alone: wrong of {places.num_tried}", len(places.wrong), "places", goal=0)]
    details: dict[str, Any] = {"engine alone": places.wrong}
    for way in options.how:
        seen = measure(way, options.tokens, options.points)
        rows += rows_of(seen)
        details[way] = {"wrong": seen.wrong, "missing": seen.missing}
        for line in seen.wrong[:5]:
            print(f"  wrong: {line}")
    print_table("answers whose decode worker is lost", rows)
    write_json(options.json, "migration", rows, details)
    return exit_code(rows)


if __name__ == "__main__":
    raise SystemExit(main())
