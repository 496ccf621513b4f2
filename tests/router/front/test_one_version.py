"""Inputs of one request whose adapter gets new weights meanwhile: by one version, or refused."""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

import pytest
from msgspec import structs

from cluster.adapter import Adapter
from cluster.errors import NotReady
from router.dispatch.stream import RoutedRequest, StreamEvent
from router.front.one_version import MAX_RUNS
from router.front.pipeline import CompletionPipeline
from router.front.pooled_prompts import PooledPrompts, PooledRequest, PooledValues
from router.tenants.account import Account
from router.text_worker.in_process import InProcessText
from tests.router.front.test_pooled_prompts import EMBEDS, NUM_TOKENS, many
from tests.router.front.test_spending import LIMITS, Ledger
from tests.router.front_fakes import FakeSource, pooling_model, pools

VERSIONS = [Adapter("one", digit * 32) for digit in "abcdef"]
NUM_INPUTS = 40


class Fleet:
    """Its name stands for another version by what has been asked; what is sent is computed by the
    one that it stands for then, and has its number among its values."""

    def __init__(self, version_at: Callable[[int], int]) -> None:
        """`version_at`: the version, by how many inputs were sent before."""
        self._version_at = version_at
        self.source = FakeSource(self._answer)
        model = replace(pooling_model(EMBEDS), find_pooling_adapter=lambda name: self.newest)
        self.prompts = PooledPrompts(
            model, CompletionPipeline(model, self.source, InProcessText(model))
        )

    @property
    def newest(self) -> Adapter:
        return VERSIONS[self._version_at(len(self.source.requests))]

    async def _answer(self, request: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        version = self._version_at(len(self.source.requests) - 1)
        asked = structs.replace(request, adapter=VERSIONS[version])
        numbers = [float(request.token_ids[0]), float(version)]
        async for event in pools(lambda _: numbers)(asked):
            yield event

    async def pooled(self, wanted: PooledRequest) -> list[PooledValues]:
        asked = structs.replace(wanted, adapter="one")
        return await self.prompts.pooled(await self.prompts.prepare(asked))


def numbers_of(values: list[PooledValues]) -> list[tuple[float, float]]:
    """Of each: its first token, and its version."""
    return [struct.unpack("<2f", each.values) for each in values]


@pytest.mark.parametrize("num_before", [1, 17, NUM_INPUTS - 1])
async def test_what_an_older_version_has_computed_is_computed_again(num_before: int) -> None:
    fleet = Fleet(lambda num_sent: int(num_sent >= num_before))
    values = await fleet.pooled(many(num_inputs=NUM_INPUTS))
    assert numbers_of(values) == [(1.0 + at, 1.0) for at in range(NUM_INPUTS)]
    requests = fleet.source.requests
    assert len(requests) == NUM_INPUTS + num_before
    assert len({each.request_id for each in requests}) == len(requests)
    later = requests[NUM_INPUTS:]
    assert {(each.follows, each.num_inputs) for each in later} == {("r-0", 1)}


async def test_one_version_is_asked_once() -> None:
    fleet = Fleet(lambda num_sent: 2 * int(num_sent >= NUM_INPUTS))  # the next one is there after
    values = await fleet.pooled(many(num_inputs=NUM_INPUTS))
    assert {version for _, version in numbers_of(values)} == {0.0}
    assert len(fleet.source.requests) == NUM_INPUTS


async def test_inputs_that_are_computed_again_are_paid_for_once() -> None:
    ledger = Ledger()
    fleet = Fleet(lambda num_sent: int(num_sent >= 20))
    await fleet.pooled(many(Account(LIMITS, ledger), num_inputs=NUM_INPUTS))
    assert ledger.prompt_and_answer == (NUM_INPUTS * NUM_TOKENS, 0)


async def test_a_name_that_gets_new_weights_again_and_again_is_refused_for_now() -> None:
    """And is charged nothing: its client is told to send it again."""
    fleet, ledger = Fleet(lambda num_sent: num_sent % 3), Ledger()
    with pytest.raises(NotReady, match=f"new weights each of the {MAX_RUNS} times"):
        await fleet.pooled(many(Account(LIMITS, ledger), num_inputs=NUM_INPUTS))
    assert ledger.asked == [(NUM_INPUTS * NUM_TOKENS, 0.0)]
    assert ledger.prompt_and_answer == (0, 0)
