//! Grid detection: generated grids are found again, and matrices that are not grids are refused with the reason.

use proptest::prelude::*;
use spandrel_formats::generate::{Stencil, csr};
use spandrel_formats::{Csr, Grid, NotAGrid, Triplets};

/// The pattern of a grid.
fn pattern(grid: &Grid) -> Csr<f64> {
    let all = Stencil::new(grid.offsets.iter().map(|&offset| (offset, 1.0))).on_grid(grid.size).unwrap();
    if grid.unknowns == 1 {
        return all;
    }
    // The entries of each row's unknown.
    let [nx, ny, _] = grid.size;
    let at = |row: usize| [row % nx, row / nx % ny, row / nx / ny].map(|c| c as i32);
    filtered(&all, |i, j| {
        let (from, to) = (at(i), at(j));
        let offset = [0, 1, 2].map(|axis| to[axis] - from[axis]);
        let k = grid.offsets.iter().position(|&o| o == offset).unwrap();
        grid.is_held(k, i % grid.unknowns)
    })
}

/// The detected grid has exactly the matrix's pattern.
fn assert_equivalent(a: &Csr<f64>) -> Grid {
    let grid = Grid::detect(a).unwrap();
    assert!(grid.exact, "{grid}");
    assert_eq!(pattern(&grid), a.map(|_| 1.0), "{grid}: {grid:?}");
    assert_eq!(grid.places(), a.nnz() as u64);
    grid
}

fn stencils(dims: usize) -> Vec<Stencil> {
    match dims {
        1 => vec![Stencil::star(1, 1).unwrap(), Stencil::star(1, 2).unwrap(), Stencil::star(1, 16).unwrap()],
        2 => vec![
            Stencil::star(2, 1).unwrap(),
            Stencil::star(2, 2).unwrap(),
            Stencil::cubic(2).unwrap(),
            Stencil::upwind(2, 3.0).unwrap(),
        ],
        _ => vec![
            Stencil::star(3, 1).unwrap(),
            Stencil::star(3, 2).unwrap(),
            Stencil::cubic(3).unwrap(),
            Stencil::d3n33(),
        ],
    }
}

/// The stencil without the points after (or before) its centre: the pattern of an incomplete factor.
fn triangle(stencil: &Stencil, lower: bool) -> Stencil {
    let keep = |&[dx, dy, dz]: &[i32; 3]| if lower { (dz, dy, dx) <= (0, 0, 0) } else { (dz, dy, dx) >= (0, 0, 0) };
    Stencil::new(stencil.offsets().iter().copied().filter(keep).map(|offset| (offset, 1.0)))
}

#[test]
fn generated_grids_are_found_again() {
    let sizes: [&[[usize; 3]]; 3] = [
        &[[40, 1, 1], [97, 1, 1], [1000, 1, 1]],
        &[[8, 8, 1], [6, 11, 1], [33, 17, 1], [17, 33, 1], [5, 100, 1], [100, 5, 1]],
        &[[6, 6, 6], [5, 7, 9], [9, 7, 5], [16, 8, 12], [32, 5, 6], [5, 32, 6], [5, 6, 32]],
    ];
    for dims in 1..=3 {
        for stencil in stencils(dims) {
            for &size in sizes[dims - 1] {
                for shape in [stencil.clone(), triangle(&stencil, true), triangle(&stencil, false)] {
                    let grid = assert_equivalent(&shape.on_grid(size).unwrap());
                    assert_eq!(grid.size, size, "{} points", shape.offsets().len());
                    assert_eq!(grid.offsets, shape.offsets(), "{size:?}");
                }
            }
        }
    }
}

#[test]
fn thin_and_tiny_grids_have_an_equivalent() {
    for stencil in
        [Stencil::star(3, 1).unwrap(), Stencil::star(3, 2).unwrap(), Stencil::cubic(3).unwrap(), Stencil::d3n33()]
    {
        for nx in 1..=4 {
            for ny in 1..=4 {
                for nz in 1..=4 {
                    assert_equivalent(&stencil.on_grid([nx, ny, nz]).unwrap());
                }
            }
        }
        for size in
            [[2, 50, 60], [50, 2, 60], [50, 60, 2], [3, 3, 400], [400, 3, 3], [3, 400, 3], [1, 20, 30], [20, 1, 30]]
        {
            assert_equivalent(&stencil.on_grid(size).unwrap());
        }
    }
}

