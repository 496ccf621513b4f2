"""Expected errors end a command with a line and an exit code, never with a traceback."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from cli.exit_code import ExitCode
from cli.terminal import complain
from cluster.errors import ConfigError, SplitserveError
from cluster.extras import EXTRAS, how_to_install

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def shows_errors(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Wraps a command. SPLITSERVE_DEBUG=1 lets the traceback through."""

    @functools.wraps(command)
    def shown(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return command(*args, **kwargs)
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except (SplitserveError, ModuleNotFoundError) as error:
            if os.environ.get("SPLITSERVE_DEBUG") == "1":
                raise
            raise typer.Exit(_told(error)) from None

    return shown


def _told(error: SplitserveError | ModuleNotFoundError) -> ExitCode:
    if isinstance(error, SplitserveError):
        complain(error.message)
        return ExitCode.USAGE if isinstance(error, ConfigError) else ExitCode.FAILED
    extra = EXTRAS.get((error.name or "").partition(".")[0])
    if extra is None:
        raise error
    complain(
        f"{error.name} is not installed, and this command needs it",
        remedy=how_to_install(extra),
    )
    return ExitCode.FAILED
