"""SciPy beside `spandrel-bench robust`: spsolve, and GMRES with an incomplete LU (spilu), on the same matrices with b = 1.

    python -m venv VENV && VENV/bin/pip install numpy scipy
    VENV/bin/python crates/bench/scipy/robust.py --matrices DIR --json record/cpu-robust.jsonl

It appends a header and lines in the form of `spandrel-bench robust` to the file, so that `cargo xtask results` reads both. Each solve runs in a
process of its own, which is ended after --limit seconds: an ILU may take forever, and SuperLU ends the process where it runs out of memory.

An answer is what it is there: a true residual of 1e-8, or a normwise backward error of at most 64 unit roundoffs. SciPy says nothing of singular
matrices but that a factor is, which is no answer.
"""

import argparse
import gzip
import json
import multiprocessing
import platform
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import scipy
import scipy.io
import scipy.sparse as sp
import scipy.sparse.linalg as spla

RTOL = 1e-8
STABLE = 64 * 2.0**-53
# Iterations of GMRES, as of a method that is named to `spandrel-bench robust`, and the length of its cycle.
ITERATIONS = 2000
RESTART = 30


def read(path):
    """A real square matrix of a Matrix Market file, or None."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        a = sp.csc_matrix(scipy.io.mmread(file))
    if a.shape[0] != a.shape[1] or a.shape[0] == 0 or np.iscomplexobj(a):
        return None
    a.sum_duplicates()
    return a.astype(np.float64)


def by_spsolve(a, b):
    return spla.spsolve(a, b), 0, "superlu"


def by_gmres(a, b):
    ilu = spla.spilu(a)
    m = spla.LinearOperator(a.shape, ilu.solve)
    count = [0]

    def counted(_):
        count[0] += 1

    cycles = -(-ITERATIONS // RESTART)
    x, _ = spla.gmres(a, b, rtol=RTOL, restart=RESTART, maxiter=cycles, M=m, callback=counted, callback_type="pr_norm")
    return x, count[0], "gmres+ilut"


WAYS = {"scipy-spsolve": by_spsolve, "scipy-gmres-spilu": by_gmres}


def measured(path, way, pipe):
    """Solves once in this process, and sends what came of it."""
    warnings.simplefilter("ignore")
    a = read(path)
    b = np.ones(a.shape[0])
    begun = time.perf_counter()
    try:
        x, iterations, by = WAYS[way](a, b)
        status = ""
    except (RuntimeError, MemoryError, ValueError) as error:
        x, iterations, by, status = None, 0, "", str(error)
    ms = 1e3 * (time.perf_counter() - begun)
    residual = backward = None
    if x is not None and np.all(np.isfinite(x)):
        r = b - a @ x
        residual = float(np.linalg.norm(r) / np.linalg.norm(b))
        size = abs(a).sum(axis=1).max() * np.abs(x).max() + np.abs(b).max()
        backward = float(np.abs(r).max() / size)
    elif not status:
        status = "not_finite"
    converged = residual is not None and residual <= RTOL
    stable = backward is not None and backward <= STABLE
    if not status:
        status = "converged" if converged else "backward_stable" if stable else "stagnated"
    pipe.send(
        {
            "op": "robust",
            "case": path.name.removesuffix(".gz").removesuffix(".mtx"),
            "contender": way,
            "n": a.shape[0],
            "nnz": a.nnz,
            "status": status,
            "answer": converged or stable,
            "by": by,
            "attempts": [],
            "iterations": iterations,
            "true_residual": residual,
            "backward_error": backward,
            "ms": ms,
            "ms_min": ms,
            "ms_max": ms,
        }
    )


def line(path, way, limit):
    """The line of one solve; one that says so where it was ended."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=measured, args=(path, way, there))
    process.start()
    there.close()
    found = None
    try:
        if here.poll(limit):
            found = here.recv()
        why = f"ended after {limit:g} s"
    except EOFError:
        why = "the process ended"
    if process.is_alive():
        process.kill()
    process.join()
    if found is None:
        a = read(path)
        found = {"op": "robust", "case": path.name.removesuffix(".gz").removesuffix(".mtx"), "contender": way, "n": a.shape[0], "nnz": a.nnz}
        found |= {"status": why, "answer": False, "by": "", "attempts": [], "iterations": 0, "true_residual": None, "backward_error": None}
        found |= {"ms": None, "ms_min": None, "ms_max": None}
    return found


def header(command):
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    names = [text.split(":", 1)[1].strip() for text in Path("/proc/cpuinfo").read_text().splitlines() if text.startswith("model name")]
    machine = f"{names[0] if names else platform.processor()}, {len(names)} threads, SciPy {scipy.__version__}, NumPy {np.__version__}"
    return {"header": True, "date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine, "driver": None, "commit": commit, "ptx_sha256": None, "command": command}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--matrices", type=Path, required=True, help="folder of .mtx and .mtx.gz files")
    parser.add_argument("--json", type=Path, help="file to append to")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of a solve")
    parser.add_argument("--most-rows", type=int, default=sys.maxsize)
    parser.add_argument("--contenders", default=",".join(WAYS), help=f"of {', '.join(WAYS)}")
    args = parser.parse_args()
    lines = []
    for path in sorted(p for p in args.matrices.iterdir() if p.name.endswith((".mtx", ".mtx.gz"))):
        try:
            a = read(path)
        except Exception as error:  # what SciPy cannot read is passed over, and said
            print(f"skipped {path.name}: {error}")
            continue
        if a is None or a.shape[0] > args.most_rows:
            continue
        for way in args.contenders.split(","):
            found = line(path, way, args.limit)
            ms = "-" if found["ms"] is None else f"{found['ms']:.3f}"
            print(f"{found['case']:<20} {way:<18} {ms:>10} ms  {found['status']}", flush=True)
            lines.append(found)
    for way in args.contenders.split(","):
        own = [found for found in lines if found["contender"] == way]
        print(f"{way}: {sum(found['answer'] for found in own)} answers of {len(own)}")
    if args.json:
        with args.json.open("a") as file:
            command = " ".join(["python", *sys.argv])
            for entry in [header(command), *lines]:
                file.write(json.dumps(entry, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
