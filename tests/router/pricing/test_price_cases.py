"""Prices elsewhere: situations of other machines, each with the choice that is right there.

Beside the choice, the price of the chosen candidate is held against what the request would really
take, by a formula that knows the truth: nothing is taken from the policy.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from cluster.identity import WorkerKey
from router.pricing.policy import choose_route
from router.pricing.route import PrefillSpeed, RoutingView, WorkerView


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What is true of a worker."""

    name: str
    token_ms: float
    pair_ms: float = 0.0
    base_step_ms: float = 4.0
    row_ms: float = 0.25
    num_running: int = 0
    cached: int = 0
    queue: tuple[int, ...] = ()
    """Prompts that wait there, in tokens."""
    free_tokens: int = 1_000_000

    def view(self) -> WorkerView:
        """As the router sees it once everything was measured."""
        return WorkerView(
            key=WorkerKey(self.name, "i"),
            pairing_key="pair",
            speed=PrefillSpeed(0.0, self.token_ms, self.pair_ms),
            matched_tokens=self.cached,
            waiting_tokens=sum(self.queue),
            waiting_prompts=len(self.queue),
            num_running=self.num_running,
            decode_step_ms=self.base_step_ms + self.num_running * self.row_ms,
            decode_row_ms=self.row_ms,
            free_tokens=self.free_tokens,
            kv_bytes_per_token=131_072,
            kv_bytes_per_s=20e9,
        )

    def prefill_ms(self, prompt: int) -> float:
        """The prompt's tokens one after the other."""
        return sum(
            self.token_ms + self.pair_ms * context / 1024 for context in range(self.cached, prompt)
        )

    def queue_ms(self, prompt: int) -> float:
        """Prompts that are due before ours: those that are not longer; half a chunk of others."""
        short = [tokens for tokens in self.queue if tokens <= prompt - self.cached]
        under_way = min(256, sum(self.queue) - sum(short))
        return (sum(short) + under_way) * self.token_ms

    def slower_ms(self, num_tokens: int) -> float:
        """What the batch adds to our first tokens."""
        return min(32, num_tokens) * self.num_running * self.row_ms


