"""Matrices from files and generators, and pictures of them."""

from __future__ import annotations

import os
import struct
import warnings
import zlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from . import _arrays, _core

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    _Source = str | os.PathLike[str] | IO[bytes]


def _is_single(dtype: Any) -> bool:
    import numpy as np

    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise TypeError(f"dtype is float32 or float64, not {dtype}")
    return bool(dtype == np.float32)


def _first_line(start: bytes) -> bytes:
    """The first line of a file with these first bytes, which may be gzipped."""
    if start[:2] == b"\x1f\x8b":
        try:
            start = zlib.decompressobj(wbits=31).decompress(start, 1024)
        except zlib.error:
            return b""  # the reader will report what is wrong
    return start.split(b"\n", 1)[0]


def read_mtx(source: _Source, *, dtype: npt.DTypeLike = "float64") -> Any:
    """Read a Matrix Market file, in parallel.

    Symmetric files are expanded to the full matrix, and repeated entries are summed. Gzip is recognised by the file's
    first bytes. An error in the file is a `ValueError` with line and column; something unusual is a warning.

    Parameters
    ----------
    source : str, path or binary file
        The path of the file, or an open file or other object with `read`.
    dtype : {"float64", "float32"}
        The type of the values.

    Returns
    -------
    scipy.sparse.csr_array or numpy.ndarray
        A coordinate file is a sparse matrix. An array file is an array with two dimensions.

    Examples
    --------
    >>> import io
    >>> import spandrel_sparse as sl
    >>> text = b"%%MatrixMarket matrix coordinate real symmetric\\n2 2 2\\n1 1 4\\n2 1 -1\\n"
    >>> sl.read_mtx(io.BytesIO(text)).toarray()
    array([[ 4., -1.],
           [-1.,  0.]])
    """
    single = _is_single(dtype)
    if isinstance(source, (str, os.PathLike)):
        given: str | bytes = os.fspath(source)
        name = str(given)
        with open(given, "rb") as file:
            start = file.read(4096)
    else:
        given = source.read()
        if not isinstance(given, bytes):
            raise TypeError("a file must be opened in binary mode: open(path, 'rb')")
        name = str(getattr(source, "name", "<memory>"))
        start = given[:4096]
    words = _first_line(start).lower().split()
    if words[:1] == [b"%%matrixmarket"] and words[2:3] == [b"array"]:
        shape, values = _core.read_dense(given, name, single)
        return values.reshape(shape, order="F")
    (shape, parts), notes = _core.read_matrix(given, name, single)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return _arrays.csr_array(shape, parts)


def write_mtx(
    path: str | os.PathLike[str],
    matrix: Any,
    *,
    symmetry: str = "general",
    field: str = "real",
    comment: str = "",
) -> None:
    """Write a Matrix Market file, gzipped if the name ends in ``.gz``. Reading it back gives the same numbers, bit for bit.

    Parameters
    ----------
    path : str or path
        The file.
    matrix : sparse matrix, ndarray
        A sparse matrix in any format becomes a coordinate file. An array with one or two dimensions becomes an array file.
    symmetry : {"general", "symmetric", "skew-symmetric"}
        Only the lower triangle of a symmetric matrix is written, after a check that the rest mirrors it.
    field : {"real", "integer", "pattern"}
        How values are written. ``"pattern"`` leaves them out.
    comment : str
        A comment after the first line.
    """
    if hasattr(matrix, "tocsr"):
        _core.write_matrix(os.fspath(path), _arrays.matrix(matrix), symmetry, field, comment)
        return
    if (symmetry, field, comment) != ("general", "real", ""):
        raise ValueError("symmetry, field and comment are for sparse matrices; an array is written as it is")
    found = _arrays.plain(matrix, "the array")
    if found.ndim not in (1, 2):
        raise ValueError(f"the array has shape {found.shape}, expected one or two dimensions")
    shape = (found.shape[0], 1 if found.ndim == 1 else found.shape[1])
    values = _arrays.contiguous(found.ravel(order="F"), _arrays.number_type(found.dtype))
    _core.write_dense(os.fspath(path), shape, values)


@dataclass(frozen=True)
class Generator:
    """A generator of matrices.

    Attributes
    ----------
    name : str
        Its name, before the colon.
    syntax : str
        How to write a specification; parts in brackets are optional.
    about : str
        What it makes.
    """

    name: str
    syntax: str
    about: str


def generators() -> list[Generator]:
    """List the generators that `generate` knows.

    Examples
    --------
    >>> import spandrel_sparse as sl
    >>> sl.generators()[0].syntax
    'd3n7:N or d3n7:XxYxZ'
    """
    return [Generator(*fields) for fields in _core.generators()]


def generate(spec: str, *, dtype: npt.DTypeLike = "float64") -> Any:
    """Make a matrix with a generator. The same text makes the same matrix on every machine.

    Parameters
    ----------
    spec : str
        For example ``"poisson3d:96"`` or ``"convdiff2d:300,peclet=10"``; see `generators`.
    dtype : {"float64", "float32"}
        The type of the values.

    Returns
    -------
    scipy.sparse.csr_array

    Examples
    --------
    >>> import spandrel_sparse as sl
    >>> sl.generate("poisson1d:3").toarray()
    array([[ 2., -1.,  0.],
           [-1.,  2., -1.],
           [ 0., -1.,  2.]])
    """
    return _arrays.csr_array(*_core.generate(spec, _is_single(dtype)))


class Spy:
    """A picture of where a matrix has entries. A notebook shows it; `save` writes it as PNG.

    Attributes
    ----------
    pixels : ndarray of uint8
        The grey of each pixel: 0 is black, 255 white.
    """

    def __init__(self, pixels: npt.NDArray[np.uint8]) -> None:
        self.pixels = pixels

    def __repr__(self) -> str:
        height, width = self.pixels.shape
        return f"Spy({width} x {height} pixels)"

    def png(self) -> bytes:
        """The picture as a PNG file."""
        height, width = self.pixels.shape
        # Each row begins with one byte for its filter; 0 is none.
        rows = b"".join(b"\0" + row.tobytes() for row in self.pixels)

        def chunk(kind: bytes, body: bytes) -> bytes:
            return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

        head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
        return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file as PNG."""
        with open(path, "wb") as file:
            file.write(self.png())

    def _repr_png_(self) -> bytes:
        return self.png()


def spy(matrix: Any) -> Spy:
    """Draw where a matrix has entries, at most 1024 pixels in each direction. Stored zeros count as entries.

    Examples
    --------
    >>> import spandrel_sparse as sl
    >>> sl.spy(sl.generate("poisson2d:30"))
    Spy(904 x 904 pixels)
    """
    import numpy as np

    height, width, pixels = _core.spy(_arrays.matrix(matrix))
    return Spy(np.frombuffer(pixels, np.uint8).reshape(height, width))
