"""`Solver`, which is set up once for any number of solves, and `solve` for a single one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict

from . import _arrays, _core, _gpu
from ._errors import NotConvergedWarning, SolveInterrupted
from ._solution import Attempt, Outcome, Plan, Solution, Times

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Unpack

    _Callback = Callable[[float], object]


class Settings(TypedDict, total=False):
    """The settings of `Solver` that `solve` passes on."""

    method: str
    preconditioner: str
    device: str
    format: str
    precision: str
    reorder: str
    scale: str
    null_space: str
    least_squares: bool
    rtol: float | None
    atol: float
    maxiter: int | None
    restart: int | None
    stagnation: int | None
    check_every: int | None
    memory_limit: int | None
    reproducible: bool
    fallback: str
    dtype: npt.DTypeLike | None


class Solver:
    """Solves A x = b for one matrix and any number of right-hand sides.

    Choices that you leave open are made from the matrix and the device; `plan` says what was chosen, and why. If such a choice fails,
    another takes over. If you leave everything open, a solve ends with an answer or with the reason why there is none.

    Parameters
    ----------
    A : sparse matrix or ndarray
        Any format of scipy.sparse, or a dense array. The values of CSR in float32 or float64 are read in place: do not write to
        ``A.data`` while the solver lives, and pass new values to `update`. Integers are converted to float64.
    method : {"auto", "cg", "bicgstab", "gmres", "direct"}
        The method.
    preconditioner : str
        ``"auto"``, ``"none"``, or a name as on the command line: ``"jacobi"``, ``"block-jacobi=4"``, ``"ssor"``, ``"ilu0"``, ``"iluk=2"``,
        ``"ilut=1e-3,5"``, ``"ic0"``, ``"amg"``, ``"mg"``, ``"chebyshev=4"``, ... A wrong name is a `ValueError` that lists them.
    device : {"auto", "cpu", "cuda", "cuda:N"}
        Where to run. ``"auto"`` is the first GPU that can be used, else the CPU.
    format : str
        The storage format of the iteration: ``"auto"`` (by a model), ``"measured"`` (by timing a few), or a name such as ``"sell"``.
    precision : {"native", "mixed", "refined"}
        ``"mixed"`` keeps the preconditioner in float32; ``"refined"`` iterates in float32 and corrects in float64.
    reorder : {"auto", "none", "bfs", "rcm", "amd"}
        The renumbering. x comes back in the numbering of A.
    scale : {"auto", "none", "equilibrate", "match"}
        How rows and columns are scaled for an iteration.
    null_space : {"none", "constant"}
        The null space of A, if you know it: ``"constant"`` for the constant vectors.
    least_squares : bool
        Whether to find the x with the least ``norm(b - A @ x)``, for a matrix of any shape and rank.
    rtol : float, optional
        The goal ``norm(b - A @ x) <= max(rtol * norm(b), atol)``. Default 1e-8, or 1e-5 in float32.
    atol : float
        See `rtol`.
    maxiter : int, optional
        The maximum number of iterations. Default 20 per row, but an iteration that has run long and is far from its goal ends earlier.
    restart : int, optional
        The number of steps per GMRES cycle. Default 30.
    stagnation : int, optional
        Iterations without a smaller residual after which CG and BiCGStab give up. Default: never.
    check_every : int, optional
        The host looks at the iteration, and calls the callback, every so many iterations. Default 16. It changes no bit of x.
    memory_limit : int, optional
        Bytes that the factors of a complete factorisation may take. Default 16 GiB with ``method="direct"``, else half of the free memory.
    reproducible : bool
        Use only kernels whose results have the same bits on every device.
    fallback : {"auto", "none"}
        Whether another choice takes over if one fails.
    updatable : bool
        Whether `update` will be called. If not, the memory of A is released where possible.
    dtype : {"float32", "float64"}, optional
        The type to solve in. Default: that of A.

    Notes
    -----
    The interpreter's lock is released during set-up and solves. Several threads may share a solver; they take turns. Ctrl-C ends
    a set-up at the end of its current phase, and a solve at the next look. It raises `SolveInterrupted`, which has the x reached. A
    complete factorisation is one phase.

    Examples
    --------
    >>> import numpy as np
    >>> import spandrel_sparse as sl
    >>> A = sl.generate("poisson3d:20")
    >>> solver = sl.Solver(A, preconditioner="ic0", device="cpu")
    >>> x = solver.solve(np.ones(8000))
    >>> solver.plan.method
    'cg'
    >>> solver.update(2 * A.data)                       # new values, same pattern
    >>> X = solver.solve(np.random.rand(8000, 3))       # several right-hand sides
    """

    _native: _core.Solver

    def __init__(
        self,
        A: Any,
        *,
        method: str = "auto",
        preconditioner: str = "auto",
        device: str = "auto",
        format: str = "auto",
        precision: str = "native",
        reorder: str = "auto",
        scale: str = "auto",
        null_space: str = "none",
        least_squares: bool = False,
        rtol: float | None = None,
        atol: float = 0.0,
        maxiter: int | None = None,
        restart: int | None = None,
        stagnation: int | None = None,
        check_every: int | None = None,
        memory_limit: int | None = None,
        reproducible: bool = False,
        fallback: str = "auto",
        updatable: bool = True,
        dtype: npt.DTypeLike | None = None,
    ) -> None:
        if _arrays.is_matrix_on_gpu(A):
            A = _gpu.to_host(A)
        matrix = _arrays.matrix(A, None if dtype is None else _arrays.number_type(dtype))
        settings = {
            "method": method,
            "preconditioner": preconditioner,
            "device": device,
            "format": format,
            "precision": precision,
            "reorder": reorder,
            "scale": scale,
            "null_space": null_space,
            "least_squares": least_squares,
            "rtol": rtol,
            "atol": atol,
            "maxiter": maxiter,
            "restart": restart,
            "stagnation": stagnation,
            "check_every": check_every,
            "memory_limit": memory_limit,
            "reproducible": reproducible,
            "fallback": fallback,
            "updatable": updatable,
        }
        self._native = _core.Solver(matrix, settings, "residual", True)
        # Values without a matrix are taken only in the order of CSR.
        self._takes_values = getattr(A, "format", None) == "csr"
        self._shape, self._nnz, self._dtype = matrix.shape, matrix.nnz, matrix.dtype

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the solve."""
        import numpy as np

        return np.dtype(self._dtype)

    @property
    def plan(self) -> Plan:
        """The choices and their reasons. The plan changes if another choice takes over in a solve."""
        return Plan(**self._native.plan())

    @property
    def setup_times(self) -> Times:
        """Seconds of the set-up."""
        return Times(**self._native.setup_times())

    def solve(self, b: Any, x0: Any = None, *, callback: _Callback | None = None) -> Any:
        """Solve A x = b and return x.

        A `NotConvergedWarning` is issued if the solve does not converge. `solution` gives the outcome instead.

        Parameters
        ----------
        b : array_like
            One right-hand side, or several as columns; then X has as many columns. An array on a GPU (CuPy, PyTorch, JAX, or
            anything with ``__cuda_array_interface__`` or DLPack) is used in place by a solver that runs on that GPU.
        x0 : array_like, optional
            Where to begin. Default zero.
        callback : callable, optional
            Called as ``callback(residual)`` with the relative residual at each look (`check_every`). If it raises `StopIteration`, the solve
            ends with the x reached.

        Returns
        -------
        ndarray
            x. For b on a GPU, an array of the same library on the same GPU.
        """
        if _arrays.is_on_gpu(b):
            solution = self._solve_on_gpu(b, x0, callback)
            x, status, text = solution.x, solution.status, _sentence(solution)
        else:
            found = _arrays.plain(b, "b")
            if found.ndim == 2:
                solution = self._solve_many(found, x0, callback)
                x, status, text = solution.x, solution.status, _sentence(solution)
            else:
                start = self._start(x0)
                try:
                    x, (status, _, text, _) = self._native.solve(self._right_hand_side(found), start, callback)
                except SolveInterrupted as interrupted:
                    self._told(interrupted)
                    raise
        # Do not warn if the callback ended the solve: the caller asked for that.
        if status not in ("converged", "interrupted"):
            warnings.warn(text or status, NotConvergedWarning, stacklevel=2)
        return x

    def solution(self, b: Any, x0: Any = None, *, callback: _Callback | None = None) -> Solution:
        """Solve A x = b and return x together with how the solve ended. The parameters are those of `solve`; there is no warning.

        Examples
        --------
        >>> import numpy as np
        >>> import spandrel_sparse as sl
        >>> solver = sl.Solver(sl.generate("poisson2d:40"), maxiter=3, method="cg", preconditioner="none")
        >>> solver.solution(np.ones(1600)).status
        'max_iterations'
        """
        if _arrays.is_on_gpu(b):
            return self._solve_on_gpu(b, x0, callback)
        found = _arrays.plain(b, "b")
        if found.ndim == 2:
            return self._solve_many(found, x0, callback)
        try:
            return self._solution(*self._native.solution(self._right_hand_side(found), self._start(x0), callback))
        except SolveInterrupted as interrupted:
            self._told(interrupted)
            raise

    def update(self, values: Any) -> None:
        """Give the matrix new values on its pattern. The analysis is kept; later solves use the new values.

        Parameters
        ----------
        values : ndarray or sparse matrix
            The new ``A.data`` of the matrix in CSR that the solver was made from, or a matrix in any format with the same pattern.
        """
        if hasattr(values, "tocsr"):
            self._native.update_from(_arrays.matrix(values, self._dtype))
            return
        if not self._takes_values:
            raise TypeError(
                "values by themselves are those of a matrix in CSR, and this solver was made of another format; pass the new matrix"
            )
        found = _arrays.plain(values, "values")
        if found.ndim != 1:
            raise ValueError(f"values has shape {found.shape}, expected one dimension")
        self._native.update(_arrays.contiguous(found, self.dtype))

    def aspreconditioner(self) -> Any:
        """The preconditioner M^-1 as a `scipy.sparse.linalg.LinearOperator`, for the argument `M` of SciPy's solvers and of those here.

        With a complete factorisation it solves A z = r.

        Examples
        --------
        >>> import numpy as np
        >>> import scipy.sparse.linalg
        >>> import spandrel_sparse as sl
        >>> A = sl.generate("convdiff2d:60,peclet=5")
        >>> M = sl.Solver(A, method="gmres", preconditioner="ilu0").aspreconditioner()
        >>> x, info = scipy.sparse.linalg.gmres(A, np.ones(3600), M=M)
        >>> info
        0
        """
        from ._operator import Preconditioner

        return Preconditioner(self._native, self.shape, self.dtype)

    def _right_hand_side(self, found: Any) -> Any:
        n = self._shape[0]
        if found.shape != (n,):
            raise ValueError(f"b has shape {found.shape}, expected ({n},) or ({n}, k)")
        return _arrays.contiguous(found, self.dtype)

    def _start(self, x0: Any) -> Any:
        return None if x0 is None else _arrays.vector(x0, self._shape[1], self.dtype, "x0")

    def _solve_many(self, found: Any, x0: Any, callback: _Callback | None) -> Solution:
        if x0 is not None:
            raise ValueError("x0 is for one right-hand side; solve column by column, or leave it out")
        if found.shape[0] != self._shape[0]:
            raise ValueError(f"b has shape {found.shape}, expected ({self._shape[0]}, k)")
        columns = _arrays.contiguous(found.ravel(order="F"), self.dtype)
        try:
            return self._columns(*self._native.solve_many(columns, callback))
        except SolveInterrupted as interrupted:
            if interrupted._reached is not None:
                interrupted.solution = self._columns(*interrupted._reached)
                interrupted.x = interrupted.solution.x
            raise

    def _solve_on_gpu(self, b: Any, x0: Any, callback: _Callback | None) -> Solution:
        x = _gpu.start(b, x0)
        fields = self._native.solve_on_device(_gpu.describe(b), _gpu.describe(x), callback)
        plan = self.plan
        return Solution(x, [Outcome(**fields)], plan.method, plan.preconditioner, [], None, None, plan)

    def _solution(self, x: Any, fields: dict[str, Any]) -> Solution:
        return Solution(
            x=x,
            outcomes=[Outcome(**fields["outcome"])],
            method=fields["method"],
            preconditioner=fields["preconditioner"],
            attempts=[Attempt(**attempt) for attempt in fields["attempts"]],
            note=fields["note"],
            times=Times(**fields["times"]),
            plan=self.plan,
        )

    def _columns(self, x: Any, outcomes: list[dict[str, Any]]) -> Solution:
        plan = self.plan
        x = x.reshape((self._shape[1], len(outcomes)), order="F")
        made = [Outcome(**fields) for fields in outcomes]
        return Solution(x, made, plan.method, plan.preconditioner, [], None, None, plan)

    def _told(self, interrupted: SolveInterrupted) -> None:
        if interrupted._reached is not None:
            interrupted.solution = self._solution(*interrupted._reached)
            interrupted.x = interrupted.solution.x

    def __repr__(self) -> str:
        rows, columns = self._shape
        plan = self.plan
        by = "" if plan.method == "direct" or plan.preconditioner == "none" else f" with {plan.preconditioner}"
        return f"Solver({rows} x {columns}, {self._nnz} entries, {self._dtype}; {plan.method}{by} on {plan.backend})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Solver cannot be pickled, since it holds memory of a device; pickle the matrix and build a solver from it")


