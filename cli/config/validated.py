"""Files of options, looked at as the processes would that are started with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cli.config.roles import ProcessKind, processes
from cli.exit_code import ExitCode
from cli.terminal import complain
from cli.view import Sheet, View
from cluster.config import ServeOptions
from cluster.errors import ConfigError
from cluster.options import file_problems, load_options


def validate(files: Sequence[Path], kind: ProcessKind | None, form: str) -> ExitCode:
    """Everything that is wrong, not the first of it alone. FAILED when anything is."""
    found = {str(file): _problems(file, kind) for file in files}
    data = [
        {
            "file": file,
            "valid": not problems,
            "problems": [{"key": each.param, "message": each.message} for each in problems],
        }
        for file, problems in found.items()
    ]
    rows = [(file, _word(problems)) for file, problems in found.items()]
    View(data, [Sheet(("FILE", "STATE"), rows)]).print(form)
    for problems in found.values():
        for problem in problems:
            complain(problem.message)
    return ExitCode.FAILED if any(found.values()) else ExitCode.OK


def _problems(file: Path, kind: ProcessKind | None) -> list[ConfigError]:
    try:
        problems = file_problems(file, processes(kind))
        if not problems and kind is ProcessKind.SERVE:
            load_options(ServeOptions, environ={}, config_file=file)
        return problems
    except ConfigError as problem:
        return [problem]


def _word(problems: list[ConfigError]) -> str:
    return f"{len(problems)} wrong" if problems else "good"
