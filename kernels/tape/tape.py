"""Records a forward: each part of a decoder writes its operations down, once, when it is loaded.

    tape = Tape(dtype)
    residual = tape.embed(embedding)                     # rows to come, not numbers
    x = tape.rms_norm(residual, weight, eps)
    ...
    recording = tape.finish(tape.logits(lm_head, x))     # kernels/tape/play.py plays it

Activations are rows at a named place; writing to a name again overwrites what it held. Where ranks
share the matrices, collectives are recorded among the operations; a single rank has none.

All ranks have all rows of the residual, or, where experts get theirs by exchange, each a run of
them: a branch is added up `to_residual`, its norm is taken from there whole by `from_residual`.
Or each has a step of its own, and they meet in the exchange alone.
"""

from __future__ import annotations

import torch

from kernels.adapters import AdapterSite
from kernels.gated_mul import GateActivation, gated_width
from kernels.linear import Linear
from kernels.tape import operations as ops
from kernels.tape.adapter_operations import AddAdapters
from kernels.tape.collective import Collective, ExpertCollective
from kernels.tape.recording import Recording
from kernels.tape.row_operations import GatherRows, SumOwnRows, TakeOwnRows
from kernels.tape.rows import QkvHeads, Rows, VocabularyPart


class Tape:
    """A forward in the making. Raises ValueError for rows that do not fit an operation."""

    def __init__(
        self,
        dtype: torch.dtype,
        collective: Collective | None = None,
        *,
        exchange: ExpertCollective | None = None,
        has_adapters: bool = False,
    ) -> None:
        """`dtype` is that of matrices and activations; `collective`: of the ranks that share
        matrices, None where each has all of them; `exchange`: of those whose routed experts get
        rows by exchange. With both the ranks split the rows of a step, with the exchange alone each
        has a step of its own. `has_adapters`: of steps in which some row has one."""
        self.dtype = dtype
        self._has_adapters = has_adapters
        shares = collective is not None and collective.world_size > 1
        self._collective = collective if shares else None
        self.exchange = exchange
        self._row_split = exchange if shares else None
        self._is_wanted = False
        self._places: dict[str, int] = {}
        self._operations: list[ops.Operation] = []
        self._left: list[Rows] = []

    def rows(self, name: str, width: int, dtype: torch.dtype | None = None) -> Rows:
        """Rows at the place of this name. `dtype` defaults to the tape's."""
        place = self._places.setdefault(name, len(self._places))
        return Rows(place, width, self.dtype if dtype is None else dtype)

    def add(self, operation: ops.Operation) -> None:
        """One more operation."""
        self._operations.append(operation)

    def embed(self, embedding: Linear) -> Rows:
        """The residual stream: float32 rows of the step's tokens."""
        residual = self.rows("residual", embedding.shape[1], torch.float32)
        self.add(ops.Embed(matrix=embedding, out=residual))
        return residual

    def embed_part(self, embedding: Linear, part: VocabularyPart) -> Rows:
        """As `embed`, where each rank has some of the rows: their sum over the ranks."""
        residual = self.rows("residual", embedding.shape[1], torch.float32)
        self.add(ops.EmbedPart(matrix=embedding, part=part, out=residual))
        return self.to_residual(residual)

    def scale(self, rows: Rows, scale: float) -> None:
        """Multiplies float32 rows in place."""
        self.add(ops.Scale(rows=rows, scale=scale))

    def linear(self, matrix: Linear, x: Rows, out: str) -> Rows:
        """x @ weight.T + bias, to the place `out`."""
        made = self.rows(out, matrix.shape[0])
        self.add(ops.Product(matrix=matrix, x=x, out=made))
        return made

    def adapt(self, site: AdapterSite | None, x: Rows, out: Rows) -> Rows:
        """`out`, the product of `x`, with what adapters add to it, in place. Nothing where none
        may, or in steps without."""
        if site is not None and self._has_adapters:
            self.add(AddAdapters(site=site, x=x, out=out, is_wanted=self._is_wanted))
        return out

    def logits(self, matrix: Linear, x: Rows, out: str = "logits") -> Rows:
        """As `linear`, in float32."""
        made = self.rows(out, matrix.shape[0], torch.float32)
        self.add(ops.Product(matrix=matrix, x=x, out=made, is_wide=True))
        return made

    def rms_norm(self, residual: Rows, weight: torch.Tensor, eps: float) -> Rows:
        """The norm of the residual stream."""
        out = self.rows("normed", residual.width)
        self.add(ops.RmsNorm(residual=residual, weight=weight, eps=eps, out=out))
        return out

    def hidden(self, residual: Rows, weight: torch.Tensor, eps: float) -> Rows:
        """The norm of the residual stream in float32, at a place of its own: what a step leaves."""
        out = self.rows("hidden", residual.width, torch.float32)
        self.add(ops.RmsNorm(residual=residual, weight=weight, eps=eps, out=out))
        return out

    def add_rms_norm(self, branch: Rows, residual: Rows, weight: torch.Tensor, eps: float) -> Rows:
        """Adds the branch to the residual stream; then its norm."""
        out = self.rows("normed", residual.width)
        self.add(ops.AddRmsNorm(branch=branch, residual=residual, weight=weight, eps=eps, out=out))
        return out

    def branch_norm(
        self, branch: Rows, weight: torch.Tensor, eps: float, out: str = "normed branch"
    ) -> Rows:
        """The norm of a branch that is not added to anything yet."""
        made = self.rows(out, branch.width)
        self.add(ops.BranchNorm(branch=branch, weight=weight, eps=eps, out=made))
        return made

    def head_norm(
        self,
        qkv: Rows,
        heads: QkvHeads,
        weights: tuple[torch.Tensor, torch.Tensor],
        eps: float,
    ) -> None:
        """Norms heads of Q and of K in place, by the weights of each."""
        query, key = weights
        self.add(ops.HeadNorm(qkv=qkv, heads=heads, query_weight=query, key_weight=key, eps=eps))

    def rope_write_kv(self, qkv: Rows, heads: QkvHeads, cos_sin: torch.Tensor, layer: int) -> Rows:
        """The rotated Q; K and V go into the pool. `qkv` is spent."""
        query = self.rows("query", heads.query_width)
        self.add(ops.RopeWriteKv(qkv=qkv, heads=heads, cos_sin=cos_sin, layer=layer, out=query))
        return query

    def paged_attention(
        self, query: Rows, heads: QkvHeads, layer: int, scale: float, window: int | None = None
    ) -> Rows:
        """Attention to a layer of the pool, the step's own tokens among it."""
        out = self.rows("attended", heads.query_width)
        self.add(
            ops.PagedAttention(
                query=query, heads=heads, layer=layer, scale=scale, window=window, out=out
            )
        )
        return out

    def gated_mul(self, gate_up: Rows, activation: GateActivation) -> Rows:
        """activation(gate) * up."""
        out = self.rows("gated", gated_width(gate_up.width))
        self.add(ops.GatedMul(gate_up=gate_up, activation=activation, out=out))
        return out

    def keep_wanted(self, *rows: Rows) -> tuple[Rows, ...]:
        """These activations, of the rows whose logits are wanted; all others end here."""
        kept = tuple(self.rows(f"wanted {at}", r.width, r.dtype) for at, r in enumerate(rows))
        self.add(ops.KeepWanted(rows=rows, out=kept))
        self._is_wanted = True
        return kept

    def to_residual(self, rows: Rows) -> Rows:
        """Their sum over the ranks, in place; of ranks that split the rows, of the own ones."""
        if self._row_split is None:
            return self.all_reduce(rows)
        own = self.rows(f"own of {rows.place}", rows.width, rows.dtype)
        self.add(SumOwnRows(collective=self._row_split, rows=rows, out=own))
        return own

    def from_residual(self, rows: Rows) -> Rows:
        """Those of all ranks, of ranks that split them."""
        if self._row_split is None:
            return rows
        whole = self.rows(f"all of {rows.place}", rows.width, rows.dtype)
        wanted = self._is_wanted
        gather = GatherRows(collective=self._row_split, rows=rows, is_wanted=wanted, out=whole)
        self.add(gather)
        return whole

    def own_rows(self, rows: Rows) -> Rows:
        """Of all rows this rank's, of ranks that split them."""
        if self._row_split is None:
            return rows
        own = self.rows(f"own of {rows.place}", rows.width, rows.dtype)
        self.add(TakeOwnRows(collective=self._row_split, rows=rows, out=own))
        return own

    def all_reduce(self, rows: Rows) -> Rows:
        """Their sum over the ranks, in place. Nothing where each has all of it."""
        if self._collective is not None:
            self.add(ops.AllReduce(collective=self._collective, rows=rows))
        return rows

    def all_gather(
        self, rows: Rows, out: str, width: int | None = None, *, root: int | None = None
    ) -> Rows:
        """The first `width` columns of all ranks side by side; None: all of them. The rows
        themselves where there is one rank. `root`: the one rank that wants them; None: all do."""
        if self._collective is None:
            return rows
        gathered = rows.width * self._collective.world_size
        made = self.rows(out, gathered if width is None else width, rows.dtype)
        self.add(ops.AllGather(collective=self._collective, rows=rows, out=made, root=root))
        return made

    def leave(self, rows: Rows) -> None:
        """Keeps rows, as they are now, for whoever asks the player once the step is done."""
        out = self.rows(f"left {len(self._left)}", rows.width, rows.dtype)
        self.add(ops.LeaveRows(rows=rows, out=out))
        self._left.append(out)

    def finish(self, logits: Rows) -> Recording:
        """The recording; the tape is spent."""
        return Recording(
            operations=tuple(self._operations),
            num_places=len(self._places),
            logits=logits,
            left=tuple(self._left),
        )
