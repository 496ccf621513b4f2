"""Whom this router takes into its fleet: those who read and write its tokens, one process under
each id.

    first worker --sets--> the fleet's tokenizer --the last one of them goes--> open again
    what the router itself has loaded is never open

Workers of other weights, or of another format of them, are taken in beside those that are there: a
rolling update is made of that. They are never paired, and new requests go to one model at a time
(`router/fleet/model_choice.py`). vLLM's servers and workers of our own do not mix, and vLLM's are
found by the router: none joins by itself.

A prefill worker at a loopback address and a decode worker on another machine never meet: the one
that comes second is refused.

Two live processes under one id would take turns in replacing each other. The one that is there
stays for as long as it is heard; a restarted worker waits until its former self has missed a beat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cluster.deadline import Clock
from cluster.errors import IdTaken, InvalidRequest, PairingMismatch
from cluster.identity import Role, WorkerKey
from cluster.membership.member import Member, MemberState
from cluster.membership.reach import OwnMachine, host_of, is_loopback
from cluster.membership.store import MembershipStore

MISSED_BEATS = 2.0
"""A process not heard for so many intervals of beats may be replaced before its lease ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnModel:
    """What the router has loaded. None: it knows nothing of that, and takes the first worker's."""

    name: str = ""
    """That clients ask for it by: no adapter gets it. Empty: nobody asks here."""
    tokenizer_digest: str | None = None
    weights_digest: str | None = None
    """Others are served as well, while they are what there is."""
    pooling: str = ""
    """How it pools prompts: the word of a PoolingKind; empty: it does not."""


class JoinRules:
    """Changes nothing. `is_cut_off` says that a process's session was lost."""

    def __init__(
        self,
        store: MembershipStore,
        own: OwnModel,
        *,
        beat_interval_s: float,
        is_cut_off: Callable[[WorkerKey], bool],
        clock: Clock,
    ) -> None:
        """`clock` is the store's."""
        self._store = store
        self._own = own
        self._silence_s = MISSED_BEATS * beat_interval_s
        self._is_cut_off = is_cut_off
        self._clock = clock

    def check(self, newcomer: Member, peer: str) -> None:
        """Raises PairingMismatch for another tokenizer, or beside vLLM's servers, IdTaken for an id
        in use, with both values, and InvalidRequest for another engine, for addresses that are none
        from here, or none for those whom it is to work with. `peer`: who asks, as gRPC names it."""
        here = OwnMachine()
        _check_reach(newcomer, peer, here)
        _check_is_ours(newcomer)
        self._check_own_model(newcomer)
        for state in self._store.members():
            if state.member.worker_id == newcomer.worker_id:
                self._check_id(newcomer, state)
            else:
                _check_same_model(newcomer, state.member)
                _check_meeting(newcomer, state.member, here)

    def _check_own_model(self, newcomer: Member) -> None:
        ours, theirs = self._own.tokenizer_digest, newcomer.pairing.tokenizer_digest
        if ours is not None and theirs != ours:
            raise PairingMismatch(
                f"{newcomer.worker_id} cannot join: its tokenizer_digest is {theirs!r}, the "
                f"router's is {ours!r}; start both with the same model, and where that is so "
                "fetch it again, at both, with `splitserve models pull`"
            )

    def _check_id(self, newcomer: Member, known: MemberState) -> None:
        member = known.member
        silent_s = self._clock() - known.heard_s
        if member.incarnation == newcomer.incarnation or silent_s > self._silence_s:
            return
        if self._is_cut_off(member.key):
            return
        raise IdTaken(
            f"{newcomer.worker_id} at {newcomer.address} cannot join: the process at "
            f"{member.address} has that id and was heard {max(0.0, silent_s):.1f} s ago; give each "
            "worker an id of its own, or wait until the former process has ended"
        )


def _check_is_ours(newcomer: Member) -> None:
    """What the router calls another engine's it never dials."""
    if not newcomer.pairing.is_ours:
        raise InvalidRequest(
            f"{newcomer.worker_id} cannot join: its weights are {newcomer.pairing.weights!r}, as "
            "of another engine's server; name such a server to the router by --vllm",
            param="pairing.weights",
        )


def _check_reach(newcomer: Member, peer: str, here: OwnMachine) -> None:
    """A loopback address means another machine wherever it is read on another machine."""
    if here.calls(peer):
        return
    for name in ("address", "kv_events_address", "kv_replay_address"):
        if is_loopback(host_of(getattr(newcomer, name))):
            raise InvalidRequest(
                f"{newcomer.worker_id} cannot join from {peer}: its {name} is "
                f"{getattr(newcomer, name)}, which only its own machine reaches; start it with "
                "--host 0.0.0.0, or with the address at which the fleet reaches it",
                param=name,
            )


def _check_meeting(newcomer: Member, other: Member, here: OwnMachine) -> None:
    """Decode workers read from prefill workers at the address that the fleet was told: one at a
    loopback address is read from this router's machine only."""
    by_role = {newcomer.role: newcomer, other.role: other}
    prefill, decode = by_role.get(Role.PREFILL), by_role.get(Role.DECODE)
    if prefill is None or decode is None or not is_loopback(host_of(prefill.address)):
        return
    if not here.has(host_of(decode.address)):
        raise InvalidRequest(
            f"{newcomer.worker_id} cannot join beside {other.worker_id}: the decode worker "
            f"{decode.worker_id} is on another machine, at {decode.address}, and would look for "
            f"the prefill worker {prefill.worker_id} at {prefill.address}, on its own; start "
            f"{prefill.worker_id} with --host 0.0.0.0 and the router's network address, and a "
            "fleet of `splitserve serve` with --host 0.0.0.0 and --advertise-host",
            param="address",
        )


def _check_same_model(newcomer: Member, other: Member) -> None:
    """Tokens of one served name mean the same text, and come from one kind of engine."""
    theirs, known = newcomer.pairing.tokenizer_digest, other.pairing.tokenizer_digest
    if theirs != known:
        raise PairingMismatch(
            f"{newcomer.worker_id} ({newcomer.model}) cannot join: its tokenizer_digest is "
            f"{theirs!r}, that of {other.worker_id} ({other.model}) is {known!r}, and one router "
            "reads and writes one model's texts; start it with the same model, or with a router of "
            "its own"
        )
    if not other.pairing.is_ours:
        raise PairingMismatch(
            f"{newcomer.worker_id} cannot join beside {other.worker_id}: vLLM's servers and "
            "workers of our own do not share a router; start it with a router of its own"
        )
