"""A real engine process with the model-free replica: its start, its work, and its ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster.engine_options import EngineOptions
from cluster.errors import ConfigError, InternalError, WorkerLost
from cluster.identity import Role
from cluster.models.card import CheckpointFormat, DecoderConfig, ModelCard
from engine.contract.commands import Submit
from engine.contract.messages import Frame, LoadProgress
from engine.contract.spec import EngineLaunch, EngineSpec, resolve_dtype
from engine.contract.weight_format import WeightFormat
from engine.offline.queue import Completion, collect
from tests.engine.step.engine_scenario import request
from worker.engine.client import EngineClient

CARD = ModelCard(
    name="fake",
    source="fake",
    format=CheckpointFormat.GGUF,
    weight_files=(Path("/weights"),),
    metadata_path=Path("/weights"),
    architecture="llama",
    config=DecoderConfig(
        vocab_size=7,
        hidden_size=4,
        intermediate_size=4,
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=2,
        rms_norm_eps=1e-5,
        rope_theta=1e4,
        rope_scaling=None,
        max_context_tokens=64,
        tie_word_embeddings=True,
    ),
    checkpoint_dtype="Q4_1",
    weights_digest="w",
    tokenizer_digest="t",
    eos_token_ids=(),
    bos_token_id=None,
    weight_bytes=1,
)

DEADLINE_S = 60.0


def make_spec(**options: Any) -> EngineSpec:
    return EngineSpec(
        card=CARD,
        dtype="float32",
        role=Role.DECODE,
        worker_id="tested",
        incarnation="only",
        options=EngineOptions(**({"num_threads": 1, "block_size_tokens": 2} | options)),
    )


@contextlib.asynccontextmanager
async def running(spec: EngineSpec | None = None) -> AsyncIterator[EngineClient]:
    client = EngineClient(entry_module="engine.process.fake_process", spec=spec or make_spec())
    try:
        yield client
    finally:
        await client.stop()


async def frames_until_ended(client: EngineClient, completions: dict[str, Completion]) -> None:
    async for frame in client.frames():
        collect(frame, completions)
        if all(completion.ended for completion in completions.values()):
            return


def test_a_launch_survives_its_trip_over_standard_input() -> None:
    launch = EngineLaunch(spec=make_spec(), commands_address="ipc:///a", frames_address="ipc:///b")
    assert EngineLaunch.unpack(launch.pack()) == launch


def test_auto_dtype_is_the_checkpoints_own_and_bfloat16_for_quantized_ones() -> None:
    assert resolve_dtype(CARD, "auto") == "bfloat16"
    assert resolve_dtype(replace(CARD, checkpoint_dtype="float32"), "auto") == "float32"
    assert resolve_dtype(CARD, "float32") == "float32"
    with pytest.raises(ConfigError, match="float16"):
        resolve_dtype(CARD, "float16")


async def test_a_process_loads_serves_and_stops_without_a_trace() -> None:
    phases: list[LoadProgress] = []
    async with running() as client:
        ready = await client.start(phases.append)
        assert (ready.total_blocks, ready.peer) == (256, None)
        assert ready.loaded.weights is WeightFormat.FULL
        assert ready.pid == client.pid
        assert phases[-1].fraction == 1.0
        completions = {str(i): Completion() for i in range(3)}
        for request_id in completions:
            await client.send(Submit(request(request_id, [1, 2, 3], seed=2**64 - 1)))
        async with asyncio.timeout(DEADLINE_S):
            await frames_until_ended(client, completions)
        assert len({tuple(completion.token_ids()) for completion in completions.values()}) == 1
    assert not psutil.pid_exists(ready.pid)
    assert not client.died.done()
    await client.stop()
    with pytest.raises(WorkerLost):
        await client.send(Submit(request("late", [1])))


async def test_a_process_that_is_killed_says_so_and_ends_the_frames() -> None:
    async with running() as client:
        ready = await client.start()
        os.kill(ready.pid, signal.SIGKILL)
        async with asyncio.timeout(DEADLINE_S):
            assert "SIGKILL" in await client.died
        assert [frame async for frame in client.frames()] == []


async def test_an_engine_that_cannot_start_raises_its_own_error() -> None:
    async with running(make_spec(kv_memory_bytes=1)) as client:
        with pytest.raises(ConfigError, match="kv_memory_bytes must be at least 32"):
            await client.start()


async def test_an_entry_module_that_does_not_exist_is_named_in_the_error() -> None:
    client = EngineClient(entry_module="engine.no_such_process", spec=make_spec())
    with pytest.raises(InternalError, match="no_such_process"):
        await client.start()
    await client.stop()


async def test_an_interrupt_from_the_terminal_is_left_to_the_server() -> None:
    async with running() as client:
        ready = await client.start()
        os.kill(ready.pid, signal.SIGINT)
        body = request("refused", [1, 2, 3], max_tokens=2**20)
        await client.send(Submit(body))
        completions = {"refused": Completion()}
        async with asyncio.timeout(DEADLINE_S):
            await frames_until_ended(client, completions)
        ended = completions["refused"].ended
        assert ended is not None
        assert ended.error_code in ("out_of_blocks", "context_length_exceeded")


PARENT = """
import asyncio, sys
from worker.engine.client import EngineClient
from engine.contract.spec import EngineLaunch
assert "torch" not in sys.modules, "the server side must not load torch"

async def main():
    spec = EngineLaunch.unpack(bytes.fromhex(sys.argv[1])).spec
    client = EngineClient(entry_module="engine.process.fake_process", spec=spec)
    print((await client.start()).pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_an_engine_dies_with_its_server() -> None:
    launch = EngineLaunch(spec=make_spec(), commands_address="", frames_address="")
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, launch.pack().hex()], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent.stdout:
        engine = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    deadline_s = time.monotonic() + 20
    while engine.is_running() and engine.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline_s, "the engine outlived its server"
        os.sched_yield()


def test_an_empty_frame_is_not_worth_sending() -> None:
    assert Frame().is_empty
