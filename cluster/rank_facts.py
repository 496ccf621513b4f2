"""What is known of each process that holds a part of an engine's model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFacts:
    """One rank's; most engines are a single one."""

    rank: int
    pid: int
    node: str
    """Name of its host."""
    device: str
    """cpu, or cuda: and how CUDA_VISIBLE_DEVICES of its host names it: cuda:3, cuda:GPU-8a..."""
    generation: int
    """Of its group: another one after every start; 0 where it is alone."""
    kv_heads: tuple[int, ...]
    """Those of the model whose keys and values it keeps."""
    weight_bytes: int = 0
    kv_bytes: int = 0
    peak_bytes: int = 0
    """The most memory that its process, or device, has had in use when it was loaded; 0: unknown,
    as of all three."""
    loaded_as: str = ""
    """In what form, and in what units its matrices are shared, and of a mixture what chooses the
    experts: the same at all ranks of a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWait:
    """How a rank stands to the others, by now: counts from the start of its group.

    The one that waits least is the one that the others wait for.
    """

    rank: int
    num_plans: int
    """Steps, and words between them."""
    waited_s: float
    """For others, in collectives."""
    called_s: float = 0.0
    """In collectives, with what it waited there."""
    stepped_s: float = 0.0
    """In steps, with its collectives: without them it is what the rank has computed."""
