"""How far a reader has to go to follow one decode step: which files hand it on to others."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from cluster.engine_options import EngineOptions
from engine.contract.commands import Submit
from engine.contract.messages import Stepped
from engine.process.channel import MemoryChannel
from engine.process.extension import NoExtension
from engine.process.fake_runner import fake_replica
from engine.process.loop import EngineLoop
from engine.step.engine import Engine
from tests.engine.step.engine_scenario import VirtualClock, request

ROOT = Path(__file__).parents[2]
PACKAGES = ("engine", "kernels", "cluster", "worker")
"""Ours that an engine process runs; an environment may lie beside them."""
COMPUTING = {"engine/process/fake_runner.py", "kernels/dispatch/likeliest.py"}
"""Stand for the model and the device: not counted."""
CROSSED = {
    "engine/process/loop.py",
    "engine/step/engine.py",
    "engine/step/step_planner.py",
    "engine/step/placement.py",
    "engine/memory/lease.py",
    "engine/memory/block_pool.py",
    "engine/step/computation.py",
    "engine/step/batch/builder.py",
    "engine/sampling/sampler.py",
    "engine/step/token_choice.py",
}
"""As docs/architecture.md lists them."""
MOST_TOUCHED = 28
"""Files of engine/ in which anything is called: records and resources, which are asked, too."""


def decoding_loop() -> tuple[EngineLoop, MemoryChannel]:
    """Three greedy sequences in the middle of a block, none about to end."""
    engine = Engine(fake_replica(), EngineOptions(), clock=VirtualClock())
    channel = MemoryChannel()
    loop = EngineLoop(engine, NoExtension(), channel, clock=VirtualClock())
    for name in "abc":
        body = request(name, list(range(40)), max_tokens=50, temperature=0.0)
        channel.commands.append(Submit(body))
    for _ in range(4):
        loop.turn()
    channel.messages.clear()
    return loop, channel


def traced(work: Callable[[], None]) -> dict[str, set[str]]:
    """Every file of ours in which something is called -> other files of ours that it calls."""
    calls: defaultdict[str, set[str]] = defaultdict(set)

    def note(frame: FrameType, event: str, _argument: object) -> None:
        callee = file_of(frame)
        if event != "call" or callee is None:
            return
        calls.setdefault(callee, set())
        caller = caller_of(frame)
        if caller is not None and caller != callee:
            calls[caller].add(callee)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def file_of(frame: FrameType) -> str | None:
    path = Path(frame.f_code.co_filename)
    if not path.is_relative_to(ROOT):
        return None
    inside = path.relative_to(ROOT)
    return str(inside) if inside.parts[0] in PACKAGES else None


def caller_of(frame: FrameType) -> str | None:
    """The nearest file of ours below: what a library calls for us, we have called."""
    below = frame.f_back
    while below is not None and (found := file_of(below)) is None:
        below = below.f_back
    return None if below is None else found


def test_a_decode_step_is_handed_on_by_ten_files_from_the_loop_to_the_frame() -> None:
    loop, channel = decoding_loop()
    calls = traced(loop.turn)
    assert [len(m.frame.tokens) for m in channel.messages if isinstance(m, Stepped)] == [3]
    assert {path for path, others in calls.items() if others} - COMPUTING == CROSSED
    assert len(CROSSED) <= 10
    assert len([path for path in calls if path.startswith("engine/")]) <= MOST_TOUCHED


def test_the_list_in_the_architecture_is_the_one_that_is_counted() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    part = text.partition("## One decode step")[2].partition("\n## ")[0]
    assert all(path.removeprefix("engine/") in part for path in CROSSED)


def test_a_call_from_one_file_to_another_is_seen() -> None:
    loop, _ = decoding_loop()
    calls = traced(loop.turn)
    assert "engine/step/engine.py" in calls["engine/process/loop.py"]
    assert not calls["engine/step/planning/scheduler.py"]
