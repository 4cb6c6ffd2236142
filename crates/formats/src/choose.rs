//! Which format moves the fewest bytes for y = A x: computed from the structure, none of the formats is built.
//!
//! Each format's bytes are those of its [`crate::Traffic::spmv`] after [`Format::from_csr`], to the byte, from the same rules
//! (HYB's width, HMEC's plan, BSR's block size, bDIA's gaps, SELL's slices) and under the same limits on padding.
//! Cost: a few passes over the entries; a byte per possible diagonal and a stamp per block column of memory.

use rayon::prelude::*;

use crate::bdia::{self, group};
use crate::bsr::{Bsr, count_blocks, storage_bytes};
use crate::dia::{occupied, positions};
use crate::hmec::{self, plan, rows_longer_than};
use crate::padding::{fits, sort_descending};
use crate::{Csr, Error, Format, Hyb, Ordinal, Real, Result, Traffic, dense, ell, sell};

/// Time per byte of each format's product relative to CSR's, by which bytes are weighted before they are compared: a
/// format that streams but pays more per byte (a permuted y, two passes over y, short columns) has a factor above 1. 1.0
/// stands for a format whose factor has not been measured to differ. [`None`] for formats that are listed and never chosen:
/// CSC scatters into y, which costs reductions between threads; BSRX is BSR with a mask that a whole product does not need.
pub const COST_PER_BYTE: [(&str, Option<f64>); 13] = [
    ("coo", Some(1.0)),
    ("csr", Some(1.0)),
    ("csc", None),
    ("ell", Some(1.0)),
    ("sell", Some(1.0)),
    ("dia", Some(1.0)),
    ("bdia", Some(1.0)),
    ("hyb", Some(1.0)),
    ("bsr", Some(1.0)),
    ("bsrx", None),
    ("hec", Some(1.0)),
    ("hmec", Some(1.0)),
    ("dense", Some(1.0)),
];

/// One format under consideration.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its name.
    pub name: &'static str,
    /// Bytes of y = A x, or why the matrix does not fit.
    pub spmv: std::result::Result<u64, String>,
    /// What is particular of the matrix in this format: `7 diagonals`, `blocks of 3 x 3`.
    pub shape: String,
    /// Its factor of [`COST_PER_BYTE`].
    pub cost: Option<f64>,
}

/// The chosen format, and all that were considered.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The format with the least weighted traffic; CSR among equals.
    pub format: &'static str,
    /// Every format in the order of the registry.
    pub candidates: Vec<Candidate>,
    /// One sentence: `7 diagonals, 58.7 MB per product against csr's 104.2 MB`.
    pub why: String,
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.format, self.why)
    }
}

impl Choice {
    /// The candidate of that name.
    pub fn candidate(&self, name: &str) -> Option<&Candidate> {
        self.candidates.iter().find(|candidate| candidate.name == name)
    }
}

/// Names the format with the least traffic among those that fit, weighted by [`COST_PER_BYTE`].
pub fn choose<T: Real>(csr: &Csr<T>) -> Choice {
    let candidates = candidates(csr);
    let weighted = |c: &Candidate| c.spmv.as_ref().ok().zip(c.cost).map(|(&bytes, cost)| bytes as f64 * cost);
    let own = csr.spmv();
    let mut best = candidates.iter().find(|c| c.name == "csr");
    for candidate in &candidates {
        if weighted(candidate).is_some_and(|cost| best.and_then(weighted).is_none_or(|least| cost < least)) {
            best = Some(candidate);
        }
    }
    let (format, bytes, shape) = best
        .map_or(("csr", own, String::new()), |c| (c.name, c.spmv.as_ref().copied().unwrap_or(own), c.shape.clone()));
    let why = if format == "csr" {
        let next = candidates
            .iter()
            .filter(|c| c.name != "csr")
            .filter_map(|c| Some((weighted(c)?, c)))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        match next {
            Some((_, next)) => {
                let next_bytes = next.spmv.as_ref().copied().unwrap_or(own);
                format!("{} per product, {} would move {}", megabytes(own), next.name, megabytes(next_bytes))
            }
            None => format!("{} per product, no other format fits", megabytes(own)),
        }
    } else {
        format!("{shape}, {} per product against csr's {}", megabytes(bytes), megabytes(own))
    };
    Choice { format, candidates, why }
}

