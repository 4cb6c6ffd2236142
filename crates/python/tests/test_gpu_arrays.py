"""How arrays on a GPU are described: read of fake objects, as no GPU is needed for that. `test_gpu.py` solves with real ones."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import spandrel_sparse as sl
from spandrel_sparse import _arrays, _core, _gpu

ADDRESS = 0x7F00_0000_1000


class Interface:
    """An object with `__cuda_array_interface__`."""

    def __init__(self, **changes) -> None:
        fields = {"shape": (5,), "typestr": "<f8", "data": (ADDRESS, False), "version": 3, "strides": None, "stream": 1}
        self.__cuda_array_interface__ = {name: item for name, item in (fields | changes).items() if item is not ...}


class Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("id", ctypes.c_int32)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


class DLPack:
    """An object with `__dlpack__`, whose tensor is written byte by byte."""

    def __init__(self, *, kind=2, ordinal=3, shape=(5,), strides=None, code=2, bits=64, lanes=1, offset=0, version=None, flags=0, name=None):
        self.place = (kind, ordinal)
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.strides = None if strides is None else (ctypes.c_int64 * len(strides))(*strides)
        tensor = Tensor(ADDRESS, Device(kind, ordinal), len(shape), code, bits, lanes, self.shape, self.strides, offset)
        if version is None:
            self.managed, self.name = Managed(tensor, None, None), b"dltensor"
        else:
            self.managed, self.name = Versioned(version, 0, None, None, flags, tensor), b"dltensor_versioned"
        self.name = name or self.name
        self.asked = []

    def __dlpack_device__(self):
        return self.place

    def __dlpack__(self, *, stream=None):
        self.asked.append(stream)
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.managed), self.name, None)


def test_an_interface_is_read():
    array = _core.DeviceArray.from_interface(Interface())
    read = (array.size, array.dtype, array.pointer, array.writable, array.stream, array.ordinal)
    assert read == (5, "float64", ADDRESS, True, 1, None)
    array = _core.DeviceArray.from_interface(Interface(typestr="<f4", data=(ADDRESS + 4, True), stream=12345, strides=(4,)))
    assert (array.dtype, array.pointer, array.writable, array.stream) == ("float32", ADDRESS + 4, False, 12345)
    # Version 2 names no stream: the default one is waited for.
    assert _core.DeviceArray.from_interface(Interface(stream=..., strides=...)).stream == 1
    assert _core.DeviceArray.from_interface(Interface(stream=None)).stream == 1
    assert _core.DeviceArray.from_interface(Interface(shape=(5, 1), strides=(8, 8))).size == 5
    assert _core.DeviceArray.from_interface(Interface(shape=(1,), strides=(800,))).size == 1
    assert _core.DeviceArray.from_interface(Interface(shape=(0,), data=(0, False))).size == 0
    assert _core.DeviceArray.from_interface(Interface(typestr="<i4")).dtype == "int32"


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"shape": (5, 2)}, ValueError, "expected one dimension"),
        ({"shape": ()}, ValueError, "expected one dimension"),
        ({"shape": (-1,)}, ValueError, "has shape"),
        ({"strides": (16,)}, ValueError, "not contiguous"),
        ({"strides": (-8,)}, ValueError, "not contiguous"),
        ({"typestr": "<c16"}, TypeError, "complex"),
        ({"typestr": "<i8"}, TypeError, "must be float32 or float64"),
        ({"typestr": "<f2"}, TypeError, "must be float32 or float64"),
        ({"typestr": ">f8"}, TypeError, "byte order"),
        ({"typestr": "f"}, ValueError, "typestr"),
        ({"typestr": "<f"}, ValueError, "typestr"),
        ({"typestr": "é8"}, ValueError, "typestr"),
        ({"typestr": "<f18446744073709551615"}, TypeError, "must be"),
        ({"stream": 0}, ValueError, "stream 0"),
        ({"mask": Interface}, ValueError, "mask"),
        ({"data": (0, False)}, ValueError, "address 0x0"),
        ({"data": (ADDRESS + 4, False)}, ValueError, "none of its type"),
        ({"data": ...}, ValueError, "lacks \"data\""),
        ({"shape": ...}, ValueError, "lacks \"shape\""),
        ({"data": ADDRESS}, TypeError, "tuple"),
        ({"shape": 5}, TypeError, None),
    ],
)
def test_interfaces_that_are_no_vector_are_refused(changes, error, message):
    with pytest.raises(error, match=message):
        _core.DeviceArray.from_interface(Interface(**changes))


def test_a_capsule_is_read():
    given = DLPack()
    array = _core.DeviceArray.from_dlpack(given)
    assert (array.size, array.dtype, array.pointer, array.writable, array.ordinal) == (5, "float64", ADDRESS, True, 3)
    assert given.asked == [1], "the library is asked to order its work before the default stream"
    array = _core.DeviceArray.from_dlpack(DLPack(bits=32, offset=8, strides=(1,), shape=(7,), kind=13))
    assert (array.size, array.dtype, array.pointer) == (7, "float32", ADDRESS + 8)
    for flags, writable in [(0, True), (1, False), (2, True), (3, False)]:
        array = _core.DeviceArray.from_dlpack(DLPack(version=1, flags=flags))
        assert (array.size, array.writable) == (5, writable)
    assert _core.DeviceArray.from_dlpack(DLPack(code=0, bits=32)).dtype == "int32"
    assert _core.DeviceArray.from_dlpack(DLPack(shape=(5, 1), strides=(1, 1))).size == 5


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"kind": 1}, ValueError, "does not lie on a CUDA device"),
        ({"kind": 10}, ValueError, "does not lie on a CUDA device"),
        ({"shape": (5, 2)}, ValueError, "expected one dimension"),
        ({"shape": ()}, ValueError, "0 dimensions"),
        ({"shape": (1, 1, 5)}, ValueError, "3 dimensions"),
        ({"strides": (2,)}, ValueError, "not contiguous"),
        ({"code": 5, "bits": 128}, TypeError, "complex"),
        ({"code": 1}, TypeError, "must be float32"),
        ({"code": 2, "bits": 16}, TypeError, "must be float32"),
        ({"lanes": 2}, ValueError, "dimensions"),
        ({"offset": 4}, ValueError, "none of its type"),
        ({"version": 2}, ValueError, "DLPack 2 is not supported"),
        ({"name": b"used_dltensor"}, ValueError, "holds no tensor"),
    ],
)
def test_capsules_that_are_no_vector_are_refused(changes, error, message):
    with pytest.raises(error, match=message):
        _core.DeviceArray.from_dlpack(DLPack(**changes))


def test_arrays_of_the_host_are_no_arrays_of_a_gpu():
    with pytest.raises(ValueError, match="does not lie on a CUDA device"):
        _core.DeviceArray.from_dlpack(np.ones(3))
    with pytest.raises(AttributeError):
        _core.DeviceArray.from_interface(np.ones(3))
    assert not _arrays.is_on_gpu(np.ones(3)) and not _arrays.is_on_gpu([1.0]) and not _arrays.is_on_gpu(3)
    assert _arrays.is_on_gpu(Interface()) and _arrays.is_on_gpu(DLPack()) and not _arrays.is_on_gpu(DLPack(kind=1))


class Library:
    """Functions of the fake array's library."""

    @staticmethod
    def zeros_like(_):
        return OnGpu()


