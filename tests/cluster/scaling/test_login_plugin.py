"""A kubeconfig's plugin is heard, and has ended when nobody waits for it any more."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from kubernetes.aio.config.kube_config import ConfigNode

from cluster.scaling import login_plugin
from cluster.scaling.login_plugin import PluginFailed, answer_of
from tests.patience import PATIENCE

VERSION = "client.authentication.k8s.io/v1"
WAITS = """
import os, pathlib, signal, subprocess, sys, time
if {is_deaf}:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
own = [sys.executable, "-c", "import time; time.sleep(3600)"]
pids = [os.getpid(), subprocess.Popen(own).pid]
place = pathlib.Path({place!r})
place.with_suffix(".part").write_text(" ".join(map(str, pids)))
place.with_suffix(".part").rename(place)
time.sleep(3600)
"""


def plugin(program: str) -> Any:
    """As the client library has what a kubeconfig says."""
    terms = {"apiVersion": VERSION, "command": sys.executable, "args": ["-c", program]}
    return ConfigNode("exec", terms)


def printing(answer: Any) -> Any:
    return plugin(f"print({json.dumps(answer)!r})")


async def test_its_answer_is_heard_and_it_is_told_how_it_is_asked() -> None:
    told = "json.loads(os.environ['KUBERNETES_EXEC_INFO'])"
    answer = f"json.dumps({{'apiVersion': '{VERSION}', 'status': {told}}})"
    status = await answer_of(plugin(f"import json, os; print({answer})"), is_alone=True)
    assert status["apiVersion"] == VERSION and status["spec"] == {"interactive": False}


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        (plugin("raise SystemExit('log in')"), "ended with 1: log in"),
        (plugin("print('{')"), "printed no JSON"),
        (printing([]), "no ExecCredential"),
        (printing({"apiVersion": VERSION}), "no ExecCredential"),
        (printing({"apiVersion": "v9", "status": {}}), f"no ExecCredential of {VERSION}"),
    ],
)
async def test_of_one_that_gives_nothing_its_words_are_told(terms: Any, words: str) -> None:
    with pytest.raises(PluginFailed, match=words):
        await answer_of(terms, is_alone=True)


@pytest.mark.parametrize("is_deaf", [False, True])
async def test_one_that_does_not_end_is_ended_with_all_that_it_began(
    is_deaf: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_plugin, "END_S", 0.2)
    place = tmp_path / "pids"
    terms = plugin(WAITS.format(is_deaf=is_deaf, place=str(place)))
    asking = asyncio.create_task(answer_of(terms, is_alone=True))
    pids = [int(word) for word in (await begun(place, asking)).split()]
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    async with asyncio.timeout(20.0 * PATIENCE):
        while any(map(is_alive, pids)):
            await asyncio.sleep(0.02)


async def test_one_before_which_somebody_sits_is_ended_with_the_command(tmp_path: Path) -> None:
    place = tmp_path / "pids"
    terms = plugin(WAITS.format(is_deaf=False, place=str(place)))
    asking = asyncio.create_task(answer_of(terms, is_alone=False))
    own, child = map(int, (await begun(place, asking)).split())
    assert os.getpgid(own) == os.getpgid(0), "Ctrl-C reaches it, and it may read the terminal"
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not is_alive(own)
    psutil.Process(child).kill()


async def begun(place: Path, asking: asyncio.Task[Any]) -> str:
    async with asyncio.timeout(60.0 * PATIENCE):
        while not place.exists():
            assert not asking.done()
            await asyncio.sleep(0.02)
    return place.read_text()


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
