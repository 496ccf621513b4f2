"""Who is next where requests wait: tenants take turns, and nobody is a tenant by his own word."""

import asyncio

from cluster.sampling import SamplingParams
from router.dispatch.stream import RoutedRequest
from router.front.generation_request import GenerationRequest, TokenPrompt, Wishes
from tests.router.dispatch_bench import PROMPT, collect, request, router, time_limits
from tests.router.fake_decode_worker import FakeDecodeWorker, ended_frame, tokens_frame, until
from tests.router.front_fakes import FakeSource, pipeline_over, says


async def routed(request_id: str, cache_salt: str) -> RoutedRequest:
    """As the front makes it."""
    wishes = Wishes(sampling=SamplingParams(max_tokens=1), max_tokens=1, cache_salt=cache_salt)
    asked = GenerationRequest(
        request_id=request_id,
        prompt=TokenPrompt(PROMPT),
        wishes=wishes,
        limits=time_limits(30.0),
    )
    return (await pipeline_over(FakeSource(says("a"))).prepare(asked)).routed


async def test_cache_salts_buy_no_turns_in_the_queue() -> None:
    worker = FakeDecodeWorker()
    asked = [("honest-1", ""), ("honest-2", ""), ("salty-1", "a"), ("salty-2", "b")]
    async with router(worker, max_running_requests=1) as plane:
        tasks = [asyncio.create_task(collect(plane, request("first")))]
        await until(lambda: len(worker.submitted) == 1)
        for num_queued, (request_id, salt) in enumerate(asked, start=1):
            waiting = await routed(request_id, salt)
            tasks.append(asyncio.create_task(collect(plane, waiting)))
            await until(lambda count=num_queued: plane.admission.num_queued == count)
        for number in range(len(tasks)):
            await until(lambda count=number: len(worker.submitted) == count + 1)
            worker.send(tokens_frame(running := worker.submitted[-1].request_id, 5, last=True))
            worker.send(ended_frame(running))
        await asyncio.gather(*tasks)
        order = [submit.request_id for submit in worker.submitted]
        assert order == ["first", *(name for name, _ in asked)]
        roots = {submit.cache_root for submit in worker.submitted}
        assert len(roots) == 3, "salts keep caches apart"
