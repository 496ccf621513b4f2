"""What was handed on of a worker's prefix cache, in words for people."""

from __future__ import annotations

from protos.worker_pb2 import HandOnReport


def handed_in_words(report: HandOnReport) -> str:
    """How much, to whom, how fast, what is left, and why any of it is."""
    handed = sum(each.handed_tokens for each in report.receivers)
    known = sum(each.known_tokens for each in report.receivers)
    num_bytes = sum(each.num_bytes for each in report.receivers)
    left = max(0, report.cached_tokens - handed - known)
    to = [each.worker_id for each in report.receivers if each.handed_tokens]
    words = (
        f"{handed} of {report.cached_tokens} cached tokens to {', '.join(to) or 'nobody'} "
        f"({num_bytes / 1e6:.1f} MB in {report.seconds:.2f} s); {known} were known there, "
        f"{left} are left"
    )
    problems = sorted({each.problem for each in report.receivers if each.problem})
    return "; ".join([words, *problems])
