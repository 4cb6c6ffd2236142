"""`cg`, `bicgstab` and `gmres` with the arguments and results of `scipy.sparse.linalg`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _arrays, _core, _gpu
from ._errors import SolveInterrupted

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    _Vector = npt.NDArray[np.floating[Any]]


def cg(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[_Vector], object] | None = None,
    device: str = "auto",
) -> tuple[Any, int]:
    """Solve A x = b by conjugate gradients, for a symmetric positive definite A. The counterpart of `scipy.sparse.linalg.cg`.

    Parameters
    ----------
    A : sparse matrix, ndarray or LinearOperator
        The matrix. With float32 arrays for A and b the solve runs in float32, otherwise in float64.
    b : ndarray
        The right-hand side, of shape (n,) or (n, 1).
    x0 : ndarray, optional
        Where to begin; ``"Mb"`` stands for ``M @ b``. It is not written to.
    rtol, atol : float
        The goal ``norm(b - A @ x) <= max(rtol * norm(b), atol)``. It is checked with the residual recomputed from x.
    maxiter : int, optional
        The maximum number of iterations. Default 10 per row.
    M : str, sparse matrix, ndarray or LinearOperator, optional
        An approximation of the inverse of A, as in SciPy; or the name of a preconditioner to make, such as ``"jacobi"``, ``"ic0"``,
        ``"mg"`` (see `Solver`).
    callback : callable, optional
        Called as ``callback(xk)`` after each iteration.
    device : {"auto", "cpu", "cuda", "cuda:N"}
        Where to run. Operators that are Python functions run on the CPU. Arrays on a GPU (b, and A of cupyx.scipy.sparse) stay there.

    Returns
    -------
    x : ndarray
        The solution, or the last x.
    info : int
        0 if it converged, else the number of iterations.

    Examples
    --------
    >>> import numpy as np
    >>> import spandrel_sparse as sl
    >>> A = sl.generate("poisson2d:60")
    >>> x, info = sl.cg(A, np.ones(3600), rtol=1e-8, M="ic0")
    >>> info
    0
    """
    return _Call("cg", A, b, x0, rtol, atol, maxiter, M, callback, "x", device).solve()


def bicgstab(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[_Vector], object] | None = None,
    device: str = "auto",
) -> tuple[Any, int]:
    """Solve A x = b by stabilised biconjugate gradients. The counterpart of `scipy.sparse.linalg.bicgstab`.

    The parameters are those of `cg`.

    Returns
    -------
    x : ndarray
        The solution, or the last x.
    info : int
        0 if it converged, -10 or -11 after a breakdown, else the number of iterations.

    Examples
    --------
    >>> import numpy as np
    >>> import spandrel_sparse as sl
    >>> A = sl.generate("convdiff2d:60,peclet=5")
    >>> x, info = sl.bicgstab(A, np.ones(3600), M="ilu0")
    >>> info
    0
    """
    return _Call("bicgstab", A, b, x0, rtol, atol, maxiter, M, callback, "x", device).solve()


def gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    restart: int | None = None,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Any], object] | None = None,
    callback_type: str | None = None,
    device: str = "auto",
) -> tuple[Any, int]:
    """Solve A x = b by generalised minimal residuals. The counterpart of `scipy.sparse.linalg.gmres`.

    It preconditions from the right, while SciPy preconditions from the left. So it minimises the residual of the given system.
    Callbacks get this residual too.

    Parameters
    ----------
    A, b, x0, rtol, atol, M, device
        As in `cg`.
    restart : int, optional
        The number of steps per cycle. Default 20, at most n.
    maxiter : int, optional
        The maximum number of cycles, or of steps with a callback of type ``"legacy"``. Default 10 per row.
    callback : callable, optional
        Called as `callback_type` says.
    callback_type : {"x", "pr_norm", "legacy"}, optional
        ``"x"``: with the current x, after each cycle. ``"pr_norm"``: with the relative residual norm, after each step. ``"legacy"``, the
        default: the same, and `maxiter` counts steps.

    Returns
    -------
    x : ndarray
        The solution, or the last x.
    info : int
        0 if it converged, else `maxiter`, or the number of iterations if it stopped earlier.

    Examples
    --------
    >>> import numpy as np
    >>> import spandrel_sparse as sl
    >>> A = sl.generate("convdiff2d:60,peclet=5")
    >>> x, info = sl.gmres(A, np.ones(3600), restart=40, M="ilu0")
    >>> info
    0
    """
    if callback is not None and callback_type is None:
        warnings.warn(
            "gmres was called without specifying `callback_type`. As in SciPy the default is 'legacy', with which maxiter counts steps; "
            "name it, or take 'pr_norm'",
            DeprecationWarning,
            stacklevel=2,
        )
    kinds = {"x": "cycle_x", "pr_norm": "each_residual", "legacy": "each_residual"}
    callback_type = callback_type or "legacy"
    if callback_type not in kinds:
        raise ValueError(f"callback_type is 'x', 'pr_norm' or 'legacy', not {callback_type!r}")
    steps = 20 if restart is None else restart
    call = _Call("gmres", A, b, x0, rtol, atol, maxiter, M, callback, kinds[callback_type], device)
    call.counts_steps = callback is not None and callback_type == "legacy"
    call.restart = min(steps, max(call.n, 1)) if steps > 0 else steps
    return call.solve()


class _Call:
    """One call of `cg`, `bicgstab` or `gmres`."""

    # Only for GMRES.
    restart = 20
    counts_steps = False

    def __init__(
        self,
        method: str,
        A: Any,
        b: Any,
        x0: Any,
        rtol: float,
        atol: float,
        maxiter: int | None,
        M: Any,
        callback: Callable[[Any], object] | None,
        kind: str,
        device: str,
    ) -> None:
        if isinstance(atol, str) or atol is None or atol < 0:
            raise ValueError(f"{method} was called with atol={atol!r}; it is a number, 0 or more")
        if not hasattr(A, "shape"):
            A = _arrays.plain(A, "A")
        if len(A.shape) != 2 or A.shape[0] != A.shape[1]:
            raise ValueError(f"{method} needs a square matrix; this one has shape {A.shape}")
        self.method, self.A, self.b, self.x0, self.M = method, A, b, x0, M
        self.rtol, self.atol = float(rtol), float(atol)
        self.n = int(A.shape[0])
        self.maxiter = 10 * self.n if maxiter is None else int(maxiter)
        self.callback, self.kind, self.device = callback, kind, device

    def solve(self) -> tuple[Any, int]:
        try:
            if _arrays.is_on_gpu(self.b):
                return self.solve_on_gpu()
            return self.solve_on_host()
        except SolveInterrupted as interrupted:
            if isinstance(interrupted._reached, tuple):
                interrupted.x = interrupted._reached[0]
            raise

    def solve_on_host(self) -> tuple[Any, int]:
        A, M = self.A, self.M
        is_operator = _is_operator(A)
        if is_operator and getattr(A, "dtype", None) is None:
            matrix_type = _arrays.plain(A.matvec(_arrays.plain(self.b, "b")), "A @ b").dtype
        else:
            matrix_type = A.dtype
        b = _arrays.plain(self.b, "b")
        dtype = _arrays.number_type(matrix_type, b.dtype)
        b = _arrays.vector(b, self.n, dtype, "b")
        if M is None and hasattr(A, "psolve"):
            psolve = _function(A.psolve, dtype)
        elif M is None or isinstance(M, str):
            psolve = None
        else:
            psolve = _function(_as_operator(M, (self.n, self.n)).matvec, dtype)
        x0 = self.start(b, psolve, dtype)
        if is_operator or psolve is not None:
            if isinstance(M, str):
                raise ValueError(f"a preconditioner by name ({M!r}) needs the entries of the matrix, and A is an operator")
            if self.device not in ("auto", "cpu"):
                raise ValueError("operators and preconditioners that are Python functions run on the CPU; leave device out")
            a = _function(A.matvec, dtype) if is_operator else _arrays.matrix(A, dtype)
            start = _zeros(b) if x0 is None else x0
            x, outcome = _core.iterate(self.method, a, psolve, b, start, self.goal(), self.kind, self.callback)
            broke = outcome["breakdown"]
            return x, self.info(outcome["status"], outcome["iterations"], broke and broke[0])
        solver = _core.Solver(_arrays.matrix(A, dtype), self.settings(), self.kind, False)
        x, (status, iterations, _, symbol) = solver.solve(b, x0, self.callback)
        return x, self.info(status, iterations, symbol)

    def start(self, b: Any, psolve: Any, dtype: Any) -> Any:
        """x0 as an array, or None for zero."""
        if self.x0 is None:
            return None
        if not isinstance(self.x0, str):
            return _arrays.vector(self.x0, self.n, dtype, "x0")
        if self.x0 != "Mb":
            raise ValueError(f"x0 is an array or 'Mb', not {self.x0!r}")
        if psolve is not None:
            return psolve(b)
        if self.M is None:
            return b
        solver = _core.Solver(_arrays.matrix(self.A, dtype), self.settings(), "residual", False)
        return solver.precondition(b)

    def solve_on_gpu(self) -> tuple[Any, int]:
        x = _gpu.start(self.b, self.x0)
        b, there = _gpu.describe(self.b), _gpu.describe(x)
        if self.M is None and _arrays.is_matrix_on_gpu(self.A):
            outcome = self.iterate_on_gpu(self.A, b, there)
        elif (self.M is None or isinstance(self.M, str)) and not _is_operator(self.A):
            matrix = _arrays.matrix(_gpu.to_host(self.A), b.dtype)
            settings = self.settings()
            if self.device == "auto":
                settings["device"] = "cuda" if b.ordinal is None else f"cuda:{b.ordinal}"
            solver = _core.Solver(matrix, settings, self.kind, False)
            outcome = solver.solve_on_device(b, there, self.callback)
        else:
            raise ValueError(
                "operators and preconditioners that are Python functions run on the CPU, and b lies on a GPU; name the preconditioner, "
                "or copy b to the host"
            )
        broke = outcome["breakdown"]
        return x, self.info(outcome["status"], outcome["iterations"], broke and broke[0])

    def iterate_on_gpu(self, A: Any, b: _core.DeviceArray, x: _core.DeviceArray) -> dict[str, Any]:
        """Solve without a preconditioner, so that matrix and vectors stay on the GPU."""
        if not getattr(A, "has_canonical_format", True):
            A = A.copy()
            A.sum_duplicates()
        indptr, indices, data = (_gpu.describe(array) for array in (A.indptr, A.indices, A.data))
        shape, goal = (self.n, self.n), self.goal()
        return _core.iterate_on_device(self.method, shape, indptr, indices, data, b, x, goal, self.kind, self.callback)

    def steps(self) -> int:
        """The maximum number of iterations."""
        return self.maxiter * self.restart if self.method == "gmres" and not self.counts_steps else self.maxiter

    def goal(self) -> dict[str, Any]:
        return {"rtol": self.rtol, "atol": self.atol, "max_iterations": self.steps(), "restart": self.restart}

    def settings(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "preconditioner": "none" if self.M is None else self.M,
            "device": self.device,
            "reorder": "none",
            "scale": "none",
            "fallback": "none",
            "updatable": False,
            "rtol": self.rtol,
            "atol": self.atol,
            "maxiter": self.steps(),
            "restart": self.restart if self.method == "gmres" else None,
            "check_every": 1 if self.callback is not None and self.kind in ("x", "each_residual") else None,
        }

    def info(self, status: str, iterations: int, symbol: str | None) -> int:
        if status == "converged":
            return 0
        if status == "max_iterations":
            return max(self.maxiter, 1)
        if status == "breakdown" and self.method == "bicgstab":
            return -10 if symbol == "rho" else -11
        return max(iterations, 1)


def _is_operator(A: Any) -> bool:
    """Whether a matrix is an operator, which is known only by its products."""
    return hasattr(A, "matvec") and not hasattr(A, "tocsr")


def _as_operator(M: Any, shape: tuple[int, int]) -> Any:
    from scipy.sparse.linalg import aslinearoperator

    found = aslinearoperator(M)
    if tuple(found.shape) != shape:
        raise ValueError(f"M has shape {tuple(found.shape)}, expected {shape}")
    if getattr(found, "dtype", None) is not None:
        _arrays.number_type(found.dtype)
    return found


def _function(function: Callable[[Any], Any], dtype: Any) -> Callable[[Any], Any]:
    """Wrap a function so that its results are arrays that the native module takes."""

    def called(x: Any) -> Any:
        found = _arrays.plain(function(x), "the result of an operator")
        return _arrays.contiguous(found.reshape(-1), dtype)

    return called


def _zeros(b: Any) -> Any:
    import numpy as np

    return np.zeros_like(b)
