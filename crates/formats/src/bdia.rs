//! bDIA, banded diagonals: DIA whose diagonals are grouped in bands, so that one window of x serves a whole band.
//!
//! Layout (6 x 6 example of the snapshots: the diagonals -3 and 0, 1, 2, 3 make two bands):
//! ```text
//! bands (start -3, width 1), (start  0, width 4)      first 0 1
//! values[i + nrows (first[b] + k)] = A[i, i + start_b + k]      first[b] = sum of the widths before b
//! ```
//! Invariants: bands ascend and are disjoint, each at least one diagonal wide, all diagonals inside -(nrows - 1) ..=
//! ncols - 1; `values.len() == nrows (sum of widths)`; positions outside the matrix hold 0 and are never multiplied,
//! zeros inside are multiplied like entries. Explicit zeros are fill. Positions are computed in `usize`.
//!
//! Gaps: one absent diagonal between two occupied ones is filled; two or more begin a new band. Filling costs |T| bytes
//! per row and diagonal. A new band costs another window: |T| bytes of x per row from the cache or from memory. With
//! one absent diagonal both cost the same, and the longer band wins because it has fewer windows. With two, filling
//! costs more.
//! Order: stored. Each row is summed by ascending diagonals, as in CSR.
//! Reference: Wang, Ren, Tian, Efficient sparse matrix-vector multiplication and CG solver optimization on GPU, 2013;
//! generalised here from one band to a list.

use crate::dia::{check_diagonals, flip, gather, positions, spread};
use crate::index::checked;
use crate::padding::fits;
use crate::survey::occupied;
use crate::{Csr, Dia, Error, Format, Real, Result, Traffic};

/// Maximum number of absent diagonals that are filled instead of beginning a new band. See the module's head for the
/// reason.
pub const GAP: usize = 1;

/// Diagonals `start..start + width` (column minus row).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Band {
    /// The lowest diagonal.
    pub start: i32,
    /// Number of diagonals.
    pub width: u32,
}

/// A matrix by bands of diagonals. See the module's head for layout and invariants.
#[derive(Clone, Debug, PartialEq)]
pub struct Bdia<T> {
    nrows: usize,
    ncols: usize,
    bands: Vec<Band>,
    values: Vec<T>,
    nnz: usize,
}

/// The parts of a [`Bdia`]: `(nrows, ncols, bands, values)`.
pub type BdiaParts<T> = (usize, usize, Vec<Band>, Vec<T>);

fn diagonals(bands: &[Band]) -> impl Iterator<Item = i32> + '_ {
    bands.iter().flat_map(|band| (0..band.width).map(|k| (i64::from(band.start) + i64::from(k)) as i32))
}

impl<T: Real> Bdia<T> {
    /// Makes a matrix from its parts and checks every invariant in O(values).
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Length`], [`Error::Unsorted`] for bands that overlap or descend,
    /// [`Error::Invalid`] for an empty band or a diagonal or a value outside the matrix.
    pub fn new(nrows: usize, ncols: usize, bands: Vec<Band>, values: Vec<T>) -> Result<Self> {
        let format = "bdia";
        checked(nrows, "rows")?;
        checked(ncols, "columns")?;
        for (at, band) in bands.iter().enumerate() {
            let end = i64::from(band.start) + i64::from(band.width);
            if band.width == 0 {
                return Err(Error::Invalid { format, why: format!("bands[{at}] has width 0: remove it") });
            }
            if i64::from(band.start) <= -(nrows as i64) || end > ncols as i64 {
                return Err(Error::Invalid {
                    format,
                    why: format!(
                        "bands[{at}], diagonals {} to {}, leaves the {nrows} x {ncols} matrix: narrow it",
                        band.start,
                        end - 1
                    ),
                });
            }
            if at > 0 && i64::from(band.start) < i64::from(bands[at - 1].start) + i64::from(bands[at - 1].width) {
                return Err(Error::Unsorted { format, array: "bands", at });
            }
        }
        let offsets: Vec<i32> = diagonals(&bands).collect();
        let nnz = check_diagonals(format, nrows, ncols, &offsets, &values)?;
        Ok(Self { nrows, ncols, bands, values, nnz })
    }

    /// Returns the parts without a copy.
    pub fn into_parts(self) -> BdiaParts<T> {
        (self.nrows, self.ncols, self.bands, self.values)
    }

    /// The bands, ascending.
    pub fn bands(&self) -> &[Band] {
        &self.bands
    }

    /// The `nrows` values of each diagonal, by row, band after band.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Column minus row of each stored diagonal, ascending.
    pub fn offsets(&self) -> impl Iterator<Item = i32> + '_ {
        diagonals(&self.bands)
    }

    /// The bands that [`Format::from_csr`] makes from these occupied diagonals (ascending) of a matrix with `nnz`
    /// entries. For conversions elsewhere.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`] if the storage exceeds 1 MiB and 20 times CSR's.
    pub fn bands_of(nrows: usize, offsets: &[i32], nnz: usize) -> Result<Vec<Band>> {
        Self::fitting(nrows, offsets, nnz, GAP)
    }

    fn fitting(nrows: usize, offsets: &[i32], nnz: usize, gap: usize) -> Result<Vec<Band>> {
        let bands = group(offsets, gap);
        let width: u128 = bands.iter().map(|band| u128::from(band.width)).sum();
        fits::<T>("bdia", nrows as u128 * width * T::BYTES as u128, nrows, nnz)?;
        Ok(bands)
    }

    /// Bytes of a matrix with these bands: [`Traffic::storage`] and [`Traffic::spmv_bytes`].
    pub fn traffic_of(nrows: usize, ncols: usize, bands: &[Band]) -> (u64, u64) {
        let list = 8 * bands.len() as u64;
        let values = nrows as u64 * bands.iter().map(|band| u64::from(band.width)).sum::<u64>();
        let inside = positions(nrows, ncols, diagonals(bands));
        (values * T::BYTES as u64 + list, (inside + (nrows + ncols) as u64) * T::BYTES as u64 + list)
    }

    /// Makes bands and fills gaps of at most `gap` absent diagonals.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`] if the storage exceeds 1 MiB and 20 times CSR's.
    pub fn from_csr_with(csr: &Csr<T>, gap: usize) -> Result<Self> {
        let (nrows, ncols) = (csr.nrows(), csr.ncols());
        let bands = Self::fitting(nrows, &occupied(csr)?, csr.nnz(), gap)?;
        let offsets: Vec<i32> = diagonals(&bands).collect();
        let (values, nnz) = spread(csr, &offsets)?;
        Ok(Self { nrows, ncols, bands, values, nnz })
    }
}

