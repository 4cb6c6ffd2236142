//! Generators: each is compared with a plain loop or with its promised property, and every wrong specification is
//! refused.

use spandrel_formats::generate::{Coupling, Spec, Stencil, System, csr, is_spec, list};
use spandrel_formats::{Csr, Error, Triplets};

/// The stencil's matrix by its definition, one point at a time.
fn plain(stencil: &Stencil, [nx, ny, nz]: [usize; 3]) -> Csr<f64> {
    let mut triplets = Triplets::new(nx * ny * nz, nx * ny * nz).unwrap();
    for z in 0..nz as i64 {
        for y in 0..ny as i64 {
            for x in 0..nx as i64 {
                for (&[dx, dy, dz], &weight) in stencil.offsets().iter().zip(stencil.weights()) {
                    let (u, v, w) = (x + i64::from(dx), y + i64::from(dy), z + i64::from(dz));
                    let inside = |at: i64, n: usize| at >= 0 && at < n as i64;
                    if inside(u, nx) && inside(v, ny) && inside(w, nz) {
                        let row = |x: i64, y: i64, z: i64| (x + nx as i64 * (y + ny as i64 * z)) as usize;
                        triplets.push(row(x, y, z), row(u, v, w), weight).unwrap();
                    }
                }
            }
        }
    }
    triplets.to_csr().unwrap()
}

#[test]
fn stencils_match_the_definition() {
    let stencils = [
        (Stencil::star(3, 1).unwrap(), 7),
        (Stencil::star(3, 2).unwrap(), 13),
        (Stencil::cubic(3).unwrap(), 27),
        (Stencil::d3n33(), 33),
        (Stencil::star(1, 1).unwrap(), 3),
        (Stencil::star(2, 1).unwrap(), 5),
        (Stencil::cubic(2).unwrap(), 9),
        (Stencil::upwind(3, 10.0).unwrap(), 7),
        (Stencil::anisotropic2d(0.25), 5),
    ];
    let sizes = [
        [1, 1, 1],
        [2, 1, 1],
        [1, 3, 2],
        [3, 1, 4],
        [5, 4, 1],
        [2, 2, 2],
        [7, 5, 3],
        [40, 13, 4],
        [1500, 1, 1],
        [1, 1, 900],
    ];
    for (stencil, points) in stencils {
        assert_eq!(stencil.offsets().len(), points);
        for size in sizes {
            assert_eq!(stencil.on_grid::<f64>(size).unwrap(), plain(&stencil, size), "{points} points on {size:?}");
        }
    }
    assert_eq!(Stencil::star(3, 1).unwrap().on_grid::<f64>([4, 0, 4]).unwrap().nrows(), 0);
}

#[test]
fn stencils_have_the_promised_diagonal() {
    for (spec, diagonal) in [
        ("d3n7:5", 6.0),
        ("d3n13:5", 12.0),
        ("d3n27:5", 26.0),
        ("d3n33:5", 32.0),
        ("poisson1d:9", 2.0),
        ("poisson2d:5", 4.0),
        ("poisson2d9:5", 8.0),
        ("poisson3d:4", 6.0),
    ] {
        let a = csr::<f32>(spec).unwrap();
        assert!(a.diagonal().iter().all(|&d| d == diagonal), "{spec}");
        assert_eq!(a, a.transpose(), "{spec} is symmetric");
        let off = a.values().iter().filter(|&&v| v == -1.0).count();
        assert_eq!(off, a.nnz() - a.nrows(), "{spec}");
    }
}

#[test]
fn upwind_is_an_m_matrix_and_not_symmetric() {
    let a = csr::<f64>("convdiff3d:6x5x4,peclet=10").unwrap();
    assert_ne!(a, a.transpose());
    for i in 0..a.nrows() {
        let (cols, values) = a.row(i);
        assert!(values.iter().sum::<f64>() >= 0.0);
        assert!(cols.iter().zip(values).all(|(&j, &v)| (j as usize == i) == (v > 0.0)));
    }
    assert_eq!(csr::<f64>("convdiff2d:7,peclet=0").unwrap(), csr::<f64>("poisson2d:7").unwrap());
    assert_eq!(csr::<f64>("anisotropic2d:7,eps=1").unwrap(), csr::<f64>("poisson2d:7").unwrap());
    assert_eq!(csr::<f64>("tridiag:7").unwrap(), csr::<f64>("poisson1d:7").unwrap());
}

