//! Rows from files, generators and assemblies: those of the whole matrix, for any number of ranks.

mod problems;

use std::path::PathBuf;

use problems::LIMIT;
use spandrel_backend::Error;
use spandrel_backend_cpu::Cpu;
use spandrel_distributed::{
    Assembly, Distributed, Numbering, Partition, Rows, Threads, cut_rows, generate_rows, read_rows,
};
use spandrel_formats::generate::Spec;
use spandrel_formats::matrix_market::{self, WriteOptions};
use spandrel_formats::{Csr, generate, reorder};

type Device = Distributed<Cpu, Threads>;

/// The rows of all ranks one after the other, which must follow each other, as a matrix.
fn joined(ranks: usize, make: impl Fn(&Device) -> Result<Rows<f64>, Error> + Sync) -> Csr<f64> {
    let ended = Threads::run_within(ranks, LIMIT, |comm| make(&Distributed::new(Cpu::with_threads(1)?, comm)));
    let (mut next, mut triplets, mut ncols) = (0, Vec::new(), 0);
    for rows in ended.into_iter().map(|rank| rank.unwrap()) {
        assert_eq!(rows.first(), next);
        for i in 0..rows.len() {
            let (cols, values) = rows.row(i);
            triplets.extend(cols.iter().zip(values).map(|(&j, &v)| (next as usize + i, j as usize, v)));
        }
        next += rows.len() as u64;
        ncols = rows.ncols();
    }
    Csr::from_triplets(next as usize, ncols as usize, triplets).unwrap()
}

fn texts(ranks: usize, make: impl Fn(&Device) -> Result<Rows<f64>, Error> + Sync) -> Vec<String> {
    let ended = Threads::run_within(ranks, LIMIT, |comm| make(&Distributed::new(Cpu::with_threads(1)?, comm)));
    ended.into_iter().map(|rank| rank.unwrap_err().to_string()).collect()
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("spandrel-distributed-{name}-{}", std::process::id()))
}

