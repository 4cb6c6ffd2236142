"""Matrices that the tests share."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
from scipy import sparse

import spandrel_sparse as sl

# Real matrices, beside the project where they are there.
REAL = pathlib.Path(__file__).resolve().parents[4] / "shared" / "matrices"


@pytest.fixture(scope="session")
def poisson() -> sparse.csr_array:
    """Symmetric positive definite, 2500 rows."""
    return sl.generate("poisson2d:50")


@pytest.fixture(scope="session")
def convection() -> sparse.csr_array:
    """Not symmetric, 2500 rows."""
    return sl.generate("convdiff2d:50,peclet=5")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240607)
