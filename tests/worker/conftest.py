"""What tests of workers have in common."""

from __future__ import annotations

import pytest

from tests import free_ports


@pytest.fixture
def free_port() -> int:
    """A port that nobody listens on now."""
    return free_ports.free_port()