#[test]
fn too_large_is_a_typed_error() {
    for spec in [
        "d3n7:2000",
        "poisson2d:3000000000x3000000000",
        "poisson1d:2147483648",
        "d3n27:500",
        "d3n7:2000000x2000000x2000000",
        "banded:n=1000000000,d=1999999999",
        "banded:n=100000,d=199999",
        "powerlaw:n=2000000000",
        "random:n=2000000000,nnz_per_row=2000000000",
        "electrostatic:n=2000000000",
        "gfem:n=2000000000,p=1",
        "randspd:n=2000000000,density=1,cond=10",
    ] {
        assert!(matches!(csr::<f64>(spec), Err(Error::TooLarge { .. })), "{spec}");
    }
}

#[test]
fn case_does_not_matter_in_names() {
    for (spec, printed) in [
        ("Poisson2d:10", "poisson2d:10x10"),
        ("D3N7:8X9x10", "d3n7:8x9x10"),
        ("BANDED:N=10,D=3", "banded:n=10,d=3"),
        ("ConvDiff2D:4,Peclet=3,SEED=7", "convdiff2d:4x4,peclet=3,seed=7"),
        ("gfem:n=10,p=1,op=Mass", "gfem:n=10,p=1,op=mass"),
    ] {
        assert_eq!(Spec::parse(spec).unwrap().to_string(), printed);
    }
}

#[test]
fn a_specification_is_told_from_a_path() {
    for spec in ["d3n7:64", "poisson2d:33x17", "unknown:5", "d3n7", "tridiag:", "Poisson2d:10", "D3N7:8", "D3N7"] {
        assert!(is_spec(spec), "{spec}");
    }
    for path in [
        "a.mtx",
        "dir/d3n7:64",
        "c:\\x.mtx",
        "file:/tmp/x.mtx",
        "./a:b.mtx",
        "matrix",
        "",
        ":",
        "A:1",
        "data.v2:final.mtx.gz",
    ] {
        assert!(!is_spec(path), "{path}");
    }
    for generator in list() {
        assert!(is_spec(generator.name));
    }
}

/// Each row's diagonal exceeds the sum of the others' absolute values.
fn strictly_dominant(a: &Csr<f64>) -> bool {
    (0..a.nrows()).all(|i| {
        let (cols, values) = a.row(i);
        let off: f64 = cols.iter().zip(values).filter(|(j, _)| **j as usize != i).map(|(_, v)| v.abs()).sum();
        a.get(i, i).is_some_and(|d| d > off)
    })
}

#[test]
fn banded_is_symmetric_dominant_and_full_inside_its_band() {
    for (n, d) in [(1usize, 1usize), (5, 9), (40, 33), (3000, 7), (10, 1)] {
        let a = csr::<f64>(&format!("banded:n={n},d={d}")).unwrap();
        assert_eq!(a, a.transpose());
        assert!(strictly_dominant(&a), "n = {n}, d = {d}");
        for i in 0..n {
            let (low, high) = (i.saturating_sub(d / 2), (i + d / 2).min(n - 1));
            assert!(a.row(i).0.iter().map(|&j| j as usize).eq(low..=high));
            assert!(a.row(i).1.iter().all(|&v| v != 0.0));
        }
    }
}

#[test]
fn power_law_rows_follow_their_exponent() {
    let a = csr::<f64>("powerlaw:n=20000,alpha=2.1").unwrap();
    assert!(strictly_dominant(&a));
    assert_ne!(a, a.transpose());
    for least in [2usize, 4, 16, 64] {
        let share = (0..a.nrows()).filter(|&i| a.row_nnz(i) > least).count() as f64 / a.nrows() as f64;
        let want = (least as f64).powf(-1.1);
        // Five standard deviations of a binomial share.
        let spread = 5.0 * (want * (1.0 - want) / a.nrows() as f64).sqrt();
        assert!((share - want).abs() < spread, "rows with {least} or more: {share}, not {want}");
    }
    assert!(csr::<f64>("powerlaw:n=1").unwrap().nnz() == 1);
}

