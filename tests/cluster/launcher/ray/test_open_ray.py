"""What --ray-listen and --ray-hosts mean, and what of them is refused. No Ray."""

from __future__ import annotations

import os

import pytest

from cluster.errors import ConfigError
from cluster.launcher.ray.open_ray import OpenRay, open_ray_of

HEAD_PORT = "RAY_GCS_SERVER_PORT"


def test_hosts_have_equal_parts_of_the_ranks_and_the_last_may_have_fewer() -> None:
    found = open_ray_of("10.0.0.5:6379", 2, None)
    assert found == OpenRay(host="10.0.0.5", port=6379, num_hosts=2)
    assert [found.num_ranks_of_a_host(num) for num in (2, 3, 16)] == [1, 2, 8]
    assert open_ray_of(None, 1, None) is None
    assert open_ray_of(None, 1, "10.0.0.9:6379") is None


@pytest.mark.parametrize(
    ("given", "param", "words"),
    [
        ((None, 2, None), "ray_hosts", "--ray-hosts 2 needs --ray-listen"),
        (("10.0.0.5:6379", 2, "10.0.0.9:6379"), "ray_listen", "leave one out"),
        (("10.0.0.5", 2, None), "ray_listen", "'10.0.0.5'; write host:port"),
        (("10.0.0.5:70000", 2, None), "ray_listen", "from 1 to 65535"),
        ((":6379", 2, None), "ray_listen", "write host:port"),
    ],
)
def test_what_goes_not_together_is_refused_with_the_option_and_the_remedy(
    given: tuple[str | None, int, str | None], param: str, words: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        open_ray_of(*given)
    assert refused.value.param == param and words in str(refused.value)


@pytest.mark.parametrize("before", [None, "7000"])
def test_the_heads_port_is_said_to_the_ray_that_is_started_and_to_no_other(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(HEAD_PORT, raising=False)
    if before is not None:
        monkeypatch.setenv(HEAD_PORT, before)
    with OpenRay(host="10.0.0.5", port=6379, num_hosts=2).head_port_told():
        assert os.environ[HEAD_PORT] == "6379"
    assert os.environ.get(HEAD_PORT) == before
