"""A linear operator for SciPy. This file is imported only when one is needed, because SciPy takes a while to load."""

from __future__ import annotations

from typing import Any, NoReturn

from scipy.sparse.linalg import LinearOperator

from . import _arrays, _core


class Preconditioner(LinearOperator):  # type: ignore[misc]
    """M^-1 of a solver."""

    def __init__(self, native: _core.Solver, shape: tuple[int, int], dtype: Any) -> None:
        # M^-1 maps residuals, one per row of A, to corrections, one per column.
        super().__init__(dtype, (shape[1], shape[0]))
        self._native = native

    def _matvec(self, x: Any) -> Any:
        return self._native.precondition(_arrays.vector(x, self.shape[1], self.dtype, "r"))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a preconditioner cannot be pickled, since it holds memory of a device; make it anew from the matrix")
