//! Geometric multigrid on ranks: the grids and the bits of x of one device, for any number of ranks, wherever the last
//! grids are brought to every rank.

mod problems;

use problems::{LIMIT, Preconditioner, Solve, on_one_device, on_ranks, partition, system};
use spandrel_backend::{Backend, Error as Fault, Mat, Preconditioner as _};
use spandrel_backend_cpu::Cpu;
use spandrel_distributed::{Communicator, Distributed, DistributedMultigrid, Failure, Threads, cut_rows, rows_of};
use spandrel_formats::{Csr, Real, generate};
use spandrel_solvers::phase::unobserved;
use spandrel_solvers::{Error, Method, PolynomialSmoother, StencilMultigrid};

const RANKS: &[usize] = &[1, 2, 3, 4, 7];

/// What a set-up on ranks is asked for: the largest number of grids, the smoother, and which grids every rank gets.
type Asked = (Option<usize>, PolynomialSmoother, usize);

const CHEBYSHEV: PolynomialSmoother = PolynomialSmoother::Chebyshev(2);
const L1_JACOBI: PolynomialSmoother = PolynomialSmoother::L1Jacobi(2);

/// Compares grids and solves. `least` is the number of grids that must lie on the ranks.
fn alike(name: &str, a: Csr<f64>, (grids, smoother, gathered): Asked, (ranks, least): (&[usize], usize)) {
    let be = &Cpu::new();
    let on_device = Mat::load(be, a.clone()).unwrap();
    let one = StencilMultigrid::of(be, &on_device, grids, smoother, &mut unobserved).unwrap();
    let solve = Solve {
        method: Method::Cg,
        precond: Preconditioner::Mg(grids, smoother, gathered),
        options: spandrel_solvers::Options { max_iters: Some(4), ..Default::default() },
        ..Solve::default()
    };
    let system = system(a);
    let (x, outcome) = on_one_device(&system, &solve);
    for &ranks in ranks {
        let ends = partition(&system.a, ranks);
        let ended = Threads::run_within(ranks, LIMIT, |comm| {
            let rows = rows_of(&system.a, ends.rows(comm.rank()));
            let be = &Distributed::new(Cpu::with_threads(1)?, comm);
            let m = DistributedMultigrid::of(be, &rows, grids, smoother, gathered)?;
            Ok::<_, Error>((m.sizes().to_vec(), m.on_ranks()))
        });
        for (sizes, on_ranks) in ended.into_iter().map(|rank| rank.unwrap()) {
            assert_eq!(sizes, one.sizes(), "{name} on {ranks} ranks");
            assert!(on_ranks >= least, "{name}: {on_ranks} grids lie on the ranks");
        }
        let (other, found) = on_ranks(ranks, &system, &solve);
        let at = x.iter().zip(&other).position(|(x, y)| x.to_bits() != y.to_bits());
        assert_eq!(at, None, "{name} on {ranks} ranks, with grids of {gathered} points on each");
        assert_eq!((outcome.status, &outcome.history), (found.status, &found.history), "{name}");
    }
}

/// A symmetric matrix with the pattern of another, and couplings that differ from place to place.
fn uneven<T: Real>(spec: &str) -> Csr<T> {
    let a = generate::csr::<T>(spec).unwrap();
    let weight = |i: usize, j: usize| 1.0 + ((i.min(j) * 31 + i.max(j) * 17) % 23) as f64 / 9.0;
    let off = |i: usize| {
        a.row(i).0.iter().filter(move |&&j| j as usize != i).map(move |&j| weight(i, j as usize)).sum::<f64>()
    };
    a.map_entries(|i, j, _| T::from_f64(if i == j { 0.125 + off(i) } else { -weight(i, j) }))
}

#[test]
fn a_cube_has_the_bits_of_one_device_wherever_grids_are_gathered() {
    let a = uneven("poisson3d:18x17x20");
    alike("poisson3d", a.clone(), (None, CHEBYSHEV, 0), (RANKS, 1));
    alike("poisson3d", a.clone(), (None, CHEBYSHEV, usize::MAX), (&[1, 3], 0));
    // One grid, which is only smoothed.
    alike("poisson3d", a, (Some(1), CHEBYSHEV, 0), (&[1, 3], 1));
}

#[test]
fn several_grids_lie_on_the_ranks() {
    alike("27 points", uneven("d3n27:20x22x45"), (None, CHEBYSHEV, 0), (&[2, 7], 2));
    alike("two grids", uneven("d3n27:20x22x45"), (Some(2), CHEBYSHEV, 0), (&[3], 2));
    alike("a long box", uneven("poisson3d:9x10x400"), (None, CHEBYSHEV, 0), (&[2, 4], 2));
}

