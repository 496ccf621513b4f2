"""One folder for all that is kept, whoever asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.errors import ConfigError
from cluster.home import default_home, kernels_folder
from cluster.models.cache.store import ModelStore


def test_home_is_the_environments_or_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLITSERVE_HOME", "/somewhere")
    assert default_home() == Path("/somewhere")
    monkeypatch.delenv("SPLITSERVE_HOME")
    monkeypatch.setenv("HOME", "/users/me")
    assert default_home() == Path("/users/me/.cache/splitserve")


def test_a_tilde_that_no_shell_has_read_is_the_users_folder_for_models_and_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPLITSERVE_HOME", "~/ss")
    monkeypatch.setenv("HOME", "/users/me")
    assert ModelStore().root == Path("/users/me/ss/models")
    assert kernels_folder() == Path("/users/me/ss/kernels")


def test_a_tilde_of_nobody_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLITSERVE_HOME", "~nobody-of-this-name/ss")
    with pytest.raises(ConfigError, match="SPLITSERVE_HOME"):
        kernels_folder()
