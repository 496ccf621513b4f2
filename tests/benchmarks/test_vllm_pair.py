"""What counts wrong answers of a vLLM pair: its late door, and its figures."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from benchmarks.vllm_pair.counters import PromptTokens
from benchmarks.vllm_pair.late_door import LateDoor
from benchmarks.vllm_pair.late_reads import LateAnswers
from benchmarks.vllm_pair.prompts import question, shared_prefixes

WITH_BLOCKS = {"kv_transfer_params": {"remote_engine_id": "a", "remote_block_ids": [[1]]}}


@asynccontextmanager
async def echoing() -> AsyncIterator[str]:
    """A server that says nothing but that it is there."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            if b"content-length: " in head:
                await reader.readexactly(int(head.split(b"content-length: ")[1].split()[0]))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_only_requests_with_blocks_stand_in_line() -> None:
    async with echoing() as url, LateDoor(url).open() as door, httpx.AsyncClient() as http:
        door.hold_s = 3600.0
        late = asyncio.create_task(http.post(f"{door.url}/v1/completions", json=WITH_BLOCKS))
        assert (await http.post(f"{door.url}/v1/completions", json={})).text == "ok"
        assert (await http.get(f"{door.url}/health")).text == "ok"
        while not door.num_held:
            await asyncio.sleep(0)
        assert not late.done()
        late.cancel()
        door.hold_s = 0.0
        reply = await http.post(f"{door.url}/v1/completions", json=WITH_BLOCKS)
        assert (reply.text, door.num_held) == ("ok", 1)


def test_a_request_that_failed_is_no_wrong_answer() -> None:
    answers = LateAnswers(["a", "b", "c"], ["right", "wrong", "error: lost"], 3)
    assert answers.wrong(["right"] * 3) == [("wrong", "right")] and answers.num_errors == 1


def test_a_prompt_that_two_servers_compute_counts_twice() -> None:
    before, after = PromptTokens(100, 100), PromptTokens(500, 300)
    assert after.hit_rate_since(before) == 50.0


def test_prompts_of_a_group_begin_alike_and_those_of_others_do_not() -> None:
    prompts = shared_prefixes("a", num_groups=3, num_each=4)
    beginnings = [prompt[:400] for prompt in prompts]
    assert len(set(prompts)) == 12 and len(set(beginnings)) == 3
    assert all(beginnings.count(each) == 4 for each in beginnings)
    assert question("a") != question("b") and question("a") == question("a")
