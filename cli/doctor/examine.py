"""Runs the checks and prints a line for each as it is done."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from cli.doctor.finding import Check, Finding, Verdict, broken
from cli.doctor.machine import machine_checks
from cli.doctor.software import software_checks
from cli.exit_code import ExitCode
from cli.json_output import print_json
from cli.terminal import paint, say

_COLORS = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportLine:
    """A finding, with its check and its cost."""

    check: str
    verdict: Verdict
    text: str
    hint: str
    duration_ms: float


def examine(*, output: str, ports: tuple[int, int]) -> ExitCode:
    """FAILED when any check failed; warnings do not count."""
    return report([*software_checks(), *machine_checks(ports)], output=output)


def report(checks: Sequence[Check], *, output: str) -> ExitCode:
    """Lines as they come, or one JSON document at the end."""
    lines = []
    for check in checks:
        lines.append(_run(check))
        if output != "json":
            print(_in_words(lines[-1]), flush=True)
    if output == "json":
        print_json([asdict(line) for line in lines])
    counts = {verdict: sum(line.verdict is verdict for line in lines) for verdict in Verdict}
    say(f"{counts[Verdict.FAIL]} failed, {counts[Verdict.WARN]} warnings, {counts[Verdict.OK]} ok")
    return ExitCode.FAILED if counts[Verdict.FAIL] else ExitCode.OK


def _run(check: Check) -> ReportLine:
    began_s = time.perf_counter()
    try:
        finding: Finding = check.look()
    except Exception as error:  # a check that breaks is a finding, and the others still count
        finding = broken(f"{check.name}: {error!r}", "this check itself broke; please report it")
    return ReportLine(
        check=check.name,
        verdict=finding.verdict,
        text=finding.text,
        hint=finding.hint,
        duration_ms=(time.perf_counter() - began_s) * 1e3,
    )


def _in_words(line: ReportLine) -> str:
    verdict = paint(f"{line.verdict:<4}", sys.stdout, fg=_COLORS[line.verdict])
    hint = f"\n      hint: {line.hint}" if line.hint else ""
    return f"{verdict}  {line.text} ({line.duration_ms:.0f} ms){hint}"
