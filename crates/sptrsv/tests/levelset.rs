//! The order of execution is a permutation in which every dependency comes earlier. Slices have every entry once, and
//! segments have every slice once. Solved slice by slice as in the kernels, it has the bits of the serial solve. There
//! is one drawing.

use std::sync::Arc;

use proptest::prelude::*;
use spandrel_formats::{Csr, PADDING, Triplets, generate};
use spandrel_sptrsv::chains::{CHAIN, HEAD, LONG};
use spandrel_sptrsv::levelset::{LANES, Schedule, Slice, Span};
use spandrel_sptrsv::{Diagonal, Error, Levels, Levelset, Plan, System, Systems, Triangle, Triangular, serial, split};

fn matrix(n: usize, entries: impl IntoIterator<Item = (usize, usize, f64)>) -> Csr<f64> {
    let mut triplets = Triplets::new(n, n).expect("small");
    for (i, j, v) in entries {
        triplets.push(i, j, v).expect("inside");
    }
    triplets.to_csr().expect("small")
}

fn part(a: &Csr<f64>, triangle: Triangle) -> Csr<f64> {
    let parts = split(a).expect("square");
    if triangle == Triangle::Lower { parts.lower } else { parts.upper }
}

fn plan(a: &Csr<f64>, triangle: Triangle, diagonal: Diagonal, systems: Systems) -> Levelset<f64> {
    let t = Triangular::new(part(a, triangle), triangle, diagonal).expect("a triangle");
    Levelset::analyze(Arc::new(t), systems).expect("any triangle has levels")
}

/// Walks through the schedule as the kernels do: x by position, entries by place, those of a row's own chain by its
/// link.
fn solve_by_slices(plan: &Levelset<f64>, system: System, b: &[f64]) -> Vec<f64> {
    let schedule = plan.schedule(system).expect("analysed");
    let index = schedule.index(&plan.rows().view(system).expect("analysed"));
    let (values, inv) = (plan.matrix().csr().values(), plan.matrix().inv_diag());
    let mut known = vec![f64::NAN; b.len()];
    let mut x = vec![f64::NAN; b.len()];
    for &slice in schedule.slices() {
        let Slice { first, position, rows, far, near, .. } = Slice::of(slice);
        let mut chain = 0;
        for lane in 0..rows {
            let p = (position + lane) as usize;
            let row = schedule.order()[p] as usize;
            let mut s = b[row];
            let place = |k: u32| (first + k * rows + lane) as usize;
            for place in (0..far).map(place) {
                if index.cols[place] != PADDING {
                    s = (-values[index.from[place] as usize]).mul_add(known[index.cols[place] as usize], s);
                }
            }
            let link = if near > 0 { schedule.links()[p] } else { HEAD };
            if link == HEAD {
                chain = p;
            }
            for (step, t) in (far..).zip((0..CHAIN - 1).filter(|t| link >> t & 1 == 1)) {
                s = (-values[index.from[place(step)] as usize]).mul_add(known[chain + t], s);
            }
            known[p] = if inv.is_empty() { s } else { s * inv[row] };
            x[row] = known[p];
        }
    }
    x
}

/// T^T as a separate triangle.
fn transposed(t: &Triangular<f64>) -> Triangular<f64> {
    Triangular::new(t.csr().transpose(), t.triangle().transposed(), t.diagonal()).expect("a triangle")
}

