"""Matrices of partial differential equations as Matrix Market files, for `spandrel-bench multigrid` and its peers.

    python -m venv VENV && VENV/bin/pip install numpy scipy
    VENV/bin/python crates/bench/scipy/problems.py fem2d 1000000 fem2d.mtx

All have Dirichlet conditions, whose unknowns are left out. Linear elements (P1) on meshes without a grid, symmetric positive definite:

    fem2d N    Laplacian on the Delaunay mesh of about N random points in an L-shape; rows in the order of the points
    fem3d N    Laplacian on the Delaunay mesh of about N random points in a cube, slivers and all; rows in random order
    femk N     Laplacian on sound tetrahedra (each cube of a lattice cut into six, nodes moved a little) around a spherical hole
    elastk N   linear elasticity on the same mesh, three unknowns a point, Poisson's ratio 0.3, one face held; --coordinates FILE writes the points

On a cube of N^3 points, all but the last symmetric positive definite:

    aniso N    7 points, conductivities 1, 0.1 and 0.001 along the axes
    jump N     7 points, conductivity 1000 or 0.001 in blocks of 8^3 points, at random; harmonic means between them
    rot N      27 points (trilinear elements), conductivity 1000 along (3, 2, 1) and 1 across it
    cd N       7 points, upwind differences of a wind of speed 100 around the axis of z, and up along it

--order rcm writes the rows in reverse Cuthill-McKee order.
"""

import argparse
import itertools
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.spatial import Delaunay


def gradients(points, cells):
    """Gradients of the shape functions (cell, node, axis) and the volumes of the cells."""
    corners = points[cells]
    edges = corners[:, 1:] - corners[:, :1]
    volume = np.abs(np.linalg.det(edges)) / (2.0 if points.shape[1] == 2 else 6.0)
    inner = np.linalg.inv(edges).transpose(0, 2, 1)
    return np.concatenate([-inner.sum(axis=1, keepdims=True), inner], axis=1), volume


def laplacian(points, cells):
    grad, volume = gradients(points, cells)
    local = np.einsum("cia,cja,c->cij", grad, grad, volume)
    nodes = cells.shape[1]
    rows, cols = np.repeat(cells, nodes, axis=1).ravel(), np.tile(cells, (1, nodes)).ravel()
    return sp.csr_matrix((local.ravel(), (rows, cols)), shape=(len(points), len(points)))


def elasticity(points, cells):
    """Young's modulus 1. The unknowns of a point follow each other."""
    grad, volume = gradients(points, cells)
    ratio = 0.3
    shear, lame = 0.5 / (1 + ratio), ratio / ((1 + ratio) * (1 - 2 * ratio))
    # lambda div u div v + mu (grad u + grad u^T) : grad v
    local = lame * np.einsum("cia,cjb,c->ciajb", grad, grad, volume)
    local += shear * np.einsum("cib,cja,c->ciajb", grad, grad, volume)
    local += shear * np.einsum("cid,cjd,ab,c->ciajb", grad, grad, np.eye(3), volume)
    unknowns = (3 * cells[:, :, None] + np.arange(3)).reshape(len(cells), -1)
    wide = unknowns.shape[1]
    rows, cols = np.repeat(unknowns, wide, axis=1).ravel(), np.tile(unknowns, (1, wide)).ravel()
    return sp.csr_matrix((local.reshape(len(cells), -1).ravel(), (rows, cols)), shape=(3 * len(points), 3 * len(points)))


