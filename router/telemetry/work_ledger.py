"""What the time of workers went into since this router knows them, and for whom it was.

    joined -> its first word is where counting begins -> words ... -> gone: as of its last word

A worker counts seconds and tokens of all that it computes, whoever asked; this router counts the
tokens of its own requests, by tenant. Whoever reads both shares the seconds out by the tokens, and
sees what no router that answers has asked for. From the event loop only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from cluster.deadline import Clock
from cluster.generation import EngineLoad
from cluster.identity import Role, WorkerKey
from cluster.membership.store import ChangeKind, MembershipChange, MembershipStore
from router.telemetry.request_course import Leg

MAX_GONE = 256
"""Workers that left and are still told of; the one that left first is forgotten."""
MAX_TENANTS = 1024
"""Of a worker; the work of more is counted together."""
OTHERS = "(others)"

TokensSoFar = Callable[[], tuple[int, int]]
"""Of a request at a decode worker: tokens with KV there, and tokens that its steps have decoded."""


@dataclass(slots=True, kw_only=True)
class TenantWork:
    """Of one tenant at one worker. One that an account has is never changed: copies share it."""

    num_requests: int = 0
    prefilled_tokens: int = 0
    decoded_tokens: int = 0
    kv_block_s: float = 0.0

    def plus(self, more: TenantWork) -> TenantWork:
        """With one more request's."""
        return TenantWork(
            num_requests=self.num_requests + more.num_requests,
            prefilled_tokens=self.prefilled_tokens + more.prefilled_tokens,
            decoded_tokens=self.decoded_tokens + more.decoded_tokens,
            kv_block_s=self.kv_block_s + more.kv_block_s,
        )


@dataclass(slots=True)
class WorkerAccount:
    """Of one process."""

    key: WorkerKey
    role: Role
    block_size_tokens: int
    first: EngineLoad | None = None
    first_s: float = 0.0
    last: EngineLoad = field(default_factory=EngineLoad)
    last_s: float = 0.0
    is_gone: bool = False
    tenants: dict[str, TenantWork] = field(default_factory=dict)
    pool: str = ""
    """As its Member says."""

    def heard(self, load: EngineLoad, at_s: float) -> None:
        """Its word. What it counted before its first is not of this router's time."""
        if self.first is None:
            self.first, self.first_s = load, at_s
        self.last, self.last_s = load, at_s

    def since(self, name: str) -> float:
        """By how much one of its counters has grown."""
        before = 0.0 if self.first is None else float(getattr(self.first, name))
        return max(0.0, float(getattr(self.last, name)) - before)

    @property
    def known_s(self) -> float:
        """From its first word to its last."""
        return self.last_s - self.first_s

    def worked(self, tenant: str, work: TenantWork) -> None:
        """Requests of a tenant that is one too many count together with others."""
        if tenant not in self.tenants and len(self.tenants) >= MAX_TENANTS:
            tenant = OTHERS
        known = self.tenants.get(tenant)
        self.tenants[tenant] = work if known is None else known.plus(work)


class WorkUnderWay:
    """One request at one decode worker, and at who computes its prompt."""

    __slots__ = ("_computed", "_ledger", "_progress", "leg", "tenant")

    def __init__(self, ledger: WorkLedger, tenant: str, leg: Leg, progress: TokensSoFar) -> None:
        self._ledger: WorkLedger | None = ledger
        self._progress = progress
        self._computed: tuple[WorkerKey, int] | None = None
        self.tenant = tenant
        self.leg = leg

    def computed(self, by: WorkerKey, num_tokens: int) -> None:
        """Its prompt is; the first word counts."""
        self._computed = self._computed or (by, num_tokens)

    @property
    def is_over(self) -> bool:
        """Accounts have it."""
        return self._ledger is None

    @property
    def workers(self) -> set[WorkerKey]:
        """That have had a part in it so far."""
        return {self.leg.decode} if self._computed is None else {self.leg.decode, self._computed[0]}

    def over(self) -> None:
        """Nothing more comes of it; idempotent."""
        ledger, self._ledger = self._ledger, None
        if ledger is not None:
            ledger.ended(self)

    def parts(self, now_s: float) -> Iterator[tuple[WorkerKey, TenantWork, int]]:
        """What it was at each worker so far, and the token-seconds that it needed there."""
        end_s = now_s if self.leg.ended_s is None else self.leg.ended_s
        held, decoded = self._progress()
        decode = TenantWork(num_requests=1, decoded_tokens=decoded)
        token_s = int((held - decoded / 2) * max(0.0, end_s - self.leg.sent_s))
        if self._computed is not None:
            by, num_tokens = self._computed
            if by == self.leg.decode:
                decode.prefilled_tokens = num_tokens
            else:
                yield by, TenantWork(num_requests=1, prefilled_tokens=num_tokens), 0
        yield self.leg.decode, decode, token_s


