//! The places of a bDIA matrix's diagonals, as its kernels take them: offsets, or pieces of bands with windows of x.
//!
//! Layout: the first few are passed by value; if there are more, all of them are in memory. Kernels: kernels/bdia.cu.

use spandrel_backend::Result;
use spandrel_formats::{Band, Real};

use crate::Cuda;
use crate::kernel::Argument;
use crate::memory::{Address, Buffer};

/// The largest number of diagonals in a piece.
const PIECE: u32 = 1024;
/// The numbers of pieces and offsets that are passed by value.
const NEAR_PIECES: usize = 16;
const NEAR_OFFSETS: usize = 64;

/// Diagonals `start..start + width` of a band, numbered from `first` on, and the place of their window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Piece {
    start: i32,
    width: u32,
    first: u32,
    pub(crate) at: u32,
}

/// Pieces in the form that kernels take.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PiecesArg {
    all: Address,
    count: u32,
    reserved: u32,
    near: [Piece; NEAR_PIECES],
}
// SAFETY: `struct Pieces`: a pointer, two u32, and pieces of four 32-bit fields each.
unsafe impl Argument for PiecesArg {}

/// Offsets in the form that kernels take.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct OffsetsArg {
    all: Address,
    near: [i32; NEAR_OFFSETS],
}
// SAFETY: `struct Offsets`: a pointer and 64 ints.
unsafe impl Argument for OffsetsArg {}

/// Windows for `rows` rows: the pieces, and the elements of the largest pass. A pass holds at most `room` elements, or
/// one piece.
pub(crate) fn layout(bands: &[Band], rows: u32, room: u32) -> (Vec<Piece>, u32) {
    let (mut pieces, mut first, mut at, mut extent) = (Vec::new(), 0, 0, 0);
    for band in bands {
        for begin in (0..band.width).step_by(PIECE as usize) {
            let width = (band.width - begin).min(PIECE);
            let len = rows + width.next_multiple_of(4);
            if at > 0 && at + len > room {
                at = 0;
            }
            // The diagonals of a band are offsets of a matrix, which fit.
            pieces.push(Piece { start: (i64::from(band.start) + i64::from(begin)) as i32, width, first, at });
            first += width;
            at += len;
            extent = extent.max(at);
        }
    }
    (pieces, extent)
}

/// The places of the diagonals in the form that kernels take. Those beyond the near ones are in memory too.
#[derive(Debug)]
pub(crate) struct Offsets {
    pub(crate) near: OffsetsArg,
    _all: Option<Buffer<i32>>,
}

/// The same as pieces, and the elements of their windows.
#[derive(Debug)]
pub(crate) struct Pieces {
    pub(crate) near: PiecesArg,
    _all: Option<Buffer<Piece>>,
    extent: u32,
}

impl Pieces {
    /// Bytes of the windows.
    pub(crate) fn windows<T: Real>(&self) -> u32 {
        self.extent * T::BYTES as u32
    }
}

impl Cuda {
    /// Windows as [`layout`] gives them.
    pub(crate) fn pieces(&self, (pieces, extent): (Vec<Piece>, u32)) -> Result<Pieces> {
        let mut near = [Piece::default(); NEAR_PIECES];
        near.iter_mut().zip(&pieces).for_each(|(near, &piece)| *near = piece);
        let far = pieces.len() > NEAR_PIECES;
        let all = far.then(|| Buffer::from_host(self.stream(), &pieces, "a matrix's bands")).transpose()?;
        let pointer = all.as_ref().map_or(Address::NULL, Buffer::pointer);
        let near = PiecesArg { all: pointer, count: pieces.len() as u32, reserved: 0, near };
        Ok(Pieces { near, _all: all, extent })
    }

    /// Offsets, ascending.
    pub(crate) fn offsets(&self, offsets: &[i32]) -> Result<Offsets> {
        let mut near = [0; NEAR_OFFSETS];
        near.iter_mut().zip(offsets).for_each(|(near, &offset)| *near = offset);
        let far = offsets.len() > NEAR_OFFSETS;
        let all = far.then(|| Buffer::from_host(self.stream(), offsets, "a matrix's offsets")).transpose()?;
        let near = OffsetsArg { all: all.as_ref().map_or(Address::NULL, Buffer::pointer), near };
        Ok(Offsets { near, _all: all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_a_pass_are_disjoint_and_a_new_pass_begins_at_0() {
        let bands = [Band { start: -2000, width: 1500 }, Band { start: -1, width: 3 }, Band { start: 100, width: 5 }];
        let (pieces, extent) = layout(&bands, 1024, 4096);
        let place = |start, width, first, at| Piece { start, width, first, at };
        assert_eq!(
            pieces,
            [place(-2000, 1024, 0, 0), place(-976, 476, 1024, 2048), place(-1, 3, 1500, 0), place(100, 5, 1503, 1028)]
        );
        assert_eq!(extent, 3548);
    }
}
