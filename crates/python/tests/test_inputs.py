"""Everything that callers may give: formats, types, layouts, index types, orders, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.linalg import norm
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, spsolve

import spandrel_sparse as sl
from spandrel_sparse import _arrays, _core

FORMATS = ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"]
NUMBERS = [np.float64, np.float32, np.float16, np.int64, np.int32, np.int8, np.uint16, np.bool_, ">f8", ">f4", ">i4"]


def small(dtype=np.float64) -> sparse.csr_array:
    """Symmetric positive definite with small whole numbers, exact in every type."""
    n = 12
    A = sparse.diags_array([np.ones(n - 3), np.ones(n - 1), np.full(n, 7), np.ones(n - 1), np.ones(n - 3)], offsets=[-3, -1, 0, 1, 3])
    return A.tocsr().astype(dtype)


def layouts(vector):
    """The same elements in every layout."""
    n = len(vector)
    wide = np.zeros((n, 3), vector.dtype)
    wide[:, 1] = vector
    shifted = np.zeros(n * vector.itemsize + 1, np.uint8)[1:].view(vector.dtype)
    shifted[:] = vector
    fixed = vector.copy()
    fixed.flags.writeable = False
    return {
        "contiguous": vector,
        "strided": wide[:, 1],
        "reversed": vector[::-1].copy()[::-1],
        "column": vector.reshape(n, 1),
        "column of a table": wide[:, 1:2],
        "misaligned": shifted,
        "read-only": fixed,
        "list": vector.tolist(),
        "matrix": np.matrix(vector).T,
    }


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix], ids=["array", "matrix"])
@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_every_format_and_type(kind, layout, dtype):
    A = kind(small(np.float64)).asformat(layout)
    if np.dtype(dtype) == np.float16 or not np.dtype(dtype).isnative:
        # SciPy has no such matrices.
        if layout != "csr":
            pytest.skip("only as a dense array")
        A = A.toarray().astype(dtype)
    elif np.dtype(dtype) == np.bool_:
        A = kind(sparse.eye_array(12)).asformat(layout).astype(dtype)
    else:
        A = A.astype(dtype)
    dense = np.asarray(A.toarray() if sparse.issparse(A) else A, dtype=np.float64)
    b = np.arange(12.0)
    expected = np.linalg.solve(dense, b)
    single = np.dtype(dtype) == np.float32
    solver = sl.Solver(A, device="cpu", rtol=1e-6 if single else 1e-12)
    assert solver.dtype == (np.float32 if single else np.float64)
    x = solver.solve(b)
    assert x.dtype == solver.dtype and norm(x - expected) <= (1e-4 if single else 1e-9) * norm(expected)
    for method in [sl.cg, sl.bicgstab, sl.gmres]:
        x, info = method(A, b, rtol=1e-10)
        # As in SciPy float64 is the type of the sum of both.
        assert info == 0 and x.dtype == np.float64 and norm(x - expected) <= 1e-7 * norm(expected)
        x, info = method(A, b.astype(np.float32), rtol=1e-5)
        assert info == 0 and x.dtype == (np.float32 if single else np.float64)


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("layout", layouts(np.zeros(1)))
def test_every_layout_of_a_vector(layout, single):
    A = small(np.float32 if single else np.float64)
    b = np.arange(12, dtype=A.dtype)
    given = layouts(b)[layout]
    solver = sl.Solver(A, device="cpu")
    expected = solver.solve(b)
    if layout in ("column", "column of a table", "matrix"):
        X = solver.solve(given)
        assert X.shape == (12, 1) and np.array_equal(X[:, 0], expected)
    else:
        assert np.array_equal(solver.solve(given), expected)
        assert np.array_equal(solver.solve(b, given), solver.solve(b, b))
    for method in [sl.cg, sl.bicgstab, sl.gmres]:
        first, _ = method(A, b, x0=b)
        second, _ = method(A, given, x0=given)
        assert np.array_equal(first, second.astype(first.dtype)) or (layout == "list" and np.allclose(first, second, rtol=1e-4))


@pytest.mark.parametrize("layout", ["C", "F", "strided", "transposed", "float32", "int"])
def test_every_layout_of_several_right_hand_sides(layout):
    A = small()
    B = np.arange(36.0).reshape(12, 3) % 7
    solver = sl.Solver(A, device="cpu")
    columns = np.column_stack([solver.solve(B[:, j]) for j in range(3)])
    wide = np.zeros((24, 6))
    wide[::2, ::2] = B
    given = {
        "C": np.ascontiguousarray(B),
        "F": np.asfortranarray(B),
        "strided": wide[::2, ::2],
        "transposed": np.ascontiguousarray(B.T).T,
        "float32": B.astype(np.float32),
        "int": B.astype(int),
    }[layout]
    X = solver.solve(given)
    assert X.shape == (12, 3) and np.array_equal(X, columns)
    solution = solver.solution(given)
    assert len(solution.outcomes) == 3 and solution.converged and np.array_equal(solution.x, columns)
    none = solver.solution(np.zeros((12, 0)))
    assert none.x.shape == (12, 0) and none.converged and repr(none) == none._repr_html_().replace("&#x27;", "'")
    assert solver.solve(np.zeros((12, 0))).shape == (12, 0)


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("layout", ["contiguous", "strided", "misaligned"])
def test_every_index_type(index, layout):
    A = small()
    indices, indptr = (layouts(array.astype(index))[layout] for array in (A.indices, A.indptr))
    given = sparse.csr_array((A.data, indices, indptr), shape=A.shape, copy=False)
    given.indices, given.indptr = indices, indptr
    assert given.indices.dtype == index
    b = np.arange(12.0)
    assert np.array_equal(sl.Solver(given, device="cpu").solve(b), sl.Solver(A, device="cpu").solve(b))


def raw(indptr, indices, data, shape=(3, 3)):
    """A matrix whose arrays SciPy has not looked at."""
    A = sparse.csr_array(shape)
    A.indptr, A.indices, A.data = np.asarray(indptr), np.asarray(indices), np.asarray(data, dtype=float)
    return A


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("indptr", "indices", "message"),
    [
        ([0, 1, 2, 3], [0, 3, 2], r"indices\[1\] = 3 is outside 0..3"),
        ([0, 1, 2, 3], [0, -1, 2], r"indices\[1\] = -1 is outside 0..3"),
        ([0, 2, 1, 3], [0, 1, 2], r"indptr\[2\] = 1 is less than the one before"),
        ([1, 1, 2, 3], [0, 1, 2], r"indptr\[0\] = 1, expected 0"),
        ([0, 1, 2, 4], [0, 1, 2], r"indptr ends at 4, and there are 3 indices and 3 values"),
        ([0, -1, 2, 3], [0, 1, 2], r"indptr\[1\] = -1"),
        ([0, 1, 2, -3], [0, 1, 2], r"indptr ends at -3"),
        ([0, 1, 2], [0, 1], r"indptr has 3 elements, expected 4"),
    ],
)
def test_arrays_that_are_no_matrix_are_refused(index, indptr, indices, message):
    A = raw(np.array(indptr, index), np.array(indices, index), np.ones(3))
    with pytest.raises(ValueError, match=message):
        sl.Solver(A)


def test_indices_that_do_not_fit_32_bits_are_refused():
    A = raw(np.array([0, 1, 2, 3], np.int64), np.array([0, 2**32 + 1, 2], np.int64), np.ones(3))
    with pytest.raises(ValueError, match=r"indices\[1\] = 4294967297"):
        sl.Solver(A)
    A = raw(np.array([0, 1], np.int64), np.array([0], np.int64), [1.0], shape=(1, 2**31))
    with pytest.raises(ValueError, match="2147483648 columns: at most 2147483647"):
        sl.Solver(A)


def test_arrays_longer_than_the_entries():
    """SciPy leaves room behind the entries after some operations."""
    A = small()
    longer = raw(A.indptr, np.r_[A.indices, 99, -5], np.r_[A.data, np.nan, np.nan], shape=A.shape)
    b = np.arange(12.0)
    solver = sl.Solver(longer, device="cpu")
    assert np.array_equal(solver.solve(b), sl.Solver(A, device="cpu").solve(b))
    solver.update(2 * A.data)
    with pytest.raises(ValueError, match="38 values for a pattern of 36|values for a pattern"):
        solver.update(longer.data)


@pytest.mark.parametrize("single", [False, True])
def test_unsorted_and_repeated_columns_mean_their_sum(single, rng):
    n = 400
    A = sparse.csr_array(small())
    A = sl.generate("randspd:n=400,density=0.02,cond=50")
    rows = np.repeat(np.arange(n), np.diff(A.indptr))
    # Each entry in three parts, in any order.
    parts = rng.permutation(3 * A.nnz)
    rows, columns = np.tile(rows, 3)[parts], np.tile(A.indices, 3)[parts]
    values = np.concatenate([A.data / 4, A.data / 2, A.data / 4])[parts]
    order = np.argsort(rows, kind="stable")
    indptr = np.r_[0, np.cumsum(np.bincount(rows, minlength=n))]
    mixed = raw(indptr.astype(np.int32), columns[order].astype(np.int32), values[order], shape=(n, n))
    if single:
        mixed.data = mixed.data.astype(np.float32)
    assert np.allclose(mixed.toarray(), A.toarray(), rtol=1e-6)
    before = [array.copy() for array in (mixed.indptr, mixed.indices, mixed.data)]
    b = rng.standard_normal(n)
    expected = spsolve(A.tocsc(), b)
    solver = sl.Solver(mixed, device="cpu")
    x = solver.solve(b)
    assert norm(x - expected) <= (1e-3 if single else 1e-6) * norm(expected)
    assert all(np.array_equal(one, other) for one, other in zip(before, (mixed.indptr, mixed.indices, mixed.data), strict=True))
    # New values in the order in which they were given, and those of another matrix with the same entries.
    solver.update(2 * mixed.data)
    assert norm(solver.solve(b) - expected / 2) <= (1e-3 if single else 1e-6) * norm(expected)
    solver.update(4 * A)
    assert norm(solver.solve(b) - expected / 4) <= (1e-3 if single else 1e-6) * norm(expected)
    x, info = sl.cg(mixed, b, rtol=1e-6)
    assert info == 0 and norm(A @ x - b) <= 1.001e-6 * norm(b)


def test_stored_zeros_are_entries():
    A = small()
    A.data[A.data == 1] = 0
    assert sl.Solver(A, device="cpu").plan.nnz == A.nnz == small().nnz


def test_values_are_read_in_place_and_indices_are_not():
    A = small()
    matrix = _arrays.matrix(A)
    assert matrix.is_shared
    A.data[0] = 99.0
    A.indices[:] = -1
    A.indptr[:] = 10**6
    indptr, indices, data = matrix.arrays()
    assert data[0] == 99.0
    assert np.array_equal(indices, small().indices) and np.array_equal(indptr, small().indptr)
    # The memory stays for as long as the matrix needs it.
    del A
    assert matrix.arrays()[2][0] == 99.0
    x = np.arange(12.0)
    assert np.allclose(matrix.matvec(x), matrix_of(matrix) @ x)


def matrix_of(matrix):
    return _arrays.csr_array(matrix.shape, matrix.arrays())


@pytest.mark.parametrize("solver", [sl.Solver, lambda A: sl.cg(A, np.ones(3)), lambda A: sl.gmres(A, np.ones(3)), sl.spy])
def test_complex_numbers_and_their_like_are_refused(solver):
    for dtype in [np.complex128, np.complex64]:
        for A in [np.eye(3, dtype=dtype), sparse.eye_array(3, dtype=dtype, format="csr"), sparse.eye_array(3, dtype=dtype, format="csc")]:
            with pytest.raises(TypeError, match="complex numbers"):
                solver(A)
    for A in [np.eye(3, dtype=np.longdouble), np.eye(3, dtype=object), np.full((3, 3), "a"), np.eye(3).astype("M8[s]")]:
        with pytest.raises(TypeError, match="not supported"):
            solver(A)


def test_complex_vectors_and_operators_are_refused():
    A, b = np.eye(3), np.ones(3)
    for method in [sl.cg, sl.bicgstab, sl.gmres]:
        for call in [
            lambda m=method: m(A, b + 1j),
            lambda m=method: m(A, b, x0=b + 0j),
            lambda m=method: m(A, b, M=A.astype(complex)),
            lambda m=method: m(LinearOperator((3, 3), matvec=lambda v: v, dtype=complex), b),
            lambda m=method: m(LinearOperator((3, 3), matvec=lambda v: 1j * v, dtype=float), b),
            lambda m=method: m(A, b, M=LinearOperator((3, 3), matvec=lambda v: 1j * v, dtype=float)),
        ]:
            with pytest.raises(TypeError, match="complex numbers"):
                call()
    with pytest.raises(TypeError, match="complex numbers"):
        sl.Solver(A).solve(b * 1j)


def test_masked_elements_are_refused():
    b = np.ma.masked_array(np.ones(3), [False, True, False])
    with pytest.raises(TypeError, match="masked"):
        sl.cg(np.eye(3), b)
    assert sl.cg(np.eye(3), np.ma.masked_array(np.ones(3)))[1] == 0


def test_shapes_are_value_errors(poisson):
    solver = sl.Solver(poisson, device="cpu")
    for wrong in [np.ones(2499), np.ones((2499, 2)), np.ones((1, 2500)), np.ones((2500, 1, 1)), 1.0]:
        with pytest.raises(ValueError, match="b has shape"):
            solver.solve(wrong)
        with pytest.raises(ValueError, match="b has shape"):
            solver.solution(wrong)
    with pytest.raises(ValueError, match="x0 has shape"):
        solver.solve(np.ones(2500), np.ones(3))
    with pytest.raises(ValueError, match="x0 is for one right-hand side"):
        solver.solve(np.ones((2500, 2)), np.ones(2500))
    with pytest.raises(ValueError, match="expected two dimensions"):
        sl.Solver(np.ones(3))
    with pytest.raises(ValueError, match="expected two dimensions"):
        sl.Solver(np.ones((3, 3, 3)))
    with pytest.raises(ValueError, match="square"):
        sl.Solver(np.ones((3, 2)), method="cg")


def test_numbers_that_are_none_are_refused_with_their_place(poisson):
    solver = sl.Solver(poisson, device="cpu")
    b = np.ones(2500)
    b[4] = np.nan
    with pytest.raises(ValueError, match=r"element 5 \(counted from 1\) of b is NaN"):
        solver.solve(b)
    with pytest.raises(ValueError, match=r"of x0 is NaN"):
        solver.solve(np.ones(2500), b)
    bad = poisson.copy()
    bad.data[3] = np.inf
    with pytest.raises(ValueError, match="row 2, column 1 .* is infinite"):
        sl.Solver(bad)


def test_settings_are_checked_by_name():
    A = small()
    for name, value, message in [
        ("method", "simplex", "there is no method"),
        ("preconditioner", "ilu", "did you mean ilu0"),
        ("device", "gpu", "there is no device"),
        ("format", "bdai", "did you mean bdia"),
        ("precision", "half", "there is no precision"),
        ("reorder", "x", "there is no ordering"),
        ("scale", "x", "there is no scaling"),
        ("null_space", "x", "there is no null space"),
        ("fallback", "x", "there is no fallback"),
        ("rtol", -1.0, "rtol"),
        ("restart", 5, "restart is the number of steps of a gmres cycle"),
    ]:
        settings = {"method": "cg"} | {name: value}
        with pytest.raises(ValueError, match=message):
            sl.solve(A, np.ones(12), **settings)
    with pytest.raises(TypeError, match="maxiter|integer"):
        sl.Solver(A, maxiter="many")
    with pytest.raises(TypeError):
        sl.Solver(A, tolerance=1)
    with pytest.raises((ValueError, OverflowError)):
        sl.Solver(A, maxiter=-1)
    with pytest.raises(TypeError, match="no setting"):
        _core.Solver(_arrays.matrix(A), {"tolerance": 1}, "residual", True)


def test_errors_of_the_library_keep_their_text():
    singular = sparse.csr_array(np.diag([1.0, 2.0, 0.0]))
    singular.eliminate_zeros()
    with pytest.raises(sl.SpandrelError, match="row 2") as raised:
        sl.Solver(singular, method="cg", preconditioner="jacobi", fallback="none", device="cpu")
    assert raised.value.status == "zero_pivot"
    if sl.devices().missing is not None:
        with pytest.raises(sl.DeviceError) as raised:
            sl.Solver(small(), device="cuda")
        assert sl.devices().missing in str(raised.value)