@dataclass(frozen=True, kw_only=True)
class Case:
    """A fleet, a request, and who should do it."""

    decode: tuple[Machine, ...]
    prefill: tuple[Machine, ...] = ()
    prompt: int = 1000
    max_tokens: int = 256
    expected_tokens: float = 200.0
    num_choices: int = 1
    chosen: str
    """The decode worker, or "prefill>decode"."""

    def view(self) -> RoutingView:
        return RoutingView(
            prompt_tokens=self.prompt,
            max_tokens=self.max_tokens,
            expected_tokens=self.expected_tokens,
            num_choices=self.num_choices,
            block_size_tokens=16,
            decode=tuple(machine.view() for machine in self.decode),
            prefill=tuple(machine.view() for machine in self.prefill),
            handoff_ms=3.0,
        )

    def true_ms(self, prefill: Machine | None, decode: Machine) -> float:
        """From the router to the first tokens, and what it takes from those that run."""
        computes = prefill or decode
        own_ms = computes.prefill_ms(self.prompt)
        spent_ms = computes.queue_ms(self.prompt) + own_ms + decode.slower_ms(self.max_tokens)
        if prefill is None:
            return spent_ms + own_ms * min(8, max(1, decode.num_running))
        transfer_ms = (self.prompt - decode.cached) * 131_072 / 20e9 * 1000
        chunks = max(1, (self.prompt - prefill.cached) // 512)
        visible_ms = max(transfer_ms / chunks, transfer_ms - own_ms * (1 - 1 / chunks))
        return spent_ms + 3.0 + visible_ms


def h100(name: str, num_running: int, **changes: object) -> Machine:
    """Steps of 12 to 14 ms, 40,000 tokens a second."""
    values = {"token_ms": 0.025, "base_step_ms": 12.0, "row_ms": 0.0167}
    return Machine(name=name, num_running=num_running, **(values | changes))  # type: ignore[arg-type]


def cpu(name: str, num_running: int = 0, **changes: object) -> Machine:
    """135M parameters on two cores."""
    values = {"token_ms": 0.25, "pair_ms": 0.1, "base_step_ms": 5.0, "row_ms": 0.5}
    return Machine(name=name, num_running=num_running, **(values | changes))  # type: ignore[arg-type]


CASES = {
    "16k cached beside 120 running beat a cold worker": Case(
        decode=(h100("cached", 120, cached=15_984), h100("cold", 60)),
        prefill=(h100("p", 0),),
        prompt=16_000,
        chosen="cached",
    ),
    "the same with 200 running": Case(
        decode=(h100("cached", 200, cached=15_984), h100("cold", 1)),
        prefill=(h100("p", 0),),
        prompt=16_000,
        chosen="cached",
    ),
    "a prefix of 512 does not outweigh 200 running": Case(
        decode=(h100("cached", 200, cached=512), h100("empty", 1)),
        prefill=(h100("p", 0),),
        prompt=4000,
        chosen="p>empty",
    ),
    "1 running against 30 on a CPU": Case(
        decode=(cpu("crowded", 30), cpu("quiet", 1)), prefill=(cpu("p"),), chosen="p>quiet"
    ),
    "a prefill worker four times as fast": Case(
        decode=(h100("d", 20),),
        prefill=(h100("slow", 0, token_ms=0.1), h100("fast", 0)),
        prompt=4000,
        chosen="fast>d",
    ),
    "the slow one when the fast one has a queue of as long prompts": Case(
        decode=(h100("d", 20),),
        prefill=(h100("slow", 0, token_ms=0.1), h100("fast", 0, queue=(4000,) * 5)),
        prompt=4000,
        chosen="slow>d",
    ),
    "a short prompt does not mind a queue of long ones": Case(
        decode=(cpu("d", 4),),
        prefill=(cpu("queue", queue=(8000, 8000)),),
        prompt=300,
        chosen="queue>d",
    ),
    "a short prompt minds a queue of shorter ones": Case(
        decode=(cpu("d", 1),),
        prefill=(cpu("queue", queue=(100,) * 40),),
        prompt=300,
        chosen="d",
    ),
    "a cached prefill worker beats an empty one": Case(
        decode=(h100("d", 20),),
        prefill=(h100("cached", 0, cached=12_000), h100("empty", 0)),
        prompt=16_000,
        chosen="cached>d",
    ),
    "attention makes a long prompt dear": Case(
        decode=(cpu("d", 2),),
        prefill=(cpu("quadratic", pair_ms=0.4), cpu("linear", token_ms=0.4, pair_ms=0.0)),
        prompt=8000,
        chosen="linear>d",
    ),
    "an answer that could fill the context does not need it": Case(
        decode=(h100("cached", 20, cached=15_984, free_tokens=110_000), h100("cold", 20)),
        prefill=(h100("p", 0),),
        prompt=16_000,
        max_tokens=115_000,
        chosen="cached",
    ),
    "sixteen choices need sixteen times the room": Case(
        decode=(cpu("cached", 2, cached=990, free_tokens=1500), cpu("cold", 2)),
        prefill=(cpu("p"),),
        num_choices=16,
        chosen="p>cold",
    ),
    "a prefill worker without room for the prompt": Case(
        decode=(cpu("d", 2),),
        prefill=(cpu("full", free_tokens=0), cpu("busy", queue=(500,))),
        prompt=1000,
        chosen="busy>d",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_right_workers_are_chosen_elsewhere_too(name: str) -> None:
    case = CASES[name]
    chosen = choose_route(case.view()).chosen
    prefill = f"{chosen.prefill.worker_id}>" if chosen.prefill else ""
    assert prefill + chosen.decode.worker_id == case.chosen


@pytest.mark.parametrize("name", CASES)
def test_the_price_of_what_is_chosen_is_near_the_truth(name: str) -> None:
    case = CASES[name]
    chosen = choose_route(case.view()).chosen
    machines = {machine.name: machine for machine in (*case.decode, *case.prefill)}
    prefill = machines[chosen.prefill.worker_id] if chosen.prefill else None
    true_ms = case.true_ms(prefill, machines[chosen.decode.worker_id])
    assert true_ms / 1.5 <= chosen.cost.total_ms <= true_ms * 1.5


@pytest.mark.parametrize("num_running", [1, 4, 16, 64, 120, 200])
def test_one_more_sequence_is_priced_as_measured_at_every_load(num_running: int) -> None:
    case = Case(decode=(h100("d", num_running),), chosen="d")
    cost = choose_route(case.view()).chosen.cost
    assert cost.decode_ms == pytest.approx(h100("d", num_running).slower_ms(256))


def test_a_worker_that_has_not_measured_it_is_not_priced_by_its_loaded_step() -> None:
    """120 running in steps of 14 ms: at most what makes up the whole step, for 32 tokens."""
    unmeasured = WorkerView(
        key=WorkerKey("d", "i"),
        pairing_key="pair",
        speed=PrefillSpeed(0.0, 0.025),
        num_running=120,
        decode_step_ms=14.0,
    )
    view = Case(decode=(h100("d", 120),), chosen="d").view()
    view = RoutingView(**{**_fields(view), "decode": (unmeasured,)})
    assert choose_route(view).chosen.cost.decode_ms < 14.0 * 32


def _fields(view: RoutingView) -> dict[str, object]:
    return {name: getattr(view, name) for name in RoutingView.__struct_fields__}
