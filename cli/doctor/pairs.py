"""Every prefill worker with every decode worker: can this one reach that one, do they fit together,
and does a block travel?

The router has a prompt of made-up tokens go the way of a request over each (router/control/
pair_trials.py); the doctor reads how it went.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cli.doctor.finding import Check, Finding, broken, fine, poor
from cluster.deadline import Deadline
from cluster.dial.dialer import Dialer, OperatorLink
from cluster.errors import PairingMismatch, SplitserveError
from cluster.identity import Role
from cluster.pairing import check_pairing
from cluster.terminal_text import size_in_words
from cluster.wire import pairing_from_wire
from protos.membership_pb2 import MemberState
from protos.router_admin_pb2 import PairTrial, TryPairRequest

ROUTER_TIMEOUT_S = 5.0
PAIR_TIMEOUT_S = 10.0
"""A pair that takes longer for some thirty tokens is no use to a request either."""
MAX_AT_ONCE = 8
"""Decode workers that are asked side by side, each about one prefill worker after the other."""


@dataclass(frozen=True, slots=True)
class WorkerPair:
    """One of each role, as the router knows them."""

    prefill: MemberState
    decode: MemberState

    @property
    def name(self) -> str:
        """As P->D."""
        return f"{self.prefill.member.worker_id}->{self.decode.member.worker_id}"


async def pair_checks(dialer: Dialer, address: str, deadline: Deadline) -> list[Check]:
    """One for each pair, with what was found; `address`: a router's. Raises SplitserveError where
    it does not answer. What is not tried by the deadline is said so."""
    router = dialer.operator(address)
    try:
        members = list((await router.members(timeout_s=ROUTER_TIMEOUT_S)).members)
        pairs = pairs_of(members)
        room = asyncio.Semaphore(MAX_AT_ONCE)
        by_decode = (_try_all(router, each, deadline, room) for each in pairs)
        found = await asyncio.gather(*by_decode)
    finally:
        await router.close()
    if not pairs:
        return [
            _check("pairs", poor("there is no pair", "a pool is empty: `splitserve get pools`"))
        ]
    findings = {pair: finding for each in found for pair, finding in each.items()}
    return [
        *(_check(f"pair {name}", finding) for name, finding in findings.items()),
        *_lonely(pairs, findings),
    ]


def pairs_of(members: Sequence[MemberState]) -> list[list[WorkerPair]]:
    """For each decode worker, by name, all prefill workers, by name."""
    by_name = sorted(members, key=lambda state: state.member.worker_id)
    prefill = [state for state in by_name if state.member.role == Role.PREFILL]
    decode = [state for state in by_name if state.member.role == Role.DECODE]
    return [[WorkerPair(p, d) for p in prefill] for d in decode] if prefill else []


def _check(name: str, finding: Finding) -> Check:
    return Check(name, lambda: finding)


def _lonely(pairs: Sequence[Sequence[WorkerPair]], findings: Mapping[str, Finding]) -> list[Check]:
    """Decode workers that no prefill worker works with."""
    return [
        _check(
            f"decode {of_one[0].decode.member.worker_id}",
            broken(
                f"no prefill worker works with {of_one[0].decode.member.worker_id}",
                "it computes all prompts itself; see its pairs above",
            ),
        )
        for of_one in pairs
        if all(findings[pair.name].hint for pair in of_one)
    ]


async def _try_all(
    router: OperatorLink, pairs: Sequence[WorkerPair], deadline: Deadline, room: asyncio.Semaphore
) -> dict[str, Finding]:
    """Findings by the pair's name; `pairs`: all of one decode worker, one after the other."""
    async with room:
        return {pair.name: await _try(router, pair, deadline) for pair in pairs}


async def _try(router: OperatorLink, pair: WorkerPair, deadline: Deadline) -> Finding:
    ours, theirs = (pairing_from_wire(s.member.pairing) for s in (pair.decode, pair.prefill))
    if not (ours.is_ours and theirs.is_ours):
        return fine(f"{pair.name}: not tried, these are servers of another engine")
    for state in (pair.prefill, pair.decode):
        if state.state != "ready":
            told = f"{pair.name}: not tried, {state.member.worker_id} is {state.state}"
            return poor(told, "look again once it is ready")
    try:
        check_pairing(ours, theirs, peer=pair.prefill.member.worker_id)
    except PairingMismatch as mismatch:
        return poor(f"{pair.name}: {mismatch.message}", "the router never pairs them")
    left_s = min(PAIR_TIMEOUT_S, deadline.remaining_s)
    if left_s <= 0:
        return poor(f"{pair.name}: not tried, the time is over", "give it more with --deadline")
    clock = deadline.clock
    began_s = clock()
    finding = await _transfer(router, pair, left_s)
    return replace(finding, took_ms=1e3 * (clock() - began_s))


async def _transfer(router: OperatorLink, pair: WorkerPair, limit_s: float) -> Finding:
    hint = "see both workers' logs, `splitserve get links`, and a network policy between them"
    asked = TryPairRequest(
        prefill_worker=pair.prefill.member.worker_id,
        decode_worker=pair.decode.member.worker_id,
        timeout_s=limit_s,
    )
    try:
        return _told(pair, await router.try_pair(asked, timeout_s=limit_s + ROUTER_TIMEOUT_S), hint)
    except SplitserveError as failure:
        return broken(f"{pair.name}: {failure.message}", hint)


def _told(pair: WorkerPair, trial: PairTrial, hint: str) -> Finding:
    timing = trial.timing
    if trial.given_up or timing.prefill_worker != pair.prefill.member.worker_id:
        decode = pair.decode.member.worker_id
        return broken(f"{pair.name}: {decode} gave it up and computed the prompt itself", hint)
    moved = f"{size_in_words(timing.kv_bytes)} in {timing.kv_transfer_ms:.1f} ms"
    return fine(f"{pair.name}: {moved} over {timing.kv_transport or 'nothing'}, verified")
