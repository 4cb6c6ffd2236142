//! Generators: each against a plain loop or the property that it promises, and every specification that is wrong.

use spandrel_formats::generate::{Stencil, csr, is_spec, list};
use spandrel_formats::{Csr, Error, Format, Triplets};

/// The stencil's matrix by the definition, one point at a time.
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
        (Stencil::star(3, 1), 7),
        (Stencil::star(3, 2), 13),
        (Stencil::cubic(3), 27),
        (Stencil::d3n33(), 33),
        (Stencil::star(1, 1), 3),
        (Stencil::star(2, 1), 5),
        (Stencil::cubic(2), 9),
        (Stencil::upwind(3, 10.0), 7),
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
    assert_eq!(Stencil::star(3, 1).on_grid::<f64>([4, 0, 4]).unwrap().nrows(), 0);
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
    ] {
        assert!(matches!(csr::<f64>(spec), Err(Error::TooLarge { .. })), "{spec}");
    }
}

#[test]
fn a_specification_is_told_from_a_path() {
    for spec in ["d3n7:64", "poisson2d:33x17", "unknown:5", "d3n7", "tridiag:"] {
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
