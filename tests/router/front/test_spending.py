"""What a key is charged for a stream over several connections: every token once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from cluster.beam_search import BeamSearch
from cluster.process.background import cancel
from cluster.sampling import SamplingParams
from router.dispatch.in_flight import TakenRequest
from router.dispatch.journey import Journey
from router.front.generation_request import GenerationRequest, TokenPrompt, Wishes
from router.front.spending import FREE_RESUMES
from router.tenants.account import Account
from router.tenants.limit_store import Charge
from router.tenants.limits import Left, Limit, LimitKind, Rate
from router.tenants.tenant import Tenant
from tests.router.dispatch.test_lost_searches import begun, searched
from tests.router.dispatch_bench import PROMPT, router, time_limits
from tests.router.fake_decode_worker import FakeDecodeWorker, until
from tests.router.front_fakes import pipeline_over
from tests.router.model_worker import Trouble, says_nothing_more
from tests.router.resume_bench import Client, KeepingRouter, has_told
from tests.router.streams_bench import Bench, bench, undisturbed, wishes

LIMITS = [Rate(kind.name, kind, 1e9) for kind in (LimitKind.INPUT, LimitKind.OUTPUT)]


class Ledger:
    """A LimitStore that lets all in and knows what it came to. `asked` has the first words."""

    def __init__(self) -> None:
        self.sums = dict.fromkeys((LimitKind.INPUT, LimitKind.OUTPUT), 0.0)
        self.asked: list[tuple[float, ...]] = []

    async def take(self, charges: Sequence[Charge], spent: Sequence[Charge] = ()) -> None:
        self.asked.append(tuple(float(amount) for _, amount in charges))
        self.settle(charges)

    def settle(self, charges: Sequence[Charge]) -> None:
        for limit, amount in charges:
            self.sums[limit.kind] += amount

    def left(self, limit: Limit) -> Left:
        raise NotImplementedError

    @property
    def prompt_and_answer(self) -> tuple[float, float]:
        return self.sums[LimitKind.INPUT], self.sums[LimitKind.OUTPUT]


async def breaks_after(
    here: Bench, router: KeepingRouter, client: Client, name: str, tenant: Tenant, num_told: int
) -> None:
    """Its connection, the first or the next one, which is told five tokens: so many in all."""
    here.troubles[name] = [Trouble(5, says_nothing_more)]
    part = (
        await router.resume(client.ids[-1], name, tenant)
        if client.ids
        else await router.begin(name, wishes(), tenant)
    )
    reading = asyncio.create_task(client.read(router, part))
    await has_told(router, part, num_told)
    await cancel([reading])


async def test_over_however_many_connections_each_token_is_charged_once() -> None:
    async with bench() as here:
        ledger, router, client = Ledger(), KeepingRouter(here.plane.source), Client()
        tenant = Tenant("acme", account=Account(LIMITS, ledger))
        for number in range(4):
            name = f"r{number}"
            await breaks_after(here, router, client, name, tenant, 5 * (number + 1))
            assert ledger.prompt_and_answer == (len(PROMPT), 5 * (number + 1))
        await client.read(router, await router.resume(client.ids[-1], "last", tenant))
        assert client.answer.usage is not None
        whole = client.answer.usage.completion_tokens
        assert ledger.prompt_and_answer == (len(PROMPT), whole)


async def test_an_answer_that_is_told_again_whole_reserves_and_costs_nothing() -> None:
    async with bench() as here:
        ledger, router, client = Ledger(), KeepingRouter(here.plane.source), Client()
        tenant = Tenant("acme", account=Account(LIMITS, ledger))
        asked, _ = await undisturbed(here, "a stop string")  # it ends before its length
        await client.read(router, await router.begin("r", asked, tenant))
        charged = ledger.prompt_and_answer
        again = Client(ids=[client.ids[0]])
        await again.read(router, await router.resume(client.ids[0], "again", tenant))
        assert again.answer.usage == client.answer.usage
        assert ledger.asked[-1] == (0.0, 0.0)
        assert ledger.prompt_and_answer == charged


async def test_who_goes_on_without_end_is_charged_what_is_computed_anew() -> None:
    async with bench() as here:
        ledger, router, client = Ledger(), KeepingRouter(here.plane.source), Client()
        tenant = Tenant("acme", account=Account(LIMITS, ledger))
        await breaks_after(here, router, client, "r", tenant, 5)
        for number in range(FREE_RESUMES):
            here.troubles[f"again{number}"] = [Trouble(0, says_nothing_more)]
            part = await router.resume(client.ids[-1], f"again{number}", tenant)
            reading = asyncio.create_task(client.read(router, part))
            async with asyncio.timeout(30):
                while not here.given(f"again{number}"):
                    await asyncio.sleep(0)
            await cancel([reading])
        assert ledger.prompt_and_answer == (len(PROMPT), 5)
        await client.read(router, await router.resume(client.ids[-1], "last", tenant))
        assert ledger.sums[LimitKind.INPUT] == len(PROMPT) + len(PROMPT) + 5


async def test_who_leaves_a_search_before_its_end_pays_for_what_all_beams_have_got() -> None:
    worker, ledger = FakeDecodeWorker(), Ledger()
    async with router(worker) as plane:
        pipeline = pipeline_over(plane.source)
        asked = GenerationRequest(
            request_id="r1",
            tenant=Tenant("acme", account=Account(LIMITS, ledger)),
            prompt=TokenPrompt(PROMPT),
            wishes=Wishes(
                sampling=SamplingParams(max_tokens=3, n=2, beams=BeamSearch(width=3)),
                max_tokens=3,
                seed=7,
            ),
            limits=time_limits(60.0),
        )
        reading = asyncio.create_task(anext(pipeline.stream(await pipeline.prepare(asked))))
        await until(lambda: bool(worker.submitted))
        assert ledger.prompt_and_answer == (len(PROMPT), 9)  # as it was reserved
        worker.send(begun())
        worker.send(searched(6))
        [taken] = plane.source.in_flight.in_order(newest_first=True)
        await until(lambda: num_searched(taken) == 6)
        await cancel([reading])
        assert ledger.prompt_and_answer == (len(PROMPT), 6)


def num_searched(taken: TakenRequest) -> int:
    assert isinstance(taken.under_way, Journey)
    return taken.under_way.choices._counts[0].num_searched_tokens
