"""Measures the package beside others, and prints a JSON line for each figure.

    python crates/python/benches/compare.py [FIGURE ...] [--threads 2] [--repeat 5]

Figures: `call` (what a call takes beyond the solve), `import`, `read` (beside scipy.io.mmread), `pyamg`, `spilu`, and if it is named `cupy` (iterations on
arrays of CuPy; needs a GPU). Peers come from PyPI: `pip install pyamg`. Times are the least of several repetitions; an idle machine is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any


def best(repeat: int, work: Callable[[], Any]) -> tuple[float, Any]:
    """The least time of several runs, and the last result."""
    least, result = float("inf"), None
    for _ in range(repeat):
        begin = time.perf_counter()
        result = work()
        least = min(least, time.perf_counter() - begin)
    return least, result


def tell(figure: str, **numbers: Any) -> None:
    machine = {"processor": platform.processor() or platform.machine(), "threads": os.environ["RAYON_NUM_THREADS"]}
    print(json.dumps({"figure": figure, **numbers, **machine}), flush=True)


def call(repeat: int) -> None:
    """What a call takes beyond what the library itself measures of the solve (n = 1000)."""
    import numpy as np
    from scipy.sparse import csr_array

    import spandrel_sparse as sl
    from spandrel_sparse import _core

    A = sl.generate("poisson1d:1000")
    b = np.ones(1000)
    for preconditioner in ["none", "jacobi"]:
        solver = sl.Solver(A, method="cg", preconditioner=preconditioner, rtol=1e-1, maxiter=1, device="cpu", updatable=False)
        native: _core.Solver = solver._native
        rounds = 2000 * repeat
        inside = whole = float("inf")
        for _ in range(rounds):
            begin = time.perf_counter()
            _, fields = native.solution(b)
            whole = min(whole, time.perf_counter() - begin)
            times = fields["times"]
            inside = min(inside, times["load"] + times["solve"])
        plain, _ = best(rounds, lambda: native.solve(b))
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            public, _ = best(rounds, lambda solver=solver: solver.solution(b))
        tell("call", of=preconditioner, rust=inside, native=plain, solution=public, beyond=public - inside, target=20e-6)
    # A whole call of cg: the matrix is taken over, planned and solved.
    given = csr_array((A.data, A.indices, A.indptr), shape=A.shape)
    whole, _ = best(200 * repeat, lambda: sl.cg(given, b, maxiter=1, device="cpu"))
    matrix, _ = best(2000 * repeat, lambda: _core.Matrix(1000, 1000, given.indptr, given.indices, given.data))
    tell("call", of="cg, one iteration, everything anew", whole=whole, matrix=matrix)


def import_time(repeat: int) -> None:
    """The time of `import spandrel_sparse` in a new interpreter."""
    code = "import time; t = time.perf_counter(); import spandrel_sparse; print(time.perf_counter() - t)"

    def run() -> float:
        return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)

    tell("import", seconds=min(run() for _ in range(3 * repeat)), target=0.1)


def read(repeat: int) -> None:
    """A file of 150 MB, read beside SciPy's reader."""
    import numpy as np
    import scipy
    import scipy.io

    import spandrel_sparse as sl

    A = sl.generate("poisson3d:96")
    A.data = np.random.default_rng(1).standard_normal(A.nnz)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "a.mtx"
        sl.write_mtx(path, A)
        megabytes = path.stat().st_size / 1e6
        ours, found = best(repeat, lambda: sl.read_mtx(path))
        theirs, expected = best(repeat, lambda: scipy.io.mmread(path))
        tocsr, expected = best(1, lambda: expected.tocsr())
    assert np.array_equal(found.data, expected.data) and np.array_equal(found.indices, expected.indices)
    tell("read", megabytes=megabytes, ours=ours, scipy=theirs, tocsr=tocsr, ratio=theirs / ours, target=1.5, version=scipy.__version__)


def grid() -> tuple[Any, Any]:
    import numpy as np

    import spandrel_sparse as sl

    A = sl.generate("poisson3d:96")
    return A, np.random.default_rng(1).standard_normal(A.shape[0])


