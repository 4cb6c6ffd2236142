//! Statistics and the choice of a format: counted by hand on small matrices, compared with the built formats on many.

use proptest::prelude::*;
use spandrel_formats::generate::csr;
use spandrel_formats::{
    Bdia, Bsr, Bsrx, Choice, Coo, Csc, Csr, Dense, Dia, Ell, Format, Hec, Hmec, Hyb, Profile, Real, Sell, Stats,
    Symmetry, Traffic, Triplets, choose, for_each_format,
};

fn from_entries(nrows: usize, ncols: usize, entries: &[(usize, usize, f64)]) -> Csr<f64> {
    let mut triplets = Triplets::new(nrows, ncols).unwrap();
    entries.iter().for_each(|&(i, j, v)| triplets.push(i, j, v).unwrap());
    triplets.to_csr().unwrap()
}

fn choice_names(choice: &Choice) -> Vec<&str> {
    choice.candidates.iter().map(|candidate| candidate.name).collect()
}

macro_rules! predictions_hold {
    ([$a:tt $what:tt] $(($stem:ident, $Type:ident)),*) => {
        $({
            let choice = choose($a, &Profile::reference());
            let candidate = choice.candidate(stringify!($stem)).unwrap_or_else(|| panic!("{} is missing", stringify!($stem)));
            match (&candidate.spmv, <$Type<_> as Format>::from_csr($a)) {
                (Ok(bytes), Ok(built)) => assert_eq!(*bytes, built.spmv_bytes(), "{} of {}", stringify!($stem), $what),
                (Err(_), Err(_)) => {}
                (predicted, built) => panic!(
                    "{} of {}: predicted {predicted:?}, built {:?}", stringify!($stem), $what, built.map(|b| b.spmv_bytes())
                ),
            }
        })*
        let choice = choose($a, &Profile::reference());
        assert_eq!(choice_names(&choice), [$(stringify!($stem)),*], "the registry's order");
    };
}

fn check_predictions<T: Real>(a: &Csr<T>, what: &str) {
    for_each_format!(predictions_hold, a, what);
}

#[test]
fn predicted_bytes_are_those_of_the_built_formats() {
    for spec in [
        "d3n7:12",
        "d3n27:9x10x11",
        "d3n33:8",
        "poisson2d:50x31",
        "banded:n=1000,d=33",
        "banded:n=1,d=1",
        "gfem:n=300,p=3",
        "gfem:n=20x30,p=1,dim=2",
        "randspd:n=300,density=0.05,cond=100",
        "convdiff2d:40",
        "powerlaw:n=6000,alpha=2.1",
        "powerlaw:n=5000,alpha=1.8",
        "random:n=1200,nnz_per_row=6",
        "electrostatic:n=1500",
        "tridiag:1500",
    ] {
        check_predictions(&csr::<f64>(spec).unwrap(), spec);
        check_predictions(&csr::<f32>(spec).unwrap(), spec);
    }
    let shapes: [(&str, usize, usize, &[(usize, usize, f64)]); 6] = [
        ("nothing", 0, 0, &[]),
        ("no rows", 0, 7, &[]),
        ("no columns", 7, 0, &[]),
        ("empty rows", 9, 5, &[(3, 4, 1.0)]),
        ("wide", 3, 50, &[(0, 49, 1.0), (2, 0, 0.0), (2, 1, 2.0)]),
        ("tall", 50, 3, &[(49, 0, 1.0), (0, 2, 0.0)]),
    ];
    for (what, nrows, ncols, entries) in shapes {
        check_predictions(&from_entries(nrows, ncols, entries), what);
    }
    // An arrow: one dense row and column, for which padding does not fit.
    let n = 12_000;
    let mut arrow: Vec<_> = (0..n).map(|i| (i, i, 1.0)).collect();
    arrow.extend((1..n).flat_map(|i| [(0, i, 1.0), (i, 0, 1.0)]));
    let arrow = from_entries(n, n, &arrow);
    check_predictions(&arrow, "arrow");
    let choice = choose(&arrow, &Profile::reference());
    for name in ["ell", "dia", "bdia", "dense"] {
        let why = choice.candidate(name).unwrap().spmv.as_ref().unwrap_err();
        assert!(why.contains("20 times"), "{name}: {why}");
    }
}

