"""Proves that the pins can be installed anywhere: `python -m tests.packaging.resolve`.

For every Python that is supported, uv resolves all extras under constraints.txt against the public
index, without a wheel or a setting of this machine: once with torch as the index has it (CUDA), and
once without what only that build asks for (torch's own CPU index has the same version without it).
Nothing is downloaded but metadata; nothing is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
OF_A_GPU = ("nvidia-", "cuda-")
TIMEOUT_S = 300.0


class Unresolvable(Exception):
    """The pins contradict each other or the index; the message is the resolver's."""


def requirements() -> list[str]:
    """Every dependency of the project, all extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project["dependencies"] + sum(project["optional-dependencies"].values(), [])


def resolve(python: str, without: tuple[str, ...] = ()) -> dict[str, str]:
    """Name -> version for Linux and this Python, packages of `without` left out."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, left_out = Path(folder, "wanted.txt"), Path(folder, "left-out.txt")
        wanted.write_text("\n".join(requirements()))
        left_out.write_text("\n".join(f"{name}; python_version < '3'" for name in without))
        command = [
            *(sys.executable, "-m", "uv", "pip", "compile", str(wanted), "--no-config", "--quiet"),
            *("--only-binary", ":all:", "--no-annotate", "--no-header"),
            *("--python-version", python, "--python-platform", "x86_64-manylinux_2_28"),
            *("--constraints", str(ROOT / "constraints.txt"), "--overrides", str(left_out)),
        ]
        done = subprocess.run(
            command, env=_environment(), capture_output=True, text=True, timeout=TIMEOUT_S
        )
    if done.returncode:
        raise Unresolvable(f"python {python}: {done.stderr.strip()}")
    lines = (line.partition("==") for line in done.stdout.splitlines())
    return {name: version for name, _, version in lines}


def check(python: str) -> list[str]:
    """Lines for the reader. Raises Unresolvable."""
    gpu = resolve(python)
    cpu = resolve(python, tuple(name for name in gpu if name.startswith(OF_A_GPU)))
    return [
        f"python {python}, {device}: {len(found)} packages, torch {found['torch']}"
        for device, found in (("cuda", gpu), ("cpu", cpu))
    ]


def main() -> int:
    """Prints two lines for each Python; 1 when one cannot be resolved."""
    with ThreadPoolExecutor(len(PYTHONS)) as pool:
        futures = [pool.submit(check, python) for python in PYTHONS]
    failed = False
    for future in futures:
        try:
            print(*future.result(), sep="\n")
        except Unresolvable as error:
            failed = True
            print(error, file=sys.stderr)
    return int(failed)


def _environment() -> dict[str, str]:
    """No setting of pip or uv survives but a mirror of the index and its certificate."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PIP_", "UV_")) or name == "UV_DEFAULT_INDEX"
    }
    if certificate := os.environ.get("SSL_CERT_FILE") or os.environ.get("PIP_CERT"):
        kept["SSL_CERT_FILE"] = certificate
    return kept


if __name__ == "__main__":
    sys.exit(main())
