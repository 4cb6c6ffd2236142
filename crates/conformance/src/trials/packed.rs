//! Trials of rows that need entries of x from another device: [`Entries::apply_packed`].
//!
//! The x of such a row lies in three places: the device's own vector, the message of the other rank of
//! [`super::peers`], and a vector of packed entries.

use std::ops::Range;
use std::rc::Rc;

use spandrel_backend::{Coeff, Entries, Error, EveryMethod, Join, Mat, PackedRows, Received, Result, Spmv};
use spandrel_formats::index::Ordinal;
use spandrel_formats::{Csr, Real};

use super::peers::{Other, TURNS, buffer, peer};
use crate::case::{Stream, numbers};
use crate::reference::difference;
use crate::subject::{Fleet, GateState, gate};
use crate::trial::{Verdict, wrong};

/// Rows with packed x on the host, for a y of `len` elements.
struct Rows<T> {
    matrix: Csr<T>,
    places: Vec<Ordinal>,
    len: usize,
    /// Where own packed entries lie in x.
    own: Vec<Ordinal>,
    /// Which packed entries are own, and which the other rank sends.
    held: Range<usize>,
    sent: Range<usize>,
}

impl<T: Real> Rows<T> {
    /// `n` packed entries. Most rows are short. One in 50 has most of the columns, and one in 5 none.
    fn new(n: usize, seed: u64) -> Result<Self> {
        let mut stream = Stream::new(seed);
        let (count, len) = (n.min(3000), 2 * n.min(3000) + 3);
        let mut places: Vec<Ordinal> = (0..count as Ordinal).map(|k| 2 * k + 1).collect();
        (1..count).rev().for_each(|k| places.swap(k, stream.below(k + 1)));
        let (mut row_ptr, mut cols) = (vec![0], Vec::new());
        for row in 0..count {
            let wanted = match row % 50 {
                7 => n.min(1500),
                at if at % 5 == 0 => 0,
                _ => 1 + stream.below(40),
            };
            let begin = cols.len();
            (0..wanted).for_each(|_| cols.push(stream.below(n) as Ordinal));
            cols[begin..].sort_unstable();
            let mut kept = begin;
            for at in begin..cols.len() {
                if kept == begin || cols[kept - 1] != cols[at] {
                    cols[kept] = cols[at];
                    kept += 1;
                }
            }
            cols.truncate(kept);
            row_ptr.push(kept as u32);
        }
        let values = numbers(seed + 1, cols.len());
        let matrix = Csr::new(count, n, row_ptr, cols, values)?;
        let (held, sent) = (n / 4..n / 4 + n / 2, n / 4 + n / 2..n);
        let own = held.clone().map(|at| (held.end - 1 - at) as Ordinal).collect();
        Ok(Self { matrix, places, len, own, held, sent })
    }

    /// y after the product: `z` has an element per row.
    fn product(&self, a: T, packed: &[T], b: T, z: &[T], y: &mut [T]) {
        for (row, &place) in self.places.iter().enumerate() {
            let (cols, values) = self.matrix.row(row);
            let add = |sum: T, (&col, &value): (&Ordinal, &T)| value.mul_add(packed[col as usize], sum);
            let sum = cols.iter().zip(values).fold(T::zero(), add);
            y[place as usize] = if b == T::zero() { a * sum } else { a.mul_add(sum, b * z[row]) };
        }
    }
}

