"""Turns what callers give into the arrays that the native module takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    _Vector = npt.NDArray[np.floating[Any]]


def number_type(*dtypes: Any) -> np.dtype[Any]:
    """The type to compute in: float32 if all of them are float32, otherwise float64."""
    import numpy as np

    single = True
    for given in dtypes:
        dtype = np.dtype(given)
        if dtype.kind == "c":
            raise TypeError(
                f"complex numbers ({dtype}) are not supported yet; solve the real system of twice the size, "
                "[[A.real, -A.imag], [A.imag, A.real]]"
            )
        if dtype.kind not in "biuf" or (dtype.kind == "f" and dtype.itemsize > 8):
            raise TypeError(f"numbers of type {dtype} are not supported; convert to float64")
        single = single and dtype == np.float32
    return np.dtype(np.float32 if single else np.float64)


def is_on_gpu(array: Any) -> bool:
    """Whether an array lies on a GPU and has an interface that says so."""
    import numpy as np

    if isinstance(array, np.ndarray):
        return False
    if getattr(array, "__cuda_array_interface__", None) is not None:
        return True
    place = getattr(array, "__dlpack_device__", None)
    return place is not None and int(place()[0]) in (2, 13)


def is_matrix_on_gpu(matrix: Any) -> bool:
    """Whether a matrix in CSR has its arrays on a GPU, as in cupyx.scipy.sparse."""
    return hasattr(matrix, "indptr") and not isinstance(matrix.indptr, (list, tuple)) and is_on_gpu(matrix.indptr)


def plain(array: Any, name: str) -> npt.NDArray[Any]:
    """Anything array-like as a NumPy array of real numbers."""
    import numpy as np

    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise TypeError(f"{name} has masked elements; fill them first")
    if hasattr(array, "tocsr"):
        array = array.toarray()
    found = np.asarray(array)
    number_type(found.dtype)
    return found


def contiguous(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> _Vector:
    """A contiguous and aligned one-dimensional array; the given one if it is so already."""
    import numpy as np

    made: _Vector = np.ascontiguousarray(array, dtype)
    return made if made.flags.aligned else made.copy()


def vector(array: Any, n: int, dtype: np.dtype[Any], name: str) -> _Vector:
    """A vector of `n` elements, given with one dimension or as a column."""
    found = plain(array, name)
    if found.shape not in ((n,), (n, 1)):
        raise ValueError(f"{name} has shape {found.shape}, expected ({n},)")
    return contiguous(found.reshape(-1), dtype)


def as_csr(matrix: Any) -> Any:
    """A matrix in any format, or a dense array, as SciPy's CSR."""
    if hasattr(matrix, "tocsr"):
        return matrix if getattr(matrix, "format", None) == "csr" else matrix.tocsr()
    from scipy.sparse import csr_array

    found = plain(matrix, "A")
    if found.ndim != 2:
        raise ValueError(f"A has shape {found.shape}, expected two dimensions")
    return csr_array(found.astype(number_type(found.dtype), copy=False))


def matrix(given: Any, dtype: Any = None) -> _core.Matrix:
    """A matrix in any format, or a dense array, as the native module takes it. Values in CSR are not copied."""
    import numpy as np

    csr = as_csr(given)
    if len(csr.shape) != 2:
        raise ValueError(f"A has shape {csr.shape}, expected two dimensions")
    dtype = number_type(csr.dtype) if dtype is None else np.dtype(dtype)
    indptr, indices = csr.indptr, csr.indices
    if indptr.dtype != indices.dtype or indptr.dtype not in (np.int32, np.int64):
        indptr, indices = indptr.astype(np.int64), indices.astype(np.int64)
    nrows, ncols = csr.shape
    data = contiguous(np.ravel(csr.data), dtype)
    return _core.Matrix(int(nrows), int(ncols), ordered(indptr), ordered(indices), data)


def ordered(indices: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Indices, contiguous and aligned, in the byte order of this machine."""
    import numpy as np

    made = np.ascontiguousarray(indices, indices.dtype.newbyteorder("="))
    return made if made.flags.aligned else made.copy()


def csr_array(shape: tuple[int, int], parts: tuple[Any, Any, Any]) -> Any:
    """SciPy's matrix from arrays that are sorted and have no duplicates."""
    from scipy import sparse

    indptr, indices, data = parts
    made = sparse.csr_array((data, indices, indptr), shape=shape)
    made.has_canonical_format = True
    return made
