//! Chooses the format that is expected to multiply fastest, by the bytes and places that y = A x walks over.
//!
//! These are computed from the structure; no format is built. The device's [`Profile`] says what they cost. Each
//! format's bytes are exactly those of its [`crate::Traffic::spmv_bytes`] after [`crate::Format::from_csr`]: the same
//! rules apply (HYB's width, HMEC's plan, BSR's block size, bDIA's gaps, SELL's slices), and the same limits on
//! padding.
//! Cost: a [`Survey`], and one pass over the entries per block size unless a part of them shows that blocks cannot win.
//! Memory: one stamp per block column.

use rayon::prelude::*;

use crate::bdia::{self, group};
use crate::bsr::{BLOCK_DIMS, Bsr, PARTS, blocks_of_some, count_blocks, storage_bytes};
use crate::dia::positions;
use crate::hmec::{self, plan};
use crate::padding::{fits, sort_descending};
use crate::profile::{Cost, Work};
use crate::{Csr, Error, Hyb, Ordinal, Profile, Real, Result, Survey, Traffic, dense, ell, for_each_format, sell};

macro_rules! stems {
    ([] $(($stem:ident, $Type:ident)),* $(,)?) => {
        /// The formats of the registry. What is known of each is a `match` on this, so none can be forgotten.
        #[derive(Clone, Copy, PartialEq)]
        enum Stem {
            $($Type),*
        }
        const STEMS: &[(&str, Stem)] = &[$((stringify!($stem), Stem::$Type)),*];
    };
}
for_each_format!(stems);

/// Minimum number of nanoseconds that a product must save before a share of time is mentioned. Over a thousand
/// products, as many as a solve makes, this is a millisecond.
const WORTH_TELLING: f64 = 1000.0;

/// One format under consideration.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its name.
    pub name: &'static str,
    /// Bytes of y = A x, or why the matrix does not fit.
    pub spmv: std::result::Result<u64, String>,
    /// What is particular about the matrix in this format: `7 diagonals`, `blocks of 3 x 3`.
    pub shape: String,
    /// Places that a product walks over: entries and padding.
    pub places: u64,
    /// Nanoseconds that the device (one core of a CPU) is expected to need, by its profile. [`None`] if the matrix does
    /// not fit or the format is never chosen.
    pub nanoseconds: Option<f64>,
    /// Bytes that the device moves: those of `spmv`, or fewer if it keeps one half of a symmetric matrix. 0 if the
    /// matrix does not fit.
    pub moved: u64,
}

/// The chosen format, and all formats that were considered.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The format with the least expected time; CSR among equals.
    pub format: &'static str,
    /// Every format in the order of the registry, except those that [`Survey::choose`] leaves out.
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
    /// The candidate with that name.
    pub fn candidate(&self, name: &str) -> Option<&Candidate> {
        self.candidates.iter().find(|candidate| candidate.name == name)
    }
}

/// Chooses the format that fits and whose product is expected to take the least time on a device. With
/// [`Profile::reference`] the choice is the same on every machine.
pub fn choose<T: Real>(csr: &Csr<T>, profile: &Profile) -> Choice {
    let survey = Survey::look(csr, profile.products.halves_dia, true);
    best_of(csr, profile, candidates(csr, &survey, profile, true))
}

impl Survey {
    /// As [`choose()`], for the matrix that was surveyed. If blocks cannot change the choice, they are not counted, and
    /// BSR and BSRX are not among the candidates. Neither are DIA and bDIA if the diagonals do not fit.
    pub fn choose<T: Real>(&self, csr: &Csr<T>, profile: &Profile) -> Choice {
        best_of(csr, profile, candidates(csr, self, profile, false))
    }
}

