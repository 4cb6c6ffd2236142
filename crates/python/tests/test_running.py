"""What happens beside a solve: Ctrl-C, callbacks that raise or stop, threads, forks, memory, the time to import."""

from __future__ import annotations

import gc
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
from numpy.linalg import norm
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import spandrel_sparse as sl

needs_signals = pytest.mark.skipif(os.name != "posix", reason="signals are sent as POSIX has them")


def slow_system():
    """A system whose solve without a preconditioner takes many seconds: rtol is out of reach."""
    A = sl.generate("poisson2d:700")
    return A, np.arange(A.shape[0]) % 7 - 3.0


SLOW = {"method": "cg", "preconditioner": "none", "rtol": 1e-300, "maxiter": 10**9, "device": "cpu"}


class CtrlC:
    """Sends this process SIGINT after some time, from another process: as a terminal does. Not once the block has ended."""

    def __init__(self, after: float) -> None:
        self.after = after

    def __enter__(self):
        # A process in the background may have inherited that SIGINT is ignored.
        self.before = signal.signal(signal.SIGINT, signal.default_int_handler)
        code = f"import os, signal, time; time.sleep({self.after}); os.kill({os.getpid()}, signal.SIGINT)"
        self.sender = subprocess.Popen([sys.executable, "-c", code])
        return self

    def __exit__(self, *_):
        self.sender.kill()
        self.sender.wait()
        signal.signal(signal.SIGINT, self.before)


def again_and_again(solve):
    """Solves until it is interrupted: on a fast machine a method reaches its attainable accuracy before the signal."""
    began = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it did not converge
        while time.monotonic() - began < 60:
            solve()


@needs_signals
def test_ctrl_c_ends_a_solve_and_keeps_x():
    A, b = slow_system()
    solver = sl.Solver(A, **SLOW, stagnation=10**6)
    with CtrlC(1.0), pytest.raises(sl.SolveInterrupted) as raised:
        again_and_again(lambda: solver.solve(b))
    assert isinstance(raised.value, KeyboardInterrupt)
    solution = raised.value.solution
    assert solution.status == "interrupted" and solution.iterations > 0 and solution.x is raised.value.x
    residual = norm(A @ raised.value.x - b) / norm(b)
    assert residual < 0.5 and np.isclose(residual, solution.outcome.true_residual, rtol=1e-6, atol=1e-13)
    # The solver goes on from there.
    assert sl.Solver(A, device="cpu").solution(b, raised.value.x).converged
    assert solver.solution(np.zeros_like(b)).converged


@needs_signals
@pytest.mark.parametrize("way", ["cg", "bicgstab", "gmres", "operator", "columns"])
def test_ctrl_c_ends_every_kind_of_solve(way):
    A, b = slow_system()
    options = {"rtol": 0.0, "maxiter": 10**7}
    solver = sl.Solver(A, **SLOW, stagnation=10**6)
    ways = {
        "operator": lambda: sl.cg(aslinearoperator(A), b, **options),
        "columns": lambda: solver.solve(np.column_stack([b, b])),
    }
    with CtrlC(0.7), pytest.raises(sl.SolveInterrupted) as raised:
        again_and_again(ways.get(way, lambda: getattr(sl, way)(A, b, device="cpu", **options)))
    x = raised.value.x
    if x is not None:
        x = x[:, -1] if way == "columns" else x
        assert norm(A @ x - b) < norm(b)
    else:
        assert way in ("bicgstab", "gmres"), "an x was reached"


@needs_signals
def test_a_handler_of_the_callers_own_is_heard():
    A, b = slow_system()

    class Alarm(Exception):
        pass

    def ring(*_):
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        began = time.monotonic()
        with pytest.raises(Alarm):
            sl.solve(A, b, **SLOW, stagnation=10**6)
        assert time.monotonic() - began < 10
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Refusal(Exception):
    pass


def refuse(*_):
    raise Refusal("no")


@pytest.mark.parametrize("method", [sl.cg, sl.bicgstab, sl.gmres])
def test_what_callbacks_and_operators_raise_is_raised(method, poisson):
    b = np.ones(2500)
    options = {"callback_type": "pr_norm"} if method is sl.gmres else {}
    calls = [
        lambda: method(poisson, b, callback=refuse, **options),
        lambda: method(aslinearoperator(poisson), b, callback=refuse, **options),
        lambda: method(LinearOperator(poisson.shape, matvec=refuse, dtype=float), b),
        lambda: method(poisson, b, M=LinearOperator(poisson.shape, matvec=refuse, dtype=float)),
    ]
    for call in calls:
        with pytest.raises(Refusal, match="no"):
            call()
    # SciPy lets it through, and so do people who end a solve by it.
    for raised in [StopIteration, KeyboardInterrupt]:

        def end(_, raised=raised):
            raise raised

        with pytest.raises(raised):
            method(poisson, b, callback=end, **options)
    with pytest.raises(ValueError, match="gave 3 elements, expected 2500"):
        method(Short(), b)
    with pytest.raises(TypeError):
        method(poisson, b, callback=3, **options)


class Short:
    """An operator that nobody has checked."""

    shape, dtype = (2500, 2500), np.dtype(float)

    def matvec(self, _):
        return np.ones(3)


def test_an_operator_fails_in_the_middle(poisson):
    count = 0

    def matvec(v):
        nonlocal count
        count += 1
        if count > 10:
            raise KeyboardInterrupt
        return poisson @ v

    with pytest.raises(sl.SolveInterrupted) as raised:
        sl.cg(LinearOperator(poisson.shape, matvec=matvec, dtype=float), np.ones(2500))
    expected, _ = sl.cg(aslinearoperator(poisson), np.ones(2500), maxiter=9)
    assert np.array_equal(raised.value.x, expected), "the x of the step before"


