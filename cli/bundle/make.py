"""Gathers the parts of a bundle side by side, each within its time, and packs what came."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cli.bundle.archive import Archive
from cli.bundle.parts import BundlePart, doctor_part, fleet_parts, machine_parts
from cli.bundle.release_parts import opened, release_parts
from cli.exit_code import ExitCode
from cli.terminal import complain, say
from cluster import VERSION
from cluster.deadline import Deadline, Sleep
from cluster.dial.dialer import Dialer
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import ConfigError, SplitserveError
from cluster.join_token import operators_token
from cluster.redaction import own_redactor
from cluster.scaling.scaler import ScaleRefused
from cluster.terminal_text import size_in_words

TELL_EVERY_S = 10.0
_DOCTOR = "doctor.json"
_IN_WORDS = {_DOCTOR: "the doctor, who tries transfers and sums between processes of this machine"}
PART_LIMIT_S = 30.0
"""Of each but the doctor's, which tries transfers and has all the time there is."""


def default_name() -> str:
    """In the folder where one is."""
    return f"splitserve-bundle-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar.gz"


def make_bundle(
    path: Path,
    router: str,
    *,
    limit_s: float = 120.0,
    log_dir: Path | None = None,
    runs_doctor: bool = True,
    findings: object = None,
    release: str | None = None,
) -> ExitCode:
    """`findings` of a doctor who has looked already; `release`: on Kubernetes, as
    [NAMESPACE/]RELEASE, of which more is packed. A fleet that does not answer, in part or at all,
    is what bundles are for: OK. Raises ConfigError where the file cannot be written."""
    if path.exists():
        raise ConfigError(f"{path} is there already; name another file")
    redactor = own_redactor()
    archive = Archive(redactor)
    parts = [*fleet_parts(_dialer(archive), router), *machine_parts(redactor, log_dir)]
    if findings is not None:
        archive.add(_DOCTOR, findings)
    elif runs_doctor:
        parts.append(doctor_part())
        say(f"the doctor looks at this machine as well, for {limit_s:.0f} s at most (--no-doctor)")
    began_s = time.monotonic()
    asyncio.run(_gathered(archive, parts, release, Deadline.after(limit_s)))
    archive.write(path, _about(router, time.monotonic() - began_s))
    for missing in archive.missing:
        complain(f"{missing.name} is not in it: {missing.why}")
    size = size_in_words(path.stat().st_size)
    say(f"{len(archive.files)} files, {size}; secrets are redacted: look before you give it away")
    print(path)
    return ExitCode.OK


async def _gathered(
    archive: Archive, parts: Sequence[BundlePart], release: str | None, deadline: Deadline
) -> None:
    async with AsyncExitStack() as opened_here:
        of_release = list[BundlePart]()
        if release is not None:
            try:
                reads, name = await opened_here.enter_async_context(opened(release))
                of_release = await release_parts(reads, name)
            except (ScaleRefused, SplitserveError) as refusal:
                archive.miss("release", refusal.message)
        await gather(archive, [*parts, *of_release], deadline)


async def gather(
    archive: Archive,
    parts: Sequence[BundlePart],
    deadline: Deadline,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """What fails or takes too long is missing, and the others are there."""
    waiting = {part.name: None for part in parts}

    async def add(part: BundlePart) -> None:
        await _add(archive, part, deadline)
        del waiting[part.name]

    telling = asyncio.create_task(_tell(waiting, deadline, sleep))
    try:
        await asyncio.gather(*map(add, parts))
    finally:
        telling.cancel()


async def _tell(waiting: Collection[str], deadline: Deadline, sleep: Sleep) -> None:
    """What is not there yet, as long as something is not."""
    while True:
        await sleep(TELL_EVERY_S)
        what = ", ".join(_IN_WORDS.get(name, name) for name in waiting)
        say(f"waiting for {what}, {deadline.remaining_s:.0f} s at most")


def _dialer(archive: Archive) -> Dialer:
    """Without a token where it cannot be read: then the router says what it has against us."""
    try:
        return GrpcDialer(operators_token())
    except ConfigError as refusal:
        archive.miss("join token", refusal.message)
        return GrpcDialer()


async def _add(archive: Archive, part: BundlePart, deadline: Deadline) -> None:
    limit_s = deadline.remaining_s
    if part.name != _DOCTOR:
        limit_s = min(PART_LIMIT_S, limit_s)
    began_s = time.monotonic()
    try:
        async with asyncio.timeout(limit_s):
            content = await part.gather()
    except TimeoutError:
        archive.miss(part.name, f"it took longer than {limit_s:.0f} s")
    except Exception as failure:  # whatever it is: the other parts are worth having
        archive.miss(part.name, str(failure) or repr(failure))
    else:
        archive.add(part.name, content, time.monotonic() - began_s)


def _about(router: str, took_s: float) -> dict[str, Any]:
    return {
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": VERSION,
        "router": router,
        "took_s": round(took_s, 3),
    }