/// Bytes in the unit that a reader can compare.
fn megabytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..10_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// Bytes and shape of each format.
fn candidates<T: Real>(csr: &Csr<T>) -> Vec<Candidate> {
    let (nrows, ncols, nnz) = (csr.nrows() as u64, csr.ncols() as u64, csr.nnz() as u64);
    let size = T::BYTES as u64;
    let entry = 4 + size;
    let vectors = (nrows + ncols) * size;
    let longer = rows_longer_than(csr);
    let longest = longer.iter().take_while(|&&rows| rows > 0).count();
    let diagonals = occupied(csr);
    let blocks = blocks(csr);

    let padded = |name: &'static str, bytes: u128| fits::<T>(name, bytes, csr.nrows(), csr.nnz());
    let count = |n: usize, noun: &str| format!("{n} {noun}{}", if n == 1 { "" } else { "s" });
    let banded = |name: &'static str, offsets: &[i32], index_bytes: u64| -> Result<u64> {
        padded(name, nrows as u128 * offsets.len() as u128 * size as u128)?;
        Ok((positions(csr.nrows(), csr.ncols(), offsets.iter().copied())) * size + vectors + index_bytes)
    };
    let offsets = diagonals.as_deref().unwrap_or_default();
    let bands = group(offsets, bdia::GAP);
    let filled: Vec<i32> = bands.iter().flat_map(|band| band.start..band.start + band.width as i32).collect();
    let known = |of: &dyn Fn() -> Result<u64>| match &diagonals {
        Ok(_) => of(),
        Err(error) => Err(Error::Invalid { format: "dia", why: error.to_string() }),
    };
    let width = Hyb::choose_width(csr);
    let (slice_widths, slices) = slices(csr);

    let shape_and_bytes = |name: &str| -> (String, Result<u64>) {
        match name {
            "coo" => ("sorted triplets".into(), Ok(nnz * (8 + size) + vectors)),
            "csc" => ("compressed columns".into(), Ok(nnz * entry + 4 * (ncols + 1) + vectors)),
            "ell" => {
                let bytes = padded("ell", ell::bytes::<T>(csr.nrows(), longest))
                    .map(|()| 4 * nrows * longest as u64 + nnz * size + vectors);
                (format!("rows padded to {longest}"), bytes)
            }
            "sell" => {
                let places = slice_widths as u128 * sell::DEFAULT_C as u128;
                let perm = 4 * (nrows + slices + 1);
                let bytes = padded("sell", places * u128::from(entry) + u128::from(perm))
                    .map(|()| 4 * places as u64 + perm + nnz * size + vectors);
                let share = if places == 0 { 0.0 } else { 100.0 * (1.0 - nnz as f64 / places as f64) };
                (format!("slices of {} rows with {share:.0} % padding", sell::DEFAULT_C), bytes)
            }
            "dia" => {
                let bytes = known(&|| banded("dia", offsets, 4 * offsets.len() as u64));
                (count(offsets.len(), "diagonal"), bytes)
            }
            "bdia" => {
                let bytes = known(&|| banded("bdia", &filled, 8 * bands.len() as u64));
                (format!("{} of {}", count(bands.len(), "band"), count(filled.len(), "diagonal")), bytes)
            }
            "hyb" => {
                let rest: usize = longer.iter().skip(width).sum();
                let total = ell::bytes::<T>(csr.nrows(), width) + rest as u128 * (8 + size as u128);
                let bytes = padded("hyb", total).map(|()| {
                    4 * nrows * width as u64 + (nnz - rest as u64) * size + vectors + rest as u64 * (8 + size)
                });
                (format!("{} of {width} and {rest} triplets", count(csr.nrows(), "row")), bytes)
            }
            "bsr" | "bsrx" => match &blocks {
                Ok((b, blocks)) => {
                    let rows = csr.nrows().div_ceil(*b) as u64;
                    let indices = if name == "bsr" { 4 * (rows + 1) } else { 12 * rows };
                    let bytes = padded("bsr", storage_bytes::<T>(csr.nrows(), *b, *blocks))
                        .map(|()| *blocks as u64 * (4 + (b * b) as u64 * size) + indices + vectors);
                    (format!("blocks of {b} x {b}"), bytes)
                }
                Err(why) => (String::new(), Err(Error::Invalid { format: "bsr", why: why.to_string() })),
            },
            "hec" | "hmec" => {
                let shapes = plan(&longer, if name == "hec" { 1 } else { hmec::DEFAULT_P });
                let (mut taken, mut bytes, mut packed) = (0, 0, 0);
                for &(rows, width) in &shapes {
                    packed += longer[taken..taken + width].iter().sum::<usize>() as u64;
                    bytes += 4 * (rows * width) as u64;
                    taken += width;
                }
                let left = longer.get(taken).copied().unwrap_or(0) as u64;
                bytes += packed * size + (nnz - packed) * entry + 4 * (left + 1) + 4 * nrows + vectors;
                (format!("{} and {} entries in csr", count(shapes.len(), "block"), nnz - packed), Ok(bytes))
            }
            "dense" => {
                let storage = u128::from(nrows) * u128::from(ncols) * size as u128;
                let fit = if storage > dense::FREE { padded("dense", storage) } else { Ok(()) };
                ("every place".into(), fit.map(|()| storage as u64 + vectors))
            }
            _ => ("compressed rows".into(), Ok(csr.spmv())),
        }
    };
    COST_PER_BYTE
        .iter()
        .map(|&(name, cost)| {
            let (shape, bytes) = shape_and_bytes(name);
            let spmv = bytes.map_err(|error| match error {
                Error::DoesNotFit { why, .. } | Error::Invalid { why, .. } => why,
                other => other.to_string(),
            });
            Candidate { name, spmv, shape, cost }
        })
        .collect()
}

/// BSR's block size and number of blocks.
fn blocks<T: Real>(csr: &Csr<T>) -> Result<(usize, u128)> {
    let b = Bsr::choose_block_dim(csr)?;
    let blocks = count_blocks(csr, b)?.iter().map(|&n| u128::from(n)).sum();
    crate::index::checked(usize::try_from(blocks).unwrap_or(usize::MAX), "entries")?;
    Ok((b, blocks))
}

/// The sum of SELL's slice widths and the number of slices: the longest row of each slice of the sorted windows.
fn slices<T: Real>(csr: &Csr<T>) -> (usize, u64) {
    let (c, sigma) = (sell::DEFAULT_C, sell::DEFAULT_SIGMA);
    let n = csr.nrows();
    let window = |(counts, order): &mut (Vec<u32>, Vec<Ordinal>), begin: usize| -> usize {
        let range = begin..n.min(begin + sigma);
        order.clear();
        order.resize(range.len(), 0);
        sort_descending(|i| csr.row_nnz(i), range, counts, order);
        order.iter().step_by(c).map(|&i| csr.row_nnz(i as usize)).sum()
    };
    let widths = (0..n.div_ceil(sigma))
        .into_par_iter()
        .with_min_len(16)
        .map_init(Default::default, |scratch, w| window(scratch, w * sigma))
        .sum();
    (widths, n.div_ceil(c) as u64)
}
