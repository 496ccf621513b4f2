"""Whatever a request brings for its template, it is answered or refused: nothing between the router
and a text worker is ended by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.errors import InternalError, InvalidRequest
from cluster.models.card import ModelCard
from router.front.generation_request import Rendering
from router.front.model_loading import load_text_side
from router.front.text_work import Door
from router.text_worker.child import _reply
from router.text_worker.desk import TextDesk
from router.text_worker.limits import TextLimits
from router.text_worker.messages import (
    LENGTHS,
    EncodeChat,
    Ids,
    ReadLarge,
    Refusal,
    pack_refusal,
    pack_task,
    size_of,
    to_router,
)

ENDLESS = TextLimits(1 << 40, cpu_s=1_000_000)
"""The test's own process is not to be limited."""
HALF_CHARACTERS = st.text(st.characters(codec=None), max_size=3)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), HALF_CHARACTERS
)
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(HALF_CHARACTERS, inner, max_size=3)
    ),
    max_leaves=6,
)


def nested(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(value=ANYTHING, depth=st.sampled_from([0, 0, 0, 1, 300, 900, 2000]))
def test_any_template_variable_is_packed_and_answered_or_refused(
    card_with: Callable[[str], ModelCard],
    desks: dict[str, TextDesk],
    same_limits_after: None,
    value: Any,
    depth: int,
) -> None:
    source = "{{ x }}hello{% if x is mapping %}{{ x[x|first] }}{% endif %}"
    if source not in desks:
        desks[source] = TextDesk(load_text_side(card_with(source), "tiny"))
    rendering = Rendering(variables={"x": nested(value, depth)})
    task = EncodeChat((("user", "hello"),), rendering, 1000)
    try:
        packed = pack_task(task, 0)
    except InvalidRequest as error:
        assert error.message
        return
    head, payload = _reply(desks[source], ENDLESS, packed[LENGTHS.size :], b"")
    reply = to_router(head[LENGTHS.size :])
    assert isinstance(reply, Ids | Refusal)
    if isinstance(reply, Refusal):
        assert not isinstance(reply.error(), InternalError)
    else:
        assert len(payload) == 4 * reply.lengths[0]


def test_all_that_a_client_gave_a_template_is_work() -> None:
    """It is due as late as it is large, and has its time on a core by it."""

    def size_with(variables: dict[str, Any]) -> int:
        task = EncodeChat((("user", "hello"),), Rendering(variables=variables), 1000)
        return size_of(task, pack_task(task, 0), b"")

    assert size_with({}) < 300
    assert 100_000 < size_with({"mine": ["text " * 1000] * 20}) < 101_000
    assert size_of(ReadLarge(Door.CHAT, 1000), b"", b"x" * 5000) == 5000


def test_a_refusal_whose_words_are_no_text_still_travels() -> None:
    reply = to_router(pack_refusal(InvalidRequest("half: \ud800"))[LENGTHS.size :])
    assert isinstance(reply, Refusal) and reply.error().message == "half: ?"