def test_callbacks_of_a_solver(poisson):
    b = np.ones(2500)
    solver = sl.Solver(poisson, method="cg", preconditioner="none", check_every=1, device="cpu")
    with pytest.raises(Refusal):
        solver.solve(b, callback=refuse)
    seen = []

    def until_small(residual):
        seen.append(residual)
        if residual < 1e-3:
            raise StopIteration

    sol = solver.solution(b, callback=until_small)
    assert sol.status == "interrupted" and sol.iterations == len(seen) and 1e-8 < sol.outcome.true_residual < 1e-3
    assert norm(poisson @ solver.solve(b, callback=until_small) - b) < 1e-3 * norm(b)
    assert solver.solution(b).converged, "the callback is forgotten"

    def again(_):
        solver.solve(b)

    with pytest.raises(RuntimeError, match="a callback cannot use the solver that calls it"):
        solver.solve(b, callback=again)
    other = sl.Solver(poisson, device="cpu")
    assert solver.solution(b, callback=lambda _: other.solve(b)).converged


def test_other_threads_run_meanwhile():
    """Nothing else would count while a solve of some seconds holds the interpreter's lock."""
    A, b = slow_system()
    running, beats = True, []

    def beat():
        while running:
            beats.append(time.monotonic())
            time.sleep(0.001)

    clock = threading.Thread(target=beat)
    clock.start()
    began = time.monotonic()
    sol = sl.solve(A, b, **(SLOW | {"maxiter": 400}))
    ended = time.monotonic()
    running = False
    clock.join()
    within = [at for at in beats if began < at < ended]
    assert sol.iterations == 400 and len(within) > 10


def test_threads_take_turns_with_one_solver(convection, rng):
    solver = sl.Solver(convection, device="cpu", preconditioner="ilu0", method="bicgstab")
    sides = [rng.standard_normal(2500) for _ in range(8)]
    expected = [solver.solve(b) for b in sides]
    found = [None] * 8

    def work(at):
        for _ in range(5):
            found[at] = solver.solve(sides[at])

    threads = [threading.Thread(target=work, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


def test_threads_have_solvers_of_their_own(rng):
    matrices = [sl.generate(f"convdiff2d:{30 + at},peclet={at}") for at in range(6)]
    expected = [sl.bicgstab(A, np.ones(A.shape[0]), M="ilu0")[0] for A in matrices]
    found = [None] * 6

    def work(at):
        for _ in range(5):
            found[at] = sl.bicgstab(matrices[at], np.ones(matrices[at].shape[0]), M="ilu0")[0]

    threads = [threading.Thread(target=work, args=(at,)) for at in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


FORK = """
import os, warnings
import numpy as np
import spandrel_sparse as sl
A = sl.generate("poisson2d:20") if {used} else None
warnings.simplefilter("ignore")
child = os.fork()
if child == 0:
    try:
        x, info = sl.cg(np.eye(3), np.ones(3))
        print("solved", info, flush=True)
    except RuntimeError as error:
        print("refused", error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print("parent", sl.cg(np.eye(3), np.ones(3))[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_fork_is_refused_before_it_waits_for_threads_that_it_lacks():
    def run(used):
        code = FORK.format(used=used)
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True).stdout

    assert run(used=False).splitlines() == ["solved 0", "parent 0"]
    refused, parent = run(used=True).splitlines()
    assert refused.startswith("refused this process was forked") and "spawn" in refused and parent == "parent 0"


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not pathlib.Path("/proc/self/statm").exists(), reason="there is no /proc/self/statm")
def test_memory_does_not_grow_over_a_thousand_solves():
    A = sl.generate("convdiff2d:40,peclet=3")
    b = np.ones(1600)
    solver = sl.Solver(A, device="cpu", preconditioner="ilu0", method="bicgstab")
    M = solver.aspreconditioner()

    def all_ways():
        solver.solve(b)
        solver.solution(b)
        solver.update(A.data)
        solver.solve(np.ones((1600, 2)))
        sl.bicgstab(A, b, M="ilu0", device="cpu")
        sl.gmres(A, b, M=M, callback=lambda _: None, callback_type="pr_norm")
        sl.solve(A, b, device="cpu")

    for _ in range(100):
        all_ways()
    gc.collect()
    before = resident()
    for _ in range(1000):
        all_ways()
    gc.collect()
    # A single vector per round that is not freed would be 12.8 MB.
    assert resident() - before < 6_000_000


def test_arrays_are_let_go():
    import weakref

    class Data(np.ndarray):
        """An array that can be referred to weakly."""

    A = sl.generate("poisson2d:30")
    data = A.data.view(Data)
    A.data = data
    gone = weakref.ref(data)
    solver = sl.Solver(A, device="cpu")
    del A, data
    gc.collect()
    assert gone() is not None, "the solver reads it in place"
    solver.solve(np.ones(900))
    del solver
    gc.collect()
    assert gone() is None


def test_the_import_is_quick_and_touches_neither_scipy_nor_a_gpu():
    code = (
        "import sys, time\n"
        "begin = time.process_time()\n"
        "import spandrel_sparse\n"
        "print(time.process_time() - begin)\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in ('numpy', 'scipy', 'cupy', 'torch')))\n"
        "maps = open('/proc/self/maps').read() if sys.platform == 'linux' else ''\n"
        "print('libcuda' in maps)\n"
    )
    seconds = []
    for _ in range(5):
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
        seconds.append(float(out[0]))
        assert out[1:] == ["[]", "False"]
    # Of the processor, as a busy machine makes everything wait.
    assert min(seconds) <= 0.1, seconds
