"""What SciPy's own tests demand of `cg`, `bicgstab` and `gmres`, demanded of ours: every matrix class, tolerances, limits, callbacks,
preconditioners, starts. Where ours differs by design the test says so."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.linalg import norm
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import spandrel_sparse as sl

SOLVERS = [sl.cg, sl.bicgstab, sl.gmres]
INDEFINITE = {"cg"}
UNSYMMETRIC = {"cg"}


@dataclass
class Case:
    name: str
    A: Any
    b: Any = None
    skip: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.b is None:
            self.b = np.arange(self.A.shape[0], dtype=float)


def cases() -> list[Case]:
    n = 40
    line = sparse.diags_array([np.full(n - 1, -1.0), np.full(n, 2.0), np.full(n - 1, -1.0)], offsets=[-1, 0, 1]).tocsr()
    square = sparse.kronsum(line, line)
    diagonal = sparse.diags_array(np.array([6.0, -5, 2, 7, -1, 10, 4, -3, -8, 9])).tocsr()
    rng = np.random.RandomState(1234)
    dense = rng.rand(4, 4)
    gram = rng.rand(9, 9)
    gram = gram @ gram.T
    lower = sparse.diags_array([np.full(9, -1.0), np.full(10, 2.0)], offsets=[-1, 0]).tocsr()
    pairs = np.zeros((11, 11))
    pairs[:5, 5] = [1, 2, 2, 2, 1]
    pairs[:5, 6:] = -np.eye(5)
    pairs = pairs + pairs.T - np.diag([0.0] * 6 + [1.0] * 5)
    made = [
        Case("poisson1d", line),
        Case("negative poisson1d", -line, skip=INDEFINITE),
        Case("poisson2d", square),
        Case("indefinite diagonal", diagonal, skip=INDEFINITE),
        Case("random", dense, skip=UNSYMMETRIC),
        Case("random symmetric", dense + dense.T, skip=INDEFINITE),
        Case("random positive definite", gram),
        Case("bidiagonal", lower, skip=UNSYMMETRIC),
        Case("singular symmetric", pairs, np.eye(11)[5], skip=INDEFINITE),
    ]
    single = [Case(f"{case.name} in f32", case.A.astype(np.float32), case.b, case.skip) for case in made[:-1]]
    return made + single


ALL = [
    pytest.param(solver, case, id=f"{case.name}-{solver.__name__}")
    for case in cases()
    for solver in SOLVERS
    if solver.__name__ not in case.skip
]


def goal(case: Case) -> float:
    return 1e-8 if case.A.dtype == np.float64 else 1e-2


@pytest.mark.parametrize(("solver", "case"), ALL)
def test_it_converges_and_leaves_x0_alone(solver, case):
    x0 = 0 * case.b
    x, info = solver(case.A, case.b, x0=x0, rtol=goal(case))
    assert np.array_equal(x0, 0 * case.b)
    assert x.shape == (case.A.shape[0],)
    if info == 0:
        assert norm(case.A @ x - case.b) <= norm(case.b) * goal(case)
    else:
        # SciPy's BiCGStab breaks down here as well.
        assert case.name == "singular symmetric" and solver is sl.bicgstab
        assert norm(case.A @ x - case.b) <= norm(case.b)


@pytest.mark.parametrize(("solver", "case"), ALL)
def test_one_iteration_is_one_call_of_the_callback(solver, case):
    if case.name == "singular symmetric":
        pytest.skip("it may be solved, or break down, at once")
    residuals = []

    def callback(x):
        residuals.append(norm(case.b - case.A @ x) if np.ndim(x) else x)

    options = {"callback_type": "legacy"} if solver is sl.gmres else {}
    x, info = solver(case.A, case.b, x0=0 * case.b, rtol=1e-12, maxiter=1, callback=callback, **options)
    assert len(residuals) == 1
    assert info == 1


@pytest.mark.parametrize(("solver", "case"), ALL)
def test_an_identity_as_preconditioner_changes_nothing(solver, case):
    if case.name == "singular symmetric":
        pytest.skip("rounding decides whether it breaks down")
    # In f32 the attainable accuracy decides, as b is in f64 and A is exact in both.
    rtol = 1e-8
    identity = LinearOperator(case.A.shape, matvec=lambda r: r, dtype=case.A.dtype)
    x, info = solver(case.A, case.b, M=identity, x0=0 * case.b, rtol=rtol)
    assert info == 0
    assert norm(case.A @ x - case.b) <= norm(case.b) * rtol
    plain, info = solver(case.A, case.b, x0=0 * case.b, rtol=rtol)
    assert info == 0
    assert norm(plain - x) <= 1e-4 * norm(x)
    # SciPy's operators may bring their own.
    operator = aslinearoperator(case.A)
    operator.psolve = lambda r: r
    x, info = solver(operator, case.b, x0=0 * case.b, rtol=rtol)
    assert info == 0
    assert norm(case.A @ x - case.b) <= norm(case.b) * rtol


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("case", [case for case in cases() if case.name in ("poisson1d", "poisson2d")], ids=lambda case: case.name)
def test_the_inverse_as_preconditioner_solves_at_once(solver, case):
    dense = case.A.toarray()
    products = 0

    def matvec(v):
        nonlocal products
        products += 1
        return case.A @ v

    A = LinearOperator(case.A.shape, matvec=matvec, dtype=float)
    M = LinearOperator(case.A.shape, matvec=lambda r: np.linalg.solve(dense, r), dtype=float)
    x, info = solver(A, case.b, M=M, x0=0 * case.b, rtol=1e-8)
    assert info == 0
    assert norm(case.A @ x - case.b) <= norm(case.b) * 1e-8
    # One to begin, one or two in the iteration, and the residual recomputed from x.
    assert products <= 4


@pytest.mark.parametrize("solver", SOLVERS)
def test_both_tolerances_hold(solver):
    rng = np.random.default_rng(168441431005389)
    A = rng.uniform(size=[10, 10])
    A = A @ A.T + 10 * np.eye(10)
    b = 1e3 * rng.uniform(size=10)
    M0 = rng.standard_normal(size=(10, 10))
    M0 = M0 @ M0.T
    tolerances = np.r_[0, np.logspace(-9, 2, 7), np.inf]
    for M, rtol, atol in itertools.product([None, 1e-6 * M0, 1e6 * M0], tolerances, tolerances):
        if rtol == 0 and atol == 0:
            continue
        x, info = solver(A, b, M=M, rtol=rtol, atol=atol)
        assert info == 0, (rtol, atol)
        # The residual here is summed in another order than there.
        assert norm(A @ x - b) <= 1.0000001 * max(atol, rtol * norm(b)) + 1e-12 * norm(b)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("operator", [False, True])
def test_zero_has_zero_for_an_answer(solver, operator):
    rng = np.random.default_rng(1684414984100503)
    A = rng.random(size=[10, 10])
    A = A @ A.T + 10 * np.eye(10)
    given = aslinearoperator(A) if operator else A
    for rtol in np.logspace(-10, 2, 7):
        for options in [{}, {"x0": np.ones(10)}, {"atol": rtol}]:
            x, info = solver(given, np.zeros(10), rtol=rtol, **options)
            assert info == 0
            assert np.array_equal(x, np.zeros(10))


@pytest.mark.parametrize("solver", SOLVERS)
def test_it_begins_at_x0(solver):
    rng = np.random.default_rng(1685363802304750)
    A = rng.random(size=[10, 10])
    A = A @ A.T
    b = rng.random(10)
    for x0 in [None, rng.random(10), rng.random((10, 1)), list(rng.random(10))]:
        x, info = solver(A, b, x0=x0, atol=0, rtol=1e-6)
        assert info == 0
        assert norm(A @ x - b) <= 1e-6 * norm(b)


@pytest.mark.parametrize(("solver", "case"), ALL)
def test_x0_may_be_the_preconditioned_right_hand_side(solver, case):
    if case.name == "singular symmetric":
        pytest.skip("x0 decides whether it breaks down")
    x, info = solver(case.A, case.b, x0="Mb", rtol=goal(case))
    assert info == 0
    assert norm(case.A @ x - case.b) <= goal(case) * norm(case.b)
    inverse = LinearOperator(case.A.shape, matvec=np.diag(1 / (1 + np.arange(case.A.shape[0]))).__matmul__, dtype=float)
    first = []
    if solver is not sl.gmres:
        solver(case.A, case.b, x0="Mb", M=inverse, rtol=np.inf, callback=first.append)
        x, info = solver(case.A, case.b, x0="Mb", M=inverse, rtol=np.inf)
        assert info == 0 and np.allclose(x, inverse @ case.b) and not first


@pytest.mark.parametrize("solver", SOLVERS)
def test_x0_may_be_the_answer(solver):
    b = np.array([-1.0, -1.0])
    x, info = solver(np.eye(2), b, x0=b)
    assert info == 0
    assert np.array_equal(x, b)


@pytest.mark.parametrize("solver", SOLVERS)
def test_tolerances_are_named(solver):
    with pytest.raises(TypeError):
        solver(np.eye(2), np.ones(2), np.ones(2), 1e-5)
    for atol in ["legacy", None, -1]:
        with pytest.raises(ValueError, match="atol"):
            solver(np.eye(2), np.ones(2), atol=atol)
    for rtol in [-1.0, np.nan]:
        with pytest.raises(ValueError, match="rtol"):
            solver(np.eye(2), np.ones(2), rtol=rtol)


@pytest.mark.parametrize("solver", SOLVERS)
def test_shapes_that_do_not_fit(solver):
    A, b = np.eye(3), np.ones(3)
    for wrong in [np.ones(2), np.ones((3, 2)), np.ones((1, 3)), 1.0]:
        with pytest.raises(ValueError, match="b has shape"):
            solver(A, wrong)
        with pytest.raises(ValueError, match="x0 has shape"):
            solver(A, b, x0=wrong)
    with pytest.raises(ValueError, match="square"):
        solver(np.ones((3, 2)), b)
    with pytest.raises(ValueError, match="M has shape"):
        solver(A, b, M=np.eye(2))
    with pytest.raises(ValueError, match="x0 is an array or 'Mb'"):
        solver(A, b, x0="bM")
    x, info = solver(A, np.ones((3, 1)))
    assert x.shape == (3,) and info == 0


class TestGmres:
    def test_a_short_cycle(self):
        A = np.vander(np.arange(10) + 1)[:, ::-1]
        b = np.zeros(10)
        b[0] = 1
        x, _ = sl.gmres(A, b, restart=5, maxiter=1)
        assert np.isclose(x[0], 0.359, rtol=1e-2)

    def test_the_callback_is_told_the_residual_of_the_system(self):
        A = sparse.diags_array([np.ones(5), np.full(6, -2.0), np.ones(5)], offsets=[-1, 0, 1]).tocsr()
        b = np.ones(6)
        told = []
        options = {"rtol": 1e-16, "maxiter": 1, "callback": told.append, "callback_type": "legacy"}
        sl.gmres(A, b, x0=np.zeros(6), **options)
        assert np.allclose(told, [0.81649658092772603], rtol=1e-10)
        # SciPy preconditions from the left and would tell 1e-3 of it.
        sl.gmres(A, b, M=1e-3 * np.eye(6), **options)
        assert np.allclose(told[1], told[0], rtol=1e-10)

    def test_types_of_callbacks(self):
        rng = np.random.RandomState(1)
        A, b = rng.rand(20, 20), rng.rand(20)
        told = []
        options = {"rtol": 1e-6, "maxiter": 2, "restart": 50, "callback": told.append}
        with pytest.warns(DeprecationWarning, match="callback_type"):
            _, info = sl.gmres(A, b, **options)
        assert (info, len(told)) == (2, 2)
        told.clear()
        _, info = sl.gmres(A, b, callback_type="legacy", **options)
        assert (info, len(told)) == (2, 2)
        told.clear()
        _, info = sl.gmres(A, b, callback_type="pr_norm", **options)
        assert info == 0 and len(told) > 2 and all(isinstance(residual, float) for residual in told)
        told.clear()
        _, info = sl.gmres(A, b, callback_type="x", **options)
        assert info == 0 and len(told) == 1 and isinstance(told[0], np.ndarray)
        with pytest.raises(ValueError, match="callback_type"):
            sl.gmres(A, b, callback_type="y")

    def test_x_after_each_cycle_comes_nearer(self):
        rng = np.random.RandomState(1)
        A, b = rng.rand(20, 20) + np.eye(20), rng.rand(20)
        residuals = []
        _, info = sl.gmres(
            A, b, rtol=1e-6, maxiter=20, restart=10, callback=lambda x: residuals.append(norm(A @ x - b)), callback_type="x"
        )
        assert residuals == sorted(residuals, reverse=True)
        assert info == 20 and len(residuals) == 20

    def test_a_singular_preconditioner(self):
        M = np.diag([1.0, 1, 0])
        b, x0, A = np.array([0.0, 1, 1]), np.array([1.0, 0, 0]), np.diag([2.0, 3, 4])
        x, info = sl.gmres(A, b, x0=x0, M=M, rtol=1e-15)
        assert np.isfinite(x).all() and info != 0
        assert np.allclose(M @ (A @ x), M @ b)

    def test_a_singular_matrix(self):
        A = np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, 0]])
        b = np.array([1.0, 0, 1])
        x, info = sl.gmres(A, b, rtol=1e-8)
        assert np.isfinite(x).all() and info != 0
        assert np.allclose(A @ (A @ x), A @ b)

    def test_restarts_out_of_range(self):
        for restart in [0, -3]:
            with pytest.raises((ValueError, OverflowError)):
                sl.gmres(np.eye(2), np.ones(2), restart=restart)


def test_info_after_a_breakdown():
    """r0 . A r0 = 0 for a rotation, so BiCGStab cannot take a step."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x, info = sl.bicgstab(np.array([[0.0, 1], [-1, 0]]), np.array([1.0, 0]))
    assert info == 0 or info < 0
    assert np.isfinite(x).all()
    x, info = sl.bicgstab(np.zeros((3, 3)), np.ones(3))
    assert info in (-10, -11) and np.array_equal(x, np.zeros(3))