#[test]
fn the_choice_is_the_fastest_expected_of_those_that_fit() {
    // Cases in which bytes and places agree whatever the costs are: diagonals, also beyond the caches, and everything.
    let cases: [(&str, &[&str]); 4] = [
        ("d3n7:20", &["dia", "bdia"]),
        ("d3n7:70", &["dia", "bdia"]),
        ("banded:n=3000,d=33", &["dia", "bdia"]),
        ("randspd:n=60,density=1,cond=10", &["dense"]),
    ];
    for (spec, expected) in cases {
        let choice = choose(&csr::<f64>(spec).unwrap(), &Profile::reference());
        let least = choice.candidates.iter().filter_map(|c| c.nanoseconds).min_by(f64::total_cmp).unwrap();
        let chosen = choice.candidate(choice.format).unwrap();
        assert_eq!(chosen.nanoseconds, Some(least), "{spec}: {choice}");
        assert!(expected.contains(&choice.format), "{spec}: {choice}");
    }
    // Beyond the caches, formats with equal places differ in their bytes.
    let choice = choose(&csr::<f64>("d3n7:70").unwrap(), &Profile::reference());
    let time = |name| choice.candidate(name).unwrap().nanoseconds.unwrap();
    assert!(time("coo") > time("csr") && time("csr") > time("dia"));
}

#[test]
fn what_never_fits_is_never_chosen() {
    let n = 12_000;
    let mut arrow: Vec<_> = (0..n).map(|i| (i, i, 1.0)).collect();
    arrow.extend((1..n).flat_map(|i| [(0, i, 1.0), (i, 0, 1.0)]));
    let arrow = from_entries(n, n, &arrow);
    for profile in [Profile::reference(), Profile::invented(&[])] {
        let choice = choose(&arrow, &profile);
        for c in &choice.candidates {
            assert_eq!(c.nanoseconds.is_some(), c.spmv.is_ok() && c.name != "bsrx", "{}", c.name);
        }
        assert!(choice.candidate(choice.format).unwrap().spmv.is_ok());
    }
}

#[test]
fn a_device_that_keeps_halves_and_pays_for_long_rows_chooses_by_that() {
    let device = Profile::invented(&[]);
    // A symmetric matrix by diagonals keeps one half: of 7 diagonals 4.
    let symmetric = csr::<f64>("d3n7:70").unwrap();
    let choice = choose(&symmetric, &device);
    let dia = choice.candidate("dia").unwrap();
    let (bytes, vectors) = (*dia.spmv.as_ref().unwrap(), 2 * 8 * symmetric.nrows() as u64);
    assert_eq!(2 * (dia.moved - vectors - 4 * 4), bytes - vectors - 4 * 7 + 8 * symmetric.nrows() as u64);
    assert_eq!(choice.format, "dia");
    assert!(choice.why.contains("4 of them stored"), "{choice}");
    let skewed = choose(&csr::<f64>("convdiff2d:40").unwrap(), &device);
    let dia = skewed.candidate("dia").unwrap();
    assert_eq!(Ok(dia.moved), dia.spmv);
    // The cache matters, and a long row delays formats with one thread per row.
    let time = |a: &Csr<f64>, name| choose(a, &device).candidate(name).unwrap().nanoseconds.unwrap();
    assert!(symmetric.spmv_bytes() > device.memory.resident);
    let small = csr::<f64>("d3n7:40").unwrap();
    let call = device.products.csr.unwrap().call;
    let rate = |a: &Csr<f64>| (time(a, "csr") - call) / a.spmv_bytes() as f64;
    let resident = device.memory.resident_rate.unwrap();
    assert!((resident * rate(&small) / rate(&symmetric) - 1.0).abs() < 1e-12);
    let long: Vec<_> = (0..2000).map(|j| (0, j, 1.0)).chain((1..2000).map(|i| (i, i, 1.0))).collect();
    let long = from_entries(2000, 2000, &long);
    assert!(time(&long, "csr") < time(&long, "sell"));
}

