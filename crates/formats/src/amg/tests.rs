//! Properties that any set of roots, any aggregates and any prolongation must have.

use super::*;
use crate::{Csr, Triplets, generate, product};

/// Nodes within two steps of a node, and the node.
fn within_two(graph: &Strength, node: usize) -> Vec<usize> {
    let mut all = vec![node];
    for &near in graph.neighbours(node) {
        all.push(near as usize);
        all.extend(graph.neighbours(near as usize).iter().map(|&far| far as usize));
    }
    all
}

fn graphs() -> Vec<(String, Csr<f64>, Strength)> {
    let cases = [
        ("poisson2d:17x9", 1, 0.25),
        ("poisson3d:9", 1, 0.0),
        ("d3n27:7", 1, 0.25),
        ("electrostatic:n=600", 1, 0.25),
        ("powerlaw:n=400,alpha=2.1", 1, 0.0),
        ("elasticity2d:8", 2, 0.1),
        ("elasticity3d:5", 3, 0.1),
        ("poisson1d:1", 1, 0.25),
    ];
    let graph = |&(spec, unknowns, theta): &(&str, usize, f64)| {
        let a = generate::csr::<f64>(spec).expect(spec);
        let graph = Strength::of(&a, unknowns, theta).expect(spec);
        (spec.to_string(), a, graph)
    };
    cases.iter().map(graph).collect()
}

#[test]
fn roots_are_apart_and_nothing_is_far_from_one() {
    for (spec, a, graph) in graphs() {
        let found = roots(&graph);
        let is_root = |node: usize| found.binary_search(&(node as u32)).is_ok();
        let is_symmetric = a.transpose().values() == a.values();
        for node in 0..graph.nodes() {
            let near = within_two(&graph, node).into_iter().filter(|&other| is_root(other)).count();
            let expected = usize::from(!graph.neighbours(node).is_empty());
            assert!(near >= expected, "{spec}: node {node} has no root");
            assert!(!is_symmetric || !is_root(node) || near == 1 + repeated(&graph, node), "{spec}: node {node}");
        }
    }
}

/// How many walks of two steps lead from a node back to it.
fn repeated(graph: &Strength, node: usize) -> usize {
    within_two(graph, node).iter().skip(1).filter(|&&other| other == node).count()
}

#[test]
fn every_coupled_node_has_an_aggregate_next_to_it() {
    for (spec, a, graph) in graphs() {
        let aggregates = Aggregates::of(&graph, &a);
        let mut sizes = vec![0; aggregates.count()];
        for (node, &to) in aggregates.assignment().iter().enumerate() {
            assert_eq!(to == UNASSIGNED, graph.neighbours(node).is_empty(), "{spec}: node {node}");
            if to != UNASSIGNED {
                sizes[to as usize] += 1;
            }
        }
        assert!(sizes.iter().all(|&size| size > 0), "{spec}: an aggregate is empty");
    }
}

#[test]
fn any_number_of_threads_comes_to_the_same() {
    for (spec, a, graph) in graphs() {
        let make = || {
            let aggregates = Aggregates::of(&graph, &a);
            let ones = vec![1.0; a.nrows()];
            let tentative = Tentative::of(&aggregates, graph.unknowns(), &ones, 1).unwrap();
            (aggregates.clone(), smoothed(&a, &graph, &aggregates, &tentative).unwrap())
        };
        let alone = make();
        for threads in [1, 2, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert!(pool.install(make) == alone, "{spec}, {threads} threads");
        }
    }
}

#[test]
fn the_prolongation_keeps_what_the_matrix_maps_to_zero() {
    // A Laplacian with Neumann sides and jumping couplings: rows sum to zero, and constants are interpolated exactly.
    let n = 400;
    let mut triplets = Triplets::new(n, n).unwrap();
    let mut couple = |i: usize, j: usize, by: f64| {
        for (row, col, value) in [(i, i, by), (j, j, by), (i, j, -by), (j, i, -by)] {
            triplets.push(row, col, value).unwrap();
        }
    };
    for i in 0..n {
        if i % 20 != 19 {
            couple(i, i + 1, if i % 3 == 0 { 1e-3 } else { 1.0 });
        }
        if i + 20 < n {
            couple(i, i + 20, 1.0);
        }
    }
    let a = triplets.to_csr().unwrap();
    let graph = Strength::of(&a, 1, 0.25).unwrap();
    let aggregates = Aggregates::of(&graph, &a);
    let ones = vec![1.0; n];
    let tentative = Tentative::of(&aggregates, 1, &ones, 1).unwrap();
    assert!(tentative.dropped().is_empty());
    let p = smoothed(&a, &graph, &aggregates, &tentative).unwrap();
    let constant = p.mul_vec(tentative.coarse()).unwrap();
    // P of the coarse vector differs from the vector by omega E^-1 A_f 1. That is zero except for rounding: 5 terms
    // below 2.
    assert!(constant.iter().all(|v| (v - 1.0).abs() <= 32.0 * f64::EPSILON), "{constant:?}");
    let coarse = product(&p.transpose(), &product(&a, &p).unwrap()).unwrap();
    assert_eq!(coarse.nrows(), aggregates.count());
}

