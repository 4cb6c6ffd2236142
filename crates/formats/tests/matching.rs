//! Equilibration and matching of real matrices: bounds on the scaled entries, the known structural ranks, and the time.

use std::path::Path;
use std::time::Instant;

use spandrel_formats::{Csr, Equilibration, Matched, Ordinal, Permutation, matrix_market, maximum_product};

/// Square matrices beside the checkout, by name, with their known structural rank.
fn real() -> Option<Vec<(String, Csr<f64>, Option<usize>)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = ["shared/matrices", "../shared/matrices"].map(|f| root.join(f)).into_iter().find(|f| f.exists())?;
    let index = std::fs::read_to_string(folder.join("INDEX.tsv")).ok()?;
    // Only the small ones, unless all are requested: at opt-level 0 the others take a minute.
    let is_whole = std::env::var_os("SPANDREL_SUITE").is_some_and(|asked| asked == "whole");
    let most = if is_whole { usize::MAX } else { 2000 };
    let mut all = Vec::new();
    for line in index.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        if fields[1] != fields[2] || fields[4] == "complex" || fields[1].parse::<usize>().is_ok_and(|rows| rows > most)
        {
            continue;
        }
        let rank = line.split_once("structural rank ").map(|(_, rest)| rest.split(' ').next().unwrap_or(rest));
        let read = matrix_market::read_csr::<f64>(&folder.join(format!("{}.mtx.gz", fields[0])));
        all.push((fields[0].to_owned(), read.expect("a matrix"), rank.map(|rank| rank.parse().expect("a number"))));
    }
    Some(all)
}

/// Rows in another order, the same on every machine.
fn shuffled(a: &Csr<f64>) -> Csr<f64> {
    let mut perm: Vec<Ordinal> = (0..a.nrows() as Ordinal).collect();
    perm.sort_by_key(|&i| (u64::from(i) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
    Permutation::new(perm).expect("a bijection").permute_rows(a).expect("square")
}

#[test]
fn real_matrices_are_matched() {
    let Some(matrices) = real() else {
        println!("skipped: no shared/matrices in or beside this checkout");
        return;
    };
    for (name, a, rank) in &matrices {
        let n = a.nrows();
        let start = Instant::now();
        let found = maximum_product(a).expect("finite");
        let first = start.elapsed();
        let moved = shuffled(a);
        let start = Instant::now();
        let again = maximum_product(&moved).expect("finite");
        println!("{name}: n {n}, nnz {}, {first:.1?}, rows shuffled {:.1?}", a.nnz(), start.elapsed());
        match (found, again) {
            (Matched::Whole(found), Matched::Whole(again)) => {
                assert!(rank.is_none(), "{name}");
                // The optimum does not depend on the order of the rows, and integers have no rounding.
                assert_eq!(found.log2_product, again.log2_product, "{name}");
                for (a, found) in [(a, &found), (&moved, &again)] {
                    let (scaled, _) = found.scaling.apply(a).expect("the same shape");
                    assert!(scaled.values().iter().all(|v| v.abs() <= 1.0), "{name}");
                    let diagonal = found.rows.permute_rows(&scaled).expect("square").diagonal();
                    assert!(diagonal.iter().all(|v| v.abs() > 0.25), "{name}");
                }
            }
            (Matched::Deficient(found), Matched::Deficient(again)) => {
                assert_eq!((found.rank, again.rank), (rank.unwrap_or(found.rank), found.rank), "{name}");
            }
            _ => panic!("{name}: another structural rank with rows shuffled"),
        }
    }
}

#[test]
fn real_matrices_are_equilibrated() {
    let Some(matrices) = real() else {
        println!("skipped: no shared/matrices in or beside this checkout");
        return;
    };
    for (name, a, _) in &matrices {
        let start = Instant::now();
        let by = Equilibration::general(a).expect("finite");
        println!("{name}: {:.1?}", start.elapsed());
        let (scaled, lost) = by.apply(a).expect("the same shape");
        assert!(lost.is_none() && scaled.values().iter().all(|v| v.abs() < 1.0), "{name}");
        let largest = |row: usize| scaled.row(row).1.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
        assert!((0..a.nrows()).all(|i| largest(i) >= 0.5 || largest(i) == 0.0), "{name}");
        let both = Equilibration::symmetric(a).expect("square").apply(a).expect("the same shape").0;
        assert!(!a.is_symmetric() || both.is_symmetric(), "{name}");
    }
}
