"""What a solve gives back: x, how it ended, and what ran."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _chart
from ._errors import NotConverged

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(eq=False)
class Outcome:
    """How a solve of one right-hand side ended. `str` says it in one sentence.

    Attributes
    ----------
    status : str
        ``"converged"``, or why not: ``"max_iterations"``, ``"breakdown"``, ``"zero_pivot"``, ``"indefinite_matrix"``,
        ``"indefinite_preconditioner"``, ``"diverged"``, ``"stagnated"``, ``"not_finite"``, ``"interrupted"``, ``"inconsistent"``,
        ``"backward_stable"`` (solved to rounding, for an ill-conditioned matrix), ``"singular"``.
    iterations : int
        Iterations over all restarts; 0 for a direct solve.
    residual : float
        The residual norm of the recurrence at the end, over ``norm(b)``.
    true_residual : float
        ``norm(b - A @ x) / norm(b)``, recomputed from x.
    target : float
        The goal of `true_residual`.
    restarts : int
        How often the residual was recomputed and the search direction restarted. For GMRES, the number of cycles after the first.
    history : ndarray
        Residual norms over ``norm(b)``: the first one, then one per iteration.
    breakdown : tuple of str and int, or None
        The scalar that stopped the method, and the iteration in which it did.
    note : str or None
        A further remark.
    backward_error : tuple of float, or None
        The normwise and componentwise backward error of x, if they were computed.
    condition : float or None
        An estimate of the condition number, if one was made.
    """

    status: str
    iterations: int
    residual: float
    true_residual: float
    target: float
    restarts: int
    history: npt.NDArray[np.float64] = field(repr=False)
    breakdown: tuple[str, int] | None
    note: str | None
    backward_error: tuple[float, float] | None
    condition: float | None
    text: str = field(repr=False)

    @property
    def converged(self) -> bool:
        """Whether the solve converged."""
        return self.status == "converged"

    def __str__(self) -> str:
        return self.text


@dataclass(eq=False)
class Attempt:
    """A method or preconditioner that a solve tried and gave up.

    Attributes
    ----------
    method, preconditioner : str
        What was tried.
    status : str
        How it ended, as in `Outcome.status`.
    iterations : int
        The number of iterations until then.
    true_residual : float
        ``norm(b - A @ x) / norm(b)`` of the x that it left; NaN if it was not measured.
    seconds : float
        Seconds of the solve until then.
    """

    method: str
    preconditioner: str
    status: str
    iterations: int
    true_residual: float
    seconds: float


@dataclass(eq=False)
class Times:
    """Seconds of each phase.

    Attributes
    ----------
    analyze : float
        Examining the structure, choosing, renumbering.
    load : float
        Copying matrix and vectors to the device, the matrix in its format.
    setup : float
        Making the preconditioner, or a factorisation.
    solve : float
        The iteration, with the residual at its end, or the solve with factors.
    """

    analyze: float
    load: float
    setup: float
    solve: float

    @property
    def total(self) -> float:
        """The sum of all phases."""
        return self.analyze + self.load + self.setup + self.solve


@dataclass(eq=False)
class Plan:
    """What a solver runs, and why. `str` writes it as a small table.

    Attributes
    ----------
    shape : tuple of int
        Rows and columns of the matrix.
    nnz : int
        The number of its entries.
    symmetric : bool
        Whether it equals its transpose, exactly.
    backend : str
        ``"cpu"`` or ``"cuda"``.
    device, method, preconditioner, format, precision, reorder, scale : str
        What was chosen.
    device_why, method_why, preconditioner_why, format_why : str
        Why.
    rtol, atol : float
        The goal: ``norm(b - A @ x) <= max(rtol * norm(b), atol)``.
    maxiter : int
        The maximum number of iterations.
    restart : int
        The number of steps per GMRES cycle.
    warnings : list of str
        Warnings that are known before a solve.
    """

    shape: tuple[int, int]
    nnz: int
    symmetric: bool
    backend: str
    device: str
    device_why: str
    method: str
    method_why: str
    preconditioner: str
    preconditioner_why: str
    format: str
    format_why: str
    precision: str
    reorder: str
    scale: str
    rtol: float
    atol: float
    maxiter: int
    restart: int
    warnings: list[str]
    text: str = field(repr=False)

    def __str__(self) -> str:
        return self.text


@dataclass(eq=False, repr=False)
class Solution:
    """The answer of a solve: x, and how the solve ended.

    ``np.asarray(solution)`` is its x. In a notebook it shows a table and the convergence curve.

    Attributes
    ----------
    x : ndarray
        The answer, with a column for each right-hand side if there are several. For b on a GPU, an array of the same library.
    outcomes : list of Outcome
        How the solve of each right-hand side ended. An interrupted one is the last.
    method, preconditioner : str
        The method and the preconditioner with which the solve ended.
    attempts : list of Attempt
        What was tried before and given up.
    note : str or None
        A further remark, for example what took over from what, or how a factorisation went.
    times : Times or None
        Seconds of this solve, for one right-hand side on the host.
    plan : Plan
        What was chosen, and why.
    """

    x: Any
    outcomes: list[Outcome]
    method: str
    preconditioner: str
    attempts: list[Attempt]
    note: str | None
    times: Times | None
    plan: Plan

    @property
    def outcome(self) -> Outcome:
        """How the solve ended. With several columns: the first that did not converge, else the last. `IndexError` without columns."""
        return next((outcome for outcome in self.outcomes if not outcome.converged), self.outcomes[-1])

    @property
    def converged(self) -> bool:
        """Whether every column of x converged."""
        return all(outcome.converged for outcome in self.outcomes)

    @property
    def status(self) -> str:
        """The word for how the solve ended, as in `Outcome.status`."""
        return "converged" if self.converged else self.outcome.status

    @property
    def iterations(self) -> int:
        """Iterations, over all right-hand sides."""
        return sum(outcome.iterations for outcome in self.outcomes)

    @property
    def history(self) -> npt.NDArray[np.float64]:
        """Residual norms over ``norm(b)``: the first one, then one per iteration."""
        return self.outcome.history

    def raise_if_not_converged(self) -> Solution:
        """Return this solution if it converged; otherwise raise `NotConverged`, which holds it.

        Examples
        --------
        >>> import numpy as np
        >>> import spandrel_sparse as sl
        >>> A = sl.generate("poisson2d:50")
        >>> x = sl.solve(A, np.ones(2500)).raise_if_not_converged().x
        """
        if self.converged:
            return self
        raise NotConverged(f"the solve did not converge: {self.outcome}", self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        import numpy as np

        made = np.asarray(self.x, dtype)
        return made.copy() if copy else made

    def _ran(self) -> str:
        by = "" if self.method == "direct" or self.preconditioner == "none" else f" with {self.preconditioner}"
        return f"{self.method}{by} on {self.plan.backend}"

    def __repr__(self) -> str:
        columns = f"{len(self.outcomes)} right-hand sides, " if len(self.outcomes) != 1 else ""
        ended = self.outcome.text.split(":")[0] if self.outcomes else self.status
        return f"Solution({columns}{ended}; {self._ran()})"

    def _repr_html_(self) -> str:
        if not self.outcomes:
            return html.escape(repr(self))
        rows, columns = self.plan.shape
        outcome = self.outcome
        lines = [
            ("outcome", outcome.text),
            ("ran", self._ran()),
            ("matrix", f"{rows:,} x {columns:,}, {self.plan.nnz:,} entries, stored as {self.plan.format}"),
            ("device", self.plan.device),
        ]
        if len(self.outcomes) > 1:
            converged = sum(outcome.converged for outcome in self.outcomes)
            lines.insert(1, ("columns", f"{converged} of {len(self.outcomes)} converged"))
        if self.times is not None and math.isfinite(self.times.total):
            lines.append(("time", f"{self.times.total:.3g} s"))
        if self.note is not None:
            lines.append(("note", self.note))
        cells = "".join(
            f'<tr><th style="text-align:left">{name}</th><td style="text-align:left">{html.escape(text)}</td></tr>'
            for name, text in lines
        )
        return f"<table>{cells}</table>{_chart.convergence(outcome.history.tolist(), outcome.target)}"
