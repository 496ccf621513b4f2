"""Which of several answers a body wants: the likeliest of those sampled, or those of a beam search.

best_of: m                  m are sampled, and the n with the highest mean logprob told
use_beam_search             the n best of n beams; of best_of beams, where that is given
"""

from __future__ import annotations

import msgspec

from cluster.beam_search import MAX_BEAMS, MIN_BEAMS, BeamSearch, EarlyStopping
from cluster.errors import InvalidRequest
from cluster.sampling import MAX_CHOICES, in_words
from router.api.reading.schema import ChatRequest, SamplingFields
from router.api.reading.tools import offered

_STOPPING = {
    None: EarlyStopping.NO_BETTER_NOW,
    False: EarlyStopping.NO_BETTER_NOW,
    True: EarlyStopping.AT_ONCE,
    "never": EarlyStopping.NEVER_BETTER,
}


class SeveralAnswers(msgspec.Struct, frozen=True):
    """What is made, and how much of it is told."""

    num_made: int
    num_best: int | None = None
    """Of those made, the likeliest; None: all are told."""
    beams: BeamSearch | None = None


def several_answers_of(request: SamplingFields) -> SeveralAnswers | None:
    """None: `n` says it all. Raises InvalidRequest."""
    if request.early_stopping is not None:
        _stopping_of(request)
    if not request.use_beam_search and request.best_of is None:
        return None
    num_told, num_made = 1 if request.n is None else request.n, request.best_of
    if num_made is not None and not 1 <= num_told <= num_made <= MAX_CHOICES:
        raise InvalidRequest(
            f"best_of is {in_words(num_made)} and n is {in_words(num_told)}; allowed: 1 <= n <= "
            f"best_of <= {MAX_CHOICES}",
            param="best_of",
        )
    if request.use_beam_search:
        return SeveralAnswers(num_told, beams=_beams_of(request, num_made or num_told))
    if num_made is None or num_made == num_told:
        return None
    _refuse_stream(request, "best_of")
    return SeveralAnswers(num_made, num_best=num_told)


def _beams_of(request: SamplingFields, width: int) -> BeamSearch:
    _refuse_stream(request, "use_beam_search")
    if not MIN_BEAMS <= width <= MAX_BEAMS:
        raise InvalidRequest(
            f"use_beam_search with {in_words(width)} beams; allowed: {MIN_BEAMS} to {MAX_BEAMS}: "
            "say how many with n, or with best_of where fewer are to be told",
            param="n",
        )
    if isinstance(request, ChatRequest) and offered(request):
        raise InvalidRequest(
            "tools do not go with use_beam_search; leave out one of them", param="tools"
        )
    penalty = request.length_penalty
    return BeamSearch(
        width=width,
        length_penalty=1.0 if penalty is None else penalty,
        early_stopping=_stopping_of(request),
    )


def _stopping_of(request: SamplingFields) -> EarlyStopping:
    said = request.early_stopping
    if said is None or isinstance(said, bool | str):
        stopping = _STOPPING.get(said)
        if stopping is not None:
            return stopping
    raise InvalidRequest('early_stopping is true, false or "never"', param="early_stopping")


def _refuse_stream(request: SamplingFields, name: str) -> None:
    """Which answer is told first is known at the end."""
    if request.stream:
        raise InvalidRequest(
            f"{name} is not available in a stream; leave stream out", param="stream"
        )
