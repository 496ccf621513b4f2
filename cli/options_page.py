"""docs/options.md, from the dataclasses: python -m cli.options_page > docs/options.md"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from cli.option_flags import default_in_words
from cluster.aside_options import AsideOptions
from cluster.common_options import (
    BudgetOptions,
    ModelOptions,
    PageOptions,
    PeerOptions,
    SamplingOptions,
    StoreOptions,
    TlsOptions,
    TraceOptions,
    VllmOptions,
)
from cluster.config import RouterOptions, ServeOptions, WorkerOptions
from cluster.engine_options import EngineOptions
from cluster.option_value import OptionSpec
from cluster.options import option_specs
from cluster.planner_options import PlannerOptions, PlanRules
from cluster.resumption_options import ResumptionOptions
from cluster.rollout_options import RolloutOptions

_HEAD = """# Every option

Made from `cluster/config.py` by `python -m cli.options_page`; `--help` says the same. A flag such
as `--max-num-seqs` is also a variable (`SPLITSERVE_MAX_NUM_SEQS`) and a key in a TOML file
(`max_num_seqs`). What options are good for is in [operations.md](operations.md).
"""
_SECTIONS: dict[str, type] = {
    "The model: `serve`, `router` and workers": ModelOptions,
    "A model replica: `serve` and workers": EngineOptions,
    "Workers among each other: `serve` and workers": PeerOptions,
    "`splitserve prefill-worker` and `decode-worker`": WorkerOptions,
    "`splitserve router`, and `serve`": RouterOptions,
    "What several routers share: `router` and `serve`": StoreOptions,
    "What pools are measured by: `router` and `serve`": BudgetOptions,
    "Streams that are resumed: `router` and `serve`": ResumptionOptions,
    "Rolling updates: `router` and `serve`": RolloutOptions,
    "TLS for clients: `router` and `serve`": TlsOptions,
    "Where the fleet and Prometheus come: `router` and `serve`": AsideOptions,
    "The live page: `router` and `serve`": PageOptions,
    "Stock vLLM behind the router: `router` and `serve`": VllmOptions,
    "Traces: `serve`, `router` and workers": TraceOptions,
    "Which requests are traced: `router` and `serve`": SamplingOptions,
    "`splitserve serve`": ServeOptions,
    "`splitserve planner`": PlannerOptions,
    "What a planner decides by": PlanRules,
}
_SET_BY_THE_COMMAND = frozenset({"role"})


def options_page() -> str:
    """The whole page, in Markdown."""
    return _HEAD + "".join(f"\n{line}\n" for line in map(_section, _SECTIONS))


def _section(title: str) -> str:
    rows = map(_row, _own_options(_SECTIONS[title]))
    return "\n".join([f"## {title}\n", "| option | default | |", "|---|---|---|", *rows])


def _own_options(cls: type) -> Iterator[OptionSpec]:
    """Those of the class itself: what is nested has a section of its own."""
    specs = option_specs(cls)
    for item in dataclasses.fields(cls):
        is_nested = item.default is dataclasses.MISSING
        if not is_nested and item.name not in _SET_BY_THE_COMMAND:
            yield specs[item.name]


def _row(spec: OptionSpec) -> str:
    default = "" if spec.default is None else f"`{default_in_words(spec)}`"
    return f"| `{spec.flag}` | {default} | {spec.help}{_limits(spec)} |"


def _limits(spec: OptionSpec) -> str:
    parts = [
        f"{word} {limit:g}"
        for word, limit in (("at least", spec.low), ("at most", spec.high))
        if limit is not None
    ]
    return f" ({', '.join(parts)})" if parts else ""


if __name__ == "__main__":
    print(options_page(), end="")
