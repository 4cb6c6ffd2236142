"""The package itself: its names, types, documents and examples."""

from __future__ import annotations

import doctest
import inspect
import pathlib
import re
import subprocess
import sys
import warnings

import pytest

import spandrel_sparse as sl
from spandrel_sparse import _chart, _devices, _files, _iterative, _solution, _solver

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODULES = [sl, _chart, _devices, _files, _iterative, _solution, _solver]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples_in_documents_run(module):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = doctest.testmod(module, verbose=False)
    assert found.failed == 0


def test_there_are_examples():
    for name in ["solve", "Solver", "cg", "bicgstab", "gmres", "read_mtx", "generate", "spy", "devices"]:
        assert ">>> " in inspect.getdoc(getattr(sl, name)), name


def public():
    for name in sl.__all__:
        thing = getattr(sl, name)
        yield name, thing
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                    yield f"{name}.{member}", value


@pytest.mark.parametrize(("name", "thing"), list(public()), ids=lambda given: given if isinstance(given, str) else "")
def test_every_public_name_is_documented(name, thing):
    text = inspect.getdoc(thing)
    assert text, f"{name} has no document"
    assert text.split("\n")[0].rstrip().endswith("."), f"{name}: the first line is no sentence"


def test_every_setting_of_a_solver_is_one_of_solve():
    solver = set(inspect.signature(sl.Solver).parameters) - {"A", "updatable"}
    assert solver == set(_solver.Settings.__annotations__)
    text = inspect.getdoc(sl.Solver)
    assert all(re.search(rf"^{name} : ", text, re.MULTILINE) for name in solver)


def test_signatures_are_those_of_scipy():
    import scipy.sparse.linalg

    for name in ["cg", "bicgstab", "gmres"]:
        ours, theirs = (inspect.signature(getattr(module, name)).parameters for module in (sl, scipy.sparse.linalg))
        for parameter in theirs.values():
            assert (ours[parameter.name].kind, ours[parameter.name].default) == (parameter.kind, parameter.default), parameter
        assert set(ours) - set(theirs) == {"device"}


PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = ["README.md", "crates/python/README.md", "docs/guide/python.md"]


@pytest.mark.parametrize("page", PAGES)
def test_programs_on_pages_run(page, tmp_path):
    path = ROOT / page
    programs = [program for program in PROGRAM.findall(path.read_text()) if "spandrel_sparse" in program]
    assert programs, f"{page} shows no program"
    for program in programs:
        if "cupy" in program or "torch" in program:
            compile(program, page, "exec")
            continue
        done = subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, f"{page}:\n{program}\n{done.stderr}"


def test_the_reference_is_up_to_date():
    sys.path.insert(0, str(ROOT / "crates" / "python" / "docs"))
    import reference

    page = ROOT / "docs" / "guide" / "python-reference.md"
    assert page.read_text() == reference.page(), "run: python crates/python/docs/reference.py"


def test_the_version_is_that_of_the_distribution():
    from importlib.metadata import version

    assert version("spandrel-sparse") == sl.__version__
