"""Every prefill worker with every decode worker: can this one reach that one, do they fit together,
and does a block travel?

The doctor asks as a router does: over a session it sends each decode worker a prompt of made-up
tokens that one prefill worker is to compute, under a root that no prefix cache knows, and reads how
it went. Whatever would keep a real request from going that way keeps this one.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cli.doctor.finding import Check, Finding, broken, fine, poor
from cluster.deadline import Deadline
from cluster.dial.dialer import Dialer, SessionLink
from cluster.errors import PairingMismatch, SplitserveError, from_code
from cluster.identity import Role
from cluster.pairing import check_pairing
from cluster.terminal_text import size_in_words
from cluster.wire import pairing_from_wire
from protos import generation_pb2, worker_pb2
from protos.membership_pb2 import Member, MemberState

ROUTER_TIMEOUT_S = 5.0
PAIR_TIMEOUT_S = 10.0
"""A pair that takes longer for some thirty tokens is no use to a request either."""
MAX_AT_ONCE = 8
"""Decode workers that are asked side by side, each about one prefill worker after the other."""
_NEW_TOKENS = 2
"""With one alone, the first would be the last and no block would have to travel."""


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
    finally:
        await router.close()
    pairs = pairs_of(members)
    if not pairs:
        return [
            _check("pairs", poor("there is no pair", "a pool is empty: `splitserve get pools`"))
        ]
    room = asyncio.Semaphore(MAX_AT_ONCE)
    by_decode = (_try_all(dialer, each, deadline, room) for each in pairs)
    found = await asyncio.gather(*by_decode)
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
    dialer: Dialer, pairs: Sequence[WorkerPair], deadline: Deadline, room: asyncio.Semaphore
) -> dict[str, Finding]:
    """Findings by the pair's name; `pairs`: all of one decode worker, one after the other."""
    async with room:
        return {pair.name: await _try(dialer, pair, deadline) for pair in pairs}


async def _try(dialer: Dialer, pair: WorkerPair, deadline: Deadline) -> Finding:
    for state in (pair.prefill, pair.decode):
        if state.state != "ready":
            told = f"{pair.name}: not tried, {state.member.worker_id} is {state.state}"
            return poor(told, "look again once it is ready")
    try:
        ours, theirs = (pairing_from_wire(s.member.pairing) for s in (pair.decode, pair.prefill))
        check_pairing(ours, theirs, peer=pair.prefill.member.worker_id)
    except PairingMismatch as mismatch:
        return poor(f"{pair.name}: {mismatch.message}", "the router never pairs them")
    left_s = min(PAIR_TIMEOUT_S, deadline.remaining_s)
    if left_s <= 0:
        return poor(f"{pair.name}: not tried, the time is over", "give it more with --deadline")
    clock = deadline.clock
    began_s = clock()
    finding = await _transfer(dialer, pair, left_s)
    return replace(finding, took_ms=1e3 * (clock() - began_s))


async def _transfer(dialer: Dialer, pair: WorkerPair, limit_s: float) -> Finding:
    hint = "see both workers' logs, `splitserve get links`, and a network policy between them"
    link = dialer.session(pair.decode.member.address)
    try:
        async with asyncio.timeout(limit_s):
            return _told(pair, await _answer(link, pair, limit_s), hint)
    except TimeoutError:
        return broken(f"{pair.name}: no answer within {limit_s:.0f} s", hint)
    except SplitserveError as failure:
        return broken(f"{pair.name}: {failure.message}", hint)
    finally:
        await link.close()


@dataclass(frozen=True, slots=True)
class _Outcome:
    ended: worker_pb2.Ended
    given_up: bool
    """The decode worker did without the prefill worker."""


async def _answer(link: SessionLink, pair: WorkerPair, limit_s: float) -> _Outcome:
    """Raises what the worker has against the session or the request."""
    await link.write(worker_pb2.RouterMessage(open=_identity(pair.decode.member)))
    submit = _prompt(pair, limit_s)
    given_up = is_sent = False
    while (frame := await link.read()) is not None:
        if frame.HasField("opened") and not is_sent:
            await link.write(worker_pb2.RouterMessage(submit=submit))
            is_sent = True
        given_up |= any(outcome.failed for outcome in frame.handoffs)
        for ended in frame.ended:
            if ended.HasField("error"):
                raise from_code(ended.error.code, ended.error.message)
            return _Outcome(ended, given_up)
    raise from_code("worker_lost", "the worker has ended the session without an answer")


def _identity(member: Member) -> worker_pb2.WorkerIdentity:
    return worker_pb2.WorkerIdentity(
        worker_id=member.worker_id, incarnation=member.incarnation, pairing=member.pairing
    )


def _prompt(pair: WorkerPair, limit_s: float) -> worker_pb2.Submit:
    """Two blocks and a token: small ids are in every vocabulary."""
    prefill = pair.prefill.member
    blocks = max(pair.decode.member.pairing.block_size_tokens, prefill.pairing.block_size_tokens)
    return worker_pb2.Submit(
        request_id=f"doctor-{secrets.token_hex(8)}",
        token_ids=[1 + index % 50 for index in range(2 * blocks + 1)],
        sampling=generation_pb2.SamplingParams(
            temperature=0.0, seed=0, max_tokens=_NEW_TOKENS, ignore_eos=True
        ),
        prefill=[
            worker_pb2.PrefillTarget(
                worker_id=prefill.worker_id,
                incarnation=prefill.incarnation,
                address=prefill.address,
            )
        ],
        cache_root=secrets.token_bytes(16),
        timeout_ms=limit_s * 1000,
    )


def _told(pair: WorkerPair, outcome: _Outcome, hint: str) -> Finding:
    timing = outcome.ended.timing
    if outcome.given_up or timing.prefill_worker != pair.prefill.member.worker_id:
        decode = pair.decode.member.worker_id
        return broken(f"{pair.name}: {decode} gave it up and computed the prompt itself", hint)
    moved = f"{size_in_words(timing.kv_bytes)} in {timing.kv_transfer_ms:.1f} ms"
    return fine(f"{pair.name}: {moved} over {timing.kv_transport or 'nothing'}, verified")
