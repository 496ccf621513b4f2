"""Over TCP only who has the keys of the generation is heard, or told anything."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from cluster.errors import ConfigError
from ranks import channels as module
from ranks.channels import ChannelKeys, Channels, address_of, speak_to

LIMIT_MS = 60_000
SHAKEN = zmq.Event.HANDSHAKE_SUCCEEDED
REFUSED = (
    zmq.Event.HANDSHAKE_FAILED_AUTH
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.DISCONNECTED
)


@pytest.fixture
def channels() -> Iterator[Channels]:
    made = Channels("127.0.0.1")
    yield made
    made.close()


def is_let_in(address: str, keys: ChannelKeys | None, kind: int) -> bool:
    """What becomes of the connection of who speaks with these keys."""
    context: zmq.Context[zmq.Socket[bytes]]
    with zmq.Context() as context, context.socket(zmq.PAIR) as events:
        speaker = context.socket(kind)
        speaker.monitor("inproc://events", SHAKEN | REFUSED)
        events.connect("inproc://events")
        _with_keys(speaker, keys)
        speaker.connect(address)
        assert events.poll(LIMIT_MS)
        found = recv_monitor_message(events)["event"]
        speaker.close(linger=0)
    return bool(found == SHAKEN)


def _with_keys(speaker: zmq.Socket[bytes], keys: ChannelKeys | None) -> None:
    if keys is not None:
        speaker.setsockopt(zmq.CURVE_SERVERKEY, keys.conductor)
        speaker.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
        speaker.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)


@pytest.mark.parametrize(("heard", "kind"), [(zmq.ROUTER, zmq.DEALER), (zmq.PULL, zmq.PUSH)])
def test_strangers_are_not_let_in_and_ranks_are(channels: Channels, heard: int, kind: int) -> None:
    door = channels.listen(heard, "reports", max_message_bytes=100)
    keys, address = channels.keys, address_of(door)
    assert keys is not None
    public, secret = zmq.curve_keypair()
    of_no_rank = msgspec.structs.replace(keys, public=public, secret=secret)
    of_another = msgspec.structs.replace(keys, conductor=public)
    for stranger in (None, of_no_rank, of_another):
        assert not is_let_in(address, stranger, kind)
    assert is_let_in(address, keys, kind)
    door.close()


def test_every_generation_has_keys_of_its_own_which_no_log_shows(channels: Channels) -> None:
    other = Channels("127.0.0.1")
    assert channels.keys is not None and other.keys is not None
    assert channels.keys != other.keys
    assert channels.keys.secret.decode() not in repr(channels.keys)
    other.close()


def test_who_sends_too_much_at_once_is_cut_off(channels: Channels) -> None:
    door = channels.listen(zmq.PULL, "reports", max_message_bytes=100)
    context: zmq.Context[zmq.Socket[bytes]]
    with (
        zmq.Context() as context,
        speak_to(context, zmq.PUSH, address_of(door), channels.keys) as one,
        speak_to(context, zmq.PUSH, address_of(door), channels.keys) as other,
    ):
        one.send(bytes(1 << 20))
        other.send(b"short")
        assert door.poll(LIMIT_MS) and door.recv() == b"short"
        one.send(b"again")
        assert door.poll(LIMIT_MS) and door.recv() == b"again"
    door.close()


def test_a_host_whose_zmq_cannot_tell_ranks_from_strangers_is_refused(
    channels: Channels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.zmq, "has", lambda capability: False)
    with pytest.raises(ConfigError, match="has no CURVE"):
        Channels("127.0.0.1")
    with zmq.Context() as context, pytest.raises(ConfigError, match="has no CURVE"):
        speak_to(context, zmq.PUSH, "tcp://127.0.0.1:9", channels.keys)


def test_a_folder_whose_name_is_too_long_for_sockets_is_told_with_the_remedy(
    tmp_path: Path,
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    channels = Channels(long)
    with pytest.raises(ConfigError, match="set TMPDIR to a folder with a shorter name"):
        channels.listen(zmq.PULL, "reports", max_message_bytes=100)
    channels.close()


def test_a_stranger_that_says_nothing_loses_its_connection(
    channels: Channels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_HANDSHAKE_MS", 100)
    door = channels.listen(zmq.PULL, "reports", max_message_bytes=100)
    port = int(address_of(door).rpartition(":")[2])
    with door, socket.create_connection(("127.0.0.1", port), LIMIT_MS / 1000) as stranger:
        while stranger.recv(1024):
            pass  # what ZMQ begins with


def test_a_conductor_that_others_reach_may_open_as_many_files_as_it_is_allowed() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard - 1), hard))
    try:
        Channels("127.0.0.1").close()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
