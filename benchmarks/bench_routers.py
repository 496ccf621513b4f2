"""Three routers before two prefill and two decode workers: is anything lost beside one router?

    python -m benchmarks.bench_routers [--conversations 8] [--turns 5] [--rounds 3]

The same conversations of several turns, each time with nothing cached: all at one router, and each
turn at a router that is drawn, as behind a load balancer (in turns, the median of the rounds); then
while Redis is killed and comes back, while one router stands still (SIGSTOP), and while it is
killed. Hit rates are by what workers say they found. Texts are greedy and compared with those of
one router; what is asked of a router that is killed fails at its clients, and is asked again
elsewhere: errors of all others count.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.report import Row, exit_code, median_row, print_table, write_json
from benchmarks.router_fleet import Router, RouterFleet, router_fleet
from benchmarks.turns_load import Answers, Pick, converse

RESULTS = Path(__file__).parent / "results" / "routers.json"
NUM_ROUTERS, NUM_PREFILL, NUM_DECODE = 3, 2, 2
NUM_ROUNDS = 3
MOST_POINTS = 3.0
"""That the hit rate may lie below that of one router."""


class Bench:
    """One fleet, and what was asked of it."""

    def __init__(self, fleet: RouterFleet, num_conversations: int, num_turns: int) -> None:
        self._fleet = fleet
        self._num_conversations, self._num_turns = num_conversations, num_turns

    async def asked(self, name: str, routers: Sequence[Router]) -> Answers:
        """By conversations whose turns each go to one of these routers, as it is drawn."""
        urls = [router.url for router in routers]
        chance = random.Random(name)
        drawn = {
            (number, turn): chance.sample(urls, len(urls))
            for number in range(self._num_conversations)
            for turn in range(self._num_turns)
        }
        pick: Pick = lambda number, turn: drawn[number, turn]  # noqa: E731
        answers = await converse(self._num_conversations, self._num_turns, name, pick)
        print(
            f"  {name}: hit rate {answers.hit_rate:.1f} %, {len(answers.errors)} errors", flush=True
        )
        return answers

    async def disturbed(self, name: str, routers: Sequence[Router], fault: Disturbance) -> Answers:
        """While that happens, in the middle of it."""
        asking = asyncio.create_task(self.asked(name, routers))
        while not asking.done() and self._num_running() == 0:
            await asyncio.sleep(0.05)
        fault()
        return await asking

    def _num_running(self) -> float:
        return self._fleet.routers[0].metric("splitserve_running_requests")


Disturbance = Callable[[], None]


async def compared(
    bench: Bench, fleet: RouterFleet, num_rounds: int
) -> tuple[Answers, Answers, list[float]]:
    """One router and three in turns. Of the last round both; by how many points the hit rate of
    three was lower, of each round."""
    lost_points = []
    for number in range(num_rounds):
        one = await bench.asked(f"one router, {number}", fleet.routers[:1])
        three = await bench.asked(f"three routers, {number}", fleet.routers)
        lost_points.append(one.hit_rate - three.hit_rate)
    return one, three, lost_points


async def measure(
    bench: Bench, fleet: RouterFleet, num_rounds: int
) -> tuple[list[Row], dict[str, object]]:
    """All runs, one after the other."""
    *two, third = fleet.routers
    await bench.asked("nothing measured", fleet.routers)  # all routers have seen what workers do
    one, three, lost_points = await compared(bench, fleet, num_rounds)
    without = await bench.disturbed("Redis killed", fleet.routers, fleet.redis_process.kill)
    fleet.redis_process.wait()
    fleet.redis_process = fleet.redis.start()
    stop = lambda: third.process.send_signal(signal.SIGSTOP)  # noqa: E731
    frozen = await bench.disturbed("a router stands still", two, stop)
    third.process.send_signal(signal.SIGCONT)
    killed = await bench.disturbed("a router killed", fleet.routers, third.process.kill)
    others = [error for error in killed.errors if third.url not in error]
    rows = [
        median_row("hit rate lost by three routers", lost_points, "points", goal=MOST_POINTS),
        *_rows("three routers", three, three.errors, one),
        *_rows("Redis killed", without, without.errors, one),
        *_rows("a router stands still", frozen, frozen.errors, one),
        *_rows("a router killed, at the others", killed, others, one),
    ]
    runs = {"one": one, "three": three, "without_redis": without, "frozen": frozen}
    runs["killed"] = killed
    details = {
        name: {"hit_rate": round(run.hit_rate, 2), "num_answers": len(run.texts)}
        | {"prompt_tokens": run.prompt_tokens, "errors": run.errors}
        for name, run in runs.items()
    }
    return rows, {"runs": details}


def _rows(name: str, run: Answers, errors: Sequence[str], undisturbed: Answers) -> list[Row]:
    num_wrong = run.num_wrong(undisturbed)
    return [
        Row(f"{name}: wrong of {len(run.texts)}", num_wrong, "answers", goal=0),
        Row(f"{name}: errors", len(errors), "requests", goal=0),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=8)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=NUM_ROUNDS)
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    with router_fleet(NUM_ROUTERS, NUM_PREFILL, NUM_DECODE) as fleet:
        bench = Bench(fleet, options.conversations, options.turns)
        rows, details = asyncio.run(measure(bench, fleet, options.rounds))
    print_table("three routers, two prefill and two decode workers", rows)
    write_json(options.json, "routers", rows, details)
    return exit_code(rows)


if __name__ == "__main__":
    raise SystemExit(main())