fn check(plan: &Levelset<f64>, system: System) {
    let t = match system {
        System::Plain => plan.matrix().as_ref().clone(),
        System::Transposed => transposed(plan.matrix()),
    };
    let n = t.nrows();
    let schedule = plan.schedule(system).expect("analysed");
    let mut sorted = schedule.order().to_vec();
    sorted.sort_unstable();
    assert!(sorted.iter().map(|&row| row as usize).eq(0..n), "a permutation");

    let levels = Levels::of(t.csr(), t.triangle()).expect("square");
    assert!(schedule.levels() <= levels.count(), "chains have no more levels than rows");
    if schedule.links().is_empty() {
        assert_eq!(levels.level_ptr(), schedule.level_ptr());
    }
    let level = |p: u32| schedule.level_ptr().partition_point(|&begin| begin <= p);

    let index = schedule.index(&plan.rows().view(system).expect("analysed"));
    assert_eq!((index.cols.len(), index.from.len()), (schedule.places(), schedule.places()));
    let (mut place, mut position) = (0, 0);
    for &slice in schedule.slices() {
        let Slice { first, position: begin, rows, far, near, links } = Slice::of(slice);
        assert_eq!((first, begin), (place, position), "slices stand side by side");
        assert!(rows >= 1 && rows as usize <= LANES);
        assert!(far as usize <= LONG || rows == 1, "a long row is alone");
        assert_eq!(level(begin), level(begin + rows - 1), "a slice is of one level");
        let cols = &index.cols[first as usize..][..Slice::of(slice).places()];
        let (others, own) = cols.split_at((far * rows) as usize);
        let before = schedule.level_ptr()[level(begin) - 1];
        assert!(others.iter().all(|&j| j == PADDING || j < before), "a chain needs levels before its own alone");
        assert!(!schedule.is_linked(begin as usize), "a slice begins with a chain");
        let (mut head, mut longest) = (begin, 0);
        for lane in 0..rows {
            let p = begin + lane;
            let link = schedule.links().get(p as usize).copied().unwrap_or(HEAD);
            if link == HEAD {
                head = p;
            } else {
                let [this, last] = [p, p - 1].map(|p| schedule.order()[p as usize] as usize);
                assert_eq!(this.abs_diff(last), 1, "rows of a chain are neighbours");
                assert!((p - head) < CHAIN as u32 && link >> (p - head) == 0, "a row needs those before it");
                longest = longest.max(p - head);
            }
            let mut found: Vec<u32> = (0..near).map(|k| own[(k * rows + lane) as usize]).collect();
            found.retain(|&j| j != PADDING);
            let linked: Vec<u32> = (0..31).filter(|t| link >> t & 1 == 1).map(|t| head + t).collect();
            assert_eq!(found, linked, "what a row needs of its own chain, in the order of its sum");
        }
        assert_eq!(longest, links);
        (place, position) = (place + rows * (far + near), position + rows);
    }
    assert_eq!((place as usize, position as usize), (schedule.places(), n));
    let off: usize = (0..n).map(|i| t.off_diagonal(i).0.len()).sum();
    assert_eq!(index.cols.iter().filter(|&&j| j != PADDING).count(), off);
    assert!(schedule.places() <= 2 * off + 4 * n, "padding is bounded");

    let (mut slices, mut positions) = (0, 0);
    for segment in schedule.segments() {
        assert_eq!((segment.slices.start, segment.positions.start), (slices, positions));
        assert!(!segment.slices.is_empty());
        assert_eq!(schedule.slices()[slices][1] as usize, positions);
        (slices, positions) = (segment.slices.end, segment.positions.end);
    }
    assert_eq!((slices, positions), (schedule.slices().len(), n));

    let b: Vec<f64> = (0..n).map(|i| (i as f64 + 0.25).sin()).collect();
    let mut expected = vec![0.0; n];
    serial::solve(&t, &b, &mut expected).expect("lengths fit");
    let found = solve_by_slices(plan, system, &b);
    assert!(found.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()), "the bits of the serial solve");
}

fn check_all(a: &Csr<f64>) {
    for triangle in [Triangle::Lower, Triangle::Upper] {
        for diagonal in [Diagonal::NonUnit, Diagonal::Unit] {
            let plan = plan(a, triangle, diagonal, Systems::Both);
            check(&plan, System::Plain);
            check(&plan, System::Transposed);
        }
    }
}

proptest! {
    #[test]
    fn random_triangles(n in 1usize..120, seed in prop::collection::vec((0usize..120, 0usize..120, -1.0f64..1.0), 0..600)) {
        let off = seed.into_iter().filter(|&(i, j, _)| i != j && i < n && j < n);
        check_all(&matrix(n, (0..n).map(|i| (i, i, 1.5 + (i % 3) as f64)).chain(off)));
    }
}

