"""Runs the checks and prints a line for each as it is done."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from cli.doctor.cluster import cluster_checks
from cli.doctor.finding import Check, Finding, Verdict, broken
from cli.doctor.machine import machine_checks
from cli.doctor.pairs import pair_checks
from cli.doctor.software import software_checks
from cli.exit_code import ExitCode
from cli.json_output import as_json, as_yaml
from cli.terminal import paint, say
from cluster.deadline import Deadline
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.join_token import operators_token

_COLORS = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportLine:
    """A finding, with its check and its cost."""

    check: str
    verdict: Verdict
    text: str
    hint: str
    duration_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What the doctor is to look at: this machine, unless something else is named."""

    ports: tuple[int, int]
    """HTTP and gRPC of the router, which should be free."""
    router: str
    """Of the fleet, for what is asked of it."""
    pairs: bool = False
    in_cluster: bool = False
    limit_s: float = 120.0
    """For all pairs together."""

    def checks(self) -> list[Check]:
        """Raises SplitserveError where a router has to answer and does not."""
        checks: list[Check] = []
        if self.in_cluster:
            checks += cluster_checks(self.router)
        if self.pairs:
            dialer = GrpcDialer(operators_token())
            deadline = Deadline.after(self.limit_s)
            checks += asyncio.run(pair_checks(dialer, self.router, deadline))
        if not (self.in_cluster or self.pairs):
            checks += [*software_checks(), *machine_checks(self.ports)]
        return checks


def report(checks: Sequence[Check], *, output: str) -> ExitCode:
    """FAILED when any check failed; warnings do not count."""
    return verdict_of(reported(checks, output=output))


def verdict_of(lines: Sequence[ReportLine]) -> ExitCode:
    """FAILED when any check failed; warnings do not count."""
    failed = any(line.verdict is Verdict.FAIL for line in lines)
    return ExitCode.FAILED if failed else ExitCode.OK


def reported(checks: Sequence[Check], *, output: str) -> list[ReportLine]:
    """Lines as they come, or one document of JSON or YAML at the end."""
    lines = []
    for check in checks:
        lines.append(_run(check))
        if output not in ("json", "yaml"):
            print(_in_words(lines[-1]), flush=True)
    if output in ("json", "yaml"):
        data = [asdict(line) for line in lines]
        print(as_json(data) if output == "json" else as_yaml(data))
    counts = {verdict: sum(line.verdict is verdict for line in lines) for verdict in Verdict}
    say(f"{counts[Verdict.FAIL]} failed, {counts[Verdict.WARN]} warnings, {counts[Verdict.OK]} ok")
    return lines


def _run(check: Check) -> ReportLine:
    began_s = time.perf_counter()
    try:
        finding: Finding = check.look()
    except Exception as error:  # a check that breaks is a finding, and the others still count
        finding = broken(f"{check.name}: {error!r}", "this check itself broke; please report it")
    took_ms = (time.perf_counter() - began_s) * 1e3
    return ReportLine(
        check=check.name,
        verdict=finding.verdict,
        text=finding.text,
        hint=finding.hint,
        duration_ms=took_ms if finding.took_ms is None else finding.took_ms,
    )


def _in_words(line: ReportLine) -> str:
    verdict = paint(f"{line.verdict:<4}", sys.stdout, fg=_COLORS[line.verdict])
    hint = f"\n      hint: {line.hint}" if line.hint else ""
    took = f" ({line.duration_ms:.0f} ms)" if line.duration_ms >= 0.5 else ""
    return f"{verdict}  {line.text}{took}{hint}"
