"""`solve` and `Solver`: choices, outcomes, new values, several right-hand sides, the preconditioner, displays, pickling."""

from __future__ import annotations

import copy
import pickle
import warnings
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import scipy.sparse.linalg
from numpy.linalg import norm
from scipy import sparse

import spandrel_sparse as sl


def test_everything_is_chosen_and_the_plan_says_why(poisson):
    b = np.ones(2500)
    sol = sl.solve(poisson, b, device="cpu")
    assert sol.converged and sol.status == "converged"
    assert norm(poisson @ sol.x - b) <= 1e-8 * norm(b)
    assert sol.outcome.true_residual <= sol.outcome.target == 1e-8
    plan = sol.plan
    assert plan.symmetric and plan.shape == (2500, 2500) and plan.nnz == poisson.nnz and plan.backend == "cpu"
    assert str(plan).startswith("machine") and plan.method_why in str(plan)


def test_choices_can_be_named(poisson):
    b = np.ones(2500)
    sol = sl.solve(poisson, b, method="cg", preconditioner="iluk=1", format="sell", precision="mixed", rtol=1e-10, device="cpu")
    plan = sol.plan
    named = (plan.method, plan.preconditioner, plan.format, plan.precision, plan.rtol)
    assert named == ("cg", "iluk=1", "sell", "mixed", 1e-10)
    assert len(sol.history) == sol.iterations + 1 and sol.history[-1] <= 1e-10
    assert sol.times.total > 0 and sol.method == "cg" and sol.preconditioner == "iluk=1"
    assert sl.solve(poisson, b, dtype=np.float32, device="cpu").x.dtype == np.float32


