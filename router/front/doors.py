"""What both doors, HTTP and gRPC, have of the router: one value, made where it is put together."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from cluster.errors import NotAllowed, NotResumable
from cluster.identity import UniqueHex, unique_hex
from cluster.process.lifespan import Lifespan
from cluster.process.loop_share import LoopShare
from router.dispatch.time_limits import DefaultTimes
from router.front.body_account import BodyAccount
from router.front.limits import DoorLimits
from router.front.operators import OperatorsPages
from router.front.pipeline import CompletionPipeline
from router.front.resumption import Resumption
from router.front.served_model import ServedModel
from router.telemetry.request_tracing import RequestTracing
from router.tenants.keyring import Keyring, OpenDoor
from router.tenants.tenant import Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorContext:
    """Shared by all requests of both doors."""

    model: ServedModel
    pipeline: CompletionPipeline
    in_flight: Lifespan
    """Who is admitted here is waited for when the router drains."""
    door_limits: DoorLimits
    bodies: BodyAccount
    times: DefaultTimes
    keyring: Keyring = field(default_factory=OpenDoor)
    pages: OperatorsPages = field(default_factory=OperatorsPages)
    ignores_unknown: bool = False
    """Unknown fields of a body over HTTP are left out and told about, instead of refused."""
    resumption: Resumption | None = None
    """Of streams that a client may have the rest of by another connection; None: of none."""
    tracing: RequestTracing | None = None
    """None: no request is traced."""
    draw: UniqueHex = unique_hex
    """Of the ids that requests get."""
    chance: Random = field(default_factory=Random)
    """Of how long the refused are to wait."""

    @property
    def share(self) -> LoopShare:
        """One for the loop: whoever reads or encodes on it takes turns with all others, whichever
        door a request came in by."""
        return self.pipeline.share

    def resuming(self) -> Resumption:
        """For who wants the rest of a stream. Raises NotResumable where none is kept."""
        if self.resumption is None:
            raise NotResumable("this router keeps no streams for another connection")
        return self.resumption

    async def let_in(self, authorization: str | None) -> Tenant:
        """Who asks, before anything else of its request is looked at, which is counted. Raises
        Unauthenticated, NotAllowed, RateLimited and BudgetSpent."""
        tenant = self.who_asks(authorization)
        if tenant.account is not None:
            await tenant.account.enter()
        return tenant

    def who_asks(self, authorization: str | None) -> Tenant:
        """`authorization` as a header has it. Raises Unauthenticated and NotAllowed."""
        tenant = self.keyring.let_in(authorization)
        if not self._is_for_some(tenant):
            raise NotAllowed(
                f"this API key is not for {self.model.name}, only for {', '.join(tenant.models)}"
            )
        return tenant

    def _is_for_some(self, tenant: Tenant) -> bool:
        """Whether its key is good for the model or one of its adapters, as far as these are known:
        which one is asked for is seen when the request is read."""
        if tenant.may_ask(self.model.name):
            return True
        if any(tenant.may_ask(adapter.name) for adapter in self.model.all_adapters()):
            return True
        unread = self.model.unread_adapters()
        return unread.may_be_any or not unread.names.isdisjoint(tenant.models)
