"""Sparse linear systems, solved on the CPU or on an NVIDIA GPU.

>>> import numpy as np
>>> import spandrel_sparse as sl
>>> A = sl.generate("poisson2d:100")         # or any scipy.sparse matrix
>>> b = np.ones(A.shape[0])
>>> sol = sl.solve(A, b)                     # method, preconditioner, format and device are chosen
>>> sol.converged
True

`solve` and `Solver` choose everything that you do not name. `cg`, `bicgstab` and `gmres` have the arguments and results of
their namesakes in `scipy.sparse.linalg`. `read_mtx`, `write_mtx`, `generate` and `spy` read, write, make and show matrices,
and `devices` lists the devices.
"""

from __future__ import annotations

import os as _os

from . import _core
from ._devices import Device, devices
from ._errors import DeviceError, NotConverged, NotConvergedWarning, SolveInterrupted, SpandrelError
from ._files import Generator, Spy, generate, generators, read_mtx, spy, write_mtx
from ._iterative import bicgstab, cg, gmres
from ._solution import Attempt, Outcome, Plan, Solution, Times
from ._solver import Solver, solve

__all__ = [
    "Attempt",
    "Device",
    "DeviceError",
    "Generator",
    "NotConverged",
    "NotConvergedWarning",
    "Outcome",
    "Plan",
    "Solution",
    "SolveInterrupted",
    "Solver",
    "SpandrelError",
    "Spy",
    "Times",
    "bicgstab",
    "cg",
    "devices",
    "generate",
    "generators",
    "gmres",
    "read_mtx",
    "solve",
    "spy",
    "write_mtx",
]

__version__: str = _core.__version__

# A fork copies no threads, so the child must be told that it has lost the pool.
if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(after_in_child=_core.forked)
