"""Images in a folder of their own, built from this tree on a base that the mirror of this machine's
packages gives."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.deploy.images.pip_settings import PipSettings
from tests.deploy.images.tools import USUAL_S, run
from tests.mini_cluster.images import PROJECT
from tests.patience import PATIENCE

BASE = "localhost/base"
_PACKAGES = "ca-certificates,python3,python3-venv"
_MADE_FOR_THIS_MACHINE = ("var/cache/apt/archives", "var/lib/apt/lists", "var/log")
MOMENT = "1700000000"
"""SOURCE_DATE_EPOCH of all builds here."""
BASE_S, BUILD_S = 1200.0 * PATIENCE, 3000.0 * PATIENCE
"""For debootstrap, and for one image. A worker's takes the longest: since nothing is taken from a
build before, it makes the router's environment too, compiles the kernels, and fetches torch and
compiles its Python."""


@dataclass(frozen=True)
class Storage:
    """What buildah builds, and podman runs."""

    folder: Path
    pip: PipSettings = field(default_factory=PipSettings.of_this_machine)

    @property
    def options(self) -> list[str]:
        """Of buildah and podman alike."""
        places = ("--root", f"{self.folder}/storage", "--runroot", f"{self.folder}/run")
        return [*places, "--storage-driver", "overlay"]

    def buildah(self, *words: str | Path, limit_s: float = USUAL_S) -> str:
        return run(["buildah", *self.options, *words], limit_s=limit_s)

    def podman(self, *words: str | Path) -> str:
        return run(["podman", *self.options, *words])

    def need_base(self) -> None:
        """A Debian of the release that this machine has, with its Python and nothing else."""
        if BASE in self.podman("images", "--format", "{{.Repository}}"):
            return
        root = self.folder / "base"
        shutil.rmtree(root, ignore_errors=True)  # of one that was ended
        uri, release = run(
            ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)"]
            + ["Created-By: Packages", "Component: main", "Origin: Debian"]
        ).split()[:2]
        # What it mounts, and would leave where it fails, goes with its namespace.
        words = ("unshare", "--mount", "debootstrap", "--variant=minbase")
        run([*words, f"--include={_PACKAGES}", release, root, uri], limit_s=BASE_S)
        for name in _MADE_FOR_THIS_MACHINE:
            shutil.rmtree(root / name)
            (root / name).mkdir()
        (self.folder / "Base").write_text('FROM scratch\nADD base /\nCMD ["bash"]\n')
        self.buildah("bud", "-t", BASE, "-f", self.folder / "Base", self.folder)
        shutil.rmtree(root)

    def build(self, target: str, tag: str, arguments: Mapping[str, str] | None = None) -> str:
        """From this tree, and nothing that was built before but BASE: the digest."""
        given = {"BASE": BASE, "SOURCE_DATE_EPOCH": MOMENT} | dict(arguments or {})
        if target == "worker-cpu" and self.pip.torch_index:
            given["TORCH_INDEX"] = self.pip.torch_index
        with tempfile.TemporaryDirectory() as secrets:
            self.buildah(
                *("bud", "--isolation", "chroot", "--network", "host", "--pull-never"),
                *("--timestamp", MOMENT, "--target", target, "-t", tag, "--no-cache"),
                *(f"--build-arg={name}={value}" for name, value in given.items()),
                *(f"--volume={folder}:{folder}:ro" for folder in self.pip.folders),
                *self.pip.secrets(Path(secrets)),
                *("-f", PROJECT / "deploy/docker/Dockerfile", PROJECT),
                limit_s=BUILD_S,
            )
        return self.inspected(tag)["Digest"]

    def inspected(self, tag: str) -> dict[str, Any]:
        (found,) = json.loads(self.podman("image", "inspect", tag))
        return dict(found)

    def pulled_bytes(self, tag: str) -> int:
        """As a registry has it, and a node fetches it: layers are compressed."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            file = Path(folder) / "image.tar"
            self.podman("save", "--format", "oci-archive", "-o", file, tag)
            return file.stat().st_size

    @contextmanager
    def mounted(self, tag: str) -> Iterator[Path]:
        """Its files, which nobody may write to."""
        yield Path(self.podman("image", "mount", tag).strip())
        self.podman("image", "unmount", tag)

    def remove(self) -> None:
        """With all that runs."""
        self.podman("rm", "--all", "--force")
        self.podman("rmi", "--all", "--force")
        shutil.rmtree(self.folder)


if __name__ == "__main__":
    Storage(Path(sys.argv[1])).remove()
