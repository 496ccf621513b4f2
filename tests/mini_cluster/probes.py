"""Questions to a container: is it there, alive, ready?"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import grpc
import httpx

from tests.mini_cluster.history import Object

RunInside = Callable[[Sequence[str]], Awaitable[tuple[int, str]]]
_SERVING = b"\x08\x01"
"""grpc.health.v1.HealthCheckResponse with its first field, the status, at 1."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Who is asked."""

    address: str
    container: Object
    run_inside: RunInside

    def port(self, given: int | str) -> int:
        """A port's number, by name or number."""
        if isinstance(given, int):
            return given
        ports = self.container.get("ports", [])
        named: int = next(port["containerPort"] for port in ports if port.get("name") == given)
        return named


async def failure_of(probe: Object, asked: Asked) -> str:
    """What is wrong; "" if nothing is. Never longer than the probe's `timeoutSeconds`."""
    wrong = await _failure_of(probe, asked)
    task = asyncio.current_task()
    if task is not None and task.cancelling():  # a container that ends as it is asked hides it
        raise asyncio.CancelledError
    return wrong


async def _failure_of(probe: Object, asked: Asked) -> str:
    try:
        async with asyncio.timeout(probe.get("timeoutSeconds", 1)):
            return await _ask(probe, asked)
    except TimeoutError:
        return "no answer in time"
    except (OSError, httpx.HTTPError, grpc.aio.AioRpcError) as error:
        return f"{type(error).__name__}: {error}"


async def _ask(probe: Object, asked: Asked) -> str:
    if "httpGet" in probe:
        return await get(probe["httpGet"], asked)
    if "exec" in probe:
        code, said = await asked.run_inside(probe["exec"]["command"])
        return f"exit code {code}: {said[-500:]}" if code else ""
    if "grpc" in probe:
        return await _check_health(probe["grpc"], asked)
    port = asked.port(probe["tcpSocket"]["port"])
    _, writer = await asyncio.open_connection(asked.address, port)
    writer.close()
    return ""


async def get(action: Object, asked: Asked) -> str:
    """As an `httpGet` says; any answer from 200 to 399 will do, of whatever certificate."""
    scheme = action.get("scheme", "HTTP").lower()
    host, port = action.get("host", asked.address), asked.port(action["port"])
    headers = {header["name"]: header["value"] for header in action.get("httpHeaders", [])}
    async with httpx.AsyncClient(verify=False, timeout=None, trust_env=False) as client:  # noqa: S501
        url = f"{scheme}://{host}:{port}{action.get('path', '/')}"
        response = await client.get(url, headers=headers)
    return "" if response.status_code < 400 else f"HTTP {response.status_code}"


async def _check_health(action: Object, asked: Asked) -> str:
    service = action.get("service", "").encode()
    request = b"\x0a" + bytes([len(service)]) + service if service else b""
    async with grpc.aio.insecure_channel(f"{asked.address}:{action['port']}") as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        answer = await check(request)
    return "" if answer.startswith(_SERVING) else "not serving"
