"""Agreement with SciPy's `spsolve` on real matrices, or a status that says why there is none."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.linalg import norm
from scipy.sparse.linalg import onenormest

import spandrel_sparse as sl
import superlu
from conftest import REAL

ROWS = 20_000
PATHS = sorted(REAL.glob("*.mtx.gz"))
# How a system may end that has no answer, or none to this accuracy. Each is checked below.
TOLD = {"backward_stable", "singular", "inconsistent"}


@pytest.fixture(scope="module")
def theirs():
    process = superlu.Process()
    yield process
    process.end()


def backward_error(A, x, b) -> float:
    """||b - A x|| / (||A|| ||x|| + ||b||) in the maximum norm (Rigal and Gaches)."""
    scale = abs(A).sum(axis=1).max() * abs(x).max() + abs(b).max()
    return float(abs(b - A @ x).max() / scale) if scale > 0 else 0.0


@pytest.mark.skipif(not PATHS, reason=f"there are no matrices in {REAL}")
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name.removesuffix(".mtx.gz"))
def test_it_agrees_with_spsolve_or_says_why_not(path, theirs):
    try:
        A = sl.read_mtx(path)
    except ValueError as error:
        assert "imaginary" in str(error) or "complex" in str(error), error
        pytest.skip("complex")
    n = A.shape[0]
    if A.shape[1] != n or n > ROWS or n == 0:
        pytest.skip("not square, empty, or larger than is compared")
    b = A @ (1 + (np.arange(n) % 7) / 7)
    if not np.isfinite(b).all():
        pytest.skip("an entry is infinite, NaN or too large to multiply")
    sol = sl.solve(A, b, device="cpu")
    print(f"{path.name}: {sol!r}")
    assert sol.converged or sol.status in TOLD, sol
    if sol.converged:
        assert norm(A @ sol.x - b) <= 1.01e-8 * norm(b)
    elif sol.status == "backward_stable":
        assert backward_error(A, sol.x, b) <= 100 * n**0.5 * 2.0**-52
    found = theirs(A.tocsc(), b)
    if found is None:  # exactly singular: SciPy has no answer to compare with
        return
    x, inverse = found
    if sol.status in ("singular", "inconsistent"):
        # SuperLU may divide by rounding where a pivot should be zero. Its factors then say that the matrix is as good as singular.
        assert not np.isfinite(x).all() or onenormest(A) * inverse >= 2.0**50, sol
        return
    if not np.isfinite(x).all():
        return
    # ||x - y|| <= ||A^-1|| ||A (x - y)||, by SciPy's factors in the 1-norm. The estimate of ||A^-1|| is a lower bound, within a factor of 3 nearly
    # always (Higham and Tisseur 2000). The residuals themselves are rounded.
    distance = norm(sol.x - x, 1)
    residuals = norm(A @ sol.x - b, 1) + norm(A @ x - b, 1)
    rounding = n * 2.0**-52 * (abs(A) @ (abs(sol.x) + abs(x)) + abs(b)).sum()
    assert distance <= 10 * inverse * (residuals + rounding)
