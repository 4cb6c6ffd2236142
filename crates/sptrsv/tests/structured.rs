//! The structured plan on the host: the grids that it takes, its storage, and its refusals.

use std::sync::Arc;

use spandrel_formats::{Csr, Triplets};
use spandrel_sptrsv::{Diagonal, Error, Plan, Stages, Structured, Sweep, System, Systems, Triangle, Triangular, split};

/// A box of radius 1 on X x Y x Z points. If `far` is set, the axes have the distance 2.
fn stencil([nx, ny, nz]: [usize; 3], far: bool) -> Csr<f64> {
    let n = nx * ny * nz;
    let mut triplets = Triplets::new(n, n).expect("small");
    let size = [nx, ny, nz].map(|extent| extent as i64);
    for r in 0..n as i64 {
        let at = [r % size[0], r / size[0] % size[1], r / size[0] / size[1]];
        for dz in -2i64..=2 {
            for dy in -2i64..=2 {
                for dx in -2i64..=2 {
                    let d = [dx, dy, dz];
                    let near = d.iter().all(|d| d.abs() <= 1);
                    let axis = d.iter().filter(|&&d| d != 0).count() == 1;
                    let inside = (0..3).all(|k| (0..size[k]).contains(&(at[k] + d[k])));
                    if inside && (near || far && axis) {
                        let value = if d == [0; 3] { 30.0 } else { -1.0 };
                        triplets
                            .push(r as usize, (r + dx + size[0] * (dy + size[1] * dz)) as usize, value)
                            .expect("inside");
                    }
                }
            }
        }
    }
    triplets.to_csr().expect("small")
}

fn triangle(size: [usize; 3], far: bool, triangle: Triangle) -> Arc<Triangular<f64>> {
    let parts = split(&stencil(size, far)).expect("square");
    let part = if triangle == Triangle::Lower { parts.lower } else { parts.upper };
    Arc::new(Triangular::new(part, triangle, Diagonal::NonUnit).expect("a triangle"))
}

#[test]
fn the_grid_is_that_of_the_sweep() {
    for which in [Triangle::Lower, Triangle::Upper] {
        for size in [[7, 5, 6], [9, 8, 1]] {
            let matrix = triangle(size, false, which);
            let plan = Structured::analyze(Arc::clone(&matrix), Systems::Plain).expect("a grid");
            let sweep = Sweep::analyze(matrix, Systems::Plain).expect("a grid");
            assert_eq!(plan.size(), size);
            assert_eq!(plan.size(), sweep.lattice().size());
            assert_eq!(plan.stages(), Stages::default());
            assert_eq!(plan.lines(), size[1] * size[2]);
        }
    }
}

#[test]
fn any_grid_with_as_many_points_is_taken() {
    let matrix = triangle([7, 5, 6], true, Triangle::Lower);
    for size in [[210, 1, 1], [1, 210, 1], [1, 1, 210], [21, 5, 2]] {
        let plan = Structured::on_grid(Arc::clone(&matrix), size, Systems::Both).expect("as many points");
        assert_eq!(plan.size(), size);
        assert!(plan.queue_depth() >= 1);
    }
    for (size, found) in [([7, 5, 5], 175), ([0, 5, 6], 0), ([usize::MAX, 2, 1], usize::MAX)] {
        let refused = Structured::on_grid(Arc::clone(&matrix), size, Systems::Plain);
        assert!(
            matches!(refused, Err(Error::Shape { what: "the grid", found: f, expected: 210 }) if f == found),
            "{refused:?}"
        );
    }
    let empty = Csr::<f64>::new(0, 0, vec![0], vec![], vec![]).expect("empty");
    let empty = Arc::new(Triangular::new(empty, Triangle::Lower, Diagonal::Unit).expect("a triangle"));
    assert!(Structured::on_grid(Arc::clone(&empty), [0, 3, 1], Systems::Both).is_ok());
    assert!(matches!(Structured::analyze(empty, Systems::Plain), Err(Error::NotAGrid { plan: "structured", .. })));
}

#[test]
fn no_grid_is_an_error() {
    let mut triplets = Triplets::new(40, 40).expect("small");
    for i in 0..40usize {
        triplets.push(i, i, 1.0).expect("inside");
        if i > 2 {
            triplets.push(i, i * i * 7 % i, 1.0).expect("inside");
        }
    }
    let csr = triplets.to_csr().expect("small");
    let matrix = Arc::new(Triangular::new(csr, Triangle::Lower, Diagonal::NonUnit).expect("a triangle"));
    let refused = Structured::analyze(Arc::clone(&matrix), Systems::Plain);
    assert!(matches!(refused, Err(Error::NotAGrid { plan: "structured", .. })), "{refused:?}");
    assert!(Structured::on_grid(matrix, [8, 5, 1], Systems::Plain).is_ok(), "solved on any grid all the same");
}

#[test]
fn plans_keep_their_parameters_and_count_their_bytes() {
    let matrix = triangle([6, 5, 4], false, Triangle::Upper);
    let plan = Structured::on_grid(Arc::clone(&matrix), [6, 5, 4], Systems::Both).expect("it fits");
    assert_eq!(plan.storage(), plan.rows().storage() + 4 * 120, "a mark a row");
    let all = plan.clone().with_stages(Stages::ALL);
    assert_eq!(all.storage(), all.rows().storage() + 4 * 20, "an integer a line");
    assert_eq!(plan.sptrsv_bytes(), plan.rows().sptrsv_bytes());
    let plain = plan.with_stages(Stages::NONE).with_queue_depth(0);
    assert_eq!((plain.stages(), plain.queue_depth()), (Stages::NONE, 1));
    assert_eq!(plain.storage(), plain.rows().storage() + 4 * 120, "a mark a row");
    assert!(plain.systems().hold(System::Transposed));

    let mut updated = plain;
    let doubled: Vec<f64> = matrix.csr().values().iter().map(|v| 2.0 * v).collect();
    updated.update(&doubled).expect("as many");
    assert_eq!(updated.matrix().csr().values(), doubled);
    assert_eq!(matrix.csr().values()[0], 30.0, "the caller's triangle is its own");
    assert!(matches!(updated.update(&doubled[1..]), Err(Error::Shape { what: "values", .. })));
}
