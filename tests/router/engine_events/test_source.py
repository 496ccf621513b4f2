"""Where an engine says that its events are, and how they are reached from here."""

import msgspec
import pytest

from router.engine_events.source import EngineEventSource

TOLD = {
    "enable_kv_cache_events": True,
    "publisher": "zmq",
    "endpoint": "tcp://*:5557",
    "replay_endpoint": None,
    "buffer_steps": 10_000,
    "topic": "",
}
"""As vLLM 0.32 answers, for each rank."""


def told(*ranks: object, host: str = "10.0.0.7") -> EngineEventSource | None:
    body = msgspec.json.encode({str(rank): said for rank, said in enumerate(ranks)})
    return EngineEventSource.told(body, host, block_size_tokens=128)


def test_addresses_that_were_bound_are_reached_at_the_host_that_was_asked() -> None:
    more = {"replay_endpoint": "tcp://0.0.0.0:5600", "topic": "kv@smollm2"}
    assert told({**TOLD, **more}) == EngineEventSource(
        pub="tcp://10.0.0.7:5557",
        replay="tcp://10.0.0.7:5600",
        topic="kv@smollm2",
        block_size_tokens=128,
    )


@pytest.mark.parametrize(
    "endpoint, host, pub",
    [
        ("tcp://10.1.2.3:41234", "vllm.svc", "tcp://10.1.2.3:41234"),
        ("tcp://[::]:5557", "fd00::7", "tcp://[fd00::7]:5557"),
        ("tcp://[fd00::9]:5557", "fd00::7", "tcp://[fd00::9]:5557"),
    ],
)
def test_an_address_of_one_interface_is_taken_as_it_is(endpoint: str, host: str, pub: str) -> None:
    source = told({**TOLD, "endpoint": endpoint}, host=host)
    assert source is not None and (source.pub, source.replay) == (pub, "")


@pytest.mark.parametrize(
    "said",
    [
        {**TOLD, "enable_kv_cache_events": False},
        {**TOLD, "publisher": "null"},
        {**TOLD, "publisher": None, "endpoint": None},
        {**TOLD, "endpoint": "ipc:///tmp/kv"},
        {**TOLD, "endpoint": "inproc://kv"},
        {**TOLD, "endpoint": "tcp://*:0"},
        {**TOLD, "endpoint": "tcp://*:many"},
        {**TOLD, "topic": "t" * 300},
    ],
)
def test_an_engine_whose_events_cannot_be_reached_has_none(said: object) -> None:
    assert told(said) is None


def test_an_engine_without_events_or_with_several_caches_has_none() -> None:
    assert told() is None
    assert told(TOLD, {**TOLD, "endpoint": "tcp://*:5558"}) is None


@pytest.mark.parametrize("body", [b"", b"[]", b'{"0": 7}', b'{"detail": "Not Found"}'])
def test_an_answer_that_is_none_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError):
        EngineEventSource.told(body, "h", block_size_tokens=16)


def test_a_server_that_nobody_named_names_no_other_host() -> None:
    said = {"endpoint": "tcp://169.254.169.254:80", "replay_endpoint": "tcp://10.0.0.5:6379"}
    body = msgspec.json.encode({"0": {**TOLD, **said}})
    source = EngineEventSource.told(body, "d", block_size_tokens=128, only_there=True)
    assert source is not None and (source.pub, source.replay) == ("tcp://d:80", "tcp://d:6379")