class OnGpu(Interface):
    """An array of a library that says where its functions are."""

    def __array_namespace__(self):
        return Library

    def __add__(self, _):
        return OnGpu()


def test_a_solver_on_the_cpu_refuses_arrays_on_a_gpu():
    A = sl.generate("poisson1d:5")
    solver = sl.Solver(A, device="cpu")
    for call in [solver.solve, solver.solution, lambda b: solver.solve(b, OnGpu()), lambda b: sl.cg(A, b, device="cpu")]:
        with pytest.raises(ValueError, match="b lies on a GPU, and this solver runs on the CPU"):
            call(OnGpu())
    with pytest.raises(ValueError, match="Python functions run on the CPU"):
        sl.cg(A, OnGpu(), M=A)
    if sl.devices().missing is not None:
        with pytest.raises(sl.DeviceError):
            sl.cg(A, OnGpu())


class Sparse:
    """A matrix whose arrays lie on a GPU, as cupyx.scipy.sparse has them."""

    format = "csr"
    has_canonical_format = True

    def __init__(self, **changes) -> None:
        self.shape = (5, 5)
        self.indptr = Interface(shape=(6,), typestr="<i4")
        self.indices, self.data = Interface(shape=(9,), typestr="<i4"), Interface(shape=(9,))
        vars(self).update(changes)

    def tocsr(self):
        return self


def test_a_matrix_on_a_gpu_is_used_there():
    assert _arrays.is_matrix_on_gpu(Sparse()) and not _arrays.is_matrix_on_gpu(sl.generate("poisson1d:5"))
    if sl.devices().missing is not None:
        for method in [sl.cg, sl.bicgstab, sl.gmres]:
            with pytest.raises(sl.DeviceError) as raised:
                method(Sparse(), OnGpu())
            assert sl.devices().missing in str(raised.value)
    with pytest.raises(ValueError, match="b has 5 elements and x has 5"):
        sl.cg(Sparse(shape=(6, 6)), OnGpu())


def test_functions_of_the_library_are_found():
    assert _gpu.namespace(OnGpu()) is Library
    assert _gpu.namespace(np.ma.ones(3)) is np or _gpu.namespace(np.ma.ones(3)).__name__ == "numpy"
    x0 = np.ones(3)
    x = _gpu.start(np.zeros(3), x0)
    assert np.array_equal(x, x0) and x is not x0