fn best_of<T: Real>(csr: &Csr<T>, profile: &Profile, candidates: Vec<Candidate>) -> Choice {
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
        // The format moves at least as many bytes as CSR. If a cache holds the matrix, its bytes are free and fewer
        // instructions decide; otherwise the way they are read decides.
        let cost = |name| candidates.iter().find(|c| c.name == name).and_then(weighted).unwrap_or(f64::INFINITY);
        let saved = cost("csr") - cost(format);
        let percent = 100.0 * saved / cost("csr");
        let is_held = profile.memory.resident_rate.is_none() && bytes <= profile.memory.resident;
        let reason = if is_held { "as the caches hold the matrix" } else { "as its access is more regular" };
        if saved >= WORTH_TELLING {
            format!("{shape}, expected {percent:.0} % less time per product than csr, {reason}")
        } else {
            format!("{shape}, expected to save less than 1 us per product against csr")
        }
    };
    Choice { format, candidates, why }
}

/// Formats bytes in a unit that makes them easy to compare.
fn megabytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..10_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// Bytes, shape and expected time of each format. Blocks are counted only if they may be the best of all formats except
/// CSR, or if `every` is true. Unless it is, diagonals that do not fit are left out: there may be millions to look at.
fn candidates<T: Real>(csr: &Csr<T>, survey: &Survey, profile: &Profile, every: bool) -> Vec<Candidate> {
    let (nrows, ncols, nnz) = (csr.nrows() as u64, csr.ncols() as u64, csr.nnz() as u64);
    let size = T::BYTES as u64;
    let entry = 4 + size;
    let vectors = (nrows + ncols) * size;
    let longer = &survey.longer;
    let longest = longer.iter().take_while(|&&rows| rows > 0).count();

    let padded = |name: &'static str, bytes: u128| fits::<T>(name, bytes, csr.nrows(), csr.nnz());
    let by_diagonals = |count: usize| nrows as u128 * count as u128 * size as u128;
    let diagonals = &survey.offsets;
    let has_diagonals = every || diagonals.as_ref().is_ok_and(|all| padded("dia", by_diagonals(all.len())).is_ok());
    let count = |n: usize, noun: &str| format!("{n} {noun}{}", if n == 1 { "" } else { "s" });
    let banded = |name: &'static str, offsets: &[i32], index_bytes: u64| -> Result<u64> {
        padded(name, by_diagonals(offsets.len()))?;
        Ok(positions(csr.nrows(), csr.ncols(), offsets.iter().copied()) * size + vectors + index_bytes)
    };
    let offsets = if has_diagonals { diagonals.as_deref().unwrap_or_default() } else { &[] };
    let bands = group(offsets, bdia::GAP);
    let filled: Vec<i32> = bands.iter().flat_map(|band| band.start..band.start + band.width as i32).collect();
    let inside = |offsets: &[i32]| positions(csr.nrows(), csr.ncols(), offsets.iter().copied());
    let known = |of: &dyn Fn() -> Result<u64>| match diagonals {
        Ok(_) => of(),
        Err(error) => Err(Error::Invalid { format: "dia", why: error.to_string() }),
    };
    let width = Hyb::<T>::width_by(csr.nrows(), longer);
    let (slice_widths, slices) = slices(csr);

    let in_blocks = |stem: Stem, b: usize, blocks: u128| {
        let rows = csr.nrows().div_ceil(b) as u64;
        let indices = if stem == Stem::Bsr { 4 * (rows + 1) } else { 12 * rows };
        blocks as u64 * (4 + (b * b) as u64 * size) + indices + vectors
    };

    let measure = |stem: Stem, blocks: Option<&Result<(usize, u128)>>| -> (String, u64, Result<u64>) {
        match stem {
            Stem::Csr => ("compressed rows".into(), nnz, Ok(csr.spmv_bytes())),
            Stem::Coo => ("sorted triplets".into(), nnz, Ok(nnz * (8 + size) + vectors)),
            Stem::Csc => ("compressed columns".into(), nnz, Ok(nnz * entry + 4 * (ncols + 1) + vectors)),
            Stem::Ell => {
                let bytes = padded("ell", ell::bytes::<T>(csr.nrows(), longest))
                    .map(|()| 4 * nrows * longest as u64 + nnz * size + vectors);
                (format!("rows padded to {longest}"), nrows * longest as u64, bytes)
            }
            Stem::Sell => {
                let places = slice_widths as u128 * sell::DEFAULT_C as u128;
                let perm = 4 * (nrows + slices + 1);
                let bytes = padded("sell", places * u128::from(entry) + u128::from(perm))
                    .map(|()| 4 * places as u64 + perm + nnz * size + vectors);
                let share = if places == 0 { 0.0 } else { 100.0 * (1.0 - nnz as f64 / places as f64) };
                (format!("slices of {} rows with {share:.0} % padding", sell::DEFAULT_C), places as u64, bytes)
            }
            Stem::Dia => {
                let bytes = known(&|| banded("dia", offsets, 4 * offsets.len() as u64));
                (count(offsets.len(), "diagonal"), inside(offsets), bytes)
            }
            Stem::Bdia => {
                let bytes = known(&|| banded("bdia", &filled, 8 * bands.len() as u64));
                (
                    format!("{} of {}", count(bands.len(), "band"), count(filled.len(), "diagonal")),
                    inside(&filled),
                    bytes,
                )
            }
            Stem::Hyb => {
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
            Stem::Bsr | Stem::Bsrx => match blocks {
                Some(Ok((b, blocks))) => {
                    let bytes = padded("bsr", storage_bytes::<T>(csr.nrows(), *b, *blocks))
                        .map(|()| in_blocks(stem, *b, *blocks));
                    (format!("blocks of {b} x {b}"), (*blocks as u64).saturating_mul((b * b) as u64), bytes)
                }
                Some(Err(why)) => (String::new(), 0, Err(Error::Invalid { format: "bsr", why: why.to_string() })),
                None => {
                    (String::new(), 0, Err(Error::Invalid { format: "bsr", why: "blocks were not counted".into() }))
                }
            },
            Stem::Hec | Stem::Hmec => {
                let shapes = plan(longer, if stem == Stem::Hec { 1 } else { hmec::DEFAULT_P });
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
            Stem::Dense => {
                let storage = u128::from(nrows) * u128::from(ncols) * size as u128;
                let fit = if storage > dense::FREE { padded("dense", storage) } else { Ok(()) };
                ("every place".into(), nrows * ncols, fit.map(|()| storage as u64 + vectors))
            }
        }
    };
    // A device may keep only the upper half of a symmetric matrix by diagonals, and read the values of the lower half
    // from its cache.
    let halved = |stem: Stem| stem == Stem::Dia && profile.products.halves_dia && survey.symmetric;
    let upper: Vec<i32> = offsets.iter().copied().filter(|&offset| offset >= 0).collect();
    // Number of entries that one thread sums in order, if a thread has a row.
    let chain = |stem: Stem| match stem {
        Stem::Dia => offsets.len(),
        Stem::Bdia => filled.len(),
        Stem::Hyb => width,
        Stem::Dense => csr.ncols(),
        Stem::Coo | Stem::Csr | Stem::Csc | Stem::Ell | Stem::Sell => longest,
        Stem::Bsr | Stem::Bsrx | Stem::Hec | Stem::Hmec => longest,
    };
    let time = |stem: Stem, cost: Option<Cost>, places: u64, bytes: u64| {
        let rows = if stem == Stem::Csc { ncols } else { nrows };
        cost.map(|cost| profile.product(&cost, Work { rows, places, entries: nnz, bytes, chain: chain(stem) as u64 }))
    };
    let costs = || STEMS.iter().zip(profile.products.iter()).map(|(&(name, stem), (_, cost))| (name, stem, cost));
    let candidate = |name: &'static str, stem: Stem, cost: Option<Cost>, blocks: Option<&Result<(usize, u128)>>| {
        let (mut shape, places, bytes) = measure(stem, blocks);
        let spmv = bytes.map_err(|error| match error {
            Error::DoesNotFit { why, .. } | Error::Invalid { why, .. } => why,
            other => other.to_string(),
        });
        let mut moved = spmv.as_ref().copied().unwrap_or(0);
        if spmv.is_ok() && halved(stem) {
            moved -= (places - inside(&upper)) * size + 4 * (offsets.len() - upper.len()) as u64;
            if upper.len() < offsets.len() {
                shape.push_str(&format!(", {} of them stored", upper.len()));
            }
        }
        let nanoseconds = if spmv.is_ok() { time(stem, cost, places, moved) } else { None };
        Candidate { name, spmv, shape, places, nanoseconds, moved }
    };
    let of_blocks = |stem: Stem| matches!(stem, Stem::Bsr | Stem::Bsrx);
    let is_left_out = |stem: Stem| !has_diagonals && matches!(stem, Stem::Dia | Stem::Bdia);
    let mut candidates: Vec<Candidate> = costs()
        .filter(|&(_, stem, _)| !of_blocks(stem) && !is_left_out(stem))
        .map(|(name, stem, cost)| candidate(name, stem, cost, None))
        .collect();
    let others = candidates.iter().filter(|other| other.name != "csr").filter_map(|other| other.nanoseconds);
    let least = others.min_by(f64::total_cmp).unwrap_or(f64::INFINITY);
    let slower = |b: usize, blocks: u128| {
        let (places, bytes) = (blocks as u64 * (b * b) as u64, in_blocks(Stem::Bsr, b, blocks));
        time(Stem::Bsr, profile.products.bsr, places, bytes).is_none_or(|time| time > least)
    };
    if every || !blocks_lose(csr, slower) {
        let blocks = blocks(csr);
        let kept = costs().filter(|&(_, stem, _)| !is_left_out(stem));
        for (at, (name, stem, cost)) in kept.enumerate().filter(|&(_, (_, stem, _))| of_blocks(stem)) {
            candidates.insert(at, candidate(name, stem, cost, Some(&blocks)));
        }
    }
    candidates
}

