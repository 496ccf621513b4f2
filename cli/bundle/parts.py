"""What goes into a bundle, part by part; each may fail by itself."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict

from cli.config.roles import OPTIONS_OF, ProcessKind
from cli.config.shown import options_data
from cli.fleet_status import ask_fleet
from cluster import VERSION
from cluster.dial.dialer import Dialer, OperatorLink
from cluster.errors import ConfigError
from cluster.home import default_home
from cluster.identity import Role
from cluster.options import CONFIG_VARIABLE, resolve_options, without_options
from cluster.process.own_python import module_argv, module_environ
from cluster.redaction import Redactor
from protos import router_admin_pb2

NUM_REQUESTS = 20
"""That are told about: the slowest that the router remembers."""
MAX_LOGS = 64
MAX_LOG_BYTES = 1 * 2**20
"""Of each, from its end."""
ROUTER_TIMEOUT_S = 5.0
_DISTRIBUTIONS = ("grpcio", "protobuf", "torch", "triton", "nixl-cu12", "nixl-cu13", "ray", "numpy")
_ABOUT_US = (
    *("SPLITSERVE_", "CUDA_", "NVIDIA_", "UCX_", "NIXL_", "NCCL_", "GLOO_", "RAY_", "HF_"),
    *("OMP_", "MKL_", "KUBERNETES_", "TORCH_", "TRITON_", "OTEL_"),
)

Gatherer = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class BundlePart:
    """One file: text, or what JSON can hold."""

    name: str
    gather: Gatherer


def fleet_parts(dialer: Dialer, address: str) -> list[BundlePart]:
    """Of the fleet whose router is at `address`."""

    def asked(ask: Callable[[OperatorLink], Awaitable[object]]) -> Gatherer:
        async def gather() -> object:
            link = dialer.operator(address)
            try:
                return await ask(link)
            finally:
                await link.close()

        return gather

    async def status() -> object:
        return await ask_fleet(dialer, address, check=False)

    return [
        BundlePart("status.json", status),
        BundlePart("members.json", asked(_members)),
        BundlePart("router-options.json", asked(_options)),
        BundlePart("traces.json", asked(_traces)),
        BundlePart("explains.json", asked(_explains)),
        BundlePart("router-metrics.txt", asked(_metrics)),
    ]


def machine_parts(redactor: Redactor, log_dir: Path | None) -> list[BundlePart]:
    """Of this machine."""
    parts = [
        BundlePart("versions.json", _at_once(versions)),
        BundlePart("environment.json", _at_once(environment)),
    ]
    for kind in ProcessKind:
        options = _at_once(partial(_own_options, kind, redactor))
        parts.append(BundlePart(f"options/{kind.value}.json", options))
    for path in _logs(log_dir):
        parts.append(BundlePart(f"logs/{path.name}", _at_once(partial(_end_of, path))))
    return parts


def doctor_part() -> BundlePart:
    """A process of its own: what hangs there can be killed."""

    async def findings() -> object:
        argv = module_argv("cli", "doctor", "-o", "json")
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=without_options(os.environ) | module_environ(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            out, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return json.loads(out)

    return BundlePart("doctor.json", findings)


def versions() -> dict[str, Any]:
    """Of what runs here."""
    return {
        "splitserve": VERSION,
        "python": sys.version,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "distributions": {name: _version_of(name) for name in _DISTRIBUTIONS},
    }


def environment() -> dict[str, str]:
    """Variables that somebody may have set for us; of others there is not even a name."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(_ABOUT_US)}


def _at_once(look: Callable[[], object]) -> Gatherer:
    async def gather() -> object:
        return await asyncio.to_thread(look)

    return gather


def _version_of(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _own_options(kind: ProcessKind, redactor: Redactor) -> object:
    """As it would be started here; what is wrong with them is worth knowing, too."""
    file = os.environ.get(CONFIG_VARIABLE)
    fixed = {
        ProcessKind.PREFILL_WORKER: {"role": Role.PREFILL},
        ProcessKind.DECODE_WORKER: {"role": Role.DECODE},
    }.get(kind)
    try:
        found = resolve_options(OPTIONS_OF[kind], fixed, config_file=Path(file) if file else None)
    except ConfigError as refusal:
        return {"refused": refusal.message}
    return options_data(found, redactor)


def _logs(log_dir: Path | None) -> list[Path]:
    """Of the latest `serve` of this home, or of a folder that was named."""
    try:
        home = default_home() / "logs"
        starts = sorted(path for path in home.iterdir() if path.is_dir()) if log_dir is None else []
        folder = log_dir or (starts[-1] if starts else None)
        found = sorted(folder.glob("*.log")) if folder is not None else []
    except (OSError, ConfigError):
        return []
    return found[:MAX_LOGS]


def _end_of(path: Path) -> str:
    """From the first whole line of it on: half of a secret would be known by no pattern."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - MAX_LOG_BYTES))
        text = file.read(MAX_LOG_BYTES).decode(errors="replace")
    return text if size <= MAX_LOG_BYTES else text.partition("\n")[2]


def _fields(message: Any) -> dict[str, Any]:
    return MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


async def _members(link: OperatorLink) -> object:
    told = _fields(await link.members(timeout_s=ROUTER_TIMEOUT_S))
    for state in told["members"]:
        for secret in ("kv_reader_secret", "kv_events_key"):
            state["member"].pop(secret, None)
    return told


async def _options(link: OperatorLink) -> object:
    return _fields(await link.options(timeout_s=ROUTER_TIMEOUT_S))


async def _slowest(link: OperatorLink) -> list[router_admin_pb2.RequestTrace]:
    asked = router_admin_pb2.TraceRequest(slowest=NUM_REQUESTS)
    return list((await link.trace(asked, timeout_s=ROUTER_TIMEOUT_S)).traces)


async def _traces(link: OperatorLink) -> object:
    return [_fields(trace) for trace in await _slowest(link)]


async def _explains(link: OperatorLink) -> object:
    decisions = []
    for trace in await _slowest(link):
        asked = router_admin_pb2.ExplainRequest(request_id=trace.request_id)
        told = await link.explain(asked, timeout_s=ROUTER_TIMEOUT_S)
        decisions += [_fields(decision) for decision in told.decisions]
    return decisions


async def _metrics(link: OperatorLink) -> str:
    return await link.metrics(timeout_s=ROUTER_TIMEOUT_S)
