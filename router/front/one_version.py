"""One request is answered by one version of its adapter.

    inputs are computed, each by what the name stands for when it is sent -> all by one: told
                                  '-> a name got new weights meanwhile: what others than the newest
                                      have computed is computed again -> ... -> NotReady

Numbers of two versions say nothing beside each other: the embeddings of an answer are of one, and
so are both texts of a score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from cluster.adapter import Adapter
from cluster.errors import NotReady
from cluster.logs import get_logger
from router.dispatch.stream import RoutedRequest

MAX_RUNS: Final = 3
"""Of one request's inputs: one whose adapter gets new weights more often is refused."""
_log = get_logger("router.front")


def outdated(
    first: RoutedRequest, digests: Mapping[int, str], find: Callable[[str], Adapter | None]
) -> list[int]:
    """Inputs that are to be computed again, of a request whose first one is `first`. `digests`: by
    input, of the versions that have computed them; `find`: what a name stands for now."""
    if first.adapter is None or len(set(digests.values())) < 2:
        return []
    newest = find(first.adapter.name)
    late = [at for at, digest in digests.items() if newest is None or digest != newest.digest]
    _log.info(
        "an adapter got new weights while inputs of a request were computed; those of older ones "
        "do not count",
        request_id=first.request_id,
        adapter=first.adapter.name,
        inputs=len(late),
    )
    return late


def again(routed: RoutedRequest, turn: int) -> RoutedRequest:
    """An input to be computed once more, by a name that no worker has heard. It follows the first
    one, with which its request was let in, and its way is not kept."""
    return msgspec.structs.replace(
        routed,
        request_id=f"{routed.request_id}-again{turn}",
        num_inputs=1,
        follows=routed.follows or routed.request_id,
        trace=None,
    )


def never_one(first: RoutedRequest) -> NotReady:
    """For a request whose inputs never had one version."""
    name = "" if first.adapter is None else first.adapter.name
    return NotReady(
        f"the adapter {name} got new weights each of the {MAX_RUNS} times that inputs of this "
        "request were computed; send it again, or fewer inputs at once"
    )