#[test]
fn columns_that_depend_on_others_are_dropped() {
    let a = generate::csr::<f64>("poisson2d:12").unwrap();
    let graph = Strength::of(&a, 1, 0.0).unwrap();
    let aggregates = Aggregates::of(&graph, &a);
    let count = aggregates.count();
    let twice: Vec<f64> = std::iter::repeat_n(1.0, 144).chain(std::iter::repeat_n(3.0, 144)).collect();
    let tentative = Tentative::of(&aggregates, 1, &twice, 2).unwrap();
    assert_eq!(tentative.dropped(), (0..count).map(|aggregate| 2 * aggregate + 1).collect::<Vec<_>>());
    // The coarse vectors still lead back to the fine ones.
    let coarse = tentative.coarse();
    for (node, &to) in aggregates.assignment().iter().enumerate() {
        for c in 0..2 {
            let back: f64 = (0..2).map(|k| tentative.row(node)[k] * coarse[c * 2 * count + 2 * to as usize + k]).sum();
            assert!((back - twice[c * 144 + node]).abs() <= 64.0 * f64::EPSILON, "{node} {c}");
        }
    }
}

#[test]
fn wrong_sizes_are_refused() {
    let a = generate::csr::<f64>("poisson2d:5").unwrap();
    assert!(Strength::of(&a, 2, 0.0).is_err() && Strength::of(&a, 0, 0.0).is_err());
    let graph = Strength::of(&a, 5, 0.0).unwrap();
    let aggregates = Aggregates::of(&graph, &a);
    assert!(Tentative::of(&aggregates, 5, &[1.0; 24], 1).is_err());
    assert!(Tentative::<f64>::of(&aggregates, 5, &[], 0).is_err());
}

#[test]
fn the_prolongation_is_the_product_of_the_filter_and_the_tentative_one() {
    for (spec, a, graph) in graphs() {
        let (n, unknowns) = (a.nrows(), graph.unknowns());
        let aggregates = Aggregates::of(&graph, &a);
        let near_null: Vec<f64> = (0..2 * n).map(|k| ((k * 37) % 101) as f64 / 50.0 - 0.9).collect();
        let tentative = Tentative::of(&aggregates, unknowns, &near_null, 2).unwrap();
        let assigned = |row: usize| aggregates.assignment()[row / unknowns];
        let mut t = Triplets::new(n, 2 * aggregates.count()).unwrap();
        let mut f = Triplets::new(n, n).unwrap();
        for row in (0..n).filter(|&row| assigned(row) != UNASSIGNED) {
            for c in 0..2 {
                t.push(row, 2 * assigned(row) as usize + c, tentative.row(row)[c]).unwrap();
            }
            // E of the row: its diagonal with the weak entries of its unknown, or half of all magnitudes.
            let node = row / unknowns;
            let is_strong = |j: usize| graph.neighbours(node).contains(&((j / unknowns) as u32));
            let entries: Vec<(usize, f64)> =
                a.row(row).0.iter().map(|&j| j as usize).zip(a.row(row).1.iter().copied()).collect();
            let mut own = vec![0.0; unknowns];
            entries.iter().filter(|(j, _)| !is_strong(*j)).for_each(|(j, v)| own[j % unknowns] += v);
            let strong = || entries.iter().filter(|(j, _)| is_strong(*j));
            let others = (0..unknowns).filter(|k| *k != row % unknowns);
            let beside = others.fold(strong().fold(0.0, |sum, (_, v)| sum + v.abs()), |sum, k| sum + own[k].abs());
            let diagonal = own[row % unknowns];
            let scale = -OMEGA / diagonal.max(0.5 * (diagonal.abs() + beside));
            strong().for_each(|&(j, v)| f.push(row, j, scale * v).unwrap());
            for (k, v) in own.iter().enumerate() {
                let identity = if k == row % unknowns { 1.0 } else { 0.0 };
                f.push(row, node * unknowns + k, scale.mul_add(*v, identity)).unwrap();
            }
        }
        let (f, t) = (f.to_csr().unwrap(), t.to_csr().unwrap());
        let p = smoothed(&a, &graph, &aggregates, &tentative).unwrap();
        assert_eq!(p, product(&f, &t).unwrap(), "{spec}");
    }
}

#[test]
fn new_values_of_a_prolongation_have_the_bits_of_a_new_one() {
    for (spec, a, graph) in graphs() {
        let (n, unknowns) = (a.nrows(), graph.unknowns());
        let aggregates = Aggregates::of(&graph, &a);
        let near_null: Vec<f64> = (0..2 * n).map(|k| ((k * 37) % 101) as f64 / 50.0 - 0.9).collect();
        let tentative = Tentative::of(&aggregates, unknowns, &near_null, 2).unwrap();
        let mut p = smoothed(&a, &graph, &aggregates, &tentative).unwrap();
        let other = a.map_entries(|i, j, v| v * (1.0 + ((i * 7 + j * 11) % 13) as f64 / 16.0));
        p.values_mut().fill(f64::NAN);
        smooth_again(&other, &graph, &aggregates, &tentative, &mut p).unwrap();
        assert_eq!(p, smoothed(&other, &graph, &aggregates, &tentative).unwrap(), "{spec}");
        // A matrix of another size is refused, and another pattern harms nothing.
        let larger = generate::csr::<f64>("poisson2d:50").unwrap();
        assert!(n == 2500 || smooth_again(&larger, &graph, &aggregates, &tentative, &mut p).is_err());
        let full = Csr::from_triplets(n, n, (0..n).flat_map(|i| [(i, 0, 1.0), (i, n - 1 - i, 2.0)])).unwrap();
        smooth_again(&full, &graph, &aggregates, &tentative, &mut p).unwrap();
    }
}