/// Groups ascending diagonals into bands and fills gaps of at most `gap`.
pub(crate) fn group(offsets: &[i32], gap: usize) -> Vec<Band> {
    let mut bands: Vec<Band> = Vec::new();
    for &offset in offsets {
        if let Some(band) = bands.last_mut() {
            let width = i64::from(offset) - i64::from(band.start);
            if width - i64::from(band.width) <= gap.min(u32::MAX as usize) as i64 {
                band.width = width as u32 + 1;
                continue;
            }
        }
        bands.push(Band { start: offset, width: 1 });
    }
    bands
}

impl<T: Real> From<Dia<T>> for Bdia<T> {
    /// Groups adjacent diagonals into bands and fills no gap. The values move, because the layouts agree.
    fn from(dia: Dia<T>) -> Self {
        let nnz = dia.nnz();
        let (nrows, ncols, offsets, values) = dia.into_parts();
        Self { nrows, ncols, bands: group(&offsets, 0), values, nnz }
    }
}

impl<T: Real> Traffic for Bdia<T> {
    fn storage(&self) -> u64 {
        Self::traffic_of(self.nrows, self.ncols, &self.bands).0
    }
    fn spmv_bytes(&self) -> u64 {
        Self::traffic_of(self.nrows, self.ncols, &self.bands).1
    }
    fn flops(&self) -> u64 {
        2 * self.nnz as u64
    }
}

impl<T: Real> Format for Bdia<T> {
    type Value = T;
    const NAME: &'static str = "bdia";
    const MULTIPLIES_FILL: bool = true;
    fn nrows(&self) -> usize {
        self.nrows
    }
    fn ncols(&self) -> usize {
        self.ncols
    }
    fn nnz(&self) -> usize {
        self.nnz
    }
    /// Fills gaps of [`GAP`]. Refused if the storage exceeds 1 MiB and 20 times CSR's.
    fn from_csr(csr: &Csr<T>) -> Result<Self> {
        Self::from_csr_with(csr, GAP)
    }
    fn to_csr(&self) -> Result<Csr<T>> {
        let offsets: Vec<i32> = self.offsets().collect();
        gather(self.nrows, self.ncols, &offsets, &self.values)
    }
    /// Copies each diagonal to its mirror image.
    fn transpose(&self) -> Result<Self> {
        let offsets: Vec<i32> = self.offsets().collect();
        let values = flip("bdia", (self.nrows, self.ncols, self.nnz), &offsets, &self.values)?;
        let mirror = |band: &Band| Band { start: -(band.start + (band.width - 1) as i32), width: band.width };
        let bands = self.bands.iter().rev().map(mirror).collect();
        Ok(Self { nrows: self.ncols, ncols: self.nrows, bands, values, nnz: self.nnz })
    }
}
