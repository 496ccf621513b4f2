"""What pip is told on this machine, for a build that is to find what it finds here."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.deploy.images.tools import run

_ROW = re.compile(r"^(:env:|[\w-]+)\.([\w-]+)='(.*)'$", re.M)
_KEPT = ("index-url", "extra-index-url", "find-links", "trusted-host", "cert", "default-timeout")
_CERTIFICATE = Path("/run/secrets/ca.crt")


@dataclass(frozen=True)
class PipSettings:
    """By name, as `pip config list` has them; what the environment says wins."""

    values: dict[str, str]

    @classmethod
    def of_this_machine(cls) -> PipSettings:
        return cls.read(run([sys.executable, "-m", "pip", "config", "list"]))

    @classmethod
    def read(cls, listed: str) -> PipSettings:
        rows = re.findall(_ROW, listed)
        told = [row for row in rows if row[0] != ":env:"] + [
            row for row in rows if row[0] == ":env:"
        ]
        return cls({name: value for _, name, value in told if name in _KEPT})

    @property
    def torch_index(self) -> str | None:
        """Where torch is looked for here; None: where everybody looks."""
        if "find-links" in self.values or "index-url" in self.values:
            return self.values.get("index-url", "https://pypi.org/simple")
        return None

    @property
    def folders(self) -> list[Path]:
        """Of this machine, in which wheels lie."""
        words = " ".join(
            self.values.get(name, "") for name in ("find-links", "index-url", "extra-index-url")
        )
        found = [Path(urlsplit(word).path) for word in words.split() if is_local(word)]
        # A page of an index names files that lie beside the folder of its pages.
        return [path.parent if path.name == "simple" else path for path in found if path.is_dir()]

    def secrets(self, folder: Path) -> list[str]:
        """Options of a build, whose files are written into the folder."""
        lines = dict(self.values)
        options = []
        if certificate := self.values.get("cert"):
            lines["cert"] = str(_CERTIFICATE)
            options += ["--secret", f"id=ca.crt,src={certificate}"]
        file = folder / "pip.conf"
        text = "".join(f"{name} = {value}\n" for name, value in lines.items())
        file.write_text(f"[global]\n{text}")
        return [*options, "--secret", f"id=pip.conf,src={file}"]


def is_local(word: str) -> bool:
    return word.startswith(("/", "file:"))