#[test]
fn random_rows_have_equal_length() {
    for (n, k) in [(1, 1), (7, 7), (1000, 5)] {
        let a = csr::<f64>(&format!("random:n={n},nnz_per_row={k}")).unwrap();
        assert!((0..n).all(|i| a.row_nnz(i) == k) && strictly_dominant(&a));
    }
}

/// No pivot of the sparse matrix's dense Cholesky factorisation is zero or negative.
fn positive_definite(a: &Csr<f64>) -> bool {
    let n = a.nrows();
    let mut l = vec![vec![0.0; n]; n];
    for i in 0..n {
        for j in 0..=i {
            let sum: f64 = (0..j).map(|k| l[i][k] * l[j][k]).sum();
            let rest = a.get(i, j).unwrap_or(0.0) - sum;
            if i == j {
                if rest <= 0.0 {
                    return false;
                }
                l[i][i] = rest.sqrt();
            } else {
                l[i][j] = rest / l[j][j];
            }
        }
    }
    true
}

#[test]
fn electrostatic_is_spd_unstructured_and_has_n_unknowns() {
    for n in [1, 2, 3, 8, 57, 400] {
        let a = csr::<f64>(&format!("electrostatic:n={n}")).unwrap();
        assert_eq!((a.nrows(), a.ncols()), (n, n));
        assert_eq!(a, a.transpose());
        assert!(positive_definite(&a), "n = {n}");
    }
    let a = csr::<f64>("electrostatic:n=20000").unwrap();
    assert!((0..a.nrows()).all(|i| a.row_nnz(i) <= 15));
    let far = (0..a.nrows()).flat_map(|i| a.row(i).0.iter().map(move |&j| i.abs_diff(j as usize))).max().unwrap();
    assert!(far > 15000, "the numbering is shuffled");
    let diagonal = a.diagonal();
    let (low, high) = diagonal.iter().fold((f64::MAX, 0.0f64), |(l, h), &d| (l.min(d), h.max(d)));
    assert!(high > 20.0 * low, "the permittivity jumps");
}

#[test]
fn one_text_means_one_matrix_and_seeds_differ() {
    for spec in [
        "banded:n=50,d=5",
        "powerlaw:n=50",
        "random:n=50,nnz_per_row=4",
        "randspd:n=50,density=0.1,cond=100",
        "electrostatic:n=50",
    ] {
        let a = csr::<f64>(spec).unwrap();
        assert_eq!(a, csr::<f64>(spec).unwrap(), "{spec}");
        assert_eq!(a, csr::<f64>(&format!("{spec},seed=1")).unwrap(), "{spec}: 1 is the default");
        assert_ne!(a, csr::<f64>(&format!("{spec},seed=2")).unwrap(), "{spec}");
    }
}

/// The generators' numbers are fixed: a change of the random streams would change every record made with them.
#[test]
fn streams_are_pinned() {
    let a = csr::<f64>("random:n=1000,nnz_per_row=3").unwrap();
    insta::assert_snapshot!(format!("{:?} {:?} {:?}", a.row(0).0, a.row(500).0, a.row(999).0));
    let b = csr::<f64>("banded:n=9,d=3").unwrap();
    // Multiples of 2^-32, off by one half, and exact as integers.
    let words: Vec<_> = (0..8).map(|i| (b.get(i, i + 1).unwrap() * 4_294_967_296.0) as i64).collect();
    insta::assert_snapshot!(format!("{words:?}"));
    let c = csr::<f64>("electrostatic:n=40").unwrap();
    insta::assert_snapshot!(format!("{:?} {:?}", c.row_ptr(), c.row(7).0));
}

