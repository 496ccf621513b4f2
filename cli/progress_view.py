"""Bars for what takes long: live on a terminal, a line per phase elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from cli.terminal import say
from cluster.models.files.progress import ByteProgress
from cluster.terminal_text import plain


class ProgressView:
    """One row per name. Used as a context; safe to call from any thread."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._live = console.is_terminal and sys.stderr.isatty()
        self._rows: dict[str, TaskID] = {}
        self._phases: dict[str, str] = {}
        self._progress = Progress(
            TextColumn("{task.fields[name]:<12}"),
            BarColumn(bar_width=24),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not self._live,
        )

    def __enter__(self) -> ProgressView:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Shows the rows; idempotent."""
        self._progress.start()

    def close(self) -> None:
        """Takes the rows away; idempotent."""
        self._progress.stop()

    def update(self, name: str, phase: str, fraction: float | None, detail: str = "") -> None:
        """A row's state; `fraction` is None when the end is not known."""
        if not self._live:
            self._say_once(name, phase)
            return
        if name not in self._rows:
            self._rows[name] = self._progress.add_task("", total=None, name=name)
        self._progress.update(
            self._rows[name],
            description=f"{phase} {detail}".rstrip(),
            total=None if fraction is None else 1.0,
            completed=fraction or 0.0,
        )

    def finish(self, name: str, line: str) -> None:
        """Replaces a row by a lasting line."""
        self._phases.pop(name, None)
        if name in self._rows:
            self._progress.remove_task(self._rows.pop(name))
        self.say(line)

    def say(self, line: str) -> None:
        """A lasting line above the rows."""
        if self._live:
            self._progress.console.print(plain(line), highlight=False, markup=False, soft_wrap=True)
        else:
            say(line)

    def bytes_of(self, name: str) -> ByteProgress:
        """A callback for the model store."""

        def show(phase: str, done_bytes: int, total_bytes: int | None) -> None:
            done = f"{done_bytes / 2**20:.0f}"
            if total_bytes:
                share = done_bytes / total_bytes
                self.update(name, phase, share, f"{done} / {total_bytes / 2**20:.0f} MiB")
            else:
                self.update(name, phase, None, f"{done} MiB")

        return show

    def _say_once(self, name: str, phase: str) -> None:
        if self._phases.get(name) != phase:
            self._phases[name] = phase
            say(f"{name:<12} {phase} ...")