/// Returns true if blocks of every size are slower than `slower` allows, as far as a part of the rows shows. In that
/// part the blocks are counted; elsewhere there are at least as many as needed to hold the entries.
fn blocks_lose<T: Real>(csr: &Csr<T>, slower: impl Fn(usize, u128) -> bool + Sync) -> bool {
    // Counts up to each end in turn, until it is known that blocks of this size are slower.
    let loses = |some: &mut Counted, ends: &[usize]| {
        let is_slower = |some: &Counted| {
            let rest = (csr.nnz() - some.entries).div_ceil(some.b * some.b);
            slower(some.b, (some.blocks + rest) as u128)
        };
        let count = |some: &mut Counted, end: usize| {
            let (blocks, entries) = blocks_of_some(csr, some.b, some.parts..end);
            *some = Counted { b: some.b, parts: end, blocks: some.blocks + blocks, entries: some.entries + entries };
        };
        is_slower(some)
            || ends.iter().any(|&end| {
                count(some, end);
                is_slower(some)
            })
    };
    // Each end is at four times as many parts as the one before, so a late decision costs little more than its last
    // step.
    let open = BLOCK_DIMS.par_iter().filter_map(|&b| {
        let mut some = Counted { b, parts: 0, blocks: 0, entries: 0 };
        (!loses(&mut some, &[1, 4, 16, PARTS / 16])).then_some(some)
    });
    let mut open: Vec<_> = open.collect();
    // All rows are counted only if that is likely to decide, so that a failed attempt is cheap.
    let is_likely =
        |some: &Counted| slower(some.b, some.blocks as u128 * csr.nnz() as u128 / some.entries.max(1) as u128);
    open.iter().all(is_likely) && open.par_iter_mut().all(|some| loses(some, &[PARTS / 4, PARTS]))
}

/// What was counted in the first parts of the block rows.
struct Counted {
    /// Rows of a block.
    b: usize,
    parts: usize,
    blocks: usize,
    entries: usize,
}

/// Chooses BSR's block size and counts its blocks.
fn blocks<T: Real>(csr: &Csr<T>) -> Result<(usize, u128)> {
    let b = Bsr::choose_block_dim(csr)?;
    let blocks = count_blocks(csr, b)?.iter().map(|&n| u128::from(n)).sum();
    crate::index::checked(usize::try_from(blocks).unwrap_or(usize::MAX), "entries")?;
    Ok((b, blocks))
}

/// The sum of SELL's slice widths, and the number of slices. A width is the longest row of a slice of the sorted
/// windows.
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