def test_cg_ends_at_an_indefinite_matrix():
    x, info = sl.cg(np.diag([1.0, -1.0]), np.array([1.0, 2.0]))
    assert info > 0 and np.isfinite(x).all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_unknowns(solver):
    x, info = solver(np.zeros((0, 0)), np.zeros(0))
    assert x.shape == (0,) and info == 0
    x, info = solver(aslinearoperator(np.zeros((0, 0))), np.zeros(0))
    assert x.shape == (0,) and info == 0


@pytest.mark.parametrize("solver", SOLVERS)
def test_preconditioners_by_name(solver):
    A = sl.generate("poisson2d:40")
    b = np.ones(1600)
    plain = _iterations(solver, A, b, None)
    for name in ["jacobi", "ilu0", "ic0", "ssor", "mg", "chebyshev=4"]:
        x, info = solver(A, b, M=name, rtol=1e-8)
        assert info == 0 and norm(A @ x - b) <= 1e-8 * norm(b), name
        if name != "jacobi":
            assert _iterations(solver, A, b, name) < plain, name
    x, info = solver(A, b, x0="Mb", M="mg", rtol=1e-8)
    assert info == 0 and norm(A @ x - b) <= 1e-8 * norm(b)
    with pytest.raises(ValueError, match="did you mean ilu0"):
        solver(A, b, M="ilu")
    with pytest.raises(ValueError, match="needs the entries"):
        solver(aslinearoperator(A), b, M="ic0")


def _iterations(solver, A, b, M):
    count = 0

    def callback(_):
        nonlocal count
        count += 1

    options = {"callback_type": "pr_norm"} if solver is sl.gmres else {}
    solver(A, b, M=M, rtol=1e-8, callback=callback, **options)
    return count


@pytest.mark.parametrize("solver", [sl.cg, sl.bicgstab])
@pytest.mark.parametrize("M", [None, "ic0", "operator"])
def test_callbacks_get_every_x(solver, M, poisson):
    """The x after k iterations is that of a solve limited to k, bit for bit, and a copy that the callback may keep."""
    b = np.ones(poisson.shape[0])
    if M == "operator":
        M = sparse.diags_array(1 / poisson.diagonal())
    told = []
    x, info = solver(poisson, b, M=M, rtol=1e-6, callback=told.append)
    assert info == 0 and np.array_equal(told[-1], x)
    for k in [1, 2, 7]:
        short, info = solver(poisson, b, M=M, rtol=1e-6, maxiter=k)
        assert info == k and np.array_equal(short, told[k - 1])
    told[0][:] = np.nan
