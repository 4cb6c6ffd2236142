"""Arrays of other libraries on a GPU, which are used where they lie."""

from __future__ import annotations

import sys
from typing import Any

from . import _core


def describe(array: Any) -> _core.DeviceArray:
    """Describe where an array lies. DLPack is tried first, because with it the array's library orders its own work."""
    if hasattr(array, "__dlpack__"):
        return _core.DeviceArray.from_dlpack(array)
    return _core.DeviceArray.from_interface(array)


def namespace(array: Any) -> Any:
    """The functions of the array's library."""
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    return sys.modules[type(array).__module__.partition(".")[0]]


def start(b: Any, x0: Any) -> Any:
    """A new array of the same library as `b` that holds x0, or zeros. The solve writes x there."""
    zeros = namespace(b).zeros_like(b)
    # A sum is a new array in every library, so the caller's x0 is not changed.
    made = zeros if x0 is None else zeros + x0
    # JAX makes arrays asynchronously. Nobody else has this one, so the solve may write to it once it exists.
    wait = getattr(made, "block_until_ready", None)
    return made if wait is None else wait()


def to_host(matrix: Any) -> Any:
    """Convert a matrix of cupyx.scipy.sparse to one of scipy.sparse, from which a preconditioner can be made."""
    return matrix.get() if hasattr(matrix, "get") else matrix
