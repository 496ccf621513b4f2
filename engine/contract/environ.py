"""What has to be in the environment of an engine's process at its start: torch reads it once."""

from __future__ import annotations

from types import MappingProxyType

TORCH_ENVIRON = MappingProxyType({"OMP_WAIT_POLICY": "PASSIVE", "THP_MEM_ALLOC_ENABLE": "1"})
"""What the user has set goes first.

OMP_WAIT_POLICY: torch's idle threads sleep instead of spinning on the cores that the native
kernels' team needs. 16 sequences, SmolLM2-135M, bfloat16, 2 cores with 2 busy neighbours: 19 ms a
step, 27 without.

THP_MEM_ALLOC_ENABLE: large tensors lie in large pages, where the system gives them on request
(/sys/kernel/mm/transparent_hugepage/enabled: madvise). A decode step reads all weights, and looked
up a page of 4 KiB every 130 ns. Processor time of a step of one thread, beside busy neighbours:
1 sequence 10.6 ms without and 9.2 with, 4 in int8 16.2 and 13.9, 16 sequences 37.9 and 37.9.
"""
