"""`splitserve keys`: who may ask a router."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict

from cli.exit_code import ExitCode
from cli.json_output import print_json
from cli.key_place import KeyPlace
from cli.table import Table
from cli.terminal import complain, say
from cluster.errors import ConfigError
from router.tenants.api_key import KeyRecord, KeyTerms, new_key
from router.tenants.priority import Priority


def create_key(place: KeyPlace, tenant: str, terms: KeyTerms) -> None:
    """Prints the key, and nothing else, on stdout: it is not kept anywhere. Raises ConfigError."""
    if (fault := terms.fault) is not None:
        raise ConfigError(f"a key cannot have {fault}")
    record, key = new_key(tenant, terms)
    place.add(record)
    say(f"key {record.id} of {tenant}, in {place}; it is shown this once:")
    print(key)


def terms_of(priority: str, **terms: Any) -> KeyTerms:
    """As they were typed. Raises ConfigError for a class that is none."""
    if priority not in set(Priority):
        raise ConfigError(f"--priority is {priority!r}; allowed: {', '.join(Priority)}")
    return KeyTerms(priority=Priority(priority), **terms)


def list_keys(place: KeyPlace, output: str) -> None:
    """All but the keys themselves."""
    records = place.read().values()
    if output == "json":
        print_json([_facts(record) for record in records])
        return
    table = Table(
        *("ID", "TENANT", "CREATED", "CLASS", "WEIGHT", "REQUESTS/MIN", "INPUT/MIN", "OUTPUT/MIN"),
        *("BUDGET", "MODELS"),
    )
    for record in records:
        table.add(*_cells(record))
    table.print()


def revoke_key(place: KeyPlace, key_id: str) -> int:
    """The exit code: routers that run know it within about a second."""
    record = place.remove(key_id)
    if record is None:
        complain(f"{place} has no key {key_id!r}", remedy="see: splitserve keys list")
        return ExitCode.FAILED
    say(f"key {record.id} of {record.tenant} is good no more")
    return ExitCode.OK


def _cells(record: KeyRecord) -> list[str]:
    rates = (
        record.requests_per_minute,
        record.input_tokens_per_minute,
        record.output_tokens_per_minute,
    )
    budget = _amount(record.budget_tokens)
    if record.budget_tokens is not None:
        budget += f" in {record.budget_period_s / 3600:g} h"
    return [
        record.id,
        record.tenant,
        f"{record.created:%Y-%m-%d %H:%M}",
        record.priority,
        f"{record.weight:g}",
        *map(_amount, rates),
        budget,
        ", ".join(record.models) or "all",
    ]


def _amount(value: float | None) -> str:
    return "no limit" if value is None else f"{value:g}"


def _facts(record: KeyRecord) -> dict[str, object]:
    """All but the digest."""
    return {name: value for name, value in asdict(record).items() if name != "digest"}
