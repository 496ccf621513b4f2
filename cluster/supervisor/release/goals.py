"""How many workers each pool of a release is to have while it is served. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.identity import Role
from cluster.scaling.scaler import PoolState, RefusalReason, ScaleRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolGoal:
    """Of one pool."""

    pool: str
    size_before: int
    """To which it goes back at the end."""
    size: int

    @property
    def is_a_change(self) -> bool:
        """A pool that is left as it was found is not touched at the end, either."""
        return self.size != self.size_before

    def is_met_by(self, state: PoolState) -> bool:
        """A pool that was changed is as it is wanted by now, by whomever; of another one a worker
        is enough, if it is to have any."""
        if self.is_a_change:
            return state.is_settled
        return state.num_ready > 0 or state.num_wanted == 0


def goals_of(pools: Sequence[PoolState], said: Mapping[Role, int]) -> list[PoolGoal]:
    """Of all pools. `said`: by an operator. Of a role that nobody has said the pools stay as they
    are, and where none of them has a worker the first gets one. Raises ScaleRefused."""
    wanted = {_only_pool(pools, role).name: size for role, size in said.items()}
    for role in {role_of(state) for state in pools} - set(said):
        of_role = [state for state in pools if role_of(state) == role]
        if not any(state.num_wanted for state in of_role):
            wanted[of_role[0].name] = 1
    return [
        PoolGoal(
            pool=state.name,
            size_before=state.num_wanted,
            size=wanted.get(state.name, state.num_wanted),
        )
        for state in pools
    ]


def role_of(state: PoolState) -> str:
    """Of a pool's workers."""
    return state.role or state.name


def _only_pool(pools: Sequence[PoolState], role: Role) -> PoolState:
    found = [state for state in pools if role_of(state) == role]
    if not found:
        has = ", ".join(state.name for state in pools) or "none"
        raise ScaleRefused(
            RefusalReason.NO_SUCH_POOL,
            f"the release has no pool of {role} workers; it has {has}",
        )
    if len(found) > 1:
        names = [state.name for state in found]
        raise ScaleRefused(
            RefusalReason.OPTIONS,
            f"{', '.join(names)} are pools of {role} workers, and --{role} does not say which: "
            f"leave it out, and give each its size by `splitserve scale {names[0]}=N ...`",
        )
    return found[0]
