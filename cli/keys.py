"""`splitserve keys`: who may ask a router."""

from __future__ import annotations

from pathlib import Path

from cli.exit_code import ExitCode
from cli.json_output import print_json
from cli.table import Table
from cli.terminal import complain, say
from router.tenants.api_key import KeyRecord, new_key
from router.tenants.key_file import changed_keys, read_keys


def create_key(
    path: Path, tenant: str, *, models: tuple[str, ...], requests_per_minute: float | None
) -> None:
    """Prints the key, and nothing else, on stdout: it is not kept anywhere."""
    record, key = new_key(tenant, models=models, requests_per_minute=requests_per_minute)
    with changed_keys(path) as keys:
        keys[record.id] = record
    say(f"key {record.id} of {tenant}, in {path}; it is shown this once:")
    print(key)


def list_keys(path: Path, output: str) -> None:
    """All but the keys themselves."""
    records = read_keys(path).values()
    if output == "json":
        print_json([_facts(record) for record in records])
        return
    table = Table("ID", "TENANT", "CREATED", "REQUESTS/MIN", "MODELS")
    for record in records:
        rate = record.requests_per_minute
        per_minute = "no limit" if rate is None else f"{rate:g}"
        models = ", ".join(record.models) or "all"
        table.add(record.id, record.tenant, f"{record.created:%Y-%m-%d %H:%M}", per_minute, models)
    table.print()


def revoke_key(path: Path, key_id: str) -> int:
    """The exit code: routers that run know it within about a second."""
    with changed_keys(path) as keys:
        record = keys.pop(key_id, None)
    if record is None:
        complain(f"{path} has no key {key_id!r}", remedy="see: splitserve keys list")
        return ExitCode.FAILED
    say(f"key {record.id} of {record.tenant} is good no more")
    return ExitCode.OK


def _facts(record: KeyRecord) -> dict[str, object]:
    return {
        "id": record.id,
        "tenant": record.tenant,
        "created": record.created,
        "requests_per_minute": record.requests_per_minute,
        "models": list(record.models),
    }
