"""A program that mypy checks and nobody runs: the types that users see."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import spandrel_sparse as sl

b: npt.NDArray[np.float64] = np.ones(9)
A = sl.generate("poisson2d:3", dtype=np.float32)
solution: sl.Solution = sl.solve(A, b, method="cg", rtol=1e-10, callback=lambda residual: residual < 1.0)
status: str = solution.status
history: npt.NDArray[np.float64] = solution.history
checked: sl.Solution = solution.raise_if_not_converged()
solver = sl.Solver(A, preconditioner="ic0", maxiter=20)
plan: sl.Plan = solver.plan
seconds: float = solver.setup_times.total
solver.update(A.data)
x, info = sl.cg(A, b, M="jacobi", callback=lambda xk: print(xk.shape))
converged: bool = info == 0 and solver.solution(b).converged
names: list[str] = [device.name for device in sl.devices()]
try:
    solver.solve(b)
except sl.SolveInterrupted as interrupted:
    kept: sl.Solution | None = interrupted.solution

sl.solve(A, b, tolerance=1e-3)  # type: ignore[call-arg]
sl.cg(A, b, None, 1e-5)  # type: ignore[call-arg]
