//! Neighbours against products with matrices.

use super::*;
use crate::{Csr, Format, Grid, generate};

/// Values that round in every sum, symmetric and diagonally dominant.
fn uneven(spec: &str) -> Csr<f64> {
    generate::csr::<f64>(spec).unwrap().map_entries(|i, j, v| {
        let (low, high) = (i.min(j), i.max(j));
        v * (1.0 + ((low * 7919 + high * 104_729) % 1013) as f64 / 3000.0)
    })
}

fn stencil(a: &Csr<f64>) -> Neighbours {
    Neighbours::of(&Stencil::of(&Grid::detect(a).unwrap())).unwrap()
}

const CASES: [&str; 9] = [
    "poisson3d:9x8x7",
    "d3n27:7x6x5",
    "d3n27:12x3x8",
    "poisson2d:33x17",
    "poisson2d9:16x21",
    "poisson1d:40",
    "d3n27:9x2x4",
    "poisson3d:9x4x2",
    "d3n27:5000x2x4",
];

#[test]
fn the_upper_half_has_the_bits_of_the_rows() {
    for spec in CASES {
        for halved in [[true; 3], [true, false, true], [false, true, false], [false, false, true], [true, false, false]]
        {
            let a = uneven(spec);
            let stencil = Stencil::of(&Grid::detect(&a).unwrap());
            let of = Neighbours::of(&stencil).expect(spec);
            let to = Coarsening::new(stencil.size(), halved, 1);
            let dia = Dia::from_csr(&a).unwrap();
            let coarse = of.galerkin(dia.offsets(), Diagonals::Own(dia.values()), &to).unwrap();
            let (wanted, _) = to.galerkin(&a, &stencil).unwrap();
            let found = coarse.to_csr().unwrap();
            for row in 0..wanted.nrows() {
                for (&col, &v) in wanted.row(row).0.iter().zip(wanted.row(row).1) {
                    let held = found.get(row, col as usize).unwrap_or(0.0);
                    if col as usize >= row {
                        assert_eq!(held.to_bits(), v.to_bits(), "{spec} {halved:?}: ({row}, {col})");
                    }
                    let mirrored = found.get(col as usize, row).unwrap_or(0.0);
                    assert_eq!(held.to_bits(), mirrored.to_bits(), "{spec} {halved:?}: ({row}, {col})");
                }
            }
            let next = of.coarser(&to);
            assert_eq!((coarse.offsets(), next.points()), (&next.offsets()[..], wanted.nrows()));
            // Into the memory of a matrix with other values.
            let other = Dia::from_csr(&a.map(|v| 1.0 - v)).unwrap();
            let mut again = of.galerkin(other.offsets(), Diagonals::Own(other.values()), &to).unwrap();
            of.galerkin_into(dia.offsets(), Diagonals::Own(dia.values()), &to, &mut again).unwrap();
            assert_eq!((&again, again.nnz()), (&coarse, coarse.nnz()), "{spec} {halved:?}");
            let mut other = generate::csr("poisson1d:9").map(|a| Dia::from_csr(&a).unwrap()).unwrap();
            let refused = of.galerkin_into(dia.offsets(), Diagonals::Own(dia.values()), &to, &mut other);
            assert!(matches!(refused, Err(Error::Shape { what: "coarse rows", .. })), "{spec} {halved:?}");
        }
    }
}

#[test]
fn transfers_are_products_with_the_interpolation() {
    for spec in CASES {
        let a = generate::csr::<f64>(spec).unwrap();
        let size = Stencil::of(&Grid::detect(&a).unwrap()).size();
        for halved in [[true; 3], [false, true, true], [true, false, false]] {
            let to = Coarsening::new(size, halved, 1);
            let p = to.interpolation::<f64>().unwrap();
            // Small integers, so that no sum rounds.
            let e: Vec<f64> = (0..p.ncols()).map(|i| (i * 37 % 101) as f64).collect();
            let r: Vec<f64> = (0..p.nrows()).map(|i| (i * 53 % 89) as f64 - 40.0).collect();
            let times = |m: &Csr<f64>, v: &[f64]| -> Vec<f64> {
                let row = |i: usize| m.row(i).0.iter().zip(m.row(i).1).map(|(&j, w)| w * v[j as usize]).sum();
                (0..m.nrows()).map(row).collect()
            };
            let work = &mut Default::default();
            let mut x = r.clone();
            for (line, x) in x.chunks_mut(size[0]).enumerate() {
                to.prolong_line(&e, [line % size[1], line / size[1]], work, x);
            }
            let wanted: Vec<f64> = times(&p, &e).iter().zip(&r).map(|(sum, old)| old + sum).collect();
            assert_eq!(x, wanted, "{spec} {halved:?}");
            let [cx, cy, _] = to.coarse();
            let mut s = vec![f64::NAN; p.ncols()];
            for (line, s) in s.chunks_mut(cx).enumerate() {
                to.restrict_line(&r, [line % cy, line / cy], work, s);
            }
            assert_eq!(s, times(&p.transpose(), &r), "{spec} {halved:?}");
        }
    }
}

