"""Files, generators and pictures."""

from __future__ import annotations

import gzip
import io
import struct
import zlib

import numpy as np
import pytest
import scipy.io
from scipy import sparse

import spandrel_sparse as sl
from conftest import REAL

TEXT = b"%%MatrixMarket matrix coordinate real symmetric\n% a comment\n3 3 4\n1 1 4\n2 1 -1\n2 2 4\n3 3 1e-3\n"


def test_files_are_read_as_scipy_reads_them(tmp_path, rng):
    path = tmp_path / "a.mtx"
    for A in [
        sl.generate("convdiff2d:20,peclet=3"),
        sparse.random_array((30, 17), density=0.2, rng=rng, format="csr"),
        sparse.csr_array((4, 0)),
        sparse.csr_array((5, 5)),
    ]:
        scipy.io.mmwrite(path, A)
        back = sl.read_mtx(path)
        assert isinstance(back, sparse.csr_array) and back.dtype == np.float64 and back.indices.dtype == np.int32
        assert back.shape == A.shape and (abs(back - A)).sum() <= 1e-12
        single = sl.read_mtx(str(path), dtype=np.float32)
        assert single.dtype == np.float32 and np.allclose(single.toarray(), A.toarray())
    back.sum_duplicates()  # SciPy finds nothing to do


def test_files_are_written_bit_for_bit(tmp_path, poisson, rng):
    A = poisson.copy()
    A.data = rng.standard_normal(A.nnz)
    for name in ["a.mtx", "a.mtx.gz"]:
        path = tmp_path / name
        sl.write_mtx(path, A, comment="two\nlines")
        back = sl.read_mtx(path)
        assert np.array_equal(back.data, A.data) and np.array_equal(back.indices, A.indices)
        assert np.array_equal(scipy.io.mmread(path).toarray(), A.toarray())
    sl.write_mtx(path, poisson, symmetry="symmetric", field="integer")
    assert np.array_equal(sl.read_mtx(path).toarray(), poisson.toarray())
    with pytest.raises(ValueError, match="symmetric"):
        sl.write_mtx(path, sl.generate("convdiff2d:5"), symmetry="symmetric")
    with pytest.raises(ValueError, match="symmetry is one of general"):
        sl.write_mtx(path, poisson, symmetry="none")


def test_arrays_are_files_too(tmp_path, rng):
    path = tmp_path / "b.mtx"
    for array in [rng.standard_normal((7, 3)), np.asfortranarray(rng.standard_normal((4, 5))), rng.standard_normal(6).astype(np.float32)]:
        sl.write_mtx(path, array)
        back = sl.read_mtx(path, dtype=array.dtype)
        assert isinstance(back, np.ndarray) and np.array_equal(back.reshape(array.shape), array) and back.dtype == array.dtype
        assert np.array_equal(scipy.io.mmread(path).reshape(array.shape).astype(array.dtype), array)
    with pytest.raises(ValueError, match="are for sparse matrices"):
        sl.write_mtx(path, array, field="integer")
    with pytest.raises(ValueError, match="expected one or two"):
        sl.write_mtx(path, np.zeros((2, 2, 2)))


def test_open_files_and_gzip(tmp_path):
    expected = [[4, -1, 0], [-1, 4, 0], [0, 0, 1e-3]]
    path = tmp_path / "a.mtx.gz"
    path.write_bytes(gzip.compress(TEXT))
    for source in [io.BytesIO(TEXT), io.BytesIO(gzip.compress(TEXT)), path]:
        assert np.array_equal(sl.read_mtx(source).toarray(), expected)
    with open(path, "rb") as file:
        assert np.array_equal(sl.read_mtx(file).toarray(), expected)
    with pytest.raises(TypeError, match="binary mode"):
        sl.read_mtx(io.StringIO(TEXT.decode()))


def test_what_is_wrong_is_told_with_its_place(tmp_path):
    path = tmp_path / "wrong.mtx"
    path.write_bytes(TEXT.replace(b"2 1 -1", b"2 0 -1"))
    with pytest.raises(ValueError, match=r"wrong\.mtx:5:3: "):
        sl.read_mtx(path)
    with pytest.raises(ValueError, match=r"<memory>:1:"):
        sl.read_mtx(io.BytesIO(b"no matrix"))
    with pytest.raises(OSError, match="gzip"):
        sl.read_mtx(io.BytesIO(b"\x1f\x8b broken"))
    with pytest.raises(FileNotFoundError, match="there_is_none"):
        sl.read_mtx(tmp_path / "there_is_none.mtx")
    with pytest.raises(OSError, match="no_folder"):
        sl.write_mtx(tmp_path / "no_folder" / "a.mtx", np.eye(2))
    with pytest.raises(TypeError, match="float32 or float64"):
        sl.read_mtx(io.BytesIO(TEXT), dtype=int)
    with pytest.warns(UserWarning, match="above the diagonal"):
        sl.read_mtx(io.BytesIO(TEXT.replace(b"2 1 -1", b"1 2 -1")))


def test_real_files(request):
    paths = sorted(REAL.glob("*.mtx.gz"))
    if not paths:
        pytest.skip(f"there are no matrices in {REAL}")
    for path in paths[:40]:
        try:
            theirs = scipy.io.mmread(path)
        except (ValueError, OverflowError):
            continue
        if np.iscomplexobj(theirs):
            continue
        ours = sl.read_mtx(path)
        difference = abs(sparse.csr_array(ours) - sparse.csr_array(theirs))
        assert ours.shape == theirs.shape and (difference.nnz == 0 or difference.max() == 0), path.name


def test_generators():
    names = {generator.name for generator in sl.generators()}
    assert {"poisson3d", "convdiff2d", "random"} <= names
    A = sl.generate("random:n=50,nnz_per_row=4,seed=3", dtype="float32")
    assert A.dtype == np.float32 and A.has_canonical_format and np.array_equal(np.diff(A.indptr), np.full(50, 4))
    assert np.array_equal(A.toarray(), sl.generate("random:n=50,nnz_per_row=4,seed=3", dtype="float32").toarray())
    with pytest.raises(ValueError, match="generator"):
        sl.generate("poison3d:4")


def test_pictures(tmp_path):
    picture = sl.spy(np.eye(6))
    assert picture.pixels.shape == (388, 388) and picture.pixels[34, 34] == 0 and picture.pixels[34, 100] == 255
    path = tmp_path / "a.png"
    picture.save(path)
    data = path.read_bytes()
    assert data == picture._repr_png_() and data.startswith(b"\x89PNG\r\n\x1a\n")
    # Unpacked by hand: width, height and the rows.
    assert struct.unpack(">II", data[16:24]) == (388, 388)
    begin = data.index(b"IDAT")
    (length,) = struct.unpack(">I", data[begin - 4 : begin])
    rows = np.frombuffer(zlib.decompress(data[begin + 4 : begin + 4 + length]), np.uint8).reshape(388, 389)
    assert np.array_equal(rows[:, 1:], picture.pixels) and not rows[:, 0].any()
    assert repr(sl.spy(sparse.csr_array((0, 5)))).startswith("Spy(")
