"""Who waits for an adapter is found by it, and keeps its place."""

from __future__ import annotations

import random

from engine.step.requests.adapter_use import AdapterUse
from engine.step.waiting_uses import WaitingUses


def test_whatever_comes_and_goes_they_are_in_order_and_found_by_their_adapter() -> None:
    chance, waiting = random.Random(7), WaitingUses()
    expected: list[AdapterUse] = []
    for _ in range(500):
        if expected and chance.random() < 0.5:
            use = expected.pop(chance.randrange(len(expected)))
            waiting.remove(use)
            waiting.remove(use)  # no effect
        else:
            use = AdapterUse(chance.choice("abc"), lambda use: None)
            expected.append(use)
            waiting.add(use)
        assert list(waiting) == expected and len(waiting) == len(expected)
        assert set(waiting.digests) == {use.digest for use in expected}
        for digest in "abc":
            assert waiting.of(digest) == [use for use in expected if use.digest == digest]
            assert waiting.waits_for(digest) is bool(waiting.of(digest))
    assert not waiting.waits_for(None)
