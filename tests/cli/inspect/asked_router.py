"""A router with fixed numbers that answers what whoever holds a fleet in his hands asks beside: the
price of a prompt, a decision, a worker's own word, its metrics, adapters."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from cli import adapters, explain, question, routes, status
from cli.bundle import make
from protos import membership_pb2, router_admin_pb2, worker_pb2
from tests.cli.inspect.fake_router import FakeRouter
from tests.cli.test_explain import DECISION

_ASKING: tuple[ModuleType, ...] = (adapters, explain, make, question, routes, status)


class AskedRouter(FakeRouter):
    """See above. Its one adapter is at both decode workers."""

    async def explain(self, request: Any, *, timeout_s: float) -> Any:
        return router_admin_pb2.ExplainResponse(decisions=[DECISION])

    async def price(self, request: Any, *, timeout_s: float) -> Any:
        priced = router_admin_pb2.Decision()
        priced.CopyFrom(DECISION)
        priced.ClearField("arrival")
        priced.ClearField("foretold")
        return priced

    async def members(self, *, timeout_s: float) -> Any:
        told = await super().members(timeout_s=timeout_s)
        for state in told.members[1:]:
            poet = membership_pb2.OfferedAdapter(name="poet", digest="5f21", resident=True)
            state.adapters.append(poet)
        return told

    async def worker_status(self, request: Any, *, timeout_s: float) -> Any:
        (state,) = [each for each in self.members_told if _is(each, request.worker_id)]
        return worker_pb2.StatusResponse(
            state=state.state,
            load=state.load,
            kv_transport=state.member.kv_transport,
            engine_pid=state.member.pid + 1,
            uptime_s=3590.0,
        )

    async def metrics(self, *, timeout_s: float) -> str:
        return "splitserve_members 3\n"

    async def order_load(self, request: Any, *, timeout_s: float) -> Any:
        outcomes = [
            membership_pb2.AdapterOutcome(worker_id=each.member.worker_id, digest="5f21")
            for each in self.members_told
        ]
        return membership_pb2.AdapterAnswer(outcomes=outcomes)

    order_unload = order_load


def patch_asking(patch: pytest.MonkeyPatch) -> None:
    """Commands of this process ask it."""
    for module in _ASKING:
        patch.setattr(module, "GrpcDialer", lambda token="": AskedRouter())


def _is(state: Any, worker_id: str) -> bool:
    return bool(state.member.worker_id == worker_id)
