"""Which decode workers have room for a request, and how long its answer may be there.

A length that the client asked for is kept or refused. A length that nobody asked for is all the
room of the roomiest worker: elsewhere it is what that worker has.
"""

from __future__ import annotations

import msgspec

from cluster.beam_search import BeamSearch
from router.dispatch.stream import RoutedRequest
from router.fleet.member import FleetMember

USUAL_ANSWER_TOKENS = 4096
"""Room for so many more tokens makes a worker as good as a roomier one, where nobody asked for a
length."""


def with_room(members: list[FleetMember], request: RoutedRequest) -> list[FleetMember]:
    """Those that can hold the request. Where it named no length and none can hold a usual answer:
    the roomiest of those that can hold its shortest one."""
    begun_tokens = request.num_begun_tokens
    able = with_as_much_room(members, request, begun_tokens)
    if able or not request.is_default_length:
        return able
    able = _holding(members, request, _shortest(request, begun_tokens))
    largest = max((item.capacity_tokens for item in able), default=0)
    return [item for item in able if item.capacity_tokens == largest]


def with_as_much_room(
    members: list[FleetMember], request: RoutedRequest, begun_tokens: int
) -> list[FleetMember]:
    """Those that a request, whose longest choice has so many tokens already, is not cut short by
    more than by any other."""
    max_tokens = request.sampling.max_tokens
    if not request.is_default_length:
        return _holding(members, request, max_tokens)
    usual = min(max_tokens, begun_tokens + USUAL_ANSWER_TOKENS)
    return _holding(members, request, max(_shortest(request, begun_tokens), usual))


def cut_to(request: RoutedRequest, worker: FleetMember) -> RoutedRequest:
    """The request as one of `with_room` is sent it."""
    room = worker.capacity_tokens - len(request.token_ids)
    if request.sampling.beams is not None:
        room = min(room, _room_of_beams(request, request.sampling.beams, worker))
    if not request.is_default_length or request.sampling.max_tokens <= room:
        return request
    sampling = msgspec.structs.replace(request.sampling, max_tokens=max(1, room))
    return msgspec.structs.replace(request, sampling=sampling)


def _shortest(request: RoutedRequest, begun_tokens: int) -> int:
    return max(begun_tokens + 1, request.sampling.min_tokens)


def _holding(
    members: list[FleetMember], request: RoutedRequest, answer_tokens: int
) -> list[FleetMember]:
    needed = len(request.token_ids) + answer_tokens
    able = [item for item in members if item.capacity_tokens >= needed]
    beams = request.sampling.beams
    if beams is None:
        return able
    return [item for item in able if _room_of_beams(request, beams, item) >= answer_tokens]


def _room_of_beams(request: RoutedRequest, beams: BeamSearch, worker: FleetMember) -> int:
    """Tokens that every beam of a search can have there: see BeamSearch.stored_tokens."""
    size, num_prompt = worker.member.pairing.block_size_tokens, len(request.token_ids)
    num_blocks = worker.pool_tokens // size
    shared = num_prompt // size
    own = (num_blocks - shared - beams.width // 2) // beams.width
    return max(0, (shared + own) * size - num_prompt)
