//! Chosen entries of vectors on the CPU: copies within host memory.
//!
//! Cost: places and entries once. One thread, because ranks exchange few entries.

use std::ops::Range;
use std::sync::Arc;

use spandrel_backend::error::expect_len;
use spandrel_backend::{Entries, Error, Gate, Received, Result};
use spandrel_formats::Real;
use spandrel_formats::index::Ordinal;

use crate::device::open;
use crate::peers::CpuSendBuffer;
use crate::{Cpu, Vector};

/// Places in vectors of one length.
#[derive(Clone, Debug)]
pub struct CpuPlaces {
    len: usize,
    /// Each below `len`.
    places: Vec<Ordinal>,
}

/// The elements from `at` on, `count` of them.
fn range(op: &'static str, len: usize, at: usize, count: usize) -> Result<Range<usize>> {
    match at.checked_add(count) {
        Some(end) if end <= len => Ok(at..end),
        end => Err(Error::Shape { op, what: "a range", found: end.unwrap_or(usize::MAX), expected: len }),
    }
}

impl<T: Real> Entries<T> for Cpu {
    type Places = CpuPlaces;

    fn places(&self, len: usize, places: &[Ordinal]) -> Result<CpuPlaces> {
        if let Some(&beyond) = places.iter().find(|&&place| place as usize >= len) {
            return Err(Error::Shape { op: "places", what: "a place", found: beyond as usize, expected: len });
        }
        Ok(CpuPlaces { len, places: places.to_vec() })
    }

    fn gather_entries(&self, from: &Vector<T>, places: &CpuPlaces, to: &mut Vector<T>, at: usize) -> Result<()> {
        expect_len("gather_entries", "from", from.len(), places.len)?;
        let range = range("gather_entries", to.len(), at, places.places.len())?;
        let from = from.as_slice();
        for (to, &place) in to.as_mut_slice()[range].iter_mut().zip(&places.places) {
            *to = from[place as usize];
        }
        Ok(())
    }

    fn scatter_entries(
        &self,
        gate: Gate<'_, Self>,
        from: &Vector<T>,
        at: usize,
        places: &CpuPlaces,
        to: &mut Vector<T>,
    ) -> Result<()> {
        expect_len("scatter_entries", "to", to.len(), places.len)?;
        let range = range("scatter_entries", from.len(), at, places.places.len())?;
        if !open(gate) {
            return Ok(());
        }
        let to = to.as_mut_slice();
        for (&value, &place) in from.as_slice()[range].iter().zip(&places.places) {
            to[place as usize] = value;
        }
        Ok(())
    }

    fn fetch_entries(
        &self,
        gate: Gate<'_, Self>,
        from: &Vector<T>,
        places: &CpuPlaces,
        host: &mut [T],
    ) -> Result<bool> {
        expect_len("fetch_entries", "from", from.len(), places.len)?;
        expect_len("fetch_entries", "host", host.len(), places.places.len())?;
        if !open(gate) {
            return Ok(false);
        }
        let from = from.as_slice();
        for (host, &place) in host.iter_mut().zip(&places.places) {
            *host = from[place as usize];
        }
        Ok(true)
    }

    fn put_entries(&self, host: &[T], places: &CpuPlaces, to: &mut Vector<T>) -> Result<()> {
        expect_len("put_entries", "to", to.len(), places.len)?;
        expect_len("put_entries", "host", host.len(), places.places.len())?;
        let to = to.as_mut_slice();
        for (&value, &place) in host.iter().zip(&places.places) {
            to[place as usize] = value;
        }
        Ok(())
    }

    fn read_range(&self, from: &Vector<T>, at: usize, host: &mut [T]) -> Result<()> {
        let range = range("read_range", from.len(), at, host.len())?;
        host.copy_from_slice(&from.as_slice()[range]);
        Ok(())
    }

    fn write_range(&self, host: &[T], to: &mut Vector<T>, at: usize) -> Result<()> {
        let range = range("write_range", to.len(), at, host.len())?;
        to.as_mut_slice()[range].copy_from_slice(host);
        Ok(())
    }

    fn send_entries(&self, from: &Vector<T>, places: &CpuPlaces, turn: u64, buffer: &CpuSendBuffer) -> Result<()> {
        expect_len("send_entries", "from", from.len(), places.len)?;
        let from = from.as_slice();
        buffer.put(turn, places.places.iter().map(|&place| from[place as usize]))
    }

    fn receive_entries(&self, turn: u64, from: &[Received<Arc<CpuSendBuffer>>], to: &mut Vector<T>) -> Result<()> {
        let ranges = from.iter().map(|part| range("receive_entries", to.len(), part.at, part.sent.len()));
        let ranges: Vec<Range<usize>> = ranges.collect::<Result<_>>()?;
        from.iter()
            .zip(ranges)
            .try_for_each(|(part, range)| part.peer.take(turn, part.sent.clone(), &mut to.as_mut_slice()[range]))
    }
}