#[test]
fn a_printed_specification_means_the_same() {
    for spec in [
        "d3n7:4",
        "d3n33:4x5x6,seed=9",
        "poisson1d:12",
        "poisson2d9:3x4",
        "convdiff2d:5,peclet=2.5",
        "tridiag:n=6,diag=3",
        "anisotropic2d:5x4,eps=1e-2",
        "banded:n=20,d=3,seed=18446744073709551615",
        "gfem:n=20,p=2",
        "gfem:n=9x8,p=1,dim=2,op=mass",
        "randspd:n=1e1,density=0.5,cond=1e2",
        "powerlaw:30",
        "random:n=30,nnz_per_row=2",
        "electrostatic:30",
        "elasticity2d:5x4",
        "elasticity3d:4,nu=0.25",
        "system2d:5x4,b=3",
        "system3d:4,b=5,coupling=full,peclet=0.5,seed=2",
    ] {
        let parsed = Spec::parse(spec).unwrap();
        let printed = parsed.to_string();
        assert_eq!(Spec::parse(&printed).unwrap(), parsed, "{spec} printed as {printed}");
        assert_eq!(parsed.build::<f32>().unwrap(), csr::<f32>(&printed).unwrap());
    }
}

#[test]
fn every_listed_generator_builds() {
    for generator in list() {
        let arguments = match generator.name {
            "banded" => "n=12,d=3",
            "gfem" => "n=12,p=1",
            "randspd" => "n=12,density=0.2,cond=10",
            "random" => "n=12,nnz_per_row=3",
            _ => "12",
        };
        let a = csr::<f64>(&format!("{}:{arguments}", generator.name)).unwrap();
        assert_eq!(a.nrows() % 12, 0, "{}", generator.name);
        assert!(matches!(csr::<f64>(generator.name), Err(Error::Spec { .. })), "{} without a size", generator.name);
    }
}

#[test]
fn wrong_specifications_say_what_would_be_right() {
    let wrong = [
        "",
        ":",
        "d3n7",
        "d3n7:",
        "d3n7:0",
        "d3n7:-4",
        "d3n7:4x4",
        "d3n7:4x4x4x4",
        "d3n7:4xx4",
        "d3n7:abc",
        "d3n7:4.5",
        "d3n7:99999999999999999999999",
        "d3n7:4,",
        "d3n7:4,5",
        "d3n7:4,n=5",
        "d3n7:4,size=5",
        "d3n7:4,seed=x",
        "d3n7:4,seed=1,seed=2",
        "nonsense:4",
        "Poison2d:4",
        "d3n72:4",
        "convdiff2d:4,peclat=3",
        "randspd:n=10,Densty=0.1,cond=10",
        "banded:n=10",
        "banded:n=10,d=4",
        "banded:n=10,d=21",
        "gfem:n=10,p=9",
        "gfem:n=2,p=3",
        "gfem:n=10x10,p=1",
        "gfem:n=10,p=1,dim=3",
        "gfem:n=10,p=1,op=curl",
        "randspd:n=10,density=2,cond=10",
        "randspd:n=10,density=nan,cond=10",
        "randspd:n=10,density=0.1,cond=0.5",
        "convdiff3d:4,peclet=inf",
        "convdiff3d:4,peclet=-1",
        "anisotropic2d:4,eps=0",
        "powerlaw:n=10,alpha=1",
        "random:n=3,nnz_per_row=4",
        "electrostatic:n=0",
        "elasticity2d:4x4x4",
        "elasticity3d:4,nu=0.5",
        "system2d:4,b=1",
        "system3d:4,b=6",
        "system3d:4,coupling=both",
    ];
    let mut messages = String::new();
    for spec in wrong {
        match csr::<f64>(spec) {
            Err(error @ Error::Spec { .. }) => messages.push_str(&format!("{error}\n")),
            other => panic!("{spec:?} gave {other:?}"),
        }
    }
    insta::assert_snapshot!(messages);
    for spec in [
        "random:n=1e9,nnz_per_row=5",
        "electrostatic:n=1e12",
        "gfem:n=1e10,p=1",
        "randspd:n=1e9,density=1,cond=2",
        "banded:n=1e9,d=101",
        "powerlaw:n=1e10",
        "elasticity3d:1000",
    ] {
        assert!(matches!(csr::<f64>(spec), Err(Error::TooLarge { .. })), "{spec}");
    }
}

