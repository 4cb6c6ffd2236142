//! Several unknowns per point: grids are found with their points, stencils and unknowns, whole or in part. Grids with
//! one unknown per point are not taken for them.

use proptest::prelude::*;
use spandrel_formats::generate::{Stencil, csr};
use spandrel_formats::{Csr, Grid, Triplets};

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

/// Whether each entry is one that the grid has, by coordinates, and whether an exact grid has no other.
fn assert_holds(grid: &Grid, a: &Csr<f64>) {
    let [nx, ny, nz] = grid.size;
    assert_eq!(nx * ny * nz, a.nrows());
    let at = |row: usize| [row % nx, row / nx % ny, row / nx / ny].map(|c| c as i32);
    for i in 0..a.nrows() {
        for &j in a.row(i).0 {
            let (from, to) = (at(i), at(j as usize));
            let offset = [0, 1, 2].map(|axis| to[axis] - from[axis]);
            let k = grid.offsets.iter().position(|&o| o == offset).expect("a difference of the grid");
            assert!(grid.is_held(k, i % grid.unknowns), "({i}, {j}) in {grid}");
        }
    }
    assert_eq!(grid.exact, grid.places() == a.nnz() as u64, "{grid}: {} of {}", a.nnz(), grid.places());
    assert!(grid.places() >= a.nnz() as u64);
}

#[test]
fn systems_are_found_with_their_unknowns() {
    let cases = [
        ("elasticity2d:11x8", 2, [11, 8, 1], 9),
        ("elasticity3d:7x6x8", 3, [7, 6, 8], 27),
        ("elasticity3d:5x4x3", 3, [5, 4, 3], 27),
    ];
    for (spec, unknowns, size, points) in cases {
        check(&csr(spec).unwrap(), spec, unknowns, size, points);
    }
    for unknowns in 2..=5 {
        for coupling in ["point", "full"] {
            for (size, points) in [([9, 7, 1], 5), ([12, 20, 1], 5), ([8, 7, 6], 7), ([6, 9, 10], 7)] {
                let [x, y, z] = size;
                let spec = match z {
                    1 => format!("system2d:{x}x{y},b={unknowns},coupling={coupling}"),
                    _ => format!("system3d:{x}x{y}x{z},b={unknowns},coupling={coupling}"),
                };
                check(&csr(&spec).unwrap(), &spec, unknowns, size, points);
            }
        }
    }
}

/// The whole matrix, its triangles, and those without the diagonal.
fn check(a: &Csr<f64>, what: &str, unknowns: usize, size: [usize; 3], points: usize) {
    let whole = Grid::detect(a).unwrap_or_else(|why| panic!("{what}: {why}"));
    assert_eq!((whole.unknowns, whole.points(), whole.exact), (unknowns, size, true), "{what}: {whole}");
    assert_eq!(whole.stencil().len(), points, "{what}: {whole}");
    assert_holds(&whole, a);
    let sides: [(fn(usize, usize) -> bool, i32); 4] =
        [(|i, j| j <= i, -1), (|i, j| j >= i, 1), (|i, j| j < i, -1), (|i, j| j > i, 1)];
    for (keep, sign) in sides {
        let side = filtered(a, keep);
        let grid = Grid::detect(&side).unwrap_or_else(|why| panic!("{what}, one side: {why}"));
        assert_eq!((grid.unknowns, grid.points(), grid.exact), (unknowns, size, true), "{what}: {grid}");
        assert_eq!(grid.stencil().len(), points / 2 + 1, "{what}: {grid}");
        assert!(grid.offsets.iter().all(|o| sign * i32::signum(1000 * o[2] + 30 * o[1].signum() + o[0].signum()) >= 0));
        assert_holds(&grid, &side);
    }
}

#[test]
fn it_says_so() {
    let said = |spec: &str| Grid::detect(&csr::<f32>(spec).unwrap()).unwrap().to_string();
    assert_eq!(said("elasticity3d:8"), "8x8x8 grid, 27-point stencil, 3 unknowns per point");
    assert_eq!(said("system2d:9x7,b=5"), "9x7 grid, 5-point stencil, 5 unknowns per point");
}

#[test]
fn rows_may_hold_a_part() {
    let mixed = |i: usize| i.wrapping_mul(2_654_435_761) >> 7 & 15;
    for (spec, unknowns) in
        [("elasticity3d:9x8x7", 3), ("system3d:9x8x7,b=2,coupling=full", 2), ("system2d:19x17,b=4", 4)]
    {
        let a = csr::<f64>(spec).unwrap();
        let size = Grid::detect(&a).unwrap().points();
        // Rows of the identity for some unknowns or for all of a point, as for prescribed displacements.
        let some = filtered(&a, |i, j| i == j || mixed(i) > 1);
        let points = filtered(&a, |i, j| i == j || mixed(i / unknowns) > 1);
        let both = filtered(&a, |i, j| i == j || (mixed(i / unknowns) > 1 && mixed(j / unknowns) > 1));
        for masked in [some, points, both] {
            let grid = Grid::detect(&masked).unwrap();
            assert_eq!((grid.unknowns, grid.points(), grid.exact), (unknowns, size, false), "{spec}: {grid}");
            assert!(grid.to_string().ends_with("some rows hold fewer"));
            assert_holds(&grid, &masked);
        }
    }
}

