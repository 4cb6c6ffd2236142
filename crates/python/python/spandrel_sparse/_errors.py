"""Exceptions and the warning of this package. Wrong input is a `ValueError` or `TypeError`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._solution import Solution


class SpandrelError(RuntimeError):
    """A matrix cannot be factored, or the library failed in another way.

    Attributes
    ----------
    status : str or None
        The name of the failure, as in `Outcome.status`, if it has one: ``"zero_pivot"``, ``"not_finite"``.
    """

    status: str | None

    def __init__(self, text: str, status: str | None = None) -> None:
        super().__init__(text)
        self.status = status


class DeviceError(SpandrelError):
    """A device cannot be used, or failed. The text says why and what to do."""


class NotConverged(SpandrelError):
    """A solve did not converge, and the caller asked for an answer (`Solution.raise_if_not_converged`).

    Attributes
    ----------
    solution : Solution
        The result that the solve reached.
    """

    solution: Solution

    def __init__(self, text: str, solution: Solution) -> None:
        super().__init__(text, solution.status)
        self.solution = solution

    @property
    def x(self) -> Any:
        """The x that was reached."""
        return self.solution.x


class SolveInterrupted(KeyboardInterrupt):
    """Ctrl-C ended a set-up or a solve.

    Attributes
    ----------
    x : ndarray or None
        The x that was reached; pass it as x0 to continue. None if no iteration had begun.
    solution : Solution or None
        That x with its outcome, if a `Solver` or `solve` was interrupted.
    """

    x: Any
    solution: Solution | None

    def __init__(self, text: str, reached: Any = None) -> None:
        super().__init__(text)
        self._reached = reached
        self.x = None
        self.solution = None


class NotConvergedWarning(UserWarning):
    """A solve that returns only an array did not converge. The text says how it ended and what to do."""
