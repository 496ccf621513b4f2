"""Commands and messages over real sockets, whole and in order."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from cluster.block_span import BlockRun, BlockSpan
from cluster.generation import FinishReason, GeneratedToken
from cluster.kv_peer import KvPeer, KvRank
from engine.contract.commands import (
    Cancel,
    ChoiceToken,
    Command,
    Connect,
    Deliver,
    Disconnect,
    Fetch,
    Inspect,
    PrefillLocally,
    ReleaseExport,
    Seed,
    Stop,
    Submit,
)
from engine.contract.messages import EngineMessage, Frame, Stepped, TokenEvent
from engine.process.channel import Received, UnreadableCommand, ZmqChannel
from tests.engine.step.engine_scenario import request

PEER = KvPeer(
    transport="loopback",
    shares_blocks=False,
    blocks_each=2,
    block_size_tokens=4,
    generations_address=1,
    host="h",
    ranks=(
        KvRank(
            rank=0,
            first_head=0,
            num_heads=2,
            agent_name="a",
            agent_metadata=b"\x00\xff",
            pool_address=2**63,
            block_bytes=64,
            memory="DRAM",
            device_id=0,
        ),
    ),
)
COMMANDS: list[Command] = [
    Submit(request("a", [1, 2], logit_bias={3: -1.5}, stop_token_ids=(4,), seed=2**64 - 1)),
    Cancel("a"),
    Deliver("a", 1, 2),
    Seed("a", [ChoiceToken(0, GeneratedToken(3, -0.5, ((3, -0.5),)))]),
    PrefillLocally("a"),
    ReleaseExport("a"),
    Inspect(7, check_invariants=True),
    Connect("i", PEER),
    Disconnect("i"),
    Fetch("a", "i", BlockSpan(0, [1], [2**40], b"\x01" * 8)),
    Fetch("a", "i", BlockSpan(0, [1], [2**40], b"\x01" * 8), BlockRun(0, 4)),
    Stop(),
]


class Server:
    """The other end, with plain sockets."""

    def __init__(self, folder: Path) -> None:
        self._context = zmq.Context()
        self.commands = self._context.socket(zmq.PUSH)
        self.frames = self._context.socket(zmq.PULL)
        self.commands.bind(f"ipc://{folder}/c")
        self.frames.bind(f"ipc://{folder}/f")

    def close(self) -> None:
        self.commands.close(linger=0)
        self.frames.close(linger=0)
        self._context.term()


@pytest.fixture
def line() -> Iterator[tuple[Server, ZmqChannel]]:
    folder = Path(tempfile.mkdtemp(prefix="line-"))
    server = Server(folder)
    channel = ZmqChannel(commands_address=f"ipc://{folder}/c", frames_address=f"ipc://{folder}/f")
    yield server, channel
    channel.close()
    server.close()
    shutil.rmtree(folder)


def receive_all(channel: ZmqChannel, num_commands: int) -> list[Received]:
    commands: list[Received] = []
    while len(commands) < num_commands:
        fresh = channel.receive(5000)
        assert fresh, "nothing came for five seconds"
        commands += fresh
    return commands


def test_every_command_arrives_as_it_was_sent_and_in_order(
    line: tuple[Server, ZmqChannel],
) -> None:
    server, channel = line
    for command in COMMANDS:
        server.commands.send(msgspec.msgpack.encode(command))
    assert receive_all(channel, len(COMMANDS)) == COMMANDS
    assert channel.receive(0) == []


@pytest.mark.parametrize(
    "packed",
    [
        {"type": "Submit", "request": {"request_id": "a", "token_ids": "none"}},
        {"type": "Seed", "request_id": "a", "tokens": 7},
        {"type": "Nonsense", "request_id": "a"},
    ],
)
def test_a_command_that_cannot_be_read_still_says_whose_it_was(
    line: tuple[Server, ZmqChannel], packed: dict[str, object]
) -> None:
    server, channel = line
    server.commands.send(msgspec.msgpack.encode(packed))
    server.commands.send(msgspec.msgpack.encode(Cancel("b")))
    assert receive_all(channel, 2) == [UnreadableCommand("a"), Cancel("b")]


@pytest.mark.parametrize("packed", [b"\xc1", msgspec.msgpack.encode({"type": "Nonsense"}), b""])
def test_what_names_no_request_ends_the_engine(
    line: tuple[Server, ZmqChannel], packed: bytes
) -> None:
    server, channel = line
    server.commands.send(packed)
    with pytest.raises(msgspec.MsgspecError):
        channel.receive(5000)


def test_sending_never_waits_for_a_reader(line: tuple[Server, ZmqChannel]) -> None:
    server, channel = line
    event = TokenEvent("a", 0, GeneratedToken(3), FinishReason.STOP)
    for _ in range(5000):
        channel.send(Stepped(Frame(tokens=[event])))
    decoder: msgspec.msgpack.Decoder[EngineMessage] = msgspec.msgpack.Decoder(EngineMessage)
    for _ in range(5000):
        assert server.frames.poll(5000)
        message = decoder.decode(server.frames.recv())
        assert isinstance(message, Stepped)
        assert message.frame.tokens == [event]
