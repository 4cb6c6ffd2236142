//! Which format multiplies fastest, expected from the bytes and places that y = A x walks over: computed from the structure, none of
//! the formats is built. A CPU core ([`COSTS`]) and a GPU ([`GPU_COSTS`]) have costs of their own.
//!
//! Each format's bytes are those of its [`crate::Traffic::spmv_bytes`] after [`Format::from_csr`], to the byte, from the same rules
//! (HYB's width, HMEC's plan, BSR's block size, bDIA's gaps, SELL's slices) and under the same limits on padding.
//! Cost: a [`Survey`] and a pass over the entries for each size of block, unless a part of them shows that blocks cannot win; a stamp per
//! block column of memory.

use rayon::prelude::*;

use crate::bdia::{self, group};
use crate::bsr::{BLOCK_DIMS, Bsr, PARTS, blocks_of_some, count_blocks, storage_bytes};
use crate::dia::positions;
use crate::hmec::{self, plan};
use crate::padding::{fits, sort_descending};
use crate::{Csr, Error, Hyb, Ordinal, Real, Result, Survey, Traffic, dense, ell, sell};

/// What the product runs on: whose costs decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Machine {
    /// One core, by [`COSTS`].
    #[default]
    Cpu,
    /// A GPU, by [`GPU_COSTS`].
    Gpu,
}

/// What a product costs one CPU core in nanoseconds, besides the bytes: per call, per stored row (column of CSC) and per place
/// (entry, or padding that is walked over).
///
/// Most matrices that fit a cache are decided by these, large ones by the bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Nanoseconds of a call.
    pub call: f64,
    /// Nanoseconds of a row.
    pub row: f64,
    /// Nanoseconds of a place.
    pub place: f64,
    /// By how much rows and places cost more where over a fiftieth of the places is padding: ELL then needs masks.
    pub padded: f64,
}

impl Cost {
    /// Nanoseconds of a product over so many rows and places, of which `entries` are none of padding, that moves so many bytes.
    pub fn of(&self, rows: u64, places: u64, entries: u64, bytes: u64) -> f64 {
        let masked = if places > entries + entries / 50 { self.padded } else { 1.0 };
        let work = masked * (self.row * rows as f64 + self.place * places as f64);
        let traffic = if bytes > PAST_CACHE { NANOSECONDS_PER_BYTE * bytes as f64 } else { 0.0 };
        self.call + work.max(traffic)
    }
}

/// Costs by format, fitted by least relative error to f64 products of some 260 real matrices that run on one core (a Zen 5); SELL's
/// are a tenth higher and ELL's factor is set so that the choice is right most often. How often stands in `record/cpu-spmv.jsonl`. [`None`]
/// for a format that is listed and never chosen: BSRX is BSR with a mask that a whole product does not need.
pub const COSTS: [(&str, Option<Cost>); 13] = [
    ("coo", Some(Cost { call: 131.0, row: 1.320, place: 0.6110, padded: 1.0 })),
    ("csr", Some(Cost { call: 16.2, row: 0.526, place: 0.2930, padded: 1.0 })),
    ("csc", Some(Cost { call: 6.7, row: 0.397, place: 0.3660, padded: 1.0 })),
    ("ell", Some(Cost { call: 42.9, row: 0.183, place: 0.2080, padded: 1.2 })),
    ("sell", Some(Cost { call: 2.0, row: 0.842, place: 0.2740, padded: 1.0 })),
    ("dia", Some(Cost { call: 48.5, row: 0.000, place: 0.1086, padded: 1.0 })),
    ("bdia", Some(Cost { call: 46.8, row: 0.000, place: 0.1090, padded: 1.0 })),
    ("hyb", Some(Cost { call: 141.0, row: 1.318, place: 0.3110, padded: 1.0 })),
    ("bsr", Some(Cost { call: 16.5, row: 2.105, place: 0.1700, padded: 1.0 })),
    ("bsrx", None),
    ("hec", Some(Cost { call: 27.7, row: 0.416, place: 0.2900, padded: 1.0 })),
    ("hmec", Some(Cost { call: 33.1, row: 0.409, place: 0.2850, padded: 1.0 })),
    ("dense", Some(Cost { call: 17.1, row: 0.000, place: 0.0738, padded: 1.0 })),
];

/// Nanoseconds that a byte costs one core where the caches do not hold the matrix: half of a two-core machine's 43 GB/s.
pub const NANOSECONDS_PER_BYTE: f64 = 0.0465;
/// Bytes of a product from which on they decide: what a large third-level cache holds.
pub const PAST_CACHE: u64 = 32 << 20;