def test_not_converging_is_an_outcome(poisson):
    b = np.ones(2500)
    short = {"method": "cg", "preconditioner": "none", "maxiter": 3, "device": "cpu"}
    sol = sl.solve(poisson, b, **short)
    assert not sol.converged and sol.status == "max_iterations" and sol.iterations == 3
    with pytest.raises(sl.NotConverged, match="did not converge: stopped at the limit after 3 iterations") as raised:
        sol.raise_if_not_converged()
    assert raised.value.x is sol.x and raised.value.status == "max_iterations" and isinstance(raised.value, sl.SpandrelError)
    solver = sl.Solver(poisson, **short)
    with pytest.warns(sl.NotConvergedWarning, match="stopped at the limit") as warned:
        x = solver.solve(b)
    assert np.array_equal(x, sol.x) and warned[0].filename == __file__
    with pytest.warns(sl.NotConvergedWarning):
        solver.solve(np.ones((2500, 2)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert solver.solution(b).outcome.text == sol.outcome.text
    assert sl.solve(poisson, b).raise_if_not_converged().converged


def test_what_takes_over_is_told():
    A = sl.generate("poisson2d:24")
    A.setdiag(A.diagonal() - 0.3)
    b = np.arange(576.0) % 7 - 3
    sol = sl.solve(A, b, preconditioner="jacobi", device="cpu")
    assert sol.converged and sol.method == "bicgstab"
    attempt = sol.attempts[0]
    assert (attempt.method, attempt.preconditioner, attempt.status) == ("cg", "jacobi", "indefinite_matrix")
    assert "took over" in sol.note
    assert sl.solve(A, b, preconditioner="jacobi", device="cpu", fallback="none").status == "indefinite_matrix"


def test_a_direct_solve_and_least_squares(rng):
    A = sparse.random_array((40, 12), density=0.4, rng=rng, format="csc") + sparse.eye_array(40, 12)
    b = rng.standard_normal(40)
    expected = np.linalg.lstsq(A.toarray(), b)[0]
    for settings in [{}, {"least_squares": True}]:
        sol = sl.solve(A, b, **settings)
        assert sol.converged and norm(sol.x - expected) <= 1e-8 * norm(expected)
    wide = sl.solve(A.T, rng.standard_normal(12), least_squares=True)
    assert wide.converged and wide.x.shape == (40,)


def test_a_null_space_can_be_named():
    line = sparse.diags_array([np.full(99, -1.0), np.r_[1.0, np.full(98, 2.0), 1.0], np.full(99, -1.0)], offsets=[-1, 0, 1])
    b = np.linspace(-1, 1, 100)
    sol = sl.solve(line, b, null_space="constant", device="cpu")
    assert sol.converged and abs(sol.x.sum()) <= 1e-8 * norm(sol.x) and norm(line @ sol.x - b) <= 1e-7


def test_new_values(poisson, rng):
    b = rng.standard_normal(2500)
    solver = sl.Solver(poisson, device="cpu", preconditioner="ic0", method="cg")
    x = solver.solve(b)
    solver.update(2 * poisson.data)
    assert np.array_equal(solver.solve(b), sl.Solver(2 * poisson, device="cpu", preconditioner="ic0", method="cg").solve(b))
    solver.update(poisson.data.astype(np.float32))
    assert np.array_equal(solver.solve(b), x)
    solver.update(4 * poisson)
    assert np.allclose(solver.solve(b), x / 4, rtol=1e-6)
    solver.update((4 * poisson).tocsc())
    assert np.allclose(solver.solve(b), x / 4, rtol=1e-6)
    # Written in place and then told of.
    changed = poisson.copy()
    solver = sl.Solver(changed, device="cpu", preconditioner="ic0", method="cg")
    changed.data *= 2
    solver.update(changed.data)
    assert np.allclose(solver.solve(b), x / 2, rtol=1e-6)


def test_new_values_that_do_not_fit(poisson):
    solver = sl.Solver(poisson, device="cpu")
    with pytest.raises(ValueError, match="values for a pattern of 12300 entries"):
        solver.update(np.ones(3))
    with pytest.raises(ValueError, match="values has shape"):
        solver.update(np.ones((12300, 1)))
    with pytest.raises(ValueError, match="another pattern; build a new solver"):
        solver.update(sl.generate("poisson2d:25x100"))
    bad = poisson.data.copy()
    bad[7] = np.nan
    with pytest.raises(ValueError, match="is NaN"):
        solver.update(bad)
    with pytest.raises(TypeError, match="complex"):
        solver.update(1j * poisson.data)
    assert solver.solution(np.ones(2500)).converged
    columns = sl.Solver(poisson.tocsc(), device="cpu")
    with pytest.raises(TypeError, match="another format; pass the new matrix"):
        columns.update(poisson.data)
    columns.update(2 * poisson.tocsc())
    for once in [sl.Solver(poisson, device="cpu", updatable=False)]:
        for values in [poisson.data, poisson]:
            with pytest.raises(ValueError, match="built for one set of values"):
                once.update(values)


def test_several_right_hand_sides(convection, rng):
    B = rng.standard_normal((2500, 4))
    for settings in [{}, {"method": "direct"}, {"method": "bicgstab", "preconditioner": "ilu0"}]:
        solver = sl.Solver(convection, device="cpu", **settings)
        X = solver.solve(B)
        assert X.shape == (2500, 4)
        assert np.all(norm(convection @ X - B, axis=0) <= 1.01e-8 * norm(B, axis=0))
    sol = sl.solve(convection, B, device="cpu")
    assert sol.converged and len(sol.outcomes) == 4 and repr(sol).startswith("Solution(4 right-hand sides, ")


@pytest.mark.parametrize("settings", [{"preconditioner": "ilu0"}, {"method": "direct"}, {"preconditioner": "ilu0", "precision": "refined"}])
def test_the_preconditioner_for_other_solvers(convection, settings, rng):
    b = rng.standard_normal(2500)
    M = sl.Solver(convection, device="cpu", **({"method": "bicgstab"} | settings)).aspreconditioner()
    assert isinstance(M, scipy.sparse.linalg.LinearOperator) and M.shape == (2500, 2500) and M.dtype == np.float64
    counts = []
    for given in [None, M]:
        count = []
        x, info = scipy.sparse.linalg.gmres(convection, b, M=given, rtol=1e-8, callback=count.append, callback_type="pr_norm")
        counts.append(len(count))
        assert info == 0
    assert counts[1] < counts[0] / 3
    for method in [sl.bicgstab, sl.gmres]:
        x, info = method(convection, b, M=M, rtol=1e-8)
        assert info == 0 and norm(convection @ x - b) <= 1e-8 * norm(b)
    assert (M @ np.ones((2500, 2))).shape == (2500, 2)
    with pytest.raises(ValueError, match="dimension mismatch|shape"):
        M @ np.ones(3)


def test_a_solver_begins_at_x0(poisson, rng):
    solver = sl.Solver(poisson, device="cpu", method="cg", preconditioner="jacobi")
    b = rng.standard_normal(2500)
    x = solver.solve(b)
    sol = solver.solution(b, x)
    assert sol.iterations == 0 and np.array_equal(sol.x, x)


def test_callbacks_are_told_the_residual(poisson):
    told = []
    settings = {"method": "cg", "preconditioner": "none", "check_every": 1, "device": "cpu"}
    sol = sl.solve(poisson, np.ones(2500), callback=told.append, **settings)
    assert len(told) == sol.iterations and np.array_equal(told[:-1], sol.history[1:-1])
    told.clear()
    solver = sl.Solver(poisson, **settings)
    solver.solve(np.ones(2500), callback=told.append)
    assert len(told) == sol.iterations
    told.clear()
    solver.solve(np.ones((2500, 2)), callback=told.append)
    assert len(told) >= 2 * (sol.iterations - 1)
    told.clear()
    solver.solve(np.ones(2500))
    assert not told


def test_displays(poisson):
    solver = sl.Solver(poisson, device="cpu", method="cg", preconditioner="ic0")
    sol = solver.solution(np.ones(2500))
    assert repr(solver) == "Solver(2500 x 2500, 12300 entries, float64; cg with ic0 on cpu)"
    assert repr(sol) == f"Solution({sol.outcome}; cg with ic0 on cpu)" and "\n" not in repr(sol)
    page = sol._repr_html_()
    tree = ElementTree.fromstring(f"<div>{page}</div>")
    assert [cell.text for cell in tree.iter("th")][:4] == ["outcome", "ran", "matrix", "device"]
    svg = tree.find("{http://www.w3.org/2000/svg}svg")
    points = svg.find("{http://www.w3.org/2000/svg}polyline").get("points").split()
    assert len(points) == sol.iterations + 1
    heights = [float(point.split(",")[1]) for point in points]
    assert heights[-1] == max(heights) and 0 <= min(heights) and max(heights) <= float(svg.get("height"))
    short = sl.solve(poisson, np.ones(2500), method="cg", preconditioner="none", maxiter=2, device="cpu")
    assert "allow more iterations" in short._repr_html_() and "allow more" not in repr(short)


def test_curves_of_any_history():
    from spandrel_sparse import _chart

    assert _chart.convergence([], 1e-8) == _chart.convergence([1.0], 1e-8) == _chart.convergence([0.0, 0.0], 0.0) == ""
    for history in [[1.0, 1.0], [1.0, np.inf, 1e-3], [1.0, np.nan, 0.5, 0.0], [1e300, 1e-300], list(np.logspace(0, -9, 100_000))]:
        for target in [0.0, 1e-8, np.inf]:
            drawn = _chart.convergence(history, target)
            ElementTree.fromstring(drawn)
            assert len(drawn) < 40_000
    thousands = np.ones(100_000)
    thousands[54_321] = 1e-12
    drawn = _chart.convergence(thousands, 0.0)
    spike = ElementTree.fromstring(drawn).find("{http://www.w3.org/2000/svg}polyline").get("points")
    assert len({point.split(",")[1] for point in spike.split()}) == 2, "the one low point is lost"


def test_numpy_takes_a_solution(poisson):
    sol = sl.solve(poisson, np.ones(2500))
    assert np.array_equal(np.asarray(sol), sol.x) and np.asarray(sol, np.float32).dtype == np.float32
    assert np.array_equal(np.array(sol), sol.x) and np.array(sol) is not sol.x


def test_pickling(poisson):
    solver = sl.Solver(poisson, device="cpu")
    for refused, message in [(solver, "a Solver cannot be pickled"), (solver.aspreconditioner(), "a preconditioner cannot be pickled")]:
        for attempt in [pickle.dumps, copy.copy, copy.deepcopy]:
            with pytest.raises(TypeError, match=message):
                attempt(refused)
    sol = solver.solution(np.ones(2500))
    back = pickle.loads(pickle.dumps(sol))
    assert np.array_equal(back.x, sol.x) and str(back.outcome) == str(sol.outcome) and str(back.plan) == str(sol.plan)
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(solver._native)


def test_devices():
    found = sl.devices()
    assert found[0].name == "cpu" and found[0].usable and "thread" in found[0].description
    assert (len(found) == 1) == (found.missing is not None)
    assert "cpu" in repr(found)