#[test]
fn a_stencil_that_cannot_be_is_a_typed_error() {
    let refused = |stencil: Result<Stencil, Error>| match stencil {
        Err(error @ Error::Invalid { format: "stencil", .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    for dims in [0, 4, usize::MAX] {
        let why = format!("stencil: {dims} dimensions: 1, 2 or 3 are possible");
        assert_eq!(refused(Stencil::star(dims, 1)), why);
        assert_eq!(refused(Stencil::cubic(dims)), why);
        assert_eq!(refused(Stencil::upwind(dims, 1.0)), why);
    }
    for radius in [-1, i32::MIN, i32::MAX] {
        assert!(refused(Stencil::star(2, radius)).contains("0 to 1024"));
    }
    for peclet in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(refused(Stencil::upwind(2, peclet)).contains("finite"));
    }
}

#[test]
fn neighbours_as_far_as_integers_go_lie_outside() {
    let far = [i32::MIN, i32::MAX].into_iter().flat_map(|d| [[d, 0, 0], [0, d, 0], [0, 0, d], [d, d, d]]);
    let stencil = Stencil::new(far.map(|offset| (offset, 1.0)).chain([([0; 3], 2.0)]));
    let a = stencil.on_grid::<f64>([5, 4, 3]).unwrap();
    assert_eq!(a, Csr::identity(60).unwrap().map(|_: f64| 2.0));
}

/// The parts of A u for the unknowns 0 and 1 at the middle point of a 5 x 5 x 5 grid. u is given by the difference from
/// it.
fn middle(a: &Csr<f64>, dims: usize, u: impl Fn([f64; 3], usize) -> f64) -> Vec<f64> {
    let depth = if dims == 3 { 5 } else { 1 };
    let point = 12 + if dims == 3 { 50 } else { 0 };
    let at = |row: usize| {
        let p = row / dims;
        [(p % 5) as f64 - 2.0, (p / 5 % 5) as f64 - 2.0, (p / 25) as f64 - (depth / 2) as f64]
    };
    let row = |i: usize| {
        let (cols, values) = a.row(i);
        cols.iter().zip(values).map(|(&j, &v)| v * u(at(j as usize), j as usize % dims)).sum()
    };
    (0..dims).map(|c| row(point * dims + c)).collect()
}

#[test]
fn elasticity_is_the_operator_of_its_equations() {
    let nu = 0.3;
    let (lambda, mu) = (nu / ((1.0 + nu) * (1.0 - 2.0 * nu)), 0.5 / (1.0 + nu));
    for dims in [2, 3] {
        let a = csr::<f64>(&format!("elasticity{dims}d:5,nu={nu}")).unwrap();
        assert!(a.is_symmetric());
        let near = |u: &dyn Fn([f64; 3], usize) -> f64, expected: [f64; 3]| {
            for (found, expected) in middle(&a, dims, u).into_iter().zip(expected) {
                assert!((found - expected).abs() < 1e-13, "{dims}: {found} {expected}");
            }
        };
        // There is no force if nothing is strained, or everything evenly.
        near(&|_, _| 1.0, [0.0; 3]);
        near(&|[x, y, _], c| [-y, x, 0.0][c], [0.0; 3]);
        near(&|[x, y, z], c| [x + 2.0 * y, z - y, 3.0 * x][c], [0.0; 3]);
        // -div sigma of x^2 along x, and of x y along y.
        near(&|[x, ..], c| if c == 0 { x * x } else { 0.0 }, [-2.0 * (lambda + 2.0 * mu), 0.0, 0.0]);
        near(&|[x, ..], c| if c == 1 { x * x } else { 0.0 }, [0.0, -2.0 * mu, 0.0]);
        near(&|[x, y, _], c| if c == 1 { x * y } else { 0.0 }, [-(lambda + mu), 0.0, 0.0]);
    }
}

/// Whether A = L L^T exists, densely.
fn is_positive_definite(a: &Csr<f64>) -> bool {
    let n = a.nrows();
    let mut l = vec![vec![0.0f64; n]; n];
    for i in 0..n {
        for j in 0..=i {
            let s: f64 = a.get(i, j).unwrap_or(0.0) - (0..j).map(|k| l[i][k] * l[j][k]).sum::<f64>();
            if i == j && s <= 0.0 {
                return false;
            }
            l[i][j] = if i == j { s.sqrt() } else { s / l[j][j] };
        }
    }
    true
}

#[test]
fn systems_are_definite_and_what_they_say() {
    for spec in [
        "elasticity2d:5x4,nu=0.499",
        "elasticity3d:4x3x3",
        "system2d:5x4,b=2",
        "system2d:4x3,b=5,coupling=full",
        "system3d:3x4x2,b=3,coupling=full",
        "system3d:3,b=4",
    ] {
        let a = csr::<f64>(spec).unwrap();
        assert!(a.is_symmetric() && is_positive_definite(&a), "{spec}");
    }
    for (unknowns, coupling) in (2..=5).flat_map(|b| [Coupling::Point, Coupling::Full].map(|coupling| (b, coupling))) {
        let (size, peclet) = ([4, 3, 2], 1.5);
        let a = System::densities(3, unknowns, coupling, peclet).unwrap().on_grid::<f64>(size).unwrap();
        assert_eq!(a.nrows(), 24 * unknowns);
        for c in 0..unknowns {
            let moved =
                Stencil::upwind(3, peclet * (c + 1) as f64 / unknowns as f64).unwrap().on_grid::<f64>(size).unwrap();
            let still = Stencil::star(3, 1).unwrap().on_grid::<f64>(size).unwrap();
            for p in 0..24 {
                let (cols, values) = a.row(p * unknowns + c);
                let mut entries = 0;
                for (&j, &moved) in moved.row(p).0.iter().zip(moved.row(p).1) {
                    for other in 0..unknowns {
                        let same = other == c;
                        let expected = match coupling {
                            Coupling::Full => 0.25 * still.get(p, j as usize).unwrap() + if same { moved } else { 0.0 },
                            Coupling::Point if j as usize == p && same => moved + (unknowns - 1) as f64,
                            Coupling::Point if j as usize == p => -1.0,
                            Coupling::Point if same => moved,
                            Coupling::Point => continue,
                        };
                        let col = j as usize * unknowns + other;
                        assert_eq!(
                            (cols[entries] as usize, values[entries]),
                            (col, expected),
                            "{unknowns} {coupling:?}"
                        );
                        entries += 1;
                    }
                }
                assert_eq!(entries, cols.len());
            }
        }
        // The symmetric part is positive definite.
        let mut sum = Triplets::new(a.nrows(), a.nrows()).unwrap();
        for i in 0..a.nrows() {
            let (cols, values) = a.row(i);
            for (&j, &v) in cols.iter().zip(values) {
                let other = a.get(j as usize, i).unwrap();
                sum.push(i, j as usize, v + other).unwrap();
            }
        }
        assert!(!a.is_symmetric() && is_positive_definite(&sum.to_csr().unwrap()), "{unknowns} {coupling:?}");
    }
    for wrong in [System::elasticity(1, 0.3), System::elasticity(2, 0.5), System::densities(3, 0, Coupling::Full, 0.0)]
    {
        assert!(matches!(wrong, Err(Error::Invalid { format: "stencil", .. })));
    }
    assert!(System::densities(4, 2, Coupling::Full, 0.0).is_err());
}

#[test]
fn ranges_of_rows_are_those_of_the_whole_matrix() {
    let specs = [
        "d3n27:7x6x5",
        "convdiff2d:13,peclet=2",
        "elasticity3d:4",
        "system2d:9,b=3,coupling=full",
        "tridiag:40",
        "banded:n=90,d=9",
        "gfem:n=60,p=2",
        "randspd:n=50,density=0.1,cond=100",
        "powerlaw:n=120",
        "random:n=110,nnz_per_row=6,seed=5",
        "electrostatic:n=200",
    ];
    for text in specs {
        let spec = Spec::parse(text).unwrap();
        let whole = spec.build::<f64>().unwrap();
        let n = whole.nrows();
        assert_eq!(spec.nrows(), n, "{text}");
        for range in [0..n, 0..0, n..n, 0..1, n - 1..n, n / 3..n / 2] {
            let some = spec.build_rows::<f64>(range.clone()).unwrap();
            assert_eq!((some.nrows(), some.ncols()), (range.len(), n), "{text}");
            for i in 0..some.nrows() {
                assert_eq!(some.row(i), whole.row(range.start + i), "{text}, row {i} of {range:?}");
            }
            if let Some(before) = spec.entries_before(range.start) {
                assert_eq!(before, u64::from(whole.row_ptr()[range.start]), "{text} before {}", range.start);
            }
        }
        assert!(spec.build_rows::<f64>(0..n + 1).is_err(), "{text}");
    }
}