class WorkLedger:
    """Of one router."""

    def __init__(self, store: MembershipStore) -> None:
        self._here: dict[WorkerKey, WorkerAccount] = {}
        self._gone: OrderedDict[WorkerKey, WorkerAccount] = OrderedDict()
        self._under_way: set[WorkUnderWay] = set()
        self.num_forgotten = 0
        """Workers."""
        store.watch(self._on_change)

    def begin(self, tenant: str, leg: Leg, progress: TokensSoFar) -> WorkUnderWay:
        """A request is sent to a decode worker; `over` has to be called."""
        work = WorkUnderWay(self, tenant, leg, progress)
        self._under_way.add(work)
        return work

    def ended(self, work: WorkUnderWay) -> None:
        """By `WorkUnderWay.over`; its leg is."""
        self._under_way.discard(work)
        for key, part, token_s in work.parts(work.leg.ended_s or work.leg.sent_s):
            account = self._here.get(key) or self._gone.get(key)
            if account is not None:
                account.worked(work.tenant, _with_blocks(part, token_s, account))

    def accounts(self, clock: Clock) -> Iterator[WorkerAccount]:
        """Copies, what is under way included; those that left first. Others may have the loop
        between two: each is as of its own turn, and a request that ends meanwhile counts once."""
        under_way: dict[WorkerKey, list[WorkUnderWay]] = {}
        for work in self._under_way:
            for key in work.workers:
                under_way.setdefault(key, []).append(work)
        for account in [*self._gone.values(), *self._here.values()]:
            yield _copy(account, under_way.get(account.key, ()), clock)

    def _on_change(self, change: MembershipChange) -> None:
        key, state = change.member.key, change.state
        if change.kind is ChangeKind.JOINED:
            member = change.member
            size = member.pairing.block_size_tokens
            new = WorkerAccount(key, member.role, size, pool=member.pool)
            account = self._gone.pop(key, None) or new
            account.is_gone = False  # one that only fell silent goes on where it was
            self._here[key] = account
        elif change.kind is not ChangeKind.REPORTED:
            self._leave(key)
        elif (known := self._here.get(key)) is not None:
            known.heard(state.load, state.heard_s)

    def _leave(self, key: WorkerKey) -> None:
        if (account := self._here.pop(key, None)) is None:
            return
        account.is_gone = True
        self._gone[key] = account
        if len(self._gone) > MAX_GONE:
            self._gone.popitem(last=False)
            self.num_forgotten += 1


def _copy(account: WorkerAccount, works: Iterable[WorkUnderWay], clock: Clock) -> WorkerAccount:
    told, now_s = replace(account, tenants=dict(account.tenants)), clock()
    for work in works:
        for key, part, token_s in () if work.is_over else work.parts(now_s):
            if key == account.key:
                told.worked(work.tenant, _with_blocks(part, token_s, account))
    return told


def _with_blocks(part: TenantWork, token_s: int, account: WorkerAccount) -> TenantWork:
    """Of blocks as large as that worker's."""
    return replace(part, kv_block_s=token_s / account.block_size_tokens)
