"""The Dockerfile, read: stages and their instructions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tests.mini_cluster.images import PROJECT

_STAGE = re.compile(r"(\S+) AS (\S+)")


@dataclass
class Stage:
    """From one FROM to the next."""

    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)
    """Words and what follows, in one line each."""

    def all(self, word: str) -> list[str]:
        return [rest for name, rest in self.instructions if name == word]

    @property
    def variables(self) -> dict[str, str]:
        return dict(pair.split("=", 1) for line in self.all("ENV") for pair in line.split())


def instructions() -> list[tuple[str, str]]:
    """Of the whole file, without comments."""
    text = (PROJECT / "deploy/docker/Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    pairs = [line.partition(" ") for line in joined.splitlines()]
    return [(word, re.sub(r"\s+", " ", rest).strip()) for word, _, rest in pairs]


def stages() -> dict[str, Stage]:
    """By name, in their order."""
    found: dict[str, Stage] = {}
    for word, rest in instructions():
        if word == "FROM":
            match = _STAGE.fullmatch(rest)
            assert match is not None, rest
            stage = found[match[2]] = Stage(match[1])
        elif found:
            stage.instructions.append((word, rest))
    return found


def line_of(target: str) -> list[Stage]:
    """The stage and those below it, the last one first."""
    found, name = [], target
    while name in stages():
        found.append(stages()[name])
        name = found[-1].base
    return found
