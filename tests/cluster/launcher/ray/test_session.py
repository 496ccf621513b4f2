"""A Ray of our own that cannot begin."""

from __future__ import annotations

import pytest

from cluster.errors import ConfigError
from cluster.launcher.ray import session
from cluster.launcher.ray.session import RaySession


def test_a_machine_that_gives_no_folder_is_told_of_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuses(*where: object) -> None:
        raise OSError(30, "Read-only file system", "/tmp")

    monkeypatch.setattr(session.OwnedFolder, "make", refuses)
    with pytest.raises(ConfigError, match=r"Read-only.*--ray-address") as refused:
        RaySession._started(object(), num_ranks=1)
    assert refused.value.param == "ray_address"