#[test]
fn short_lines_beside_longer_ones_are_unknowns() {
    let box_of = |size| Grid::detect(&Stencil::cubic(3).unwrap().on_grid::<f64>(size).unwrap()).unwrap();
    let thin = box_of([2, 30, 20]);
    assert_eq!((thin.unknowns, thin.points(), thin.stencil().len()), (2, [30, 20, 1], 9));
    // Three in a row, of which the outer two are apart, are points.
    let line = box_of([3, 30, 20]);
    assert_eq!((line.unknowns, line.size), (1, [3, 30, 20]));
    // If every axis is short, nothing tells.
    assert_eq!(box_of([4, 4, 4]).unknowns, 1);
}

#[test]
fn one_unknown_a_point_stays_one() {
    for spec in [
        "d3n7:12x10x6",
        "d3n27:12",
        "poisson2d:60x20",
        "poisson2d9:10x30",
        "banded:n=240,d=7",
        "tridiag:300",
        "gfem:n=24x20,p=0,dim=2",
    ] {
        let a = csr::<f64>(spec).unwrap();
        assert_eq!(Grid::detect(&a).unwrap().unknowns, 1, "{spec}");
        let masked = filtered(&a, |i, j| i == j || i.wrapping_mul(2_654_435_761) >> 7 & 7 > 1);
        assert_eq!(Grid::detect(&masked).unwrap().unknowns, 1, "{spec}, masked");
    }
}

proptest! {
    /// Any couplings of unknowns at neighbours: what is found holds every entry, and exactly those.
    #[test]
    fn any_blocks_are_held(
        unknowns in 2usize..=5,
        nx in 6usize..10, ny in 2usize..7, nz in 1usize..5,
        held in proptest::collection::vec(any::<bool>(), 7 * 25),
    ) {
        let points = Stencil::star(3, 1).unwrap().on_grid::<f64>([nx, ny, nz]).unwrap();
        let mut entries = Triplets::new(points.nrows() * unknowns, points.nrows() * unknowns).unwrap();
        for p in 0..points.nrows() {
            for &q in points.row(p).0 {
                let shift = q as i64 - p as i64;
                let reach = [0, 1, -1, nx as i64, -(nx as i64), (nx * ny) as i64, -((nx * ny) as i64)];
                let o = reach.iter().position(|&r| r == shift).unwrap();
                for (c, d) in (0..unknowns).flat_map(|c| (0..unknowns).map(move |d| (c, d))) {
                    // Each is coupled with itself, so that the grid of points can be recognised.
                    if c == d || held[o * 25 + c * 5 + d] {
                        entries.push(p * unknowns + c, q as usize * unknowns + d, 1.0).unwrap();
                    }
                }
            }
        }
        let a = entries.to_csr().unwrap();
        let grid = Grid::detect(&a).unwrap();
        prop_assert!(grid.exact, "{}", grid);
        assert_holds(&grid, &a);
    }
}

/// One entry too many or too few in a grid with one unknown per point does not make a second unknown.
#[test]
fn stray_entries_are_no_unknowns() {
    for spec in ["poisson3d:37x11x9", "poisson3d:36x12x10", "d3n27:36x12x10", "poisson2d:60x24"] {
        let a = csr::<f64>(spec).unwrap();
        let n = a.nrows();
        for row in [31, n / 2, n / 2 + 7] {
            for col in [0, 12, n / 3, row - 19, row + 19, n - 1] {
                let mut more = Triplets::new(n, n).unwrap();
                for i in 0..n {
                    let (cols, values) = a.row(i);
                    cols.iter().zip(values).for_each(|(&j, &v)| more.push(i, j as usize, v).unwrap());
                }
                if !a.row(row).0.contains(&(col as u32)) {
                    more.push(row, col, 1.0).unwrap();
                }
                if let Ok(grid) = Grid::detect(&more.to_csr().unwrap()) {
                    assert_eq!(grid.unknowns, 1, "{spec} with ({row}, {col}): {grid}");
                }
            }
            let fewer = filtered(&a, |i, j| i != row || j >= row);
            let grid = Grid::detect(&fewer).unwrap();
            assert_eq!(grid.unknowns, 1, "{spec} without the lower neighbours of {row}: {grid}");
        }
    }
}