#[test]
fn extents_of_one_come_last() {
    let grid = Grid::detect(&Stencil::star(3, 1).unwrap().on_grid::<f64>([1, 20, 30]).unwrap()).unwrap();
    assert_eq!((grid.size, grid.offsets.len()), ([20, 30, 1], 5));
    assert_eq!(grid.to_string(), "20x30 grid, 5-point stencil");
    let grid = Grid::detect(&Stencil::star(3, 1).unwrap().on_grid::<f64>([1, 1, 1]).unwrap()).unwrap();
    assert_eq!((grid.size, grid.offsets), ([1, 1, 1], vec![[0, 0, 0]]));
}

#[test]
fn a_band_is_a_line() {
    for spec in ["banded:n=96,d=33", "banded:n=1000,d=33", "gfem:n=60,p=2", "tridiag:100"] {
        let a = csr::<f64>(spec).unwrap();
        let grid = Grid::detect(&a).unwrap();
        assert_eq!(grid.size, [a.nrows(), 1, 1], "{spec}");
    }
    let plane = Grid::detect(&csr::<f64>("gfem:n=40x50,p=0,dim=2").unwrap()).unwrap();
    assert_eq!((plane.size, plane.offsets.len()), ([40, 50, 1], 9));
}

/// `a` without the entries for which `keep` is false.
fn filtered(a: &Csr<f64>, keep: impl Fn(usize, usize) -> bool) -> Csr<f64> {
    let mut triplets = Triplets::new(a.nrows(), a.ncols()).unwrap();
    for i in 0..a.nrows() {
        let (cols, values) = a.row(i);
        for (&j, &v) in cols.iter().zip(values) {
            if keep(i, j as usize) {
                triplets.push(i, j as usize, v).unwrap();
            }
        }
    }
    triplets.to_csr().unwrap()
}

#[test]
fn masked_and_identity_rows_are_fine() {
    let mixed = |i: usize| i.wrapping_mul(2_654_435_761) >> 7 & 7;
    for (stencil, size) in [
        (Stencil::star(2, 1).unwrap(), [31, 19, 1]),
        (Stencil::cubic(2).unwrap(), [31, 19, 1]),
        (Stencil::star(3, 1).unwrap(), [12, 9, 10]),
        (Stencil::cubic(3).unwrap(), [12, 9, 10]),
        (Stencil::d3n33(), [12, 10, 11]),
        (Stencil::star(1, 16).unwrap(), [96, 1, 1]),
    ] {
        let a = stencil.on_grid::<f64>(size).unwrap();
        let identity = filtered(&a, |i, j| mixed(i) > 1 || i == j);
        let empty = filtered(&a, |i, _| mixed(i) > 2);
        let decoupled = filtered(&a, |i, j| i == j || (mixed(i) > 1 && mixed(j) > 1));
        let half = filtered(&a, |i, j| i == j || i >= a.nrows() / 2);
        for masked in [identity, empty, decoupled, half] {
            let grid = Grid::detect(&masked).unwrap();
            assert_eq!((grid.size, grid.exact), (size, false), "{grid}");
            assert_eq!(grid.offsets, stencil.offsets());
            assert!(grid.to_string().ends_with("some rows hold fewer"));
        }
    }
}

/// A star of radius 1 whose lines close into rings along the axes of `periodic`.
fn ring(size: [usize; 3], periodic: [bool; 3]) -> Csr<f64> {
    let n: usize = size.iter().product();
    let mut triplets = Triplets::new(n, n).unwrap();
    for row in 0..n {
        let at = [row % size[0], row / size[0] % size[1], row / (size[0] * size[1])];
        triplets.push(row, row, 6.0).unwrap();
        for axis in 0..3 {
            for step in [size[axis] - 1, 1] {
                let to = at[axis] + step;
                let wraps = (step == 1) == (to >= size[axis]);
                if size[axis] > 1 && (periodic[axis] || !wraps) {
                    let mut other = at;
                    other[axis] = to % size[axis];
                    triplets.push(row, other[0] + size[0] * (other[1] + size[1] * other[2]), -1.0).unwrap();
                }
            }
        }
    }
    triplets.to_csr().unwrap()
}