/// Rows whose x comes from all three places, and from only two, in turns that differ in what is added.
pub(super) fn rows<T, D>(fleet: &Rc<Fleet<D>>, at: [usize; 2], n: usize) -> Verdict
where
    T: Real,
    D: Entries<T> + EveryMethod<T> + Join + Spmv<Csr<T>>,
{
    let [be, other] = at.map(|at| &fleet.devices[at].1);
    let rows = Rows::<T>::new(n, n as u64)?;
    let nan = |len: usize| vec![T::nan(); len];
    let own = buffer(be, 8)?;
    let mut other = Other::<T, D>::new(other, &own, n)?;
    // The last packed entries are the first elements of its message.
    let sent = [Received { peer: peer(be, &other.buffer)?, sent: 0..rows.sent.len(), at: rows.sent.start }];
    let matrix = Mat::load(be, rows.matrix.clone())?;
    let held = numbers::<T>(2, rows.own.len());
    let x = be.upload(&held)?;
    let (places, of_x) = (be.places(rows.len, &rows.places)?, be.places(held.len(), &rows.own)?);
    let packed_rows = |from| PackedRows { matrix: &matrix, places: &places, own: &of_x, at: rows.held.start, from };
    let nothing = be.places(held.len(), &[])?;
    let [two, half] = [2.0, 0.5].map(T::from_f64);
    let (scalar, count) = (be.scalar(two)?, rows.places.len());
    for turn in 0..TURNS {
        for is_sent in [true, false] {
            if is_sent {
                other.publish(turn)?;
                be.send_entries(&x, &nothing, turn, &own)?;
            }
            let state = if turn == 3 { GateState::Stopped } else { GateState::Running };
            let monitor = gate::<T, D>(be, state)?;
            // Own entries are read from x, and those that are sent from the message.
            let mut whole = numbers::<T>(3 + turn, n);
            let mut room = whole.clone();
            room[rows.held.clone()].fill(T::nan());
            rows.held.clone().zip(&rows.own).for_each(|(at, &place)| whole[at] = held[place as usize]);
            if is_sent {
                room[rows.sent.clone()].fill(T::nan());
                whole[rows.sent.clone()].copy_from_slice(&other.values(turn)[..rows.sent.len()]);
            }
            let [all, few] = [rows.len, count].map(|len| numbers::<T>(9 + turn, len));
            let before = if turn == 0 { nan(rows.len) } else { numbers(20, rows.len) };
            let of_rows: Vec<T> = rows.places.iter().map(|&place| all[place as usize]).collect();
            // The coefficients, z in vectors, and z as the product reads it.
            let (a, of_b, b, z, sums, added) = match turn {
                0 => (T::one(), Coeff::zero(), T::zero(), None, nan(count), nan(count)),
                1 => (-T::one(), Coeff::one(), T::one(), Some(be.upload(&all)?), nan(count), of_rows),
                2 => (half, Coeff::scalar(&scalar), two, None, few.clone(), few),
                _ => (two, Coeff::host(half), half, Some(be.upload(&all)?), nan(count), of_rows),
            };
            let (mut packed, mut sums, mut y) = (be.upload(&room)?, be.upload(&sums)?, be.upload(&before)?);
            let from = if is_sent { &sent[..] } else { &[] };
            be.apply_packed(
                monitor.as_ref(),
                turn,
                &packed_rows(from),
                Coeff::host(a),
                &x,
                of_b,
                z.as_ref(),
                &mut packed,
                &mut sums,
                &mut y,
            )?;
            let mut wanted = before;
            if state == GateState::Running {
                rows.product(a, &whole, b, &added, &mut wanted);
            }
            if let Some(detail) = difference(&be.download(&y)?, &wanted) {
                return Err(wrong(format!("turn {turn}, with a message: {is_sent}: {detail}")));
            }
        }
    }
    refused(be, &packed_rows(&[]), [n, held.len(), count, rows.len])
}

/// Vectors of other lengths.
fn refused<T, D>(be: &D, rows: &PackedRows<'_, T, D>, [n, held, count, len]: [usize; 4]) -> Verdict
where
    T: Real,
    D: Entries<T> + EveryMethod<T> + Spmv<Csr<T>>,
{
    for longer in 0..5 {
        let zeros = |which: usize, len: usize| be.zeros(len + usize::from(which == longer));
        let (x, mut packed, mut sums) = (zeros(0, held)?, zeros(1, n)?, zeros(2, count)?);
        let (z, mut y) = (zeros(3, len)?, zeros(4, len)?);
        let one = Coeff::one;
        match be.apply_packed(None, 0, rows, one(), &x, one(), Some(&z), &mut packed, &mut sums, &mut y) {
            Err(Error::Shape { .. }) => {}
            other => return Err(wrong(format!("a longer vector, number {longer}: {other:?}"))),
        }
    }
    Ok(())
}