#[test]
fn rows_and_moments_are_those_of_the_matrix() {
    for spec in CASES {
        let a = uneven(spec);
        let stencil = Stencil::of(&Grid::detect(&a).unwrap());
        let (of, dia) = (Neighbours::of(&stencil).expect(spec), Dia::from_csr(&a).unwrap());
        let every = |begin, step| of.rows(dia.offsets(), Diagonals::Own(dia.values()), begin, step).unwrap();
        let rows = every(0, 1);
        for (begin, step) in [(0, 7), (5, 1), (3, 4), (a.nrows() - 1, 2), (a.nrows(), 3), (a.nrows() + 9, 1)] {
            let wanted: Vec<f64> =
                rows.chunks(NEIGHBOURS).skip(begin).step_by(step).flat_map(|places| places.iter().copied()).collect();
            assert_eq!(every(begin, step), wanted, "{spec}: every {step}. row from {begin} on");
        }
        for (row, places) in rows.chunks(NEIGHBOURS).enumerate() {
            let inside = places.iter().enumerate().filter_map(|(at, &v)| Some((of.column(row, at)?, v)));
            let found: Vec<(usize, f64)> = inside.filter(|entry| entry.1 != 0.0).collect();
            let wanted = a.row(row).0.iter().map(|&j| j as usize).zip(a.row(row).1.iter().copied());
            assert_eq!(found, wanted.collect::<Vec<_>>(), "{spec} row {row}");
            assert_eq!(of.places_of(row, a.row(row).0, a.row(row).1).unwrap(), places, "{spec} row {row}");
        }
        assert_eq!(of.matrix(&rows).unwrap(), dia, "{spec}");
        // The end of a line is no neighbour of the beginning of the next.
        let (end, next) = (of.size()[0] - 1, of.size()[0] as u32);
        if of.size()[1] > 1 && of.size()[0] > 2 {
            assert_eq!(of.places_of(end, &[next], &[1.0]), None, "{spec}");
            assert!(of.places_of(end, &[next], &[0.0]).is_some());
        }
        let (found, wanted) = (Neighbours::moments(&rows), stencil.moments(&a, usize::MAX).unwrap());
        for (found, wanted) in found.second.iter().flatten().zip(wanted.second.iter().flatten()) {
            assert!((found - wanted).abs() <= 1e-9 * wanted.abs().max(1.0), "{spec}: {found} {wanted}");
        }
        let (second, alone) = (found.second, Neighbours::second_moments(&rows));
        assert_eq!([0, 1, 2].map(|axis| second[axis][axis].to_bits()), alone.map(f64::to_bits), "{spec}");
    }
}

#[test]
fn the_upper_diagonals_make_the_matrix() {
    for spec in CASES {
        let a = uneven(spec);
        let (of, dia) = (stencil(&a), Dia::from_csr(&a).unwrap());
        let diagonal = |&offset: &i32| {
            let mut out = vec![f64::NAN; a.nrows()];
            of.copy_diagonal(dia.offsets(), Diagonals::Own(dia.values()), offset, &mut out).unwrap();
            out
        };
        let mut upper: Vec<Vec<f64>> = of.upper_offsets().iter().map(diagonal).collect();
        assert_eq!(upper.len(), dia.offsets().len().div_ceil(2), "{spec}");
        let made = |upper: &[Vec<f64>]| of.of_diagonals(&upper.iter().map(|v| &v[..]).collect::<Vec<_>>());
        assert_eq!(made(&upper).unwrap(), dia, "{spec}");
        // Elements in columns beyond the last do not count.
        for (offset, diagonal) in of.upper_offsets().into_iter().zip(&mut upper) {
            diagonal[a.nrows() - offset as usize..].fill(f64::NAN);
        }
        assert_eq!(made(&upper).unwrap(), dia, "{spec}");
        assert!(made(&upper[1..]).is_err());
        upper[1].pop();
        assert!(made(&upper).is_err());
        // A diagonal that the matrix lacks.
        assert!(diagonal(&(a.nrows() as i32)).iter().all(|&v| v == 0.0));
    }
}

#[test]
fn offsets_tell_the_grid() {
    for spec in [
        "poisson3d:9x8x7",
        "d3n27:7x6x5",
        "d3n27:12x3x8",
        "poisson2d:33x17",
        "poisson2d9:16x21",
        "poisson1d:40",
        "poisson3d:16",
    ] {
        let a = generate::csr::<f64>(spec).unwrap();
        let grid = Grid::detect(&a).unwrap();
        let wanted = Neighbours::of(&Stencil::of(&grid)).unwrap();
        assert_eq!(wanted.grid(a.nnz() as u64), grid, "{spec}");
        let dia = Dia::from_csr(&a).unwrap();
        let found = Neighbours::candidates(a.nrows(), dia.offsets());
        let held = |of: &Neighbours| {
            let mut inverse = vec![0.0; a.nrows()];
            of.spectrum(dia.offsets(), Diagonals::Own(dia.values()), Divisor::Diagonal, &mut inverse).unwrap().2
        };
        assert_eq!(found.iter().find(|of| held(of) == dia.nnz() as u64), Some(&wanted), "{spec}");
    }
    assert!(Neighbours::candidates(100, &[-37, -10, -1, 0, 1, 10, 37]).is_empty());
    assert!(Neighbours::candidates(0, &[]).is_empty() && Neighbours::candidates(7, &[]).is_empty());
}