/// What a product costs a GPU, in nanoseconds and as a share of what its memory could give.
///
/// Large matrices are decided by bytes and efficiency, small ones by the longest row: where one thread takes a row, its entries come one
/// after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuCost {
    /// Nanoseconds of a call: launch and end of the grid.
    pub call: f64,
    /// Share of [`GPU_NANOSECONDS_PER_BYTE`]'s rate that the format's access reaches, above 0.
    pub efficiency: f64,
    /// Nanoseconds of a place of the longest chain: what one thread adds up in order, or a warp's 32 share.
    pub step: f64,
}

impl GpuCost {
    /// Nanoseconds of a product that moves so many bytes and whose longest chain has so many places.
    pub fn of(&self, bytes: u64, chain: u64) -> f64 {
        let rate = if bytes > GPU_PAST_CACHE { 1.0 } else { GPU_CACHE_RATE };
        let traffic = GPU_NANOSECONDS_PER_BYTE * bytes as f64 / (rate * self.efficiency);
        self.call + traffic.max(self.step * chain as f64)
    }
}

/// Costs by format on a GPU: call and step from products of some thirty real matrices of 100,000 to two million entries, efficiency from
/// stencils of 2 to 17 million rows, on an H200 (`record/h200-spmv.jsonl`, `record/h200-spmv-variants.txt`). A row of CSR has as many lanes as its length asks for, so that
/// none is a chain. [`None`] as in [`COSTS`].
pub const GPU_COSTS: [(&str, Option<GpuCost>); 13] = [
    ("coo", Some(GpuCost { call: 2000.0, efficiency: 0.97, step: 0.0 })),
    ("csr", Some(GpuCost { call: 1850.0, efficiency: 0.93, step: 0.0 })),
    ("csc", Some(GpuCost { call: 1860.0, efficiency: 0.93, step: 0.0 })),
    ("ell", Some(GpuCost { call: 1750.0, efficiency: 1.00, step: 45.0 })),
    ("sell", Some(GpuCost { call: 2000.0, efficiency: 0.92, step: 50.0 })),
    ("dia", Some(GpuCost { call: 1900.0, efficiency: 0.80, step: 105.0 })),
    ("bdia", Some(GpuCost { call: 1900.0, efficiency: 1.00, step: 40.0 })),
    ("hyb", Some(GpuCost { call: 2700.0, efficiency: 0.97, step: 45.0 })),
    ("bsr", Some(GpuCost { call: 2500.0, efficiency: 1.00, step: 25.0 })),
    ("bsrx", None),
    ("hec", Some(GpuCost { call: 2700.0, efficiency: 0.95, step: 45.0 })),
    ("hmec", Some(GpuCost { call: 2700.0, efficiency: 0.95, step: 45.0 })),
    ("dense", Some(GpuCost { call: 1900.0, efficiency: 1.00, step: 30.0 })),
];

/// Nanoseconds that a byte costs a GPU's memory: 3.9 TB/s.
pub const GPU_NANOSECONDS_PER_BYTE: f64 = 0.000256;
/// Bytes of a product up to which a GPU's second-level cache holds it from one call to the next.
pub const GPU_PAST_CACHE: u64 = 50_000_000;
/// Nanoseconds that a product must save for a share of time to be told: over a thousand products, as many as a solve makes, a millisecond.
const WORTH_TELLING: f64 = 1000.0;
/// How fast such a product goes beside the memory's rate: the cache is faster, but a few microseconds are too short to get going.
pub const GPU_CACHE_RATE: f64 = 0.8;

/// One format under consideration.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its name.
    pub name: &'static str,
    /// Bytes of y = A x, or why the matrix does not fit.
    pub spmv: std::result::Result<u64, String>,
    /// What is particular of the matrix in this format: `7 diagonals`, `blocks of 3 x 3`.
    pub shape: String,
    /// Places that a product walks over: entries and padding.
    pub places: u64,
    /// Nanoseconds that the machine (one core of it, or the GPU) is expected to need, by its costs and, for what no cache holds, by the
    /// bytes. [`None`] where the matrix does not fit or the format is never chosen.
    pub nanoseconds: Option<f64>,
    /// Bytes that the machine moves: those of `spmv`, or fewer where it keeps one half of a symmetric matrix. 0 where the matrix does not
    /// fit.
    pub moved: u64,
}

