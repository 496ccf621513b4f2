"""Fleets that several test files share, and the reference that they are compared with."""

import pytest

from tests.fleet.one_fleet import OneFleet, turn_of
from tests.fleet.reference import Reference


def pytest_collection_modifyitems(items):
    """Tests that share a fleet follow each other."""
    places = [i for i, item in enumerate(items) if item.nodeid.startswith("tests/fleet/")]
    turns = sorted((items[i] for i in places), key=lambda t: turn_of(t.fixturenames, t.path.stem))
    for place, item in zip(places, turns, strict=True):
        items[place] = item


@pytest.fixture(scope="session")
def reference():
    """transformers on the very weights that the fleets load, in fp32."""
    return Reference()


@pytest.fixture(scope="session")
def fleets(tmp_path_factory):
    """The fleet that runs now."""
    one = OneFleet(tmp_path_factory.mktemp)
    yield one
    one.close()


@pytest.fixture
def pair_fleet(fleets):
    """One prefill and one decode worker in fp32."""
    return fleets.running("pair_fleet")


@pytest.fixture
def fleet_of_two_ranks(fleets):
    """One decode worker that prefills itself, whose engine is two processes, in fp32, and a spare
    one."""
    return fleets.running("fleet_of_two_ranks")


@pytest.fixture
def unequal_fleet(fleets):
    """A prefill worker of three ranks and a decode worker of two, with blocks of 16 and 64 tokens,
    in fp32."""
    return fleets.running("unequal_fleet")


@pytest.fixture
def double_fleet(fleets):
    """Two prefill and two decode workers in fp32."""
    return fleets.running("double_fleet")


@pytest.fixture
def served_fleet(fleets):
    """One prefill and one decode worker in the precision that is served."""
    return fleets.running("served_fleet")


@pytest.fixture
def embedding_fleet(fleets):
    """Two prefill workers that make embeddings, and nobody who makes text, in fp32."""
    return fleets.running("embedding_fleet")


@pytest.fixture
def fleet_of_both(fleets):
    """A prefill worker of two ranks that makes embeddings as well, and a decode worker, in fp32."""
    return fleets.running("fleet_of_both")


@pytest.fixture
def stormy_fleet(fleets):
    """Two prefill workers and one decode worker, in fp32 and with little memory."""
    return fleets.running("stormy_fleet")
