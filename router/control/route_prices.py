"""What a prompt would cost now, at each way to serve it, without running it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Protocol

from cluster.deadline import Deadline
from cluster.errors import ContextTooLong, InvalidRequest, NoWorker
from cluster.identity import Role
from cluster.sampling import SamplingParams
from cluster.world import World
from protos import router_admin_pb2
from router.dispatch.routing import RoutingDesk
from router.dispatch.stream import RoutedRequest
from router.dispatch.time_limits import DefaultTimes
from router.fleet.fleet import Fleet
from router.telemetry.decisions import Decision
from router.tenants.tenant import combined_salt

READ_TIMEOUT_S = 4.0
REQUEST_ID = "not-sent"


class PromptReader(Protocol):
    """Makes tokens of prompts."""

    async def tokens_of(
        self, asked: router_admin_pb2.PriceRequest, peer: str, deadline: Deadline
    ) -> list[int]:
        """Token ids of a text, a chat or ids; `peer` as gRPC names it. Raises InvalidRequest and
        its kin, DeadlineExceeded."""
        ...


@dataclass(frozen=True, slots=True)
class RoutePrices:
    """Asks the desk that real requests are routed by; changes nothing."""

    desk: RoutingDesk
    fleet: Fleet
    reader: PromptReader
    world: World

    async def price(self, asked: router_admin_pb2.PriceRequest, peer: str) -> Decision:
        """The decision on a request as it is described. Raises InvalidRequest for none, and what
        a request would be told: ContextTooLong, NoWorker."""
        salt = combined_salt(asked.tenant, asked.cache_salt)
        if asked.WhichOneof("prompt") == "new_tokens":
            token_ids, salt = self._unknown(asked.new_tokens), secrets.token_hex()
        else:
            deadline = Deadline.after(READ_TIMEOUT_S, self.world.clock)
            token_ids = await self.reader.tokens_of(asked, peer, deadline)
        if not token_ids:
            raise InvalidRequest("the prompt has no tokens", param="prompt")
        return self.desk.decide(self._request(asked, token_ids, salt), frozenset())

    def _unknown(self, num_tokens: int) -> list[int]:
        limit = self._room()
        if num_tokens > limit:
            raise ContextTooLong(
                f"{num_tokens} prompt tokens; the limit here is {limit}", param="prompt"
            )
        return [0] * num_tokens

    def _request(
        self, asked: router_admin_pb2.PriceRequest, token_ids: list[int], salt: str
    ) -> RoutedRequest:
        room = max(1, self._room() - len(token_ids))
        times = DefaultTimes(
            first_token_s=READ_TIMEOUT_S,
            between_tokens_s=READ_TIMEOUT_S,
            clock=self.world.clock,
        )
        sampling = SamplingParams(max_tokens=asked.max_tokens or room, n=asked.n or 1, seed=0)
        sampling.check(vocab_size=1)  # names no token
        return RoutedRequest(
            request_id=REQUEST_ID,
            token_ids=token_ids,
            sampling=sampling,
            is_default_length=not asked.max_tokens,
            tenant=asked.tenant,
            tenant_salt=salt,
            limits=times.limits(self.world.clock(), None),
        )

    def _room(self) -> int:
        """Of the roomiest decode worker."""
        members = self.fleet.served(Role.DECODE)
        if not members:
            raise NoWorker("no decode worker takes new work")
        return max(item.capacity_tokens for item in members)