/// The chosen format, and all that were considered.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The format with the least expected time; CSR among equals.
    pub format: &'static str,
    /// Every format in the order of the registry, but for what [`Survey::choose`] leaves out.
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

/// Names the format whose product is expected to take the least time among those that fit: by bytes where no cache holds the
/// matrix, by measured costs per row and place where one does. For the CPU; [`choose_for`] takes the machine.
pub fn choose<T: Real>(csr: &Csr<T>) -> Choice {
    choose_for(csr, Machine::Cpu)
}

/// As [`choose()`], for the machine that the product runs on.
pub fn choose_for<T: Real>(csr: &Csr<T>, machine: Machine) -> Choice {
    let survey = Survey::look(csr, machine == Machine::Gpu);
    best_of(csr, machine, candidates(csr, &survey, machine, true))
}

impl Survey {
    /// The choice of [`choose_for`] for the matrix that was surveyed. Where blocks cannot change it they are not counted, and BSR and BSRX are
    /// not among its candidates.
    pub fn choose<T: Real>(&self, csr: &Csr<T>, machine: Machine) -> Choice {
        best_of(csr, machine, candidates(csr, self, machine, false))
    }
}

fn best_of<T: Real>(csr: &Csr<T>, machine: Machine, candidates: Vec<Candidate>) -> Choice {
    let weighted = |c: &Candidate| c.nanoseconds;
    let own = csr.spmv_bytes();
    let mut best = candidates.iter().find(|c| c.name == "csr");
    for candidate in &candidates {
        if weighted(candidate).is_some_and(|cost| best.and_then(weighted).is_none_or(|least| cost < least)) {
            best = Some(candidate);
        }
    }
    let (format, bytes, shape) = best.map_or(("csr", own, String::new()), |c| (c.name, c.moved, c.shape.clone()));
    let why = if format == "csr" {
        let next = candidates
            .iter()
            .filter(|c| c.name != "csr")
            .filter_map(|c| Some((weighted(c)?, c)))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        match next {
            Some((_, next)) => {
                format!("{} per product, {} would move {}", megabytes(own), next.name, megabytes(next.moved))
            }
            None => format!("{} per product, no other format fits", megabytes(own)),
        }
    } else if bytes < own {
        format!("{shape}, {} per product against csr's {}", megabytes(bytes), megabytes(own))
    } else {
        // As many bytes or more: on a CPU fewer instructions decide, of a matrix that a cache holds; on a GPU how they are read.
        let cost = |name| candidates.iter().find(|c| c.name == name).and_then(weighted).unwrap_or(f64::INFINITY);
        let saved = cost("csr") - cost(format);
        let percent = 100.0 * saved / cost("csr");
        let reason = match machine {
            Machine::Cpu => "as the caches hold the matrix",
            Machine::Gpu => "as its access is more regular",
        };
        if saved >= WORTH_TELLING {
            format!("{shape}, expected {percent:.0} % less time per product than csr, {reason}")
        } else {
            format!("{shape}, expected to save less than 1 us per product against csr")
        }
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

/// Bytes, shape and expected time of each format; blocks only where they may be the best of all but CSR, unless `every` one is asked for.
fn candidates<T: Real>(csr: &Csr<T>, survey: &Survey, machine: Machine, every: bool) -> Vec<Candidate> {
    let (nrows, ncols, nnz) = (csr.nrows() as u64, csr.ncols() as u64, csr.nnz() as u64);
    let size = T::BYTES as u64;
    let entry = 4 + size;
    let vectors = (nrows + ncols) * size;
    let (longer, diagonals) = (&survey.longer, &survey.offsets);
    let longest = longer.iter().take_while(|&&rows| rows > 0).count();

    let padded = |name: &'static str, bytes: u128| fits::<T>(name, bytes, csr.nrows(), csr.nnz());
    let count = |n: usize, noun: &str| format!("{n} {noun}{}", if n == 1 { "" } else { "s" });
    let banded = |name: &'static str, offsets: &[i32], index_bytes: u64| -> Result<u64> {
        padded(name, nrows as u128 * offsets.len() as u128 * size as u128)?;
        Ok(positions(csr.nrows(), csr.ncols(), offsets.iter().copied()) * size + vectors + index_bytes)
    };
    let offsets = diagonals.as_deref().unwrap_or_default();
    let bands = group(offsets, bdia::GAP);
    let filled: Vec<i32> = bands.iter().flat_map(|band| band.start..band.start + band.width as i32).collect();
    let inside = |offsets: &[i32]| positions(csr.nrows(), csr.ncols(), offsets.iter().copied());
    let known = |of: &dyn Fn() -> Result<u64>| match diagonals {
        Ok(_) => of(),
        Err(error) => Err(Error::Invalid { format: "dia", why: error.to_string() }),
    };
    let width = Hyb::<T>::width_by(csr.nrows(), longer);
    let (slice_widths, slices) = slices(csr);

    let in_blocks = |name: &str, b: usize, blocks: u128| {
        let rows = csr.nrows().div_ceil(b) as u64;
        let indices = if name == "bsr" { 4 * (rows + 1) } else { 12 * rows };
        blocks as u64 * (4 + (b * b) as u64 * size) + indices + vectors
    };

    let measure = |name: &str, blocks: Option<&Result<(usize, u128)>>| -> (String, u64, Result<u64>) {
        match name {
            "coo" => ("sorted triplets".into(), nnz, Ok(nnz * (8 + size) + vectors)),
            "csc" => ("compressed columns".into(), nnz, Ok(nnz * entry + 4 * (ncols + 1) + vectors)),
            "ell" => {
                let bytes = padded("ell", ell::bytes::<T>(csr.nrows(), longest))
                    .map(|()| 4 * nrows * longest as u64 + nnz * size + vectors);
                (format!("rows padded to {longest}"), nrows * longest as u64, bytes)
            }
            "sell" => {
                let places = slice_widths as u128 * sell::DEFAULT_C as u128;
                let perm = 4 * (nrows + slices + 1);
                let bytes = padded("sell", places * u128::from(entry) + u128::from(perm))
                    .map(|()| 4 * places as u64 + perm + nnz * size + vectors);
                let share = if places == 0 { 0.0 } else { 100.0 * (1.0 - nnz as f64 / places as f64) };
                (format!("slices of {} rows with {share:.0} % padding", sell::DEFAULT_C), places as u64, bytes)
            }
            "dia" => {
                let bytes = known(&|| banded("dia", offsets, 4 * offsets.len() as u64));
                (count(offsets.len(), "diagonal"), inside(offsets), bytes)
            }
            "bdia" => {
                let bytes = known(&|| banded("bdia", &filled, 8 * bands.len() as u64));
                (
                    format!("{} of {}", count(bands.len(), "band"), count(filled.len(), "diagonal")),
                    inside(&filled),
                    bytes,
                )
            }
            "hyb" => {
                let rest: usize = longer.iter().skip(width).sum();
                let total = ell::bytes::<T>(csr.nrows(), width) + rest as u128 * (8 + size as u128);
                let bytes = padded("hyb", total).map(|()| {
                    4 * nrows * width as u64 + (nnz - rest as u64) * size + vectors + rest as u64 * (8 + size)
                });
                (
                    format!("{} of {width} and {}", count(csr.nrows(), "row"), count(rest, "triplet")),
                    nrows * width as u64 + rest as u64,
                    bytes,
                )
            }
            "bsr" | "bsrx" => match blocks {
                Some(Ok((b, blocks))) => {
                    let bytes = padded("bsr", storage_bytes::<T>(csr.nrows(), *b, *blocks))
                        .map(|()| in_blocks(name, *b, *blocks));
                    (format!("blocks of {b} x {b}"), (*blocks as u64).saturating_mul((b * b) as u64), bytes)
                }
                Some(Err(why)) => (String::new(), 0, Err(Error::Invalid { format: "bsr", why: why.to_string() })),
                None => {
                    (String::new(), 0, Err(Error::Invalid { format: "bsr", why: "blocks were not counted".into() }))
                }
            },
            "hec" | "hmec" => {
                let shapes = plan(longer, if name == "hec" { 1 } else { hmec::DEFAULT_P });
                let (mut taken, mut bytes, mut packed, mut places) = (0, 0, 0, 0);
                for &(rows, width) in &shapes {
                    packed += longer[taken..taken + width].iter().sum::<usize>() as u64;
                    bytes += 4 * (rows * width) as u64;
                    places += (rows * width) as u64;
                    taken += width;
                }
                let left = longer.get(taken).copied().unwrap_or(0) as u64;
                bytes += packed * size + (nnz - packed) * entry + 4 * (left + 1) + 4 * nrows + vectors;
                let entries = if nnz - packed == 1 { "entry" } else { "entries" };
                (
                    format!("{} and {} {entries} in csr", count(shapes.len(), "block"), nnz - packed),
                    places + nnz - packed + left + 1,
                    Ok(bytes),
                )
            }
            "dense" => {
                let storage = u128::from(nrows) * u128::from(ncols) * size as u128;
                let fit = if storage > dense::FREE { padded("dense", storage) } else { Ok(()) };
                ("every place".into(), nrows * ncols, fit.map(|()| storage as u64 + vectors))
            }
            _ => ("compressed rows".into(), nnz, Ok(csr.spmv_bytes())),
        }
    };
    // A GPU keeps the upper half of a symmetric matrix by diagonals, and reads the values of the lower one from its cache.
    let halved = |name: &str| machine == Machine::Gpu && name == "dia" && survey.symmetric;
    let upper: Vec<i32> = offsets.iter().copied().filter(|&offset| offset >= 0).collect();
    let gpu = |name: &str, bytes: u64| {
        let (_, cost) = GPU_COSTS.iter().find(|cost| cost.0 == name)?;
        let chain = match name {
            "dia" => offsets.len(),
            "bdia" => filled.len(),
            "hyb" => width,
            "dense" => csr.ncols(),
            _ => longest,
        };
        cost.map(|cost| cost.of(bytes, chain as u64))
    };
    let time = |name: &str, cost: Option<Cost>, places: u64, bytes: u64, moved: u64| match machine {
        Machine::Cpu => {
            let segments = if name == "csc" { ncols } else { nrows };
            cost.map(|cost| cost.of(segments, places, nnz, bytes))
        }
        Machine::Gpu => gpu(name, moved),
    };
    let candidate = |name: &'static str, cost: Option<Cost>, blocks: Option<&Result<(usize, u128)>>| {
        let (mut shape, places, bytes) = measure(name, blocks);
        let spmv = bytes.map_err(|error| match error {
            Error::DoesNotFit { why, .. } | Error::Invalid { why, .. } => why,
            other => other.to_string(),
        });
        let mut moved = spmv.as_ref().copied().unwrap_or(0);
        if spmv.is_ok() && halved(name) {
            moved -= (places - inside(&upper)) * size + 4 * (offsets.len() - upper.len()) as u64;
            if upper.len() < offsets.len() {
                shape.push_str(&format!(", {} of them stored", upper.len()));
            }
        }
        let nanoseconds = spmv.as_ref().ok().and_then(|&bytes| time(name, cost, places, bytes, moved));
        Candidate { name, spmv, shape, places, nanoseconds, moved }
    };
    let of_blocks = |name: &str| matches!(name, "bsr" | "bsrx");
    let mut candidates: Vec<Candidate> =
        COSTS.iter().filter(|(name, _)| !of_blocks(name)).map(|&(name, cost)| candidate(name, cost, None)).collect();
    let others = candidates.iter().filter(|other| other.name != "csr").filter_map(|other| other.nanoseconds);
    let least = others.min_by(f64::total_cmp).unwrap_or(f64::INFINITY);
    let cost = COSTS.iter().find(|cost| cost.0 == "bsr").and_then(|cost| cost.1);
    let slower = |b: usize, blocks: u128| {
        let (places, bytes) = (blocks as u64 * (b * b) as u64, in_blocks("bsr", b, blocks));
        time("bsr", cost, places, bytes, bytes).is_none_or(|time| time > least)
    };
    if every || !blocks_lose(csr, slower) {
        let blocks = blocks(csr);
        for (at, &(name, cost)) in COSTS.iter().enumerate().filter(|(_, cost)| of_blocks(cost.0)) {
            candidates.insert(at, candidate(name, cost, Some(&blocks)));
        }
    }
    candidates
}

/// Whether blocks of every size are more than `slower` allows, as a part of their rows shows: there they are counted, and elsewhere they are
/// at least as many as hold the entries.
fn blocks_lose<T: Real>(csr: &Csr<T>, slower: impl Fn(usize, u128) -> bool + Sync) -> bool {
    BLOCK_DIMS.par_iter().all(|&b| {
        let at_least = |entries: usize| entries.div_ceil(b * b) as u128;
        if slower(b, at_least(csr.nnz())) {
            return true;
        }
        // Four times as much each time, so that what decides late costs little more than it alone; a sixteenth, so that in vain is cheap.
        let (mut blocks, mut entries, mut from) = (0, 0, 0);
        [1, 4, 16, PARTS / 16].into_iter().any(|to| {
            let (more, of_entries) = blocks_of_some(csr, b, from..to);
            (blocks, entries, from) = (blocks + more, entries + of_entries, to);
            slower(b, blocks as u128 + at_least(csr.nnz() - entries))
        })
    })
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
