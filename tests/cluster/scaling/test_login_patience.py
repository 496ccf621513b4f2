"""Who watches goes on for a while after the login has ended; a server that is away is no end."""

from __future__ import annotations

import pytest

from cluster.errors import LoginLost, WorkerLost
from cluster.scaling.login_patience import PATIENCE_S, LoginPatience


class Watch:
    """With a clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.patience = LoginPatience(lambda: self.now_s)

    def fails(self, failure: WorkerLost, after_s: float = 0.0) -> None:
        """So much later."""
        self.now_s += after_s
        self.patience.failed(failure)


def test_a_login_that_does_not_come_back_ends_the_watch() -> None:
    watch = Watch()
    watch.fails(LoginLost("expired"))
    watch.fails(LoginLost("expired"), PATIENCE_S - 1)
    with pytest.raises(LoginLost):
        watch.fails(LoginLost("expired"), 1)


def test_while_the_server_is_away_no_time_to_log_in_passes() -> None:
    watch = Watch()
    watch.fails(LoginLost("expired"))
    watch.fails(WorkerLost("no route"), 1)
    watch.fails(LoginLost("expired"), 5 * PATIENCE_S)
    watch.fails(LoginLost("expired"), PATIENCE_S - 1)
    with pytest.raises(LoginLost):
        watch.fails(LoginLost("expired"), 1)
