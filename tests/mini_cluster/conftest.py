"""One cluster for a module's tests: each works in names of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.mini_cluster.cluster import MiniCluster, mini_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniCluster]:
    """API and store alone; nothing runs in it."""
    with mini_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made
