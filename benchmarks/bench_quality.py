"""What each precision costs a model: perplexity, agreement, needles and JSON.

    python -m benchmarks.bench_quality [--formats auto/auto int4/int8] [--json PATH]

The tests of `splitserve quality`, for many formats with one reference: full weights in the model's
own dtype and a KV pool in it. The default format is the first row.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.plot import plot_bars
from benchmarks.report import Row, print_table, write_json
from engine.offline.quality.measurements import Measurements, measure
from engine.offline.replica import OfflineSetup

FORMATS = ("auto/auto", "int8/auto", "int4/auto", "auto/int8", "auto/fp8", "int4/int8")
LENGTHS = (512, 1024, 2048)


def measured(weights: str, kv: str) -> Measurements:
    """One format of SmolLM2."""
    setup = OfflineSetup(weights=weights, kv=kv)
    return measure(setup, LENGTHS, max_tokens=None, progress=lambda phase: None)


def rows_of(name: str, found: Measurements, reference: Measurements) -> list[Row]:
    """Losses, so that smaller is better."""
    perplexity = found.reading.perplexity / reference.reading.perplexity - 1
    return [
        Row(f"{name}: perplexity increase", perplexity * 100, "%"),
        Row(
            f"{name}: other likeliest token",
            (1 - found.reading.agreement(reference.reading)) * 100,
            "%",
        ),
        Row(f"{name}: needles lost", (reference.recall - found.recall) * 100, "%"),
        Row(
            f"{name}: JSON answers lost",
            (reference.json_validity - found.json_validity) * 100,
            "%",
        ),
    ]


def main() -> int:
    """Figures only: `splitserve quality` has thresholds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--formats", nargs="+", default=list(FORMATS), metavar="WEIGHTS/KV")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    reference = measured("full", "auto")
    perplexity = reference.reading.perplexity
    rows = [Row("unquantized: perplexity", perplexity, "")]
    for name in args.formats:
        rows += rows_of(name, measured(*name.split("/")), reference)
    print_table("weights/KV beside the unquantized model", rows)
    write_json(args.json, "quality", rows)
    if args.json is not None:
        title = f"What a precision costs (unquantized perplexity {perplexity:.2f})"
        plot_bars(title, rows[1:], args.json.with_suffix(".png"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
