"""SciPy's direct solver, in a process of its own: after a singular matrix it may crash in a later factorisation."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import warnings
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, onenormest, splu


# Seconds that a factorisation may take. Some matrices fill up under any of SuperLU's orderings.
PATIENCE = 20


def factor_and_solve(A: Any, b: Any) -> tuple[Any, float] | None:
    """x and an estimate of ||A^-1|| in the 1-norm, or None if the matrix is exactly singular."""
    warnings.simplefilter("ignore")
    n = A.shape[0]
    is_symmetric = ((A != 0) != (A.T != 0)).nnz == 0
    try:
        factors = splu(A, permc_spec="MMD_AT_PLUS_A" if is_symmetric else "COLAMD")
    except RuntimeError:
        return None
    if n <= 4:
        return factors.solve(b), float(np.linalg.norm(factors.solve(np.eye(n)), 1))
    inverse = LinearOperator((n, n), matvec=factors.solve, rmatvec=lambda v: factors.solve(v, "T"), dtype=float)
    return factors.solve(b), float(onenormest(inverse))


class Process:
    """A process that factors, and is replaced where it may have been harmed."""

    def __init__(self) -> None:
        self.pool: concurrent.futures.ProcessPoolExecutor | None = None

    def __call__(self, A: Any, b: Any) -> tuple[Any, float] | None:
        for _ in range(2):
            if self.pool is None:
                context = multiprocessing.get_context("spawn")
                self.pool = concurrent.futures.ProcessPoolExecutor(1, mp_context=context)
            try:
                found = self.pool.submit(factor_and_solve, A, b).result(PATIENCE)
            except BrokenProcessPool:
                self.end()
                continue
            except concurrent.futures.TimeoutError:
                print(f"SuperLU took more than {PATIENCE} s")
                self.kill()
                return None
            if found is None:
                self.end()
            return found
        return None

    def kill(self) -> None:
        if self.pool is not None:
            for process in list(self.pool._processes.values()):
                process.kill()
        self.end()

    def end(self) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)
            self.pool = None