def residual(A: Any, x: Any, b: Any) -> float:
    import numpy as np

    return float(np.linalg.norm(b - A @ x) / np.linalg.norm(b))


def pyamg(repeat: int) -> None:
    """`solve` beside the best of PyAMG's solvers, set-up and solve, both to 1e-8."""
    import pyamg as peer

    import spandrel_sparse as sl

    A, b = grid()
    matrix = peer.gallery.poisson((4, 4), format="csr").__class__(A)
    ours, sol = best(repeat, lambda: sl.solve(A, b, rtol=1e-8, device="cpu"))
    assert sol.converged
    makers = {"ruge_stuben_solver": peer.ruge_stuben_solver, "smoothed_aggregation_solver": peer.smoothed_aggregation_solver}
    for name, make in makers.items():
        theirs, x = best(max(1, repeat // 2), lambda make=make: make(matrix).solve(b, tol=1e-8, accel="cg"))
        reached = residual(A, x, b)
        tell("pyamg", peer=name, ours=ours, theirs=theirs, ratio=theirs / ours, residual=reached, target=5, ran=repr(sol), version=peer.__version__)


def spilu(repeat: int) -> None:
    """`cg` with ic0 beside SciPy's `cg` with `spilu`, set-up and solve, both to 1e-8."""
    import scipy
    from scipy.sparse.linalg import LinearOperator, cg
    from scipy.sparse.linalg import spilu as factor

    import spandrel_sparse as sl

    A, b = grid()
    ours, (x, info) = best(repeat, lambda: sl.cg(A, b, rtol=1e-8, M="ic0", device="cpu"))
    assert info == 0 and residual(A, x, b) <= 1.01e-8
    for name, options in {"default": {}, "fill_factor=2": {"fill_factor": 2, "drop_tol": 1e-2}}.items():

        def theirs(options: dict[str, Any] = options) -> Any:
            factors = factor(A.tocsc(), **options)
            return cg(A, b, rtol=1e-8, M=LinearOperator(A.shape, matvec=factors.solve, dtype=float), maxiter=2000)

        seconds, (x, info) = best(1, theirs)
        reached = residual(A, x, b)
        tell("spilu", peer=name, ours=ours, theirs=seconds, ratio=seconds / ours, info=info, residual=reached, target=10, version=scipy.__version__)


def cupy(repeat: int) -> None:
    """An iteration of `cg` on arrays of CuPy beside one of `cupyx.scipy.sparse.linalg.cg`: the longer of two runs less the shorter."""
    import cupy as xp
    from cupyx.scipy.sparse import csr_matrix
    from cupyx.scipy.sparse.linalg import cg

    import spandrel_sparse as sl

    few, many = 50, 250
    for case in ["poisson3d:96", "poisson3d:128"]:
        host = sl.generate(case)
        A, b = csr_matrix(host), xp.random.default_rng(1).standard_normal(host.shape[0])

        def per_iteration(run: Callable[[int], Any]) -> float:
            def synchronized(iterations: int) -> None:
                run(iterations)
                xp.cuda.Device().synchronize()

            synchronized(few)
            shorter, longer = (best(repeat, lambda count=count: synchronized(count))[0] for count in [few, many])
            return (longer - shorter) / (many - few)

        ours = per_iteration(lambda count: sl.cg(A, b, rtol=0.0, maxiter=count))
        theirs = per_iteration(lambda count: cg(A, b, rtol=0.0, maxiter=count))
        tell("cupy", case=case, ours=ours, theirs=theirs, ratio=theirs / ours, target=3, version=xp.__version__)


FIGURES = {"call": call, "import": import_time, "read": read, "pyamg": pyamg, "spilu": spilu, "cupy": cupy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=f"{', '.join(FIGURES)} (default: all but cupy)")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    figures = arguments.figures or [name for name in FIGURES if name != "cupy"]
    if unknown := [name for name in figures if name not in FIGURES]:
        parser.error(f"unknown figures: {', '.join(unknown)}")
    # Before anything starts threads.
    for name in ["RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"]:
        os.environ[name] = arguments.threads
    for figure in figures:
        FIGURES[figure](arguments.repeat)


if __name__ == "__main__":
    main()
