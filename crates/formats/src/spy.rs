//! The spy plot: where a matrix has entries, as a grey picture.
//!
//! Layout: row-major pixels, one byte each, 255 is empty. A matrix larger than the image is cut into square bins of a
//! whole number of rows and columns. So every bin has the same area, and a diagonal shows no moiré. A smaller matrix is
//! enlarged by a whole number, with light lines between the cells if they are wide enough.
//! Cost: one pass over the entries, 4 bytes per bin.

use crate::{Csr, Real};

/// Longest side, in pixels, frame included.
const LARGEST: usize = 1024;
const FRAME: usize = 2;
/// A matrix with few rows is enlarged until its longer side is about this.
const COMFORTABLE: usize = 512;
/// Cells at least this wide get a line between them.
const RULED: usize = 8;
const EMPTY: u8 = 255;
const RULE: u8 = 232;
const BORDER: u8 = 160;
/// Grey of a bin with a single entry; the fullest bin is black.
const FAINTEST: f64 = 150.0;

/// A grey image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Pixels per row.
    pub width: usize,
    /// Rows of pixels.
    pub height: usize,
    /// The grey of each pixel, row by row: 0 is black, 255 white.
    pub pixels: Vec<u8>,
}

/// Draws the pattern of `a`, at most 1024 pixels in each direction. Explicit zeros count as entries.
///
/// ```
/// let picture = spandrel_formats::spy::draw(&spandrel_formats::generate::csr::<f64>("poisson2d:8")?);
/// assert_eq!(picture.pixels.len(), picture.width * picture.height);
/// # Ok::<(), spandrel_formats::Error>(())
/// ```
pub fn draw<T: Real>(a: &Csr<T>) -> Picture {
    let room = LARGEST - 2 * FRAME;
    let longest = a.nrows().max(a.ncols()).max(1);
    let bin = longest.div_ceil(room);
    let (bins_down, bins_across) = (a.nrows().div_ceil(bin), a.ncols().div_ceil(bin));
    let counts = count(a, bin, bins_down, bins_across);
    let most = f64::from(counts.iter().copied().max().unwrap_or(0).max(1));
    let shade = |count: u32| match count {
        0 => EMPTY,
        _ if bin == 1 => 0,
        count => (FAINTEST * (1.0 - f64::from(count).ln() / most.ln().max(f64::MIN_POSITIVE)).clamp(0.0, 1.0)) as u8,
    };

    let zoom = if bin == 1 { (COMFORTABLE / longest).clamp(1, 64) } else { 1 };
    // A very flat matrix is stretched across its short side, so that something is seen.
    let (zoom_down, zoom_across) = (thick(bins_down, zoom), thick(bins_across, zoom));
    let (inner_height, inner_width) = (bins_down * zoom_down, bins_across * zoom_across);
    let (height, width) = (inner_height + 2 * FRAME, inner_width + 2 * FRAME);
    let mut pixels = vec![BORDER; width * height];
    for y in 0..inner_height {
        for x in 0..inner_width {
            let line = |at: usize, zoom: usize| zoom >= RULED && at.is_multiple_of(zoom) && at > 0;
            let grey = if line(y, zoom_down) || line(x, zoom_across) {
                RULE
            } else {
                shade(counts[(y / zoom_down) * bins_across + x / zoom_across])
            };
            pixels[(y + FRAME) * width + x + FRAME] = grey;
        }
    }
    Picture { width, height, pixels }
}

/// Pixels per bin along a side of `bins`: `zoom`, or more where the side would be a sliver.
fn thick(bins: usize, zoom: usize) -> usize {
    const SLIVER: usize = 16;
    if bins == 0 { zoom } else { zoom.max(SLIVER.div_ceil(bins)) }
}

fn count<T: Real>(a: &Csr<T>, bin: usize, down: usize, across: usize) -> Vec<u32> {
    let mut counts = vec![0u32; down * across];
    for i in 0..a.nrows() {
        let line = i / bin * across;
        for &j in a.row(i).0 {
            let seen = &mut counts[line + j as usize / bin];
            *seen = seen.saturating_add(1);
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inner(p: &Picture, y: usize, x: usize) -> u8 {
        p.pixels[(y + FRAME) * p.width + x + FRAME]
    }

    #[test]
    fn a_small_matrix_is_enlarged_and_its_entries_are_black() {
        let p = draw(&Csr::<f64>::identity(6).unwrap());
        assert_eq!((p.width, p.height), (6 * 64 + 4, 6 * 64 + 4));
        assert_eq!(inner(&p, 32, 32), 0);
        assert_eq!(inner(&p, 32, 96), EMPTY);
        assert_eq!(inner(&p, 64, 10), RULE);
    }

    #[test]
    fn a_large_matrix_fits_and_its_diagonal_is_even() {
        for n in [1021, 5000, 1_000_000] {
            let p = draw(&Csr::<f64>::identity(n).unwrap());
            assert!(p.width <= LARGEST && p.width > LARGEST / 2, "{n}: {}", p.width);
            let last = p.width - 2 * FRAME - 1;
            let diagonal: Vec<u8> = (0..last).map(|k| inner(&p, k, k)).collect();
            assert!(diagonal.iter().all(|&grey| grey == 0), "{n}");
            assert_eq!(inner(&p, 0, last), EMPTY);
        }
    }

    #[test]
    fn flat_and_empty_matrices_have_a_picture() {
        for (nrows, ncols) in [(0, 0), (0, 5), (1, 4000), (4000, 1), (3, 3)] {
            let a = Csr::<f64>::new(nrows, ncols, vec![0; nrows + 1], vec![], vec![]).unwrap();
            let p = draw(&a);
            assert_eq!(p.pixels.len(), p.width * p.height);
        }
    }

    #[test]
    fn one_entry_among_many_is_still_seen() {
        // A dense block of 100 x 100 and a lone entry far away.
        let n = 50_000;
        let mut row_ptr = vec![0u32];
        let mut col_idx = Vec::new();
        for i in 0..n {
            if i < 100 {
                col_idx.extend(0..100u32);
            }
            if i == n - 1 {
                col_idx.push(n as u32 - 1);
            }
            row_ptr.push(col_idx.len() as u32);
        }
        let values = vec![1.0f32; col_idx.len()];
        let p = draw(&Csr::new(n, n, row_ptr, col_idx, values).unwrap());
        let last = p.width - 2 * FRAME - 1;
        assert_eq!(inner(&p, 0, 0), 0);
        assert_eq!(inner(&p, last, last), FAINTEST as u8);
    }
}