#[test]
fn shapes_at_the_edges() {
    let diagonal = |n: usize| (0..n).map(|i| (i, i, 2.0));
    check_all(&matrix(0, []));
    check_all(&matrix(1, diagonal(1)));
    check_all(&matrix(200, diagonal(200)));
    // A chain, an arrow, a dense last row, a dense triangle.
    check_all(&matrix(
        150,
        diagonal(150).chain((0..150).flat_map(|i| (0..i).map(move |j| (i, j, 1.0 / (1 + i + j) as f64)))),
    ));
    check_all(&matrix(300, diagonal(300).chain((1..300).flat_map(|i| [(i, i - 1, 0.5), (i - 1, i, -0.5)]))));
    check_all(&matrix(300, diagonal(300).chain((1..300).flat_map(|i| [(i, 0, 0.5), (0, i, -0.5)]))));
    check_all(&matrix(300, diagonal(300).chain((0..299).flat_map(|i| [(299, i, 0.5), (i, 299, -0.5)]))));
    // Lengths just below and above the longest row of one lane, in one level.
    let lengths = (100..170).flat_map(|i| (0..i - 100 + 5).map(move |j| (i, j, 1.0 / (1 + i + j) as f64)));
    check_all(&matrix(170, diagonal(170).chain(lengths)));
    check_all(&generate::csr("poisson3d:9x8x7").expect("a known generator"));
}

#[test]
fn wide_levels_go_to_the_grid_and_thin_ones_to_a_thread_block() {
    let spans = |a: &Csr<f64>| -> Vec<Span> {
        let plan = plan(a, Triangle::Lower, Diagonal::Unit, Systems::Plain);
        plan.schedule(System::Plain).expect("analysed").segments().iter().map(|s| s.span).collect()
    };
    let chain = |n: usize, links: usize| (n - links..n).map(|i| (i, i - 1, 0.5));
    assert_eq!(spans(&matrix(1000, chain(1000, 999))), [Span::Grid], "rows of chains hand x on by themselves");
    assert_eq!(spans(&matrix(1_000_000, [])), [Span::Grid]);
    assert_eq!(spans(&matrix(1_000_000, chain(1_000_000, 500))), [Span::Grid, Span::Block]);
    assert_eq!(spans(&matrix(1_000_000, chain(1_000_000, 2))), [Span::Grid], "two levels are not worth a change");
}

#[test]
fn unknowns_of_a_point_are_one_chain() {
    let levels = |spec: &str| {
        let a: Csr<f64> = generate::csr(spec).expect("a known generator");
        let plan = plan(&a, Triangle::Lower, Diagonal::NonUnit, Systems::Plain);
        let rows = Levels::of(plan.matrix().csr(), Triangle::Lower).expect("square").count();
        (rows, plan.schedule(System::Plain).expect("analysed").levels())
    };
    let (rows, chains) = levels("elasticity2d:12x9");
    assert!(3 * chains <= 2 * rows, "{chains} levels of chains, {rows} of rows");
    assert_eq!(levels("poisson1d:640"), (640, 20), "32 rows a chain");
}

#[test]
fn narrow_levels_are_spread_over_slices_of_few_rows() {
    let rows = |width: usize| {
        let a = matrix(
            3 * width,
            (0..3 * width).map(|i| (i, i, 2.0)).chain((width..3 * width).map(|i| (i, i - width, 0.5))),
        );
        let plan = plan(&a, Triangle::Lower, Diagonal::Unit, Systems::Plain);
        let schedule = plan.schedule(System::Plain).expect("analysed");
        assert!(schedule.links().is_empty());
        (schedule.is_narrow(), schedule.slices().iter().map(|&slice| Slice::of(slice).rows).max())
    };
    assert_eq!(rows(100), (true, Some(8)));
    assert_eq!(rows(1000), (true, Some(15)), "about 64 slices");
    assert_eq!(rows(2000), (false, Some(32)));
}

