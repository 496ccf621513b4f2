"""The loop asks the extension first, never blocks while there is work, and survives bugs."""

from __future__ import annotations

import pytest

from cluster.kv_peer import KvPeer
from engine.contract.commands import Command, Deliver, Disconnect, PrefillMode, Stop, Submit
from engine.contract.expert_numbers import ExpertNumbers
from engine.contract.messages import Beat, Fetched, Frame
from engine.process.channel import MemoryChannel, Received, UnreadableCommand
from engine.process.loop import EngineLoop
from engine.step.engine import Engine
from engine.step.step_health import EngineBroken
from tests.engine.step.engine_scenario import (
    VirtualClock,
    check,
    expected_tokens,
    request,
    small_engine,
    small_replica,
)


class PatientChannel(MemoryChannel):
    """Remembers how long the loop was willing to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.patience_ms: list[float] = []

    def receive(self, timeout_ms: float) -> list[Received]:
        self.patience_ms.append(timeout_ms)
        return super().receive(timeout_ms)


class ScriptedExtension:
    """Takes Disconnect, hands out what it is given."""

    peer: KvPeer | None = None
    transport = "scripted"

    def __init__(self) -> None:
        self.busy = False
        self.seen: list[Command] = []
        self.ready: list[Command] = []

    def has_reads(self, request_id: str) -> bool:
        return False

    def handle(self, command: Command) -> bool:
        self.seen.append(command)
        return isinstance(command, Disconnect)

    def poll(self) -> list[Command]:
        ready, self.ready = self.ready, []
        return ready

    def enrich(self, frame: Frame) -> None:
        if any(isinstance(command, Disconnect) for command in self.seen):
            frame.fetched.append(Fetched("a", "gone", 0, 1, 2, 3.0))
            self.seen.clear()

    def close(self) -> None:
        """Nothing is open."""


def make_loop(engine: Engine) -> tuple[EngineLoop, PatientChannel, ScriptedExtension]:
    channel, extension = PatientChannel(), ScriptedExtension()
    loop = EngineLoop(engine, extension, channel, clock=VirtualClock())
    return loop, channel, extension


def test_it_steps_until_the_work_is_done_and_blocks_only_then() -> None:
    loop, channel, _ = make_loop(small_engine())
    body = request("a", [1, 2, 3])
    channel.commands.append(Submit(body))
    for _ in range(8):
        loop.turn()
    events = [event for frame in channel.frames() for event in frame.tokens]
    assert [event.token.token_id for event in events] == expected_tokens(body)
    assert channel.patience_ms[0] > 0
    assert channel.patience_ms[1:5] == [0, 0, 0, 0]
    assert channel.patience_ms[-1] == channel.patience_ms[0]
    assert sum(len(frame.ended) for frame in channel.frames()) == 1


def test_it_waits_less_while_requests_wait_and_least_while_the_extension_is_busy() -> None:
    loop, channel, extension = make_loop(small_engine())
    loop.turn()
    channel.commands.append(Submit(request("a", [1, 2], mode=PrefillMode.REMOTE)))
    for _ in range(4):
        loop.turn()
    extension.busy = True
    loop.turn()
    idle, receiving, busy = channel.patience_ms[0], channel.patience_ms[-2], channel.patience_ms[-1]
    assert idle > receiving > busy > 0


def test_the_extension_keeps_its_commands_completes_frames_and_feeds_the_engine() -> None:
    engine = small_engine()
    loop, channel, extension = make_loop(engine)
    channel.commands.append(Submit(request("a", [1, 2, 3, 4], mode=PrefillMode.REMOTE)))
    loop.turn()
    channel.commands.append(Disconnect("gone"))
    extension.ready.append(Deliver("a", 0, 2))
    loop.turn()
    check(engine)
    frames = channel.frames()
    assert [fetched.incarnation for frame in frames for fetched in frame.fetched] == ["gone"]
    assert [len(frame.cache.stored) for frame in frames if frame.cache] == [2]


class CountedTurns:
    """A GroupTurn."""

    def __init__(self) -> None:
        self.num_checks = self.num_idle_turns = 0

    def check(self) -> None:
        self.num_checks += 1

    def enrich(self, frame: Frame) -> None:
        frame.experts = ExpertNumbers(num_rebalances=self.num_checks)

    def idle_turn(self) -> None:
        self.num_idle_turns += 1


def test_a_group_is_checked_in_every_turn_and_has_those_to_itself_that_compute_nothing() -> None:
    channel, group = MemoryChannel(), CountedTurns()
    loop = EngineLoop(small_engine(), ScriptedExtension(), channel, group=group)
    loop.turn()
    loop.turn()
    assert group.num_idle_turns == 2
    channel.commands.append(Submit(request("a", [1], max_tokens=4)))
    loop.turn()
    assert (group.num_checks, group.num_idle_turns) == (3, 2)
    said = [frame.experts.num_rebalances for frame in channel.frames() if frame.experts]
    assert said == [1, 2, 3]


def test_stop_ends_the_loop_after_the_current_turn() -> None:
    loop, channel, _ = make_loop(small_engine())
    channel.commands += [Submit(request("a", [1], max_tokens=1)), Stop()]
    loop.run()
    assert [ended.error_code for frame in channel.frames() for ended in frame.ended] == [""]


def test_a_bug_in_a_step_answers_every_request_and_the_loop_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = small_engine()
    loop, channel, _ = make_loop(engine)
    channel.commands.append(Submit(request("a", [1, 2, 3])))

    def broken(request: object, sequence: object) -> bool:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(engine.placement, "admit", broken)
        loop.turn()
    assert [e.error_code for f in channel.frames() for e in f.ended] == ["internal_error"]
    body = request("b", [1, 2, 3])
    channel.commands.append(Submit(body))
    for _ in range(6):
        loop.turn()
    events = [event for frame in channel.frames() for event in frame.tokens]
    assert [event.token.token_id for event in events] == expected_tokens(body)
    check(engine)


def test_a_bug_in_every_step_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = small_engine()
    loop, _, _ = make_loop(engine)

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(engine.table, "sweep", broken)
    with pytest.raises((EngineBroken, RuntimeError), match="a bug"):
        loop.run()


def test_an_extension_that_raises_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, _, extension = make_loop(small_engine())

    def dead() -> list[Command]:
        raise RuntimeError("the intake thread is dead")

    monkeypatch.setattr(extension, "poll", dead)
    with pytest.raises(RuntimeError, match="intake"):
        loop.run()


def test_a_request_whose_command_cannot_be_read_ends_with_a_typed_error_and_is_gone() -> None:
    engine = small_engine()
    loop, channel, extension = make_loop(engine)
    channel.commands.append(Submit(request("a", [1, 2], mode=PrefillMode.REMOTE)))
    loop.turn()
    channel.commands += [UnreadableCommand("a"), UnreadableCommand("unknown")]
    loop.turn()
    check(engine)
    ended = [event for frame in channel.frames() for event in frame.ended]
    first = {event.request_id: event.error_code for event in reversed(ended)}
    assert first == {"a": "internal_error", "unknown": "internal_error"}
    assert [type(command).__name__ for command in extension.seen][-2:] == ["Cancel", "Cancel"]
    assert len(engine.table) == 0


def test_the_loop_beats_while_it_is_idle_and_while_it_is_busy() -> None:
    channel, clock = MemoryChannel(), VirtualClock()
    engine = small_engine(small_replica(64))
    loop = EngineLoop(engine, ScriptedExtension(), channel, clock=clock)
    for turn in range(20):
        if turn == 10:
            channel.commands.append(Submit(request("a", [1, 2], max_tokens=60)))
        clock.now_s += 0.2
        loop.turn()
    beats = [message.num_turns for message in channel.messages if isinstance(message, Beat)]
    assert beats == [3, 6, 9, 12, 15, 18]


def test_an_extension_that_can_do_nothing_any_more_ends_the_loop_without_any_work() -> None:
    """The intake's thread has died: what it holds would be held for good."""
    loop, _, extension = make_loop(small_engine())

    def dead() -> list[Command]:
        raise RuntimeError("the KV intake has failed")

    extension.poll = dead  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="the KV intake has failed"):
        loop.run()