#[test]
fn every_degree_has_the_bits_of_one_device() {
    for degree in 1..=4 {
        for smoother in [PolynomialSmoother::Chebyshev(degree), PolynomialSmoother::L1Jacobi(degree)] {
            alike("degree", uneven("poisson3d:14x15x27"), (None, smoother, 0), (&[3], 1));
        }
    }
}

#[test]
fn row_sums_need_one_more_plane() {
    alike("poisson3d", uneven("poisson3d:18x17x20"), (None, L1_JACOBI, usize::MAX), (&[1, 3], 0));
    alike("27 points", uneven("d3n27:20x22x45"), (None, L1_JACOBI, 0), (&[2, 7], 2));
    alike("poisson2d9", uneven("poisson2d9:70x44"), (None, L1_JACOBI, 0), (&[2, 3], 1));
    // One grid, which is only smoothed.
    alike("one grid", uneven("d3n27:13x13x31"), (Some(1), L1_JACOBI, 0), (&[1, 3], 1));
}

#[test]
fn planes_of_a_plane_are_lines() {
    alike("poisson2d", uneven("poisson2d:90x91"), (None, CHEBYSHEV, 0), (&[1, 2, 3, 7], 1));
    alike("poisson2d9", uneven("poisson2d9:70x44"), (None, CHEBYSHEV, 0), (&[2, 3], 1));
    alike("poisson1d", uneven("poisson1d:9000"), (None, CHEBYSHEV, 0), (&[2, 3], 3));
}

#[test]
fn rows_of_a_rank_may_lack_diagonals_that_others_have() {
    // Nine points in the first half, five in the second.
    let a = uneven("poisson2d9:70x44");
    let n = a.nrows();
    let is_kept = |i: usize, j: usize| i.min(j) < n / 2 || [0, 1, 70].contains(&i.abs_diff(j));
    let row = |i: usize| a.row(i).0.iter().zip(a.row(i).1).map(move |(&j, &v)| (i, j as usize, v));
    let a = Csr::from_triplets(n, n, (0..n).flat_map(row).filter(|&(i, j, _)| is_kept(i, j))).unwrap();
    alike("two stencils", a, (None, CHEBYSHEV, 0), (&[2, 3], 1));
}

#[test]
fn weak_axes_are_left_alone_as_on_one_device() {
    // Only z couples strongly, or only x and y.
    let stretched = |[nx, ny, nz]: [usize; 3], along: usize| {
        let a = generate::csr::<f64>(&format!("poisson3d:{nx}x{ny}x{nz}")).unwrap();
        let plane = nx * ny;
        let is_z = |i: usize, j: usize| i.abs_diff(j) == plane;
        a.map_entries(|i, j, v| match (i == j, is_z(i, j)) {
            (true, _) if along == 2 => 2.0 + 4e-3,
            (true, _) => 4.0 + 2e-3,
            (false, is_z) if is_z == (along == 2) => v,
            _ => 1e-3 * v,
        })
    };
    for (size, smoother) in [([16, 17, 30], CHEBYSHEV), ([15, 17, 31], L1_JACOBI)] {
        alike("along z", stretched(size, 2), (None, smoother, 0), (&[2, 7], 2));
        alike("across z", stretched(size, 0), (None, smoother, 0), (&[2, 7], 1));
    }
}

#[test]
fn ranks_without_planes_hold_those_of_others() {
    // Five planes of 1,600 points for seven ranks, some of which begin inside the plane of another.
    for smoother in [CHEBYSHEV, L1_JACOBI] {
        alike("few planes", uneven("poisson3d:40x40x5"), (None, smoother, 0), (&[3, 7], 1));
        alike("odd extents", uneven("d3n27:35x33x7"), (None, smoother, 0), (&[5], 1));
    }
}

#[test]
fn two_places_may_share_a_diagonal() {
    // Along the axes with two points of the next grid, the neighbour above has the number of one below in the next line
    // or plane.
    for (spec, smoother) in [("d3n27:5x4x2501", CHEBYSHEV), ("poisson3d:4x5x3000", L1_JACOBI)] {
        alike(spec, uneven(spec), (None, smoother, 0), (&[2, 3], 2));
    }
}

