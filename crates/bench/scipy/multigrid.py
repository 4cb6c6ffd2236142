"""PyAMG, AMGCL, hypre's BoomerAMG and PETSc's GAMG beside `spandrel-bench multigrid`: whole solves of the same matrices, b = 1, x0 = 0.

    python -m venv VENV && VENV/bin/pip install numpy scipy pyamg
    VENV/bin/python crates/bench/scipy/multigrid.py poisson3d:96 fem2d.mtx --json record/cpu-multigrid.jsonl
    mpirun -n 2 VENV/bin/python crates/bench/scipy/multigrid.py poisson3d:96 --contenders hypre-0.25,hypre-0.5,hypre-0.5-aggressive
    PYTHONPATH=$(echo /usr/lib/petscdir/petsc*/*-real/lib/python3/dist-packages) mpirun -n 2 /usr/bin/python3 \
        crates/bench/scipy/multigrid.py poisson3d:96 --contenders gamg

AMGCL is compiled by amgcl.cpp beside this file and named by --amgcl FILE. Its contenders are those of AMGCL below.

It appends a header and lines in the form of `spandrel-bench multigrid` to the file. Cases are poisson2d:N, poisson3d:N and Matrix Market files.
hypre is opened at run time (libHYPRE.so, of Debian's package libhypre-dev, with Open MPI); without it, this is said. Each of its processes has a block of
rows, and so has each of PETSc's (Debian's python3-petsc4py-real and python3-scipy). PyAMG has one thread, AMGCL those of OMP_NUM_THREADS. Of the rounds, the
one with the least sum of set-up and solve counts, as for ours.
"""

import argparse
import atexit
import ctypes
import ctypes.util
import json
import sys
import time
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parent))
from robust import header

RTOL = 1e-8
MOST = 1000


def read(case):
    kind, _, size = case.partition(":")
    if kind in ("poisson2d", "poisson3d"):
        n, axes = int(size), 2 if kind == "poisson2d" else 3
        line = sp.diags([-np.ones(n - 1), 2 * np.ones(n), -np.ones(n - 1)], [-1, 0, 1])
        a = sp.csr_matrix((n**axes, n**axes))
        for axis in range(axes):
            factors = [sp.identity(n)] * axes
            factors[axis] = line
            product = factors[0]
            for factor in factors[1:]:
                product = sp.kron(product, factor)
            a = a + product
        return sp.csr_matrix(a)
    return sp.csr_matrix(scipy.io.mmread(case))


def by_pyamg(make):
    def run(a, b):
        begun = time.perf_counter()
        levels = make(a)
        made = time.perf_counter()
        residuals = []
        x = levels.solve(b, tol=RTOL, maxiter=MOST, accel="cg", residuals=residuals)
        return begun, made, time.perf_counter(), x, len(residuals) - 1, levels.operator_complexity()

    return run


def smoothed_aggregation(a):
    import pyamg

    return pyamg.smoothed_aggregation_solver(a)


def ruge_stuben(a):
    import pyamg

    return pyamg.ruge_stuben_solver(a)