def _sentence(solution: Solution) -> str | None:
    """How a solve ended, if it did not converge."""
    return None if solution.converged else solution.outcome.text


def solve(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    callback: _Callback | None = None,
    updatable: bool = False,
    **settings: Unpack[Settings],
) -> Solution:
    """Solve A x = b, and choose everything that is left open.

    Parameters
    ----------
    A : sparse matrix or ndarray
        Any format of scipy.sparse, or a dense array.
    b : array_like
        One right-hand side, or several as columns; also an array on a GPU.
    x0 : array_like, optional
        Where to begin. Default zero.
    callback : callable, optional
        Called as ``callback(residual)`` with the relative residual at each look. If it raises `StopIteration`, the solve ends.
    **settings
        Settings of `Solver`: ``method``, ``preconditioner``, ``device``, ``rtol``, ``maxiter``, ...

    Returns
    -------
    Solution
        ``x``, ``converged``, ``outcome``, ``history``, ``plan``. Not converging raises no exception, unless you call
        `Solution.raise_if_not_converged`.

    Examples
    --------
    >>> import numpy as np
    >>> import spandrel_sparse as sl
    >>> A = sl.generate("poisson2d:50")
    >>> sol = sl.solve(A, np.ones(2500), method="cg", preconditioner="ic0", device="cpu")
    >>> bool(np.linalg.norm(A @ sol.x - 1) <= 1e-8 * 50)
    True
    """
    return Solver(A, updatable=updatable, **settings).solution(b, x0, callback=callback)
