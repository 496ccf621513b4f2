"""One running request's place, as its journey has it."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

from router.fairness.shares import Bill
from router.fleet.prompt_turns import Turn
from router.fleet.room_part import RoomPart


class PlaceOwner(Protocol):
    """Whose place it is: Admission. It raises nothing here."""

    def look(self) -> None:
        """There may be room."""
        ...

    def lease_used(self) -> None:
        """Once for each: its request is at its workers, or goes nowhere."""
        ...

    def lease_released(self) -> None:
        """Once for each."""
        ...


class AdmissionLease:
    """One running request's place; released once, by whoever finishes it."""

    __slots__ = ("_admission", "_is_used", "_turn", "bill", "part")

    def __init__(self, admission: PlaceOwner, part: RoomPart, bill: Bill) -> None:
        self._admission: PlaceOwner | None = admission
        self._turn: Turn | None = None
        self._is_used = False
        self.part = part
        """Its part of a worker."""
        self.bill = bill
        """What its tenant pays."""

    @property
    def is_held(self) -> bool:
        """False once it was released."""
        return self._admission is not None

    def goes_to(self, turn: Turn | None) -> None:
        """Its prompt has a turn at a worker; again where it goes on elsewhere."""
        if self._turn is not None:
            self._turn.over()
        self._turn = turn
        self._use()

    def goes_over(self, part: RoomPart | None, turn: Turn | None) -> None:
        """Another worker has its request, and a part for it already, which is the lease's from now
        on."""
        if part is not None and self._admission is not None:
            self.part.release()
            self.part, part = part, None
        if part is not None:
            part.release()
        self.goes_to(turn)

    def computed(self) -> None:
        """Its prompt is: another one may be. Idempotent."""
        self.part.computed()
        if self._turn is not None:
            self._turn.over()
        if self._admission is not None:
            self._admission.look()

    def release(self) -> None:
        """Idempotent."""
        self._use()
        admission, self._admission = self._admission, None
        if admission is not None:
            self.part.release()
            if self._turn is not None:
                self._turn.over()
            admission.lease_released()

    def _use(self) -> None:
        if not self._is_used and self._admission is not None:
            self._is_used = True
            self._admission.lease_used()

    def __enter__(self) -> AdmissionLease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
