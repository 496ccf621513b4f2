"""The first process of a container, a program of its own: python -I -S container_init.py PLAN

It gives itself namespaces of mounts, processes, semaphores and names, mounts what the plan says and
forks: the child becomes the container's process 1, this one waits for it and exits as it does. With
"join" in the plan it enters those of a container that runs, as `kubectl exec` does.

SIGTERM is passed on, SIGQUIT becomes a SIGKILL; when this process dies, however, the kernel kills
process 1 and with it everything in the container. Needs root. Imports nothing of the project, whose
folder may be hidden by what is mounted.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

_NEW_MOUNTS, _NEW_NAMES, _NEW_IPC, _NEW_PIDS = 0x20000, 0x4000000, 0x8000000, 0x20000000
_READ_ONLY, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 0x1, 0x20, 0x1000, 0x4000, 0x40000
_DEATH_SIGNAL, _DROP_BOUND, _NO_NEW_PRIVILEGES = 1, 24, 38
_PASSED_ON = (signal.SIGTERM, signal.SIGQUIT)
_LIBC = ctypes.CDLL(None, use_errno=True)

Plan = dict[str, Any]


def main() -> NoReturn:
    plan: Plan = json.loads(sys.argv[1])
    _LIBC.prctl(_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    if "join" in plan:
        _join(plan["join"])
    else:
        _isolate(plan)
    child = os.fork()
    if child == 0:
        _become(plan)
    _attend(child)


def _checked(what: str, result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def _mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    words = [word.encode() or None for word in (source, target, kind)]
    result = _LIBC.mount(*words, ctypes.c_ulong(flags), options.encode() or None)
    _checked(f"mounting {target}", result)


def _join(pid: int) -> None:
    names = ("ipc", "uts", "pid_for_children", "mnt")
    for namespace in [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in names]:
        _checked("entering the container", _LIBC.setns(namespace, 0))


def _isolate(plan: Plan) -> None:
    flags = _NEW_MOUNTS | _NEW_NAMES | _NEW_IPC | _NEW_PIDS
    _checked("leaving the host's namespaces", _LIBC.unshare(flags))
    name = plan["hostname"].encode()
    _checked("naming the host", _LIBC.sethostname(name, len(name)))
    _mount("none", "/", flags=_RECURSIVE | _PRIVATE)
    mounts = sorted(plan["mounts"], key=lambda mount: mount["target"].count("/"))
    # By descriptors: a mount may hide where the next one comes from.
    sources = [os.open(mount["source"], os.O_PATH) for mount in mounts]
    covered = _make_room(plan["scratch"], [mount["target"] for mount in mounts])
    for mount, source in zip(mounts, sources, strict=True):
        _bind(source, mount["target"], mount["read_only"])
    if plan["read_only_root"]:
        for target in ["/", *covered]:
            _mount("none", target, flags=_REMOUNT | _BIND | _READ_ONLY)


def _make_room(scratch: str, targets: list[str]) -> list[str]:
    """Folders to mount at that the host lacks, made in a layer over their nearest parents, which
    are returned."""
    _mount("tmpfs", scratch, "tmpfs")
    missing = [Path(target) for target in targets if not Path(target).exists()]
    layers: dict[Path, list[Path]] = {}
    for target in missing:
        parent = next(folder for folder in target.parents if folder.exists())
        if not any(parent.is_relative_to(other) for other in targets):
            layers.setdefault(parent, []).append(target)
    for number, (parent, found) in enumerate(layers.items()):
        upper, work = Path(scratch) / f"{number}", Path(scratch) / f"{number}-work"
        work.mkdir()
        for target in found:
            (upper / target.relative_to(parent)).mkdir(parents=True)
        options = f"lowerdir={parent},upperdir={upper},workdir={work}"
        _mount("overlay", str(parent), "overlay", options=options)
    return [str(parent) for parent in layers]


def _bind(source: int, target: str, is_read_only: bool) -> None:
    if not Path(target).exists():  # below another mount
        Path(target).mkdir(parents=True)
    _mount(f"/proc/self/fd/{source}", target, flags=_BIND | _RECURSIVE)
    os.close(source)
    if is_read_only:
        _mount("none", target, flags=_REMOUNT | _BIND | _READ_ONLY)


def _become(plan: Plan) -> NoReturn:
    try:
        _LIBC.prctl(_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
        if "join" not in plan:
            _mount("proc", "/proc", "proc")
        _drop(plan["capabilities"])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        os.chdir(plan["folder"])
        os.execvp(plan["command"][0], plan["command"])
    except OSError as error:
        print(f"the container does not start: {error}", file=sys.stderr, flush=True)
        os._exit(127)


def _drop(kept: list[int] | None) -> None:
    """Down to the kept ones, for ever. None: all stay."""
    if kept is None:
        return
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(last + 1):
        if capability not in kept:
            _checked("dropping a capability", _LIBC.prctl(_DROP_BOUND, capability, 0, 0, 0))
    _checked("keeping privileges low", _LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))


def _attend(child: int) -> NoReturn:
    def pass_on(received: int, _: object) -> None:
        os.kill(child, signal.SIGKILL if received == signal.SIGQUIT else received)

    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    _, status = os.waitpid(child, 0)
    os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


if __name__ == "__main__":
    main()
