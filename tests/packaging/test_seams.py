"""Time, chance and the way to other processes come from a World (cluster/world.py): what decides
asks nobody else, so that a simulator can decide with it."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.packaging.test_import_cycles import FILES

CHANNELS = {
    "cluster.rpc": "is where a channel is opened",
    "cluster.dial.way": "is the real dialer",
}
OWN_TIME = {
    "cluster.process.exit_watch": "polls a process of the operating system",
    "router.text_worker.vital_signs": "watches a process of the operating system",
    "worker.engine.client": "watches a process of the operating system",
    "kernels.cpu.native_build": "tells how long a build took",
    "engine.model.load_phases": "tells how long a load took",
    "cluster.models.cache.lock": "tells how long another's download took",
    "cluster.launcher.ray.hosted_process": "gathers what a process of the operating system prints",
    "cluster.launcher.ray.remote_process": "polls processes of the operating system",
    "cli.bundle.make": "tells how long a part took",
    "cli.doctor.examine": "tells how long a check took",
    "cli.fleet_view": "tells how long a start took",
    "cli.release_view": "tells how long a start took",
    "kvtransfer.selftest": "tells how long a transfer took",
    "ranks.collectives.nccl": "tells how long a device has not ended a call",
    "ranks.collectives.gloo": "tells how long a rank waited for others",
    "ranks.selftest_rank": "tells how long a sum took",
}
"""In real time whatever the World says, and why."""


def asks(call: ast.Call) -> str | None:
    """What this call asks of the real world: "channel" or "time"."""
    name = ast.unparse(call.func)
    if name.endswith("insecure_channel") or name == "open_channel":
        return "channel"
    if name.endswith("loop().time") or name.endswith("loop.time"):
        return "time"
    gives_way = bool(call.args) and ast.unparse(call.args[0]) == "0"
    if name in ("time.monotonic", "time.perf_counter") or name == "asyncio.sleep" and not gives_way:
        return "time"
    return None


def is_common_chance(node: ast.Attribute) -> bool:
    """`random.random` and its kin, called or only named: one source for the whole process."""
    return ast.unparse(node.value) == "random" and node.attr != "Random"


def modules_that_ask() -> dict[str, set[str]]:
    found = defaultdict[str, set[str]](set)
    for module, path in FILES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and (what := asks(node)) is not None:
                found[what].add(module)
            if isinstance(node, ast.Attribute) and is_common_chance(node):
                found["chance"].add(module)
    return found


def test_what_decides_asks_its_world_for_time_chance_and_connections() -> None:
    assert modules_that_ask() == {"channel": set(CHANNELS), "time": set(OWN_TIME)}


def test_ray_is_imported_in_one_place_and_never_at_the_top_of_a_module() -> None:
    """A process that does not ask for it never has it, and nothing but launchers knows it."""
    found = defaultdict[str, list[int]](list)
    for module, path in FILES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom) and "ray" in packages_of(node):
                found[module].append(node.col_offset)
    assert set(found) == {"cluster.launcher.ray.library"}
    assert all(columns for columns in found["cluster.launcher.ray.library"])


def packages_of(node: ast.Import | ast.ImportFrom) -> set[str]:
    if isinstance(node, ast.ImportFrom):
        return {(node.module or "").partition(".")[0]}
    return {alias.name.partition(".")[0] for alias in node.names}


def test_nobody_takes_a_clock_or_a_draw_out_of_its_module_by_name() -> None:
    hidden = [
        module
        for module, path in FILES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module in ("time", "random")
        if {alias.name for alias in node.names} != {"Random"}
    ]
    assert hidden == []
