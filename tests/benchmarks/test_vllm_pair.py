"""What counts wrong answers of a vLLM pair: its late door, and its figures."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from benchmarks.vllm_pair.comparison import figures_of
from benchmarks.vllm_pair.counters import PromptTokens
from benchmarks.vllm_pair.late_door import LateDoor
from benchmarks.vllm_pair.late_reads import Answer
from benchmarks.vllm_pair.prompts import facts, people_and_towns, question, shared_prefixes
from benchmarks.vllm_pair.verdicts import Verdict

WITH_BLOCKS = {
    "prompt": [1, 2],
    "kv_transfer_params": {"remote_engine_id": "a", "remote_block_ids": [[1]]},
}


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
        while not door.held:
            await asyncio.sleep(0)
        assert not late.done()
        late.cancel()
        door.hold_s = 0.0
        reply = await http.post(f"{door.url}/v1/completions", json=WITH_BLOCKS)
        assert (reply.text, door.held) == ("ok", [[1, 2]])


async def test_every_third_with_blocks_goes_through_at_once() -> None:
    async with echoing() as url, LateDoor(url).open() as door, httpx.AsyncClient() as http:
        door.hold_s = 0.001
        for _ in range(6):
            await http.post(f"{door.url}/v1/completions", json=WITH_BLOCKS)
        assert len(door.held) == 4


def test_what_failed_and_what_has_no_text_of_its_own_is_not_scored() -> None:
    answered = Verdict(Answer(0, facts("a"), "right", "a-0", is_late=True), "right")
    differs = Verdict(Answer(1, facts("b"), "wrong", "a-1", is_late=True), "right")
    failed = Verdict(Answer(2, facts("c"), "error: lost", "a-2"), "right")
    torn = Verdict(Answer(3, facts("d"), "left", "a-3"), None)
    figures = figures_of([answered, differs, failed, torn])
    assert (figures["num_answers"], figures["num_scored"], figures["num_late"]) == (4, 2, 2)
    assert (figures["num_wrong"], figures["num_errors"], figures["num_others_facts"]) == (1, 1, 0)


def test_an_answer_with_another_prompts_people_is_found_even_where_it_is_not_scored() -> None:
    own, others = facts("a", 1), facts("b", 1)
    assert len(people_and_towns(own)) == 2 and not people_and_towns(own) & people_and_towns(others)
    assert Verdict(Answer(0, own, others, "a-0"), None).has_others_facts
    assert not Verdict(Answer(0, own, own, "a-0"), None).has_others_facts


def test_what_is_told_of_an_answer_has_the_routers_lines_on_it(tmp_path: Path) -> None:
    log = tmp_path / "router.log"
    lines = ['{"request_id":"a-1-5c","event":"x"}', '{"request_id":"a-10-5c"}', "no JSON: a-1-5c"]
    log.write_text("\n".join(lines))
    told = Verdict(Answer(1, "secret", "text", "a-1"), "text").told(log)
    assert told["router"] == [{"request_id": "a-1-5c", "event": "x"}]
    assert (told["number"], told["text"], told["expected"]) == (1, "text", "text")


def test_a_prompt_that_two_servers_compute_counts_twice() -> None:
    before, after = PromptTokens(100, 100), PromptTokens(500, 300)
    assert after.hit_rate_since(before) == 50.0


def test_prompts_of_a_group_begin_alike_and_those_of_others_do_not() -> None:
    prompts = shared_prefixes("a", num_groups=3, num_each=4)
    beginnings = [prompt[:400] for prompt in prompts]
    assert len(set(prompts)) == 12 and len(set(beginnings)) == 3
    assert all(beginnings.count(each) == 4 for each in beginnings)
    assert question("a") != question("b") and question("a") == question("a")
