"""The program by which a kubeconfig logs in: begun, heard, and ended when nobody waits any more.

`aws eks get-token`, `gke-gcloud-auth-plugin`, `kubelogin`: some ask their cloud, some open a
browser and wait for somebody. The client library begins them and never ends one.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

END_S = 2.0
"""For what is told to end; then it is killed."""
_MAX_CHARS = 500
"""Of its own words: the last."""


class PluginFailed(Exception):
    """It gave nothing; the message has its words."""


async def answer_of(terms: Any, *, is_alone: bool) -> Mapping[str, Any]:
    """The status that it prints. `terms`: a kubeconfig's, as the client library has them.
    `is_alone`: nobody sits before it, so that it gets no input, and what it starts ends with it.
    It has ended when this returns, is cancelled, or raises: PluginFailed, or OSError where it
    cannot be begun."""
    from kubernetes.aio.config.exec_provider import ExecProvider

    provider = ExecProvider(terms)
    asked = {
        "apiVersion": provider.api_version,
        "kind": "ExecCredential",
        "spec": {"interactive": not is_alone and sys.stdin.isatty()},
    }
    process = await asyncio.create_subprocess_exec(
        *provider.args,
        env=provider.env | {"KUBERNETES_EXEC_INFO": json.dumps(asked)},
        stdin=DEVNULL if is_alone else None,
        stdout=PIPE,
        stderr=PIPE,
        process_group=0 if is_alone else None,
    )
    try:
        said, complained = await process.communicate()
    except BaseException:
        await _ended(process, is_group=is_alone)
        raise
    if process.returncode:
        words = " ".join(complained.decode(errors="replace").split())[-_MAX_CHARS:]
        raise PluginFailed(f"{provider.args[0]} ended with {process.returncode}: {words}")
    return _status(said, provider)


def _status(said: bytes, provider: Any) -> Mapping[str, Any]:
    name, version = provider.args[0], provider.api_version
    try:
        answer = json.loads(said)
    except ValueError as cause:
        raise PluginFailed(f"{name} printed no JSON: {cause}") from cause
    status = answer.get("status") if isinstance(answer, dict) else None
    if not isinstance(status, dict) or answer.get("apiVersion") != version:
        raise PluginFailed(f"{name} printed no ExecCredential of {version} with a status")
    return status


async def _ended(process: Process, *, is_group: bool) -> None:
    """Told, and then killed; of a group all of it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            if is_group:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await process.wait()
                if not is_group:
                    break
    # What it has begun may hold its pipes, and nothing else closes them here.
    process._transport.close()  # type: ignore[attr-defined]
