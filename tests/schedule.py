"""In which order tests run, and which process runs them, where `make test` shares them out."""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling

FLEETS = "tests/fleet/"
COMPILES = "tests/kernels/triton/test_compiles"
RAY = "tests/ranks/ray/"
GROUPS = (
    RAY,
    "tests/decode_worker/test_every_pair_of_groups.py",
    "tests/decode_worker/test_groups_hand_over.py",
    "tests/engine/runner/ranks/",
)
LONG = (
    *GROUPS,
    "tests/deploy/test_release.py",
    "tests/worker/test_supervised_worker.py",
    "tests/mini_cluster/test_kubelet.py",
    "tests/worker/engine/test_vitals.py",
    "tests/kvtransfer/test_nixl_transport.py",
    "tests/ranks/collectives/test_shared_memory.py",
    "tests/engine/model/test_exchanged_experts.py",
    "tests/router/text_worker/test_text_workers.py",
    "tests/worker/test_worker_children.py",
    "tests/engine/model/test_rank_decoders.py",
    "tests/engine/model/test_speculated_grammars.py",
    "tests/engine/step/test_ten_thousand_lives.py",
    "tests/kernels/triton/",
    "tests/engine/model/test_rank_smollm2.py",
    "tests/engine/process/test_engine_process.py",
    "tests/engine/sampling/test_sampling_distribution.py",
    "tests/engine/model/test_expert_processes.py",
    "tests/engine/step/test_run_ahead_random.py",
    "tests/cluster/models/text/test_chat_template.py",
    "tests/engine/model/test_rank_quantized.py",
    "tests/engine/memory/test_flat_memory.py",
    "tests/cluster/models/text/test_template_cost.py",
    "tests/engine/model/test_families.py",
    "tests/engine/model/layers/test_latent_families.py",
    "tests/ranks/collectives/test_lost_ranks.py",
    "tests/router/text_worker/test_spare.py",
    "tests/router/grammar/test_hostile_at_the_door.py",
    "tests/router/grpc_front/test_strangers.py",
    "tests/cluster/models/gguf/test_gguf_header.py",
    "tests/engine/model/layers/test_mixture_families.py",
    "tests/ranks/collectives/test_gloo.py",
    "tests/cluster/models/text/test_tokenizer.py",
    "tests/cluster/launcher/test_local.py",
    "tests/router/dispatch/test_killed_worker.py",
    "tests/decode_worker/test_cruel_prefill.py",
    "tests/decode_worker/test_silent_prefill.py",
    "tests/cluster/models/hf/test_hf_families.py",
    "tests/cluster/supervisor/test_supervisor.py",
    "tests/cluster/process/test_end_limit.py",
    "tests/cli/test_serve.py",
    "tests/cli/test_main.py",
    "tests/cli/test_status.py",
)
"""What `make quick` leaves out, beside fleets and compilers; the longest first."""
_FIRST = (FLEETS, *GROUPS, COMPILES, *LONG)


def put_in_order(items: list[pytest.Item]) -> None:
    """Fleets first, then what is long: short files at the end leave no process idle for long.

    Raises UsageError for a test whose name holds an address: each process would know another one.
    """
    items.sort(key=_place)
    unstable = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if unstable:
        raise pytest.UsageError(f"name the parameters of {unstable[0]} (ids=)")


def is_long(item: pytest.Item) -> bool:
    """What `make quick` leaves out."""
    return item.nodeid.startswith(LONG)


class FilesInTheirOrder(LoadScopeScheduling):
    """All fleets go to one process, one after the other. So do all tests of groups of processes:
    Ray is started once, and two groups at a time would take each other's cores. Of the other files
    each goes to any.

    A file's fixtures are made once, and xdist counts files after each test, not thousands of tests.
    A compile is a process of its own and needs no company.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(FLEETS):
            return FLEETS
        if nodeid.startswith(GROUPS):
            return RAY
        return nodeid if nodeid.startswith(COMPILES) else nodeid.partition("::")[0]


def _place(item: pytest.Item) -> int:
    found = (place for place, prefix in enumerate(_FIRST) if item.nodeid.startswith(prefix))
    return next(found, len(_FIRST))
