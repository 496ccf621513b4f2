"""Both ends of a prompt that is computed in one engine and decoded in another.

EXPORT   each chunk -> Prefilled; first tokens; EXPORTED until ReleaseExport
REMOTE   Reserved -> Deliver... and Seed, in any order -> decoding
                          '- PrefillLocally -> goes on from the longest verified prefix; a prompt
                                               that is scored, queued again, from its last score

And of a prefix that is cached in one engine and kept in another: CACHED -> Prefilled -> EXPORTED
until ReleaseExport; KEEP: Reserved -> Deliver... -> Cancel.
"""

from __future__ import annotations

from cluster.block_span import BlockSpan
from engine.contract.commands import Deliver
from engine.contract.messages import Prefilled, Reserved
from engine.memory.block_pool import Hold
from engine.step.placement import Placement
from engine.step.requests.lifecycle import SequenceState
from engine.step.requests.request import Request


def reserved(request: Request, placement: Placement) -> Reserved:
    """A REMOTE request was admitted: which blocks it lacks, and where they go."""
    leader = request.leader
    first_block = leader.num_computed // placement.block_size
    return Reserved(request.request_id, first_block, list(leader.blocks.block_ids))


def receiving_blocks(request: Request) -> list[int] | None:
    """The slots that reads for a REMOTE request may be started into; None: no more reads."""
    if request.goes_local or request.leader.life.state is not SequenceState.RECEIVING:
        return None
    return list(request.leader.blocks.block_ids)


def deliver(request: Request, command: Deliver, placement: Placement) -> None:
    """Verified blocks arrived, in any order; the gapless part from the start becomes usable."""
    leader, size = request.leader, placement.block_size
    request.delivered.update(range(command.first_index, command.first_index + command.num_blocks))
    index = leader.num_computed // size
    while index in request.delivered and index < len(leader.blocks):
        index += 1
    if index * size > leader.num_computed:
        placement.record(leader, min(index * size, len(leader.token_ids)))


def pin(request: Request, placement: Placement) -> None:
    """What is cached of a CACHED request is its reader's until it has gone."""
    placement.pin_cached(request.leader)
    request.leader.life.advance(SequenceState.EXPORTED)


def is_complete(request: Request) -> bool:
    """True when a REMOTE request has all that decoding needs."""
    has_prompt = request.leader.num_remaining == 0
    return has_prompt and request.first_tokens is not None


def note_scores(request: Request, num_scored: int) -> None:
    """So many of the prompt's tokens, behind its first, were scored elsewhere and told."""
    leader = request.leader
    if leader.num_scored is not None:
        leader.num_scored = max(leader.num_scored, min(num_scored, leader.num_prompt - 1))


def turn_local(request: Request) -> bool:
    """No more blocks will come, and no read is in flight: the rest is computed here. False: not
    before it is admitted again. The blocks behind a prompt's last score may be others' by now,
    since they were named: it gets new ones to compute them into."""
    leader = request.leader
    request.is_remote = request.goes_local = False
    if leader.scores_prompt:
        request.delivered.clear()
        leader.release()
        leader.life.advance(SequenceState.QUEUED)
        return False
    leader.blocks.turn(Hold.ACTIVE)
    leader.num_computed = min(leader.num_computed, len(leader.token_ids) - 1)
    leader.life.advance(SequenceState.PREFILLING)
    return True


def announce(request: Request, placement: Placement) -> Prefilled | None:
    """The blocks of an EXPORT request that became final and that its reader lacks."""
    leader, first = request.leader, request.num_announced
    last = leader.num_computed // placement.block_size
    if not leader.num_remaining:
        last = len(leader.blocks)
    if last <= first:
        return None
    request.num_announced = last
    return Prefilled(
        request.request_id,
        BlockSpan(first, list(leader.blocks.block_ids[first:last])),
        request.body.digest_tokens,
    )