def lattice(n, rng):
    """Cubes cut into six tetrahedra each along their main diagonal, without those in the hole."""
    side = max(round((n / 0.9) ** (1 / 3)), 3)
    step = side + 1
    points = np.stack(np.meshgrid(*[np.arange(step) / side] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    inside = np.all((points > 0) & (points < 1), axis=1)
    points[inside] += rng.uniform(-0.1, 0.1, (inside.sum(), 3)) / side
    base = np.stack(np.meshgrid(*[np.arange(side)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    strides = np.array([step * step, step, 1])
    cells = []
    for axes in itertools.permutations(range(3)):
        corner = base @ strides
        cell = [corner]
        for axis in axes:
            corner = corner + strides[axis]
            cell.append(corner)
        cells.append(np.stack(cell, axis=1))
    cells = np.concatenate(cells)
    hole = np.linalg.norm(points[cells].mean(axis=1) - 0.5, axis=1) < 0.25
    return compact(points, cells[~hole])


def compact(points, cells):
    """Only the points that a cell has."""
    used, cells = np.unique(cells, return_inverse=True)
    return points[used], cells.reshape(-1, points.shape[1] + 1)


def without(a, held):
    """The matrix without these unknowns."""
    return a[~held][:, ~held]


def on_box(points):
    return np.any((points <= 0) | (points >= 1), axis=1)


def fem2d(n, rng):
    points = rng.random((round(n / 0.75), 2))
    rim = np.linspace(0, 1, round(np.sqrt(len(points))))
    half = rim[rim >= 0.5]
    sides = [(rim, 0), (0, rim), (1, rim[rim <= 0.5]), (rim[rim <= 0.5], 1), (half, 0.5), (0.5, half)]
    points = np.concatenate([points] + [np.column_stack(np.broadcast_arrays(x, y)) for x, y in sides])
    points = np.unique(points[~np.all(points > 0.5, axis=1)], axis=0)
    points = points[rng.permutation(len(points))]
    cells = Delaunay(points).simplices
    cells = cells[~np.all(points[cells].mean(axis=1) > 0.5, axis=1)]
    points, cells = compact(points, cells)
    corner = np.all(points >= 0.5, axis=1)
    return without(laplacian(points, cells), on_box(points) | corner)


def fem3d(n, rng):
    points = rng.random((n, 3))
    cells = Delaunay(points).simplices
    _, volume = gradients(points, cells)
    points, cells = compact(points, cells[volume > 1e-14])
    held = np.any((points < 0.02) | (points > 0.98), axis=1)
    a = without(laplacian(points, cells), held)
    order = rng.permutation(a.shape[0])
    return a[order][:, order]


def faces(k):
    """A 7-point matrix from conductivities of the faces: k[axis] has one face more than points along its axis."""
    shape = k[0].shape[1], k[0].shape[1], k[0].shape[1]
    at = np.arange(np.prod(shape)).reshape(shape)
    diagonal = np.zeros(shape)
    rows, cols, values = [], [], []
    for axis in range(3):
        low, high = np.moveaxis(k[axis], axis, 0)[:-1], np.moveaxis(k[axis], axis, 0)[1:]
        diagonal += np.moveaxis(low + high, 0, axis)
        one, other = np.moveaxis(at, axis, 0)[:-1].ravel(), np.moveaxis(at, axis, 0)[1:].ravel()
        between = np.moveaxis(k[axis], axis, 0)[1:-1].ravel()
        rows += [one, other]
        cols += [other, one]
        values += [-between, -between]
    rows, cols = np.concatenate([at.ravel(), *rows]), np.concatenate([at.ravel(), *cols])
    return sp.csr_matrix((np.concatenate([diagonal.ravel(), *values]), (rows, cols)))


def aniso(n):
    """Axis 0 is z, the slowest."""
    def extended(axis):
        return tuple(n + (a == axis) for a in range(3))

    return faces([np.full(extended(axis), value) for axis, value in enumerate([0.001, 0.1, 1.0])])


def jump(n, rng):
    blocks = -(-n // 8)
    cells = np.where(rng.random((blocks, blocks, blocks)) < 0.5, 1e3, 1e-3)
    cells = cells.repeat(8, 0).repeat(8, 1).repeat(8, 2)[:n, :n, :n]
    k = []
    for axis in range(3):
        along = np.moveaxis(cells, axis, 0)
        # A face on the boundary has the conductivity of its cell.
        padded = np.concatenate([along[:1], along, along[-1:]])
        k.append(np.moveaxis(2 / (1 / padded[:-1] + 1 / padded[1:]), 0, axis))
    return faces(k)


def rot(n):
    along = np.array([3.0, 2.0, 1.0]) / np.sqrt(14.0)
    tensor = np.eye(3) + 999.0 * np.outer(along, along)
    # The element's matrix by Gauss points, exact for trilinear functions on a cube.
    gauss = (1 + np.array([-1, 1]) / np.sqrt(3)) / 2
    corners = np.array(list(itertools.product([0, 1], repeat=3)))
    local = np.zeros((8, 8))
    for point in itertools.product(gauss, repeat=3):
        factor = np.where(corners == 1, point, 1 - np.array(point))
        slope = np.where(corners == 1, 1.0, -1.0)
        grad = np.stack([slope[:, d] * np.prod(np.delete(factor, d, axis=1), axis=1) for d in range(3)], axis=1)
        local += grad @ tensor @ grad.T / 8
    side = n + 1
    base = np.stack(np.meshgrid(*[np.arange(side)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    # Points are (x, y, z) with x the fastest; the outermost layer is the boundary.
    strides = np.array([1, n + 2, (n + 2) ** 2])
    cells = (base @ strides)[:, None] + corners @ strides
    rows, cols = np.repeat(cells, 8, axis=1).ravel(), np.tile(cells, (1, 8)).ravel()
    a = sp.csr_matrix((np.tile(local.ravel(), len(cells)), (rows, cols)), shape=((n + 2) ** 3,) * 2)
    inside = np.zeros((n + 2,) * 3, dtype=bool)
    inside[1:-1, 1:-1, 1:-1] = True
    return without(a, ~inside.ravel())


def cd(n):
    """With h = 1 / (n + 1), times h^2."""
    h = 1 / (n + 1)
    z, y, x = np.meshgrid(*[np.arange(1, n + 1) * h] * 3, indexing="ij")
    wind = [100 * np.ones_like(x), 100 * (x - 0.5), -100 * (y - 0.5)]
    at = np.arange(n**3).reshape((n,) * 3)
    diagonal = np.zeros((n,) * 3)
    rows, cols, values = [], [], []
    for axis in range(3):
        speed = h * np.moveaxis(wind[axis], axis, 0)
        before, after = 1 + np.maximum(speed, 0), 1 + np.maximum(-speed, 0)
        diagonal += np.moveaxis(before + after, 0, axis)
        own = np.moveaxis(at, axis, 0)
        rows += [own[1:].ravel(), own[:-1].ravel()]
        cols += [own[:-1].ravel(), own[1:].ravel()]
        values += [-before[1:].ravel(), -after[:-1].ravel()]
    rows, cols = np.concatenate([at.ravel(), *rows]), np.concatenate([at.ravel(), *cols])
    return sp.csr_matrix((np.concatenate([diagonal.ravel(), *values]), (rows, cols)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    grids = {"aniso": lambda: aniso(n), "jump": lambda: jump(n, rng), "rot": lambda: rot(n), "cd": lambda: cd(n)}
    parser.add_argument("problem", choices=["fem2d", "fem3d", "femk", "elastk", *grids])
    parser.add_argument("points", type=int, help="about as many points, or the points along an axis of the cube")
    parser.add_argument("file", type=Path)
    parser.add_argument("--coordinates", type=Path, help="of elastk: write the points here, a line each")
    parser.add_argument("--order", choices=["own", "rcm"], default="own", help="of rows and columns")
    args = parser.parse_args()
    n, rng = args.points, np.random.default_rng(1)
    if args.problem in grids:
        a = grids[args.problem]()
    elif args.problem == "fem2d":
        a = fem2d(args.points, rng)
    elif args.problem == "fem3d":
        a = fem3d(args.points, rng)
    else:
        points, cells = lattice(args.points, rng)
        if args.problem == "femk":
            a = without(laplacian(points, cells), on_box(points))
        else:
            held = points[:, 0] <= 0
            a = without(elasticity(points, cells), np.repeat(held, 3))
            if args.coordinates:
                np.savetxt(args.coordinates, points[~held])
    if args.order == "rcm":
        order = reverse_cuthill_mckee(a.tocsr(), symmetric_mode=True)
        a = a.tocsr()[order][:, order]
    if args.problem == "cd":
        scipy.io.mmwrite(args.file, a, symmetry="general", precision=17)
        print(f"{args.file}: {a.shape[0]:,} rows, {a.nnz:,} entries")
        return
    # Sums of one entry in two orders differ by rounding; the file has one of the two.
    a = sp.tril(a, format="coo")
    a.sum_duplicates()
    a.data[a.row == a.col] = np.abs(a.data[a.row == a.col])
    whole = a + sp.tril(a, -1).T
    scipy.io.mmwrite(args.file, whole, symmetry="symmetric", precision=17)
    print(f"{args.file}: {whole.shape[0]:,} rows, {whole.nnz:,} entries")


if __name__ == "__main__":
    main()