#[test]
fn rows_are_divided_by_the_diagonal_or_by_the_sum_of_their_magnitudes() {
    for spec in CASES {
        let a = uneven(spec);
        let of = Neighbours::of(&Stencil::of(&Grid::detect(&a).unwrap())).unwrap();
        let spectrum = |a: &Csr<f64>, divisor: Divisor| {
            let (dia, mut inverse) = (Dia::from_csr(a).unwrap(), vec![f64::NAN; a.nrows()]);
            let found = of.spectrum(dia.offsets(), Diagonals::Own(dia.values()), divisor, &mut inverse).unwrap();
            (found, inverse)
        };
        let (by_diagonal, by_sum) = (spectrum(&a, Divisor::Diagonal), spectrum(&a, Divisor::RowSum));
        assert_eq!(by_diagonal.0, by_sum.0, "{spec}");
        assert_eq!(by_sum.0.1, None, "{spec}");
        for row in 0..a.nrows() {
            let sum = a.row(row).1.iter().fold(0.0, |sum, v| sum + v.abs());
            let found = [by_diagonal.1[row], by_sum.1[row]];
            assert_eq!(found, [1.0 / a.get(row, row).unwrap(), 1.0 / sum], "{spec} row {row}");
        }
        // A sum that overflows makes a row unfit as a divisor only.
        let (row, large) = (a.nrows() / 2, f64::MAX / 1.5);
        let diagonal = a.map_entries(|i, j, v| if (i, j) == (row, row) { f64::MAX } else { v.signum() * large });
        assert_eq!(spectrum(&diagonal, Divisor::Diagonal).0.1, None, "{spec}");
        assert!(spectrum(&diagonal, Divisor::RowSum).0.1.is_some_and(|unfit| unfit <= row), "{spec}");
    }
}

#[test]
fn unfit_rows_are_found_on_lines_of_any_length() {
    for (spec, row, column) in [
        ("poisson1d:9000", 4097, 4098),
        ("poisson1d:9000", 8999, 8998),
        ("poisson2d:700x9", 700 * 5 + 600, 700 * 6 + 600),
        ("poisson3d:30x20x10", 30 * 20 * 9 + 17, 30 * 20 * 8 + 17),
        ("d3n27:5x4x600", 11999, 11998),
    ] {
        let a = generate::csr::<f64>(spec).unwrap();
        let of = stencil(&a);
        let spectrum = |a: &Csr<f64>| {
            let (dia, mut inverse) = (Dia::from_csr(a).unwrap(), vec![f64::NAN; a.nrows()]);
            of.spectrum(dia.offsets(), Diagonals::Own(dia.values()), Divisor::Diagonal, &mut inverse).unwrap()
        };
        assert_eq!(spectrum(&a).1, None, "{spec}");
        assert_eq!(spectrum(&a).2, a.nnz() as u64, "{spec}");
        let changed = |at: (usize, usize), to: f64| {
            spectrum(&a.map_entries(|i, j, v| if (i, j) == at || (j, i) == at { to } else { v })).1
        };
        for bad in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            assert_eq!(changed((row, column), bad), Some(row.min(column)), "{spec} {bad}");
        }
        for bad in [f64::INFINITY, f64::NAN, 0.0, -1.0, 1e-320] {
            assert_eq!(changed((row, row), bad), Some(row), "{spec} {bad}");
        }
        let dia = Dia::from_csr(&a).unwrap();
        assert!(of.is_symmetric(dia.offsets(), Diagonals::Own(dia.values())).unwrap());
        let other = Dia::from_csr(&a.map_entries(|i, j, v| if (i, j) == (row, column) { v + 1.0 } else { v })).unwrap();
        assert!(!of.is_symmetric(other.offsets(), Diagonals::Own(other.values())).unwrap(), "{spec}");
    }
}

#[test]
fn other_stencils_are_left_alone() {
    let of = |spec: &str| {
        let a = generate::csr::<f64>(spec).unwrap();
        Neighbours::of(&Stencil::of(&Grid::detect(&a).unwrap()))
    };
    assert!(of("elasticity2d:8").is_none() && of("d3n13:8").is_none());
    assert_eq!(of("poisson3d:5x4x3").unwrap().entries(), generate::csr::<f64>("poisson3d:5x4x3").unwrap().nnz());
}
