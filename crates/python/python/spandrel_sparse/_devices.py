"""The devices that solves can run on."""

from __future__ import annotations

from dataclasses import dataclass

from . import _core


@dataclass(frozen=True)
class Device:
    """A device of this machine.

    Attributes
    ----------
    name : str
        Its name in the argument `device` of `Solver`, `solve`, `cg`, ...: ``"cpu"``, ``"cuda:0"``.
    description : str
        The model, in words.
    memory : int or None
        Bytes of a GPU's memory.
    usable : bool
        Whether solves can run there.
    why : str or None
        Why solves cannot run there; None if they can.
    """

    name: str
    description: str
    memory: int | None
    usable: bool
    why: str | None


class Devices(list[Device]):
    """A list of devices. `missing` says why it has no GPU."""

    missing: str | None = None

    def __repr__(self) -> str:
        lines = [f"{device.name:<8}{device.description}" for device in self]
        if self.missing is not None:
            lines.append(f"no GPU: {self.missing}")
        return "\n".join(lines)


def devices() -> Devices:
    """List the devices that solves can run on: the CPU, then the GPUs that the driver shows.

    This is the first call that loads NVIDIA's driver, if there is one.

    Returns
    -------
    list of Device
        Its attribute `missing` says why there is no GPU, if there is none.

    Examples
    --------
    >>> import spandrel_sparse as sl
    >>> sl.devices()[0].name
    'cpu'
    """
    found, missing = _core.devices()
    made = Devices(Device(**fields) for fields in found)
    made.missing = missing
    return made
