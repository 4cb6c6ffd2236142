"""Counts the bytes that a solve with arrays of CuPy copies between host and GPU, by the profiler of PyTorch (CUPTI).

    python crates/python/benches/copies.py

It prints a JSON line for a solver's second solve and for a whole call of `cg`.
"""

import json
import pathlib
import tempfile
from collections import Counter

import cupy as xp
import torch
from cupyx.scipy.sparse import csr_matrix

import spandrel_sparse as sl


def copied(work):
    """The bytes of each kind of copy, and how many copies there were."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    bytes_of, count_of, kernels = Counter(), Counter(), 0
    for event in events:
        kernels += event.get("cat") == "kernel"
        if event.get("cat") == "gpu_memcpy":
            bytes_of[event["name"]] += event["args"]["bytes"]
            count_of[event["name"]] += 1
    return {name: {"bytes": bytes_of[name], "copies": count_of[name]} for name in bytes_of} | {"kernels": kernels}


def main():
    torch.zeros(1, device="cuda")
    host = sl.generate("poisson3d:96")
    A, b = csr_matrix(host), xp.ones(host.shape[0])
    solver = sl.Solver(A, method="cg", preconditioner="jacobi")
    solver.solve(b)
    sizes = {"vector": b.nbytes, "matrix": A.data.nbytes + A.indices.nbytes + A.indptr.nbytes}
    print(json.dumps({"figure": "copies", "of": "Solver.solve", **sizes, **copied(lambda: solver.solve(b))}))
    sl.cg(A, b, maxiter=10)
    print(json.dumps({"figure": "copies", "of": "cg", **sizes, **copied(lambda: sl.cg(A, b, rtol=1e-8))}))


if __name__ == "__main__":
    main()