#[test]
fn periodic_grids_are_refused() {
    // Without a wrap it is the plain star.
    assert_eq!(Grid::detect(&ring([6, 5, 7], [false; 3])).unwrap().size, [6, 5, 7]);
    for (size, periodic) in [
        ([50, 1, 1], [true, false, false]),
        ([16, 16, 1], [true, true, false]),
        ([16, 12, 1], [true, false, false]),
        ([16, 12, 1], [false, true, false]),
        ([8, 9, 10], [true, true, true]),
        ([8, 9, 10], [true, false, false]),
        ([8, 9, 10], [false, true, false]),
        ([8, 9, 10], [false, false, true]),
        ([64, 64, 4], [false, true, false]),
    ] {
        let found = Grid::detect(&ring(size, periodic));
        assert_eq!(found, Err(NotAGrid::Wraps), "{size:?} {periodic:?}");
    }
}

#[test]
fn what_is_no_grid_says_why() {
    let rectangle = Csr::<f64>::new(2, 3, vec![0, 1, 2], vec![0, 1], vec![1.0; 2]).unwrap();
    assert_eq!(Grid::detect(&rectangle), Err(NotAGrid::NotSquare { nrows: 2, ncols: 3 }));
    let empty = Csr::<f64>::new(0, 0, vec![0], vec![], vec![]).unwrap();
    assert_eq!(Grid::detect(&empty), Err(NotAGrid::Empty));
    let blank = Csr::<f64>::new(3, 3, vec![0; 4], vec![], vec![]).unwrap();
    assert_eq!(Grid::detect(&blank), Err(NotAGrid::Empty));
    for spec in ["random:n=1000,nnz_per_row=5", "powerlaw:n=1000", "electrostatic:n=500", "banded:n=500,d=67"] {
        assert_eq!(Grid::detect(&csr::<f64>(spec).unwrap()), Err(NotAGrid::TooManyDiagonals), "{spec}");
    }
    // A random permutation of a grid.
    let a = csr::<f64>("d3n7:8").unwrap();
    let place = |i: usize| ((i * 211 + 17) % 512) ^ 5;
    let mut shuffled = Triplets::new(512, 512).unwrap();
    for i in 0..512 {
        a.row(i).0.iter().for_each(|&j| shuffled.push(place(i), place(j as usize), 1.0).unwrap());
    }
    let shuffled = shuffled.to_csr().unwrap();
    assert_eq!(shuffled.nnz(), a.nnz());
    assert!(Grid::detect(&shuffled).is_err());
    // A few stray entries far off the diagonal.
    let mut stray = Triplets::new(300, 300).unwrap();
    for i in 0..300 {
        stray.push(i, i, 1.0).unwrap();
    }
    for i in 0..10 {
        stray.push(20 * i, 20 * i + 3 + i, 1.0).unwrap();
    }
    assert!(matches!(Grid::detect(&stray.to_csr().unwrap()), Err(NotAGrid::TooSparse { .. })));
}

#[test]
fn the_stencils_differ_by_points() {
    let points = |spec: &str| Grid::detect(&csr::<f32>(spec).unwrap()).unwrap().offsets.len();
    assert_eq!(["d3n7:9", "d3n13:9", "d3n27:9", "d3n33:9"].map(points), [7, 13, 27, 33]);
    assert_eq!(["poisson2d:9", "poisson2d9:9"].map(points), [5, 9]);
}

proptest! {
    #[test]
    fn sizes_and_stencils_come_back(kind in 0usize..4, nx in 5usize..14, ny in 5usize..14, nz in 5usize..14) {
        let stencil = &stencils(3)[kind];
        let grid = assert_equivalent(&stencil.on_grid([nx, ny, nz]).unwrap());
        prop_assert_eq!(grid.size, [nx, ny, nz]);
        prop_assert_eq!(grid.offsets, stencil.offsets());
    }

    #[test]
    fn any_compact_stencil_is_equivalent_to_what_is_found(
        points in proptest::collection::btree_set((-1i32..=1, -1i32..=1, -1i32..=1), 1..12),
        nx in 1usize..9, ny in 1usize..9, nz in 1usize..9,
    ) {
        // With the axis neighbours, every extent can be recognised.
        let axes = Stencil::star(3, 1).unwrap();
        let all = points.into_iter().map(|(dx, dy, dz)| [dx, dy, dz]).chain(axes.offsets().iter().copied());
        let stencil = Stencil::new(all.map(|offset| (offset, 1.0)));
        assert_equivalent(&stencil.on_grid([nx, ny, nz]).unwrap());
    }
}