class Hypre:
    """BoomerAMG with PCG, through IJ matrices: HMIS, extended+i interpolation of at most 4 entries, a symmetric sweep.

    `threshold` is that of strong couplings, and `aggressive` the number of grids that are coarsened aggressively.
    """

    PARCSR, HMIS, EXTENDED_I, SYMMETRIC_SWEEP = 5555, 10, 6, 6
    opened = None

    def __init__(self, threshold, aggressive):
        self.threshold, self.aggressive = threshold, aggressive
        if Hypre.opened is None:
            Hypre.opened = self.open()
        self.mpi, self.h, self.comm, self.double, self.rank, self.size = Hypre.opened

    @staticmethod
    def open():
        mpi, hypre = ctypes.util.find_library("mpi"), ctypes.util.find_library("HYPRE")
        if not mpi or not hypre:
            raise OSError(f"there is no {'libHYPRE' if mpi else 'libmpi'} on this machine")
        # Everything that hypre needs has to be visible to it.
        mpi = ctypes.CDLL(mpi, mode=ctypes.RTLD_GLOBAL)
        hypre = ctypes.CDLL(hypre, mode=ctypes.RTLD_GLOBAL)
        mpi.MPI_Init(None, None)
        comm = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, "ompi_mpi_comm_world")))
        double = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, "ompi_mpi_double")))
        rank, size = ctypes.c_int(), ctypes.c_int()
        mpi.MPI_Comm_rank(comm, ctypes.byref(rank))
        mpi.MPI_Comm_size(comm, ctypes.byref(size))
        getattr(hypre, "HYPRE_Initialize", getattr(hypre, "HYPRE_Init", None))()
        atexit.register(mpi.MPI_Finalize)
        return mpi, hypre, comm, double, rank.value, size.value

    def vector(self, low, high, values):
        ij, own = ctypes.c_void_p(), ctypes.c_void_p()
        self.h.HYPRE_IJVectorCreate(self.comm, low, high - 1, ctypes.byref(ij))
        self.h.HYPRE_IJVectorSetObjectType(ij, self.PARCSR)
        self.h.HYPRE_IJVectorInitialize(ij)
        at = np.arange(low, high, dtype=np.int32)
        self.h.HYPRE_IJVectorSetValues(ij, high - low, pointer(at), pointer(values))
        self.h.HYPRE_IJVectorAssemble(ij)
        self.h.HYPRE_IJVectorGetObject(ij, ctypes.byref(own))
        return ij, own, at

    def __call__(self, a, b):
        n = a.shape[0]
        low, high = self.rank * n // self.size, (self.rank + 1) * n // self.size
        mine = a[low:high]
        ij, own = ctypes.c_void_p(), ctypes.c_void_p()
        self.h.HYPRE_IJMatrixCreate(self.comm, low, high - 1, low, high - 1, ctypes.byref(ij))
        self.h.HYPRE_IJMatrixSetObjectType(ij, self.PARCSR)
        self.h.HYPRE_IJMatrixInitialize(ij)
        rows, counts = np.arange(low, high, dtype=np.int32), np.diff(mine.indptr).astype(np.int32)
        columns, values = mine.indices.astype(np.int32), mine.data.astype(np.float64)
        self.h.HYPRE_IJMatrixSetValues(ij, high - low, pointer(counts), pointer(rows), pointer(columns), pointer(values))
        self.h.HYPRE_IJMatrixAssemble(ij)
        self.h.HYPRE_IJMatrixGetObject(ij, ctypes.byref(own))
        b_ij, b_own, _ = self.vector(low, high, np.ascontiguousarray(b[low:high]))
        x_ij, x_own, at = self.vector(low, high, np.zeros(high - low))
        self.mpi.MPI_Barrier(self.comm)
        begun = time.perf_counter()
        amg, pcg = ctypes.c_void_p(), ctypes.c_void_p()
        h = self.h
        h.HYPRE_BoomerAMGCreate(ctypes.byref(amg))
        h.HYPRE_BoomerAMGSetMaxIter(amg, 1)
        h.HYPRE_BoomerAMGSetTol(amg, ctypes.c_double(0.0))
        h.HYPRE_BoomerAMGSetStrongThreshold(amg, ctypes.c_double(self.threshold))
        h.HYPRE_BoomerAMGSetCoarsenType(amg, self.HMIS)
        h.HYPRE_BoomerAMGSetInterpType(amg, self.EXTENDED_I)
        h.HYPRE_BoomerAMGSetPMaxElmts(amg, 4)
        h.HYPRE_BoomerAMGSetAggNumLevels(amg, self.aggressive)
        h.HYPRE_BoomerAMGSetRelaxType(amg, self.SYMMETRIC_SWEEP)
        h.HYPRE_ParCSRPCGCreate(self.comm, ctypes.byref(pcg))
        h.HYPRE_PCGSetTol(pcg, ctypes.c_double(RTOL))
        h.HYPRE_PCGSetMaxIter(pcg, MOST)
        h.HYPRE_PCGSetTwoNorm(pcg, 1)
        solve, setup = ctypes.cast(h.HYPRE_BoomerAMGSolve, ctypes.c_void_p), ctypes.cast(h.HYPRE_BoomerAMGSetup, ctypes.c_void_p)
        h.HYPRE_PCGSetPrecond(pcg, solve, setup, amg)
        h.HYPRE_ParCSRPCGSetup(pcg, own, b_own, x_own)
        self.mpi.MPI_Barrier(self.comm)
        made = time.perf_counter()
        h.HYPRE_ParCSRPCGSolve(pcg, own, b_own, x_own)
        self.mpi.MPI_Barrier(self.comm)
        ended = time.perf_counter()
        count = ctypes.c_int()
        h.HYPRE_PCGGetNumIterations(pcg, ctypes.byref(count))
        part = np.zeros(high - low)
        h.HYPRE_IJVectorGetValues(x_ij, high - low, pointer(at), pointer(part))
        x = self.gathered(part, n)
        h.HYPRE_ParCSRPCGDestroy(pcg)
        h.HYPRE_BoomerAMGDestroy(amg)
        h.HYPRE_IJMatrixDestroy(ij)
        for vector in (b_ij, x_ij):
            h.HYPRE_IJVectorDestroy(vector)
        return begun, made, ended, x, count.value, None

    def gathered(self, part, n):
        """All parts, on every process."""
        counts = np.array([(r + 1) * n // self.size - r * n // self.size for r in range(self.size)], dtype=np.int32)
        starts = np.array([r * n // self.size for r in range(self.size)], dtype=np.int32)
        x = np.zeros(n)
        self.mpi.MPI_Allgatherv(
            pointer(part), len(part), self.double, pointer(x), pointer(counts), pointer(starts), self.double, self.comm
        )
        return x


class Petsc:
    """CG with GAMG, PETSc's smoothed aggregation, with the options that PETSc has by default, and `options`.

    Every point has `unknowns` rows, one after the other.
    """

    def __init__(self, unknowns=1, **options):
        try:
            import petsc4py

            petsc4py.init([])
            from petsc4py import PETSc
        except ImportError as error:
            raise OSError(error) from error
        self.petsc, self.unknowns, self.options = PETSc, unknowns, options
        self.rank, self.size = PETSc.COMM_WORLD.rank, PETSc.COMM_WORLD.size

    def __call__(self, a, b):
        petsc, points = self.petsc, a.shape[0] // self.unknowns
        low, high = (at * points // self.size * self.unknowns for at in (self.rank, self.rank + 1))
        mine = a[low:high]
        csr = mine.indptr.astype(np.int32), mine.indices.astype(np.int32), mine.data.astype(np.float64)
        size = (high - low, a.shape[0])
        matrix = petsc.Mat().createAIJ((size, size), bsize=self.unknowns, csr=csr)
        matrix.setOption(petsc.Mat.Option.SPD, True)
        right, x = matrix.createVecRight(), matrix.createVecRight()
        right.setArray(b[low:high])
        for name, value in self.options.items():
            petsc.Options()[name] = value
        petsc.COMM_WORLD.barrier()
        begun = time.perf_counter()
        ksp = petsc.KSP().create()
        ksp.setOperators(matrix)
        ksp.setType("cg")
        ksp.setNormType(petsc.KSP.NormType.UNPRECONDITIONED)
        ksp.getPC().setType("gamg")
        ksp.setTolerances(rtol=RTOL, max_it=MOST)
        ksp.setFromOptions()
        ksp.setUp()
        petsc.COMM_WORLD.barrier()
        made = time.perf_counter()
        ksp.solve(right, x)
        petsc.COMM_WORLD.barrier()
        ended = time.perf_counter()
        scatter, whole = petsc.Scatter.toAll(x)
        scatter.scatter(x, whole)
        result = whole.getArray().copy()
        count = ksp.getIterationNumber()
        for name in self.options:
            petsc.Options().delValue(name)
        for made_by_petsc in (ksp, matrix, right, x, scatter, whole):
            made_by_petsc.destroy()
        return begun, made, ended, result, count, None


def pointer(array):
    return ctypes.c_void_p(array.ctypes.data)


class Amgcl:
    """CG or BiCGStab with AMGCL: multigrid, or one level of ILU(0)."""

    file = None

    def __init__(self, has_levels=True, method="cg", coarsening="smoothed_aggregation", relaxation="spai0", unknowns=1):
        if Amgcl.file is None:
            raise OSError("--amgcl FILE names no library")
        self.library = ctypes.CDLL(str(Amgcl.file))
        self.has_levels = has_levels
        precond = {"coarsening": {"type": coarsening}, "relax": {"type": relaxation}} if has_levels else {"type": relaxation}
        if unknowns > 1:
            precond["coarsening"]["aggr"] = {"block_size": unknowns}
        self.options = {"precond": precond, "solver": {"type": method, "tol": RTOL, "maxiter": MOST}}

    def __call__(self, a, b):
        ms, count, why = (ctypes.c_double * 2)(), ctypes.c_int(), ctypes.create_string_buffer(256)
        x = np.zeros(a.shape[0])
        arrays = [a.indptr.astype(np.int32), a.indices.astype(np.int32), a.data.astype(np.float64), b, x]
        options = json.dumps(self.options).encode()
        failed = self.library.amgcl_run(a.shape[0], *map(pointer, arrays), options, int(self.has_levels), ms, ctypes.byref(count), why)
        if failed:
            print(f"amgcl: {why.value.decode()}")
        return 0.0, ms[0] / 1e3, (ms[0] + ms[1]) / 1e3, x, count.value, None


CONTENDERS = {
    "amgcl-sa": lambda: Amgcl(),
    "amgcl-sa-3": lambda: Amgcl(unknowns=3),
    "amgcl-sa-ilu0": lambda: Amgcl(relaxation="ilu0"),
    "amgcl-sa-3-ilu0": lambda: Amgcl(relaxation="ilu0", unknowns=3),
    "amgcl-rs": lambda: Amgcl(coarsening="ruge_stuben"),
    "amgcl-bicgstab-sa": lambda: Amgcl(method="bicgstab"),
    "amgcl-bicgstab-sa-ilu0": lambda: Amgcl(method="bicgstab", relaxation="ilu0"),
    "amgcl-bicgstab-ilu0": lambda: Amgcl(has_levels=False, method="bicgstab", relaxation="ilu0"),
    "gamg": lambda: Petsc(),
    "gamg-3": lambda: Petsc(unknowns=3),
    "gamg-0.01": lambda: Petsc(pc_gamg_threshold=0.01),
    "pyamg-sa": lambda: by_pyamg(smoothed_aggregation),
    "pyamg-rs": lambda: by_pyamg(ruge_stuben),
    "hypre-0.25": lambda: Hypre(0.25, 0),
    "hypre-0.5": lambda: Hypre(0.5, 0),
    "hypre-0.5-aggressive": lambda: Hypre(0.5, 1),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", help="poisson2d:N, poisson3d:N or .mtx files")
    parser.add_argument("--contenders", default="pyamg-sa,pyamg-rs", help=f"of {', '.join(CONTENDERS)}")
    parser.add_argument("--amgcl", type=Path, help="the library made of amgcl.cpp")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="file to append to")
    args = parser.parse_args()
    Amgcl.file = args.amgcl and args.amgcl.resolve()
    ways = {}
    for name in args.contenders.split(","):
        try:
            ways[name] = CONTENDERS[name]()
        except OSError as error:
            print(f"{name}: left out: {error}")
    speaks = all(getattr(way, "rank", 0) == 0 for way in ways.values())
    lines = []
    for case in args.cases:
        a = read(case)
        a.sort_indices()
        b = np.ones(a.shape[0])
        for name, way in ways.items():
            rounds = []
            for _ in range(args.rounds + 1):
                begun, made, ended, x, iterations, complexity = way(a, b)
                rounds.append((1e3 * (made - begun), 1e3 * (ended - made)))
            residual = float(np.linalg.norm(b - a @ x) / np.linalg.norm(b))
            setup, solve = min(rounds[1:], key=sum)
            found = {"op": "multigrid", "type": "f64", "backend": "cpu", "contender": name, "case": Path(case).name.removesuffix(".gz").removesuffix(".mtx")}
            found |= {"precond": name, "n": a.shape[0], "nnz": a.nnz, "setup_ms": setup, "solve_ms": solve, "sum_ms": setup + solve}
            found |= {"update_ms": None, "first_ms": sum(rounds[0]), "iterations": iterations, "operator_complexity": complexity}
            found |= {"status": "converged" if residual <= 1.01 * RTOL else "missed", "true_residual": residual}
            found |= {"processes": getattr(way, "size", 1)}
            if speaks:
                print(f"{found['case']} {name}: {iterations} iterations, set-up {setup:.0f} + solve {solve:.0f} ms, residual {residual:.1e}", flush=True)
            lines.append(found)
    if args.json and speaks:
        with args.json.open("a") as file:
            for entry in [header(" ".join(["python", *sys.argv])), *lines]:
                file.write(json.dumps(entry, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
