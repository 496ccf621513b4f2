"""A link to a fake vLLM server, with or without one that computes prompts, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cluster.block_hash import cache_root
from cluster.generation import GeneratedToken
from cluster.identity import Role, WorkerKey
from cluster.world import World
from protos import generation_pb2, handoff_pb2, worker_pb2
from router.fleet.request_stream import Ended, RequestStream
from router.fleet.unread import ChoiceTokens, UnreadBytes
from router.fleet.worker_link import LinkEvents
from router.vllm.link import VllmLink
from router.vllm.server import VllmServer
from router.vllm.server_address import VllmAddress, VllmRole
from router.vllm.server_numbers import ServerNumbers
from router.vllm.servers import VllmServers
from tests.router.planes import PAIRING, member_of
from tests.router.vllm.fake_vllm import FakeVllm

PROMPT = [504, 3575, 282, 4649, 314]


@dataclass
class Heard:
    """What came of a request."""

    tokens: dict[int, list[GeneratedToken]] = field(default_factory=dict)
    ended: Ended | None = None

    def ids(self, choice: int = 0) -> list[int]:
        return [token.token_id for token in self.tokens.get(choice, [])]


class Pair:
    """`prefill` computes prompts that `decode` reads, each told a lease of `lease_s`."""

    def __init__(self, lease_s: float = 30.0) -> None:
        clock = asyncio.get_running_loop().time
        self.prefill = FakeVllm(clock, "p")
        self.decode = FakeVllm(clock, "d", peers={"p": self.prefill})
        self.handoffs: list[tuple[str, bool]] = []
        self.num_doubts = 0
        self._servers = VllmServers()
        self.prefill_server = self._add(self.prefill, VllmRole.PREFILL, lease_s)
        self.server = server = self._add(self.decode, VllmRole.DECODE, lease_s)
        events = LinkEvents(on_handoff=self._note, on_doubt=self._note_doubt)
        world = World(clock=clock)
        self.link = VllmLink(server, self._servers, world, events, UnreadBytes())
        self.link.note_health(is_well=True)

    def submit(
        self,
        *,
        alone: bool = False,
        timeout_s: float = 120.0,
        first_token_s: float | None = None,
        request_id: str = "r1",
        trace: handoff_pb2.TraceParent | None = None,
        prompt: Sequence[int] = PROMPT,
        tenant: str = "acme",
        **sampling: Any,
    ) -> RequestStream:
        """A request for five tokens, unless `sampling` says otherwise."""
        given = {"max_tokens": 5, "n": 1, "repetition_penalty": 1.0, "top_p": 1.0} | sampling
        targets = [worker_pb2.PrefillTarget(worker_id="vllm-p:1", incarnation="i1")]
        submit = worker_pb2.Submit(
            request_id=request_id,
            token_ids=prompt,
            sampling=generation_pb2.SamplingParams(**given),
            prefill=[] if alone else targets,
            cache_root=cache_root(PAIRING.key, tenant),
            timeout_ms=timeout_s * 1000,
            first_token_ms=None if first_token_s is None else first_token_s * 1000,
            trace=trace,
        )
        return self.link.submit(submit, max_tokens=given["max_tokens"] * given["n"])

    async def answer(self, **given: Any) -> Heard:
        """The whole answer. Raises the request's error."""
        return await heard_of(self.submit(**given))

    def _add(self, fake: FakeVllm, role: VllmRole, lease_s: float) -> VllmServer:
        address = VllmAddress(url=f"http://{fake.name}:1", role=role, lease_s=lease_s)
        server = VllmServer(address, fake)
        server.member = replace(member_of(Role.DECODE, address.worker_id), model="smollm2")
        started = f"{fake.manners.started_s:.2f}"
        server.numbers = ServerNumbers(late_reads=0, num_preemptions=0, started=started)
        self._servers.add(server)
        return server

    def _note_doubt(self) -> None:
        self.num_doubts += 1

    def _note(self, key: WorkerKey, failed: bool) -> None:
        self.handoffs.append((key.worker_id, failed))


async def heard_of(stream: RequestStream) -> Heard:
    heard = Heard()
    while not isinstance(message := await stream.next(), Ended):
        assert isinstance(message, ChoiceTokens)
        heard.tokens.setdefault(message.choice, []).extend(message.tokens)
    heard.ended = message
    return heard
