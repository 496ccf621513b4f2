"""POST /v1/load_lora_adapter and /v1/unload_lora_adapter: for operators, by the join token.

A client's key is not enough: who loads adapters decides what others are answered. Where the fleet
has no join token, `splitserve adapters` does it over the fleet's own port.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from cluster.errors import InvalidRequest, NotAllowed, UnknownModel, WrongToken, from_code
from cluster.join_token import bearer_of, is_admitted
from protos.membership_pb2 import AdapterAnswer
from protos.worker_pb2 import LoadAdapterRequest, UnloadAdapterRequest
from router.api.generation_endpoint import HttpContext
from router.api.http.asgi import Receive, Scope, Send, header_of
from router.api.http.exchange import Exchange
from router.api.reading.decode import decode
from router.control.adapter_orders import AdapterOrders
from router.front.body_account import HeldBody


class LoadBody(msgspec.Struct, forbid_unknown_fields=True):
    """As vLLM's clients send it."""

    lora_name: str
    lora_path: str
    load_inplace: bool = True
    """A name that is in use stands for the new one from then on: there is no other way."""


class UnloadBody(msgspec.Struct, forbid_unknown_fields=True):
    """As vLLM's clients send it."""

    lora_name: str


class WorkerBody(msgspec.Struct):
    """What one worker has done."""

    worker_id: str
    digest: str


class DoneBody(msgspec.Struct):
    """What all have done."""

    lora_name: str
    workers: list[WorkerBody]


class AdapterEndpoint:
    """An ASGI application for one of the two paths."""

    def __init__(
        self,
        context: HttpContext,
        tokens: tuple[str, ...],
        order: Callable[[bytes], Awaitable[DoneBody]],
    ) -> None:
        """`tokens`: the fleet's; empty: it has none."""
        self._context, self._tokens, self._order = context, tokens, order

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A stranger takes no place, and nothing of his body is read."""
        self._check(header_of(scope, b"authorization"))
        await self._context.serve(scope, receive, send, self._run)

    async def _run(self, exchange: Exchange, body: bytes, held: HeldBody) -> None:
        await exchange.reply(msgspec.json.encode(await self._order(body)))

    def _check(self, authorization: str | None) -> None:
        """Raises NotAllowed and WrongToken."""
        if not self._tokens:
            raise NotAllowed(
                "this fleet has no join token, so nobody may load adapters over HTTP; use "
                "`splitserve adapters`"
            )
        if not is_admitted(bearer_of(authorization), self._tokens):
            raise WrongToken("adapters are loaded with the join token of the fleet")


class AdapterBodies:
    """From bodies to orders, and to what is told of them."""

    def __init__(self, orders: AdapterOrders) -> None:
        self._orders = orders
        self._load = msgspec.json.Decoder(LoadBody)
        self._unload = msgspec.json.Decoder(UnloadBody)

    async def load(self, body: bytes) -> DoneBody:
        """Raises InvalidRequest, and the first error of a worker."""
        asked = decode(body, self._load)
        if not asked.load_inplace:
            raise InvalidRequest(
                "load_inplace is false; a name that is in use is always given the new adapter, "
                "and running answers end with the old one",
                param="load_inplace",
            )
        request = LoadAdapterRequest(name=asked.lora_name, path=asked.lora_path)
        return _told(asked.lora_name, await self._orders.load(request))

    async def unload(self, body: bytes) -> DoneBody:
        """As `load`. Raises UnknownModel, as vLLM has it, for a name that stands for nothing: one
        that is misspelt must not look unloaded. That of one that a worker has still to read stands
        for something: the order is taken."""
        asked = decode(body, self._unload)
        if not self._orders.may_be_known(asked.lora_name):
            raise UnknownModel(
                f"no worker has an adapter {asked.lora_name[:200]!r}; GET /v1/models lists those "
                "that are there",
                param="lora_name",
            )
        answer = await self._orders.unload(UnloadAdapterRequest(name=asked.lora_name))
        return _told(asked.lora_name, answer)


def _told(name: str, answer: AdapterAnswer) -> DoneBody:
    for outcome in answer.outcomes:
        if outcome.code:
            raise from_code(outcome.code, f"{outcome.worker_id}: {outcome.message}")
    if not answer.outcomes:
        raise UnknownModel("no worker has joined that could load an adapter", param="lora_name")
    workers = [WorkerBody(item.worker_id, item.digest) for item in answer.outcomes]
    return DoneBody(name, workers)
