"""A fake decode worker in a process of its own, to be killed: prints its port, then serves."""

import asyncio

from tests.router.fake_decode_worker import FakeDecodeWorker, tokens_frame, until


async def serve() -> None:
    worker = await FakeDecodeWorker().start()
    print(worker.port, flush=True)
    await until(lambda: bool(worker.submitted), timeout_s=60.0)
    worker.send(tokens_frame(worker.submitted[0].request_id, 5))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve())
