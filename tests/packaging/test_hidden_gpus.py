"""`make test` on a machine with a GPU is the suite that runs everywhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from cluster.supervisor.devices import NvidiaHost, visible_gpus
from tests.fleet.support import clean_environment
from tests.hidden_gpus import hide_gpus


@pytest.fixture
def host(tmp_path: Path) -> NvidiaHost:
    for name in ("nvidia0", "nvidia1"):
        (tmp_path / name).touch()
    return NvidiaHost(tmp_path)


def test_neither_tests_nor_their_fleets_see_the_gpus_of_this_machine(host: NvidiaHost) -> None:
    assert visible_gpus(os.environ, host) == ()
    assert visible_gpus(clean_environment(), host) == ()
    assert not torch.cuda.is_available()
    assert os.environ["TRITON_INTERPRET"] == "1"


@pytest.mark.parametrize("asked_for", ["", "not slow and not compiles and not long", "not gpu"])
def test_gpus_are_hidden_whatever_else_is_asked_for(host: NvidiaHost, asked_for: str) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "1"}
    hide_gpus(environ, asked_for)
    assert visible_gpus(environ, host) == ()


def test_tests_of_gpus_see_those_that_the_caller_left_them(host: NvidiaHost) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "1"}
    hide_gpus(environ, "gpu")
    assert visible_gpus(environ, host) == ("1",)
