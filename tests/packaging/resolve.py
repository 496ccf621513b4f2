"""Proves that the pins can be installed anywhere: `python -m tests.packaging.resolve`.

For every Python that is supported, uv resolves all extras under constraints.txt against the public
index, without a wheel or a setting of this machine, on x86_64 and on aarch64: with torch as the
index has it (CUDA), and without what only that build asks for (torch's own CPU index has the same
version without it). Nothing is downloaded but metadata; nothing is installed.

A mirror of the index is used where UV_DEFAULT_INDEX or pip's own PIP_INDEX_URL names one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = ("x86_64-manylinux_2_31", "aarch64-manylinux_2_31")
"""Linux with glibc 2.31 or later, which llguidance asks for."""
OF_A_GPU = ("nvidia-", "cuda-")
TIMEOUT_S = 300.0


class Unresolvable(Exception):
    """The pins contradict each other or the index; the message is the resolver's."""


def requirements() -> list[str]:
    """Every dependency of the project, all extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project["dependencies"] + sum(project["optional-dependencies"].values(), [])


def resolve(python: str, platform: str, without: tuple[str, ...] = ()) -> dict[str, str]:
    """Name -> version for this Python and platform, packages of `without` left out."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, left_out = Path(folder, "wanted.txt"), Path(folder, "left-out.txt")
        wanted.write_text("\n".join(requirements()))
        left_out.write_text("\n".join(f"{name}; python_version < '3'" for name in without))
        command = [
            *(sys.executable, "-m", "uv", "pip", "compile", str(wanted), "--no-config", "--quiet"),
            *("--only-binary", ":all:", "--no-annotate", "--no-header"),
            *("--python-version", python, "--python-platform", platform),
            *("--constraints", str(ROOT / "constraints.txt"), "--overrides", str(left_out)),
        ]
        environ = environment_of(os.environ)
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    if done.returncode:
        raise Unresolvable(f"python {python}, {platform}: {done.stderr.strip()}")
    lines = (line.partition("==") for line in done.stdout.splitlines())
    return {name: version for name, _, version in lines}


def check(python: str, platform: str) -> list[str]:
    """Lines for the reader. Raises Unresolvable."""
    gpu = resolve(python, platform)
    cpu = resolve(python, platform, tuple(name for name in gpu if name.startswith(OF_A_GPU)))
    return [
        f"python {python}, {platform}, {device}: {len(found)} packages, torch {found['torch']}"
        for device, found in (("cuda", gpu), ("cpu", cpu))
    ]


def main() -> int:
    """Prints two lines for each Python and platform; 1 when one cannot be resolved."""
    places = list(product(PYTHONS, PLATFORMS))
    with ThreadPoolExecutor(len(places)) as pool:
        futures = [pool.submit(check, *place) for place in places]
    failed = False
    for future in futures:
        try:
            print(*future.result(), sep="\n")
        except Unresolvable as error:
            failed = True
            print(error, file=sys.stderr)
    return int(failed)


def environment_of(environ: Mapping[str, str]) -> dict[str, str]:
    """No setting of pip or uv survives but a mirror of the index and its certificate."""
    kept = {name: value for name, value in environ.items() if not name.startswith(("PIP_", "UV_"))}
    for ours, pips in (("UV_DEFAULT_INDEX", "PIP_INDEX_URL"), ("SSL_CERT_FILE", "PIP_CERT")):
        if value := environ.get(ours) or environ.get(pips):
            kept[ours] = value
    return kept


if __name__ == "__main__":
    sys.exit(main())