#[test]
fn chains_are_no_longer_than_pays() {
    let longest = |spec: &str| {
        let a: Csr<f64> = generate::csr(spec).expect("a known generator");
        let plan = plan(&a, Triangle::Lower, Diagonal::NonUnit, Systems::Plain);
        let schedule = plan.schedule(System::Plain).expect("analysed");
        schedule.slices().iter().map(|&slice| Slice::of(slice).links + 1).max()
    };
    // A wave passes through a grid. With chains of a whole line, everything behind would wait for their ends.
    assert_eq!(longest("elasticity2d:100x100"), Some(8));
    assert_eq!(longest("poisson3d:30x30x30"), Some(8));
    assert_eq!(longest("system3d:20,b=3"), Some(1));
    // Nothing passes a band.
    assert_eq!(longest("banded:n=3000,d=33"), Some(32));
}

#[test]
fn rows_that_would_wait_longer_join_no_chain() {
    // Row 3 needs row 2, and row 1, which is a level later than what row 2 needs.
    let a = matrix(4, (0..4).map(|i| (i, i, 2.0)).chain([(1, 0, 1.0), (3, 1, 1.0), (3, 2, 1.0)]));
    let plan = plan(&a, Triangle::Lower, Diagonal::Unit, Systems::Plain);
    let schedule = plan.schedule(System::Plain).expect("analysed");
    assert_eq!((schedule.order(), schedule.level_ptr()), (&[0, 1, 2, 3][..], &[0, 3, 4][..]));
    let linked: Vec<bool> = (0..4).map(|p| schedule.is_linked(p)).collect();
    assert_eq!(linked, [false, true, false, false]);
}

#[test]
fn new_values_need_no_new_analysis() {
    let a: Csr<f64> = generate::csr("poisson2d:17x11").expect("a known generator");
    let mut plan = plan(&a, Triangle::Lower, Diagonal::NonUnit, Systems::Both);
    let before = Arc::clone(plan.schedule(System::Plain).expect("analysed"));
    let values: Vec<f64> = plan.matrix().csr().values().iter().enumerate().map(|(e, v)| v + e as f64 / 512.0).collect();
    plan.update(&values).expect("no zero on the diagonal");
    assert!(Arc::ptr_eq(&before, plan.schedule(System::Plain).expect("analysed")));
    check(&plan, System::Plain);
    check(&plan, System::Transposed);
    assert!(matches!(plan.update(&values[1..]), Err(Error::Shape { .. })));
}

#[test]
fn the_transposed_system_is_analysed_where_it_was_asked_for() {
    let plan = plan(&matrix(2, [(1, 0, 1.0)]), Triangle::Lower, Diagonal::Unit, Systems::Plain);
    assert!(matches!(plan.schedule(System::Transposed), Err(Error::NotAnalyzed)));
}

fn drawing(schedule: &Schedule, plan: &Levelset<f64>, system: System) -> String {
    let index = schedule.index(&plan.rows().view(system).expect("analysed"));
    let mut text = format!("order {:?}\nlevel_ptr {:?}\n", schedule.order(), schedule.level_ptr());
    for &slice in schedule.slices() {
        let Slice { first, position, rows, far, near, .. } = Slice::of(slice);
        text += &format!("places from {first}, positions from {position}: {rows} rows of {far} and {near}\n");
        for lane in 0..rows {
            let entry = |k: u32| {
                let place = (first + k * rows + lane) as usize;
                match index.cols[place] {
                    PADDING => "   .   ".to_owned(),
                    col => format!("{col}<-v{:<2} ", index.from[place]),
                }
            };
            let entries: String = (0..far + near).map(entry).collect();
            text += format!("  {} | {entries}", schedule.order()[(position + lane) as usize]).trim_end();
            text += "\n";
        }
    }
    text += &format!("links {:?}\n", schedule.links());
    text + &format!("{:?}\n", schedule.segments())
}

#[test]
fn slices_of_a_6x6() {
    // A 3 x 2 grid with the five-point stencil, numbered along the lines, and row 5 needs row 0 too.
    let neighbours = [(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5), (0, 5)];
    let a = matrix(6, (0..6).map(|i| (i, i, 4.0)).chain(neighbours.into_iter().map(|(j, i)| (i, j, -1.0))));
    let plan = plan(&a, Triangle::Lower, Diagonal::NonUnit, Systems::Both);
    let draw = |system| drawing(plan.schedule(system).expect("both"), &plan, system);
    insta::assert_snapshot!(format!("T\n{}T^T\n{}", draw(System::Plain), draw(System::Transposed)));
}
