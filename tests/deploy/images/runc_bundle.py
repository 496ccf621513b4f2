"""What runc is told: a container's configuration, by the specification of the Open Container
Initiative."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.deploy.images.asked_container import LOCKED_BYTES, OPEN_FILES, ContainerTold

_SECCOMP = Path("/usr/share/containers/seccomp.json")
"""What `RuntimeDefault` means to podman; its packages bring it."""
_NO_CAPABILITIES: dict[str, list[str]] = {
    kind: [] for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")
}
_MASKED = ("acpi", "kcore", "keys", "latency_stats", "timer_list", "sched_debug", "scsi")
_READ_ONLY = ("asound", "bus", "fs", "irq", "sys", "sysrq-trigger")


def bundle(told: ContainerTold, root: str) -> dict[str, Any]:
    """`root`: a folder with the image's files, which is the container's alone."""
    return {
        "ociVersion": "1.0.2",
        "process": _process(told),
        "root": {"path": root, "readonly": told.read_only_root},
        "hostname": told.hostname,
        "mounts": _mounts(told),
        "linux": {
            "cgroupsPath": f"/{told.name}",
            "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")],
            "maskedPaths": [f"/proc/{name}" for name in _MASKED] + ["/sys/firmware"],
            "readonlyPaths": [f"/proc/{name}" for name in _READ_ONLY],
            "resources": {"memory": {"limit": told.memory_limit_bytes}},
            "seccomp": seccomp(json.loads(_SECCOMP.read_text())),
        },
    }


def _process(told: ContainerTold) -> dict[str, Any]:
    limits = {"NOFILE": OPEN_FILES, "MEMLOCK": LOCKED_BYTES, "NPROC": 4096}
    return {
        "user": {"uid": told.user, "gid": told.group, "additionalGids": [told.volumes_group]},
        "args": list(told.command),
        "env": told.words,
        "cwd": "/",
        "capabilities": _NO_CAPABILITIES,
        "noNewPrivileges": True,
        "rlimits": [
            {"type": f"RLIMIT_{name}", "hard": limit, "soft": limit}
            for name, limit in limits.items()
        ],
    }


def _mounts(told: ContainerTold) -> list[dict[str, Any]]:
    devices = ["nosuid", "strictatime", "mode=755", "size=65536k"]
    terminals = ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]
    quiet = ["nosuid", "noexec", "nodev"]
    return [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": devices},
        {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": terminals},
        {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": quiet},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": [*quiet, "ro"]},
        *(
            {
                "destination": memory.target,
                "type": "tmpfs",
                "source": "tmpfs",
                "options": [*quiet, "mode=1777", f"size={memory.size_bytes}"],
            }
            for memory in told.memories
        ),
        *(
            {
                "destination": mount.target,
                "type": "bind",
                "source": mount.source,
                "options": ["bind", "ro" if mount.read_only else "rw"],
            }
            for mount in told.mounts
        ),
    ]


def seccomp(profile: dict[str, Any]) -> dict[str, Any]:
    """A profile with conditions, for x86-64 and a process without a capability."""
    rules = [_rule(rule) for rule in profile["syscalls"] if _holds(rule)]
    return {
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": profile.get("defaultErrnoRet", 1),
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": rules,
    }


def _holds(rule: dict[str, Any]) -> bool:
    wanted, unwanted = rule.get("includes") or {}, rule.get("excludes") or {}
    is_ours = "amd64" in wanted.get("arches", ["amd64"])
    return is_ours and not wanted.get("caps") and "amd64" not in unwanted.get("arches", [])


def _rule(rule: dict[str, Any]) -> dict[str, Any]:
    made = {"names": rule["names"], "action": rule["action"], "args": rule["args"] or []}
    return made | ({"errnoRet": rule["errnoRet"]} if "errnoRet" in rule else {})
