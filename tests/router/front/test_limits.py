"""The doors share what the process can open."""

from __future__ import annotations

import resource

import pytest

from router.front.limits import (
    MAX_GRPC_CONNECTIONS,
    MIN_CONNECTIONS,
    RESERVED_DESCRIPTORS,
    shared_descriptors,
)


@pytest.mark.parametrize("descriptors", [1024, 4096, 65_536, 1 << 20])
def test_the_connections_of_both_doors_are_no_more_than_the_process_can_open(
    descriptors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))
    shares = shared_descriptors()
    assert shares.http + shares.grpc + RESERVED_DESCRIPTORS <= descriptors
    assert shares.http >= 3 * shares.grpc
    assert MIN_CONNECTIONS <= shares.grpc <= MAX_GRPC_CONNECTIONS
