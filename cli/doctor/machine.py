"""Checks of the machine: processor, memory, limits, disk, ports."""

from __future__ import annotations

import ctypes
import re
import resource
import shutil
import tempfile
from functools import partial
from pathlib import Path

from cli.doctor.finding import Check, Finding, broken, fine, poor
from cluster.errors import ConfigError
from cluster.home import default_home
from cluster.models.files.disk import free_bytes
from cluster.process.free_memory import free_memory_bytes
from cluster.process.own_cores import available_cores
from cluster.supervisor.ports import claimed_port
from cluster.terminal_text import size_in_words
from kernels.cpu.levels import levels_of

MIN_MEMORY_BYTES = 1 * 2**30
GOOD_MEMORY_BYTES = 3 * 2**30
"""The default fleet of two workers in bfloat16 with their default KV pools."""
MIN_DISK_BYTES = 512 * 2**20
GOOD_SHM_BYTES = 64 * 2**20
GOOD_MEMLOCK_BYTES = 1 * 2**30
MIN_OPEN_FILES = 1024
_IPC_LOCK = 14
"""Number of the capability, in linux/capability.h."""
_MORE_MEMLOCK = (
    "RDMA cannot register a KV pool: ulimit -l unlimited, LimitMEMLOCK=infinity of a service, or "
    "docker run --ulimit memlock=-1; a pod has the limit of its node's container runtime, and "
    "IPC_LOCK is of use to root alone (docs/kubernetes.md, Locked memory)"
)
_RDMA_CARDS = Path("/sys/class/infiniband")
_VERBS = "libibverbs.so.1"
_BF16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")
_VECTOR_FLAGS = ("avx512f", "avx2", "asimd")


def machine_checks(ports: tuple[int, int]) -> list[Check]:
    """`ports` are HTTP and gRPC of the router."""
    http, grpc = ports
    return [
        Check("cpu", _cpu),
        Check("memory", _memory),
        Check("shm", _shared_memory),
        Check("memlock", _memlock),
        *([Check("verbs", _verbs)] if _rdma_cards() else []),
        Check("files", _open_files),
        Check("cache", _cache),
        Check("port", partial(_port, http, "--port")),
        Check("grpc-port", partial(_port, grpc, "--grpc-port")),
    ]


def _cpu(cpuinfo: Path = Path("/proc/cpuinfo")) -> Finding:
    known = set(cpuinfo.read_text().split()) if cpuinfo.exists() else set()
    bf16 = [flag for flag in _BF16_FLAGS if flag in known]
    vector = [flag for flag in _VECTOR_FLAGS if flag in known][:1]
    text = f"{available_cores()} cores, {' '.join(vector + bf16) or 'no vector extensions known'}"
    if bf16 or levels_of(known):  # native kernels widen it on their way
        return fine(text)
    return poor(text, "bfloat16 is emulated on this CPU: --dtype float32 is usually faster")


def _memory() -> Finding:
    free = free_memory_bytes()
    text = f"{size_in_words(free)} of memory free"
    if free < MIN_MEMORY_BYTES:
        return broken(text, f"a fleet needs {size_in_words(MIN_MEMORY_BYTES)} or more")
    if free < GOOD_MEMORY_BYTES:
        return poor(text, "limit the pools with --kv-memory-bytes 256MiB")
    return fine(text)


def _shared_memory() -> Finding:
    path = Path("/dev/shm")
    if not path.is_dir():
        return poor("no /dev/shm", "transfers on one machine will go over TCP")
    free = shutil.disk_usage(path).free
    text = f"/dev/shm has {size_in_words(free)} free"
    if free < GOOD_SHM_BYTES:
        return poor(
            text,
            "transfers on one machine and NCCL between its GPUs need it; enlarge it: docker run "
            "--shm-size 1g, or an emptyDir of medium Memory",
        )
    return fine(text)


def _memlock(status: Path = Path("/proc/self/status")) -> Finding:
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit == resource.RLIM_INFINITY:
        return fine("memlock is unlimited")
    text = f"memlock limit is {size_in_words(limit)}"
    if limit >= GOOD_MEMLOCK_BYTES:
        return fine(text)
    if _may_lock_memory(status):
        return fine(f"{text}, and CAP_IPC_LOCK is in effect, which passes it")
    return poor(text, _MORE_MEMLOCK)


def _may_lock_memory(status: Path) -> bool:
    """Whether the capability is in effect: to be allowed it is not enough, unless for root."""
    lines = status.read_text().splitlines() if status.exists() else []
    effective = [int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")]
    return bool(effective and effective[0] & 1 << _IPC_LOCK)


def _rdma_cards() -> list[str]:
    return sorted(path.name for path in _RDMA_CARDS.iterdir()) if _RDMA_CARDS.is_dir() else []


def _verbs() -> Finding:
    """NCCL loads them by that name; NIXL's wheel has its own, under another."""
    cards = f"RDMA over {', '.join(_rdma_cards())}"
    try:
        ctypes.CDLL(_VERBS)
    except OSError:
        return poor(
            f"{cards}: {_VERBS} is not installed",
            "ranks of several hosts would talk over TCP: install libibverbs1 and ibverbs-providers "
            "(rdma-core)",
        )
    return fine(f"{cards}: NCCL finds {_VERBS}")


def _open_files() -> Finding:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{limit} open files allowed"
    return fine(text) if limit >= MIN_OPEN_FILES else poor(text, "raise it: ulimit -n 65536")


def _cache() -> Finding:
    try:
        home = default_home()
    except ConfigError as error:
        return broken(error.message, "set SPLITSERVE_HOME to a folder that can be written")
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            free = free_bytes(home)
    except OSError as cause:
        text = f"{home} cannot be written: {cause.strerror}"
        return broken(text, "set SPLITSERVE_HOME to a folder that can")
    text = f"{home} is writable, {size_in_words(free)} free"
    if free < MIN_DISK_BYTES:
        return poor(text, "models may not fit: set SPLITSERVE_HOME to a folder on a larger disk")
    return fine(text)


def _port(port: int, flag: str) -> Finding:
    try:
        claimed_port("127.0.0.1", port, flag=flag)
    except ConfigError as error:
        holder = re.search(r"\(by .*?\)", error.message)
        taken = f"port {port} is taken {holder[0] if holder else ''}".rstrip()
        return poor(taken, f"if that is not this fleet, start with another {flag}")
    return fine(f"port {port} is free")
