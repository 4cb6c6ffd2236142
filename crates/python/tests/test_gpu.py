"""Solves on a GPU with arrays that lie there. Memory comes from the driver itself, so that no other library is needed; where CuPy or PyTorch
is installed they are used too."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from numpy.linalg import norm

import spandrel_sparse as sl

if sl.devices().missing is not None or not any(device.usable for device in sl.devices()[1:]):
    pytest.skip(f"no GPU: {sl.devices().missing}", allow_module_level=True)


class Driver:
    """The few calls of the driver that move memory."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments) -> None:
        code = getattr(self.library, name)(*arguments)
        assert code == 0, f"{name} ended with {code}"


class Array:
    """A vector in memory of the driver."""

    driver: Driver

    def __init__(self, host) -> None:
        host = np.ascontiguousarray(host)
        self.dtype, self.shape = host.dtype, host.shape
        self.pointer = ctypes.c_uint64()
        self.driver.call("cuMemAlloc_v2", ctypes.byref(self.pointer), ctypes.c_size_t(max(host.nbytes, 1)))
        self.driver.call("cuMemcpyHtoD_v2", self.pointer, host.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(host.nbytes))

    @property
    def __cuda_array_interface__(self):
        data = (self.pointer.value, False)
        return {"shape": self.shape, "typestr": self.dtype.str, "data": data, "version": 3, "strides": None, "stream": 1}

    def get(self):
        host = np.empty(self.shape, self.dtype)
        self.driver.call("cuMemcpyDtoH_v2", host.ctypes.data_as(ctypes.c_void_p), self.pointer, ctypes.c_size_t(host.nbytes))
        return host

    def __array_namespace__(self):
        return Array

    @staticmethod
    def zeros_like(array):
        return Array(np.zeros(array.shape, array.dtype))

    def __add__(self, other):
        return Array(self.get() + other.get())

    def __del__(self):
        self.driver.library.cuMemFree_v2(self.pointer)


class Sparse:
    """CSR in memory of the driver."""

    format = "csr"
    has_canonical_format = True

    def __init__(self, host) -> None:
        self.shape, self.dtype, self.host = host.shape, host.dtype, host
        self.indptr, self.indices, self.data = Array(host.indptr), Array(host.indices), Array(host.data)

    def tocsr(self):
        return self

    def get(self):
        return self.host


@pytest.fixture(scope="module", autouse=True)
def driver():
    # The package opens the GPU first, as it would without other libraries.
    sl.Solver(sl.generate("poisson1d:4"), device="cuda").solve(np.ones(4))
    Array.driver = Driver()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("method", [sl.cg, sl.bicgstab, sl.gmres])
@pytest.mark.parametrize("shuffled", [False, True], ids=["by diagonals", "by rows"])
def test_matrix_and_vectors_stay_there(shuffled, method, dtype):
    # u ||A|| ||A^-1|| is 2e-5 in f32: the goal can be reached.
    A = sl.generate("poisson2d:30", dtype=dtype)
    if shuffled:
        order = np.random.default_rng(3).permutation(900)
        A = A[order][:, order].tocsr()
        A.sort_indices()
    b = np.arange(900).astype(dtype) % 7
    rtol = 1e-8 if dtype == np.float64 else 1e-4
    x, info = method(Sparse(A), Array(b), rtol=rtol)
    assert info == 0 and isinstance(x, Array) and x.dtype == dtype
    assert norm(A @ x.get() - b) <= 1.1 * rtol * norm(b)
    again, info = method(Sparse(A), Array(b), x0=x, rtol=rtol)
    assert info == 0 and np.array_equal(again.get(), x.get())
    short, info = method(Sparse(A), Array(b), maxiter=1)
    assert info == 1
    host, info = method(A, b, rtol=rtol, device="cuda")
    assert info == 0 and norm(host - x.get()) <= 100 * rtol * norm(host)


@pytest.mark.parametrize("settings", [{}, {"preconditioner": "ic0"}, {"method": "direct"}, {"precision": "mixed", "preconditioner": "ic0"}])
def test_a_solver_takes_vectors_that_lie_there(settings):
    A = sl.generate("poisson3d:16")
    b = np.arange(4096.0) % 5
    solver = sl.Solver(A, device="cuda", **settings)
    x = solver.solve(Array(b))
    assert isinstance(x, Array) and norm(A @ x.get() - b) <= 1.1e-8 * norm(b)
    sol = solver.solution(Array(b), x)
    assert sol.converged and sol.iterations <= 1 and sol.plan.backend in ("cuda", "cpu")
    told = []
    sl.cg(A, Array(b), M="ic0", callback=told.append)
    assert told and all(isinstance(x, np.ndarray) for x in told)


def test_what_does_not_fit_is_refused():
    A = sl.generate("poisson2d:20")
    solver = sl.Solver(A, device="cuda")
    with pytest.raises(ValueError, match="elements, expected 400"):
        solver.solve(Array(np.ones(399)))
    with pytest.raises(ValueError, match="b is float32, and the matrix is float64"):
        solver.solve(Array(np.ones(400, np.float32)))
    wrong = A.copy()
    wrong.indices[7] = -1
    with pytest.raises(ValueError, match="row"):
        sl.cg(Sparse(wrong), Array(np.ones(400)))

    class Elsewhere(Array):
        @property
        def __cuda_array_interface__(self):
            return super().__cuda_array_interface__ | {"data": (64, False)}

    with pytest.raises(ValueError, match="not that of memory on a GPU"):
        solver.solve(Elsewhere(np.ones(400)))


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_arrays_of_other_libraries(library):
    xp = pytest.importorskip(library)
    A = sl.generate("poisson2d:60")
    on_gpu = (lambda v: xp.asarray(v)) if library == "cupy" else (lambda v: xp.asarray(v, device="cuda"))
    b = on_gpu(np.arange(3600.0) % 7)
    x = sl.Solver(A, device="cuda").solve(b)
    assert type(x) is type(b)
    host = x.get() if library == "cupy" else x.cpu().numpy()
    assert norm(A @ host - np.arange(3600.0) % 7) <= 1.1e-8 * norm(np.arange(3600.0) % 7)
    if library == "cupy":
        sparse = pytest.importorskip("cupyx.scipy.sparse")
        x, info = sl.cg(sparse.csr_matrix(A), b, rtol=1e-8)
        assert info == 0 and isinstance(x, xp.ndarray)