#[test]
fn a_file_is_read_in_parts() {
    for (name, spec) in
        [("general", "convdiff2d:70x60,peclet=2"), ("symmetric", "poisson2d:70x60"), ("few", "poisson2d:5")]
    {
        let (whole, path) = (generate::csr::<f64>(spec).unwrap(), file(name));
        matrix_market::write_csr(&path, &whole, &WriteOptions::default()).unwrap();
        for ranks in [1, 2, 3, 7] {
            assert_eq!(joined(ranks, |be| read_rows(be, &path)), whole, "{name} on {ranks} ranks");
        }
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn rows_are_numbered_as_on_one_device() {
    // Of several parts, with rows that nothing reaches, and of no rows.
    let chain = Csr::from_triplets(5000, 5000, (0..4000).map(|i| (i, (i * 7 + 3) % 4000, 1.0 + i as f64))).unwrap();
    let problems = ["electrostatic:n=9000", "poisson2d:70x60", "powerlaw:n=5000", "convdiff2d:60x50,peclet=2"];
    let generated = problems.map(|spec| generate::csr::<f64>(spec).unwrap());
    for a in generated.into_iter().chain([chain, Csr::from_triplets(0, 0, []).unwrap()]) {
        let permutation = reorder::breadth_first(&a).unwrap();
        let (expected, v) = (permutation.permute_symmetric(&a).unwrap(), (0..a.nrows()).map(|i| i as f64));
        let v = permutation.apply(&v.collect::<Vec<_>>()).unwrap();
        for ranks in [1, 2, 3, 7] {
            let found = joined(ranks, |be| {
                let rows = cut_rows(be, &a);
                let numbering = Numbering::breadth_first(be, &rows)?;
                assert_eq!(*numbering.permutation(), permutation);
                let own: Vec<f64> = (0..rows.len()).map(|i| (rows.first() + i as u64) as f64).collect();
                let part = numbering.part(be, &own)?;
                assert!(numbering.part(be, &own[..own.len().saturating_sub(1)]).is_err() || own.is_empty());
                let rows = numbering.rows(be, rows)?;
                assert_eq!(part, v[rows.first() as usize..rows.first() as usize + rows.len()]);
                Ok(rows)
            });
            assert_eq!(found, expected, "{} rows on {ranks} ranks", a.nrows());
        }
    }
    let wide = Csr::from_triplets(2, 3, [(0, 2, 1.0)]).unwrap();
    for text in texts(2, |be| {
        let rows = cut_rows(be, &wide);
        Numbering::breadth_first(be, &rows).map(|_| rows)
    }) {
        assert!(text.starts_with("a numbering: a row"), "{text}");
    }
}

#[test]
fn duplicates_are_summed_in_the_order_of_the_file() {
    let path = file("duplicates");
    // Sums whose value depends on the order.
    let lines: String =
        (0..600).map(|k| format!("{} {} {}\n", k % 3 * 1000 + 1, k % 2 + 1, 10f64.powi(k % 17 - 8))).collect();
    std::fs::write(&path, format!("%%MatrixMarket matrix coordinate real general\n3000 3000 600\n{lines}")).unwrap();
    let whole = matrix_market::read_csr::<f64>(&path).unwrap();
    for ranks in [2, 3, 5] {
        assert_eq!(joined(ranks, |be| read_rows(be, &path)), whole);
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn faults_of_a_file_are_told_on_all_ranks_with_their_place() {
    let path = file("faults");
    let cases = [
        ("real general\n2 2 2\n1 1 x\n2 2 1\n", ":3:5: "),
        ("real general\n2 2 3\n1 1 4\n2 2 1\n", "the file ends after 2 entries, its size line declares 3"),
        ("real symmetric\n3 3 3\n1 1 4\n1 3 5\n3 1 5\n", "lies above the diagonal"),
    ];
    for (text, expected) in cases {
        std::fs::write(&path, format!("%%MatrixMarket matrix coordinate {text}")).unwrap();
        let whole = matrix_market::read_csr::<f64>(&path).unwrap_err().to_string();
        let found = texts(3, |be| read_rows(be, &path));
        assert!(whole.contains(expected), "{whole}");
        assert!(found.iter().all(|text| text.ends_with(&whole)), "{found:?} {whole}");
        assert_eq!(found.iter().filter(|text| **text == whole).count(), 1, "{found:?}");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(texts(2, |be| read_rows(be, &path)).iter().all(|text| text.contains("spandrel-distributed-faults")));
}

#[test]
fn an_array_file_is_cut() {
    let path = file("array");
    std::fs::write(&path, "%%MatrixMarket matrix array real general\n2 2\n1\n0\n3\n4\n").unwrap();
    let whole = matrix_market::read_csr::<f64>(&path).unwrap();
    assert_eq!(joined(2, |be| read_rows(be, &path)), whole);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn generators_make_the_rows_of_each_rank() {
    for text in ["d3n27:15", "system2d:40,b=3", "banded:n=5000,d=5", "powerlaw:n=4000", "electrostatic:n=3000"] {
        let spec = Spec::parse(text).unwrap();
        let whole = spec.build::<f64>().unwrap();
        for ranks in [1, 3, 5] {
            assert_eq!(joined(ranks, |be| generate_rows(be, &spec)), whole, "{text} on {ranks} ranks");
            assert_eq!(joined(ranks, |be| Ok(cut_rows(be, &whole))), whole, "{text} on {ranks} ranks");
        }
    }
    let huge = Spec::parse("d3n7:2000").unwrap();
    assert!(texts(2, |be| generate_rows(be, &huge)).iter().all(|text| text.contains("8000000000 rows")));
}

#[test]
fn an_assembly_sends_entries_to_their_owners() {
    // Each rank has every third element of a rod, between unknowns e and e + 1.
    let (n, ranks) = (5000u64, 3);
    let elements = |mine: usize| (0..n - 1).filter(move |e| *e as usize % ranks == mine);
    let whole = Csr::from_triplets(
        n as usize,
        n as usize,
        (0..ranks).flat_map(elements).flat_map(|e| {
            let e = e as usize;
            [(e, e, 1.0), (e, e + 1, -1.0), (e + 1, e, -1.0), (e + 1, e + 1, 1.0)]
        }),
    );
    let found = joined(ranks, |be| {
        let mut entries = Assembly::new(Partition::even(n, ranks), n);
        for e in elements(be.rank()) {
            let (row, next) = (e as u32, e as u32 + 1);
            entries.push(e, row, 1.0)?;
            entries.push(e, next, -1.0)?;
            entries.push(e + 1, row, -1.0)?;
            entries.push(e + 1, next, 1.0)?;
        }
        assert!(entries.push(n, 0, 1.0).is_err() && entries.push(0, n as u32, 1.0).is_err());
        entries.finish(be)
    });
    assert_eq!(found, whole.unwrap());
    let refused = texts(2, |be| Assembly::<f64>::new(Partition::even(n, 3), n).finish(be));
    assert!(refused.iter().all(|text| text.contains("the partition is for 3 ranks, but there are 2")), "{refused:?}");
}