#[test]
fn four_byte_numbers_have_the_bits_of_one_device() {
    for (spec, smoother) in [("poisson3d:21", CHEBYSHEV), ("d3n27:15x14x47", L1_JACOBI)] {
        let a = uneven::<f32>(spec);
        let r: Vec<f32> = (0..a.nrows()).map(|i| 1.0 + ((i * 37) % 101) as f32 / 50.0).collect();
        let be = &Cpu::new();
        let on_device = Mat::load(be, a.clone()).unwrap();
        let one = StencilMultigrid::of(be, &on_device, None, smoother, &mut unobserved).unwrap();
        let mut z = be.zeros(a.nrows()).unwrap();
        one.apply(be, None, &be.upload(&r).unwrap(), &mut z).unwrap();
        let wanted: Vec<u32> = be.download(&z).unwrap().into_iter().map(f32::to_bits).collect();
        let ended = Threads::run_within(3, LIMIT, |comm| {
            let be = &Distributed::new(Cpu::with_threads(1)?, comm);
            let rows = cut_rows(be, &a);
            let m = DistributedMultigrid::of(be, &rows, None, smoother, 0)?;
            let own = rows.first() as usize..rows.first() as usize + rows.len();
            let mut z = be.zeros(a.nrows())?;
            m.apply(be, None, &be.upload(&r[own])?, &mut z)?;
            Ok::<_, Error>((m.sizes().to_vec(), be.gather(&z)?))
        });
        for (rank, (sizes, z)) in ended.into_iter().map(|rank| rank.unwrap()).enumerate() {
            assert_eq!(sizes, one.sizes(), "{spec}");
            let z: Option<Vec<u32>> = z.map(|z| z.into_iter().map(f32::to_bits).collect());
            assert!(z.is_none_or(|z| z == wanted) || rank > 0, "{spec}");
        }
    }
}

/// What each of three ranks ends with.
fn refused(a: &Csr<f64>, grids: Option<usize>, smoother: PolynomialSmoother) -> Vec<Error> {
    let ends = partition(a, 3);
    let ended = Threads::run_within(3, LIMIT, |comm| {
        let rows = rows_of(a, ends.rows(comm.rank()));
        let be = &Distributed::new(Cpu::with_threads(1)?, comm);
        DistributedMultigrid::new(be, &rows, grids, smoother).map(|_| ())
    });
    let error = |ended: Result<(), Failure<Error>>| match ended {
        Err(Failure::Error(error)) => error,
        other => panic!("{other:?}"),
    };
    ended.into_iter().map(error).collect()
}

#[test]
fn every_rank_refuses_what_one_device_refuses() {
    let a = generate::csr::<f64>("poisson3d:34").unwrap();
    let at = partition(&a, 3).rows(1).start as usize + 100;
    let with = |value: f64| a.map_entries(|row, col, v| if row == at && col == at { value } else { v });
    let one = |a: &Csr<f64>| StencilMultigrid::new(&Cpu::new(), a.clone()).unwrap_err().to_string();
    for value in [-1.0, 0.0, f64::INFINITY] {
        let a = with(value);
        let (one, found) = (one(&a), refused(&a, None, CHEBYSHEV));
        assert_eq!(found[1].to_string(), one);
        for rank in [0, 2] {
            let Error::Backend(Fault::Rank { rank: named, why }) = &found[rank] else { panic!("{found:?}") };
            assert_eq!((*named, why), (1, &one));
        }
    }
    let coupled = |row: usize, col: usize| row.min(col) == at && row.max(col) == at + 1;
    let infinite = a.map_entries(|row, col, v| if coupled(row, col) { f64::NEG_INFINITY } else { v });
    assert_eq!(refused(&infinite, None, CHEBYSHEV)[1].to_string(), one(&infinite));
    let unsymmetric = a.map_entries(|row, col, v| if (row, col) == (2000, 1999) { 2.0 * v } else { v });
    let unstructured = generate::csr("electrostatic:n=40000").unwrap();
    for a in [unsymmetric, unstructured] {
        let found: Vec<String> = refused(&a, None, CHEBYSHEV).iter().map(Error::to_string).collect();
        assert!(found.iter().all(|text| *text == one(&a)), "{found:?}");
    }
    let of_degree = PolynomialSmoother::Chebyshev;
    for (grids, smoother) in [(Some(0), CHEBYSHEV), (None, of_degree(0)), (None, of_degree(5))] {
        let one = StencilMultigrid::of(
            &Cpu::new(),
            &Mat::load(&Cpu::new(), a.clone()).unwrap(),
            grids,
            smoother,
            &mut unobserved,
        );
        let one = one.unwrap_err().to_string();
        assert_eq!(
            refused(&a, grids, smoother).iter().map(Error::to_string).collect::<Vec<_>>(),
            [one.clone(), one.clone(), one]
        );
    }
}
