"""Options and contexts come from the test alone, whatever variables the run of all tests has."""

import os

import pytest


@pytest.fixture(autouse=True)
def _no_options_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SPLITSERVE_")]:
        if name not in ("SPLITSERVE_HOME", "SPLITSERVE_CONTEXTS"):
            monkeypatch.delenv(name)