#[test]
fn a_device_that_keeps_no_halves_moves_what_the_format_says() {
    let choice = choose(&csr::<f64>("d3n7:12").unwrap(), &Profile::reference());
    for c in &choice.candidates {
        assert_eq!(c.moved, c.spmv.clone().unwrap_or(0), "{}", c.name);
    }
}

#[test]
fn a_choice_is_one_sentence() {
    let lines: Vec<String> =
        ["d3n7:20", "banded:n=3000,d=33", "powerlaw:n=20000", "randspd:n=60,density=1,cond=10", "tridiag:5"]
            .iter()
            .map(|spec| format!("{spec} -> {}", choose(&csr::<f64>(spec).unwrap(), &Profile::reference())))
            .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn small_statistics_counted_by_hand() {
    let a = from_entries(
        4,
        4,
        &[(0, 0, 2.0), (0, 3, 1.0), (1, 1, -3.0), (1, 0, 1.0), (1, 2, 1.0), (2, 2, 0.0), (2, 1, f64::NAN)],
    );
    let stats = Stats::of(&a).unwrap();
    assert_eq!((stats.nrows, stats.ncols, stats.nnz), (4, 4, 7));
    assert_eq!((stats.lower, stats.upper, stats.diagonals), (1, 3, 4));
    assert_eq!((stats.explicit_zeros, stats.non_finite, stats.symmetry), (1, 1, Symmetry::None));
    let rows = &stats.rows;
    assert_eq!((rows.min, rows.max, rows.empty, rows.mean, rows.variance), (0, 3, 1, 1.75, 1.1875));
    assert_eq!(rows.histogram, [1, 0, 3]);
    assert_eq!(rows.quantiles, [0, 0, 2, 2, 3]);
    let d = stats.diagonal;
    assert_eq!((d.missing, d.zero, d.negative, d.dominant, d.strictly_dominant), (1, 1, 1, 3, 2));
    assert_eq!((stats.density, stats.diagonal_fill, stats.ell_fill), (7.0 / 16.0, 7.0 / 11.0, 7.0 / 12.0));
}

#[test]
fn symmetry_is_exact() {
    let symmetry = |entries: &[(usize, usize, f64)]| Stats::of(&from_entries(3, 3, entries)).unwrap().symmetry;
    assert_eq!(symmetry(&[(0, 1, 2.0), (1, 0, 2.0), (2, 2, 1.0)]), Symmetry::Symmetric);
    assert_eq!(symmetry(&[(0, 1, 2.0), (1, 0, -2.0)]), Symmetry::Skew);
    assert_eq!(symmetry(&[(0, 1, 2.0), (1, 0, -2.0), (2, 2, 0.0)]), Symmetry::Skew);
    assert_eq!(symmetry(&[(0, 1, 2.0), (1, 0, -2.0), (2, 2, 1.0)]), Symmetry::Pattern);
    assert_eq!(symmetry(&[(0, 1, 2.0), (1, 0, 2.0 + 1e-15)]), Symmetry::Pattern);
    assert_eq!(symmetry(&[(0, 1, 2.0)]), Symmetry::None);
    assert_eq!(symmetry(&[]), Symmetry::Symmetric);
    assert_eq!(symmetry(&[(0, 0, f64::NAN)]), Symmetry::Pattern);
    assert_eq!(Stats::of(&from_entries(2, 3, &[(0, 0, 1.0)])).unwrap().symmetry, Symmetry::None);
}

#[test]
fn statistics_of_generated_matrices() {
    let grid = Stats::of(&csr::<f64>("d3n7:10").unwrap()).unwrap();
    assert_eq!((grid.lower, grid.upper, grid.diagonals, grid.symmetry), (100, 100, 7, Symmetry::Symmetric));
    assert_eq!((grid.rows.min, grid.rows.max), (4, 7));
    assert_eq!((grid.diagonal.dominant, grid.diagonal.strictly_dominant), (1000, 1000 - 512));
    let wind = Stats::of(&csr::<f32>("convdiff3d:6,peclet=3").unwrap()).unwrap();
    assert_eq!(wind.symmetry, Symmetry::Pattern);
    let empty = Stats::of(&from_entries(0, 0, &[])).unwrap();
    assert_eq!((empty.rows.max, empty.density, empty.diagonals), (0, 0.0, 0));
    assert!(empty.is_square());
}

proptest! {
    #[test]
    fn statistics_and_predictions_hold_on_any_matrix(
        nrows in 0usize..40,
        ncols in 0usize..40,
        entries in proptest::collection::vec((0usize..40, 0usize..40, -2i32..3), 0..200),
    ) {
        let inside: Vec<_> = entries.into_iter().filter(|e| e.0 < nrows && e.1 < ncols).map(|(i, j, v)| (i, j, f64::from(v))).collect();
        let a = from_entries(nrows, ncols, &inside);
        check_predictions(&a, "random");
        let stats = Stats::of(&a).unwrap();
        let all: Vec<_> = (0..nrows).flat_map(|i| a.row(i).0.iter().map(move |&j| (i, j as usize)).collect::<Vec<_>>()).collect();
        prop_assert_eq!(stats.lower, all.iter().map(|&(i, j)| i.saturating_sub(j)).max().unwrap_or(0));
        prop_assert_eq!(stats.upper, all.iter().map(|&(i, j)| j.saturating_sub(i)).max().unwrap_or(0));
        let diagonals: std::collections::BTreeSet<_> = all.iter().map(|&(i, j)| j as i64 - i as i64).collect();
        prop_assert_eq!(stats.diagonals, diagonals.len());
        prop_assert_eq!(stats.rows.histogram.iter().sum::<usize>(), nrows);
        prop_assert_eq!(stats.explicit_zeros, a.values().iter().filter(|&&v| v == 0.0).count());
        // An entry that is not stored is zero.
        let mirrored = |&(i, j): &(usize, usize)| a.get(j, i).unwrap_or(0.0) == a.get(i, j).unwrap_or(0.0);
        prop_assert_eq!(stats.symmetry == Symmetry::Symmetric, nrows == ncols && all.iter().all(mirrored));
    }
}

#[test]
fn blocks_are_counted_alike_in_one_range_and_in_many() {
    let a = csr::<f64>("random:n=4099,nnz_per_row=9").unwrap();
    for b in [1, 2, 3] {
        let mut blocks = std::collections::BTreeSet::new();
        for i in 0..a.nrows() {
            blocks.extend(a.row(i).0.iter().map(|&j| (i / b, j as usize / b)));
        }
        for threads in [1, 2, 7] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let bsr = pool.install(|| Bsr::from_csr_with(&a, b)).unwrap();
            let rows = (0..bsr.block_rows()).map(|i| bsr.row_ptr()[i] as usize..bsr.row_ptr()[i + 1] as usize);
            let found = rows.enumerate().flat_map(|(i, row)| bsr.col_idx()[row].iter().map(move |&j| (i, j as usize)));
            assert!(found.eq(blocks.iter().copied()), "{b} {threads}");
        }
    }
}

#[test]
fn a_diagonal_holds_where_every_row_has_it() {
    let grid = csr::<f64>("poisson2d:70").unwrap();
    assert!(grid.diagonal_holds(|d| d == 4.0) && !grid.diagonal_holds(|d| d < 4.0));
    for rows in [5000, 4999] {
        let entries: Vec<_> = (0..rows).map(|i| (i, i, 1.0)).collect();
        assert_eq!(from_entries(5000, 5000, &entries).diagonal_holds(|d| d > 0.0), rows == 5000);
    }
}
