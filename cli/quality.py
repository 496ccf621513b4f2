"""`splitserve quality`: what quantized weights and KV cost, beside the unquantized model."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cli.json_output import print_json
from cli.model_memory import check_kv_format
from cli.table import Table
from cluster.errors import ConfigError

if TYPE_CHECKING:
    from engine.offline.quality.measurements import Measurements
    from engine.offline.quality.verdict import Comparison, Thresholds
    from engine.offline.replica import OfflineSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityRequest:
    """What to compare, and what may pass."""

    model: str
    dtype: str
    weights: str
    kv: str
    lengths: str
    max_tokens: int | None
    max_perplexity_increase: float
    min_agreement: float
    max_recall_loss: float
    max_json_loss: float
    output: str


def run_quality(request: QualityRequest) -> int:
    """Prints the table; 1 when a threshold is passed."""
    from engine.offline.quality.verdict import Thresholds, has_passed, judge
    from engine.offline.replica import OfflineSetup, offline_spec

    plain = OfflineSetup(model=request.model, dtype=request.dtype, weights="full")
    changed = OfflineSetup(
        model=request.model, dtype=request.dtype, weights=request.weights, kv=request.kv
    )
    check_kv_format(request.kv)
    offline_spec(changed)  # wrong words are said before anything is measured
    lengths = _lengths(request.lengths)
    limits = Thresholds(
        max_perplexity_increase=request.max_perplexity_increase,
        min_agreement=request.min_agreement,
        max_recall_loss=request.max_recall_loss,
        max_json_loss=request.max_json_loss,
    )
    reference = _measure("unquantized", plain, lengths, request.max_tokens)
    name = f"weights {request.weights}, KV {request.kv}"
    lines = judge(reference, _measure(name, changed, lengths, request.max_tokens), limits)
    _show(request, lines, limits)
    return 0 if has_passed(lines) else 1


def _lengths(words: str) -> list[int]:
    try:
        lengths = [int(word) for word in words.split(",") if word]
    except ValueError:
        raise ConfigError(f"--lengths is {words!r}; write numbers such as 512,1024") from None
    if any(length < 128 for length in lengths):
        raise ConfigError(f"--lengths is {words!r}; a needle needs prompts of 128 tokens or more")
    return lengths


def _measure(
    name: str, setup: OfflineSetup, lengths: list[int], max_tokens: int | None
) -> Measurements:
    from engine.offline.quality.measurements import measure

    def progress(phase: str) -> None:
        print(f"{name}: {phase}", file=sys.stderr, flush=True)

    return measure(setup, lengths, max_tokens=max_tokens, progress=progress)


def _show(request: QualityRequest, lines: list[Comparison], limits: Thresholds) -> None:
    if request.output == "json":
        print_json(
            {
                "model": request.model,
                "weights": request.weights,
                "kv": request.kv,
                "thresholds": dataclasses.asdict(limits),
                "tests": [dataclasses.asdict(line) for line in lines],
            }
        )
        return
    table = Table("TEST", "UNQUANTIZED", "QUANTIZED", "CHANGE", "")
    for line in lines:
        before = "" if line.reference is None else f"{line.reference:.4g}"
        verdict = {True: "pass", False: "FAIL", None: ""}[line.passed]
        table.add(line.test, before, f"{line.subject:.4g}", line.change, verdict)
    table.print()
