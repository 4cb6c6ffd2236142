//! Random systems: every generator with random parameters, and patterns that no generator makes; right-hand sides and
//! first guesses.

use spandrel_formats::{Csr, Ordinal, Permutation, Triplets, generate};

use crate::case::{Stream, numbers};

/// A x = b with a first guess, exact in f64.
pub(super) struct System {
    /// How it was made.
    pub(super) what: String,
    pub(super) a: Csr<f64>,
    pub(super) b: Vec<f64>,
    pub(super) x0: Vec<f64>,
    /// No number is near the ends of either element type's range, and none is an infinity or NaN.
    pub(super) tame: bool,
}

/// What it is to draw from a stream.
impl Stream {
    pub(super) fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }
    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
    pub(super) fn of<'a, V: ?Sized>(&mut self, choices: &[&'a V]) -> &'a V {
        choices[self.below(choices.len())]
    }
}

/// A specification of at most some hundred unknowns.
fn spec(s: &mut Stream) -> String {
    let mut extent = |most| s.between(1, most);
    let (x, y, z) = (extent(14), extent(14), extent(6));
    let n = s.between(1, 160);
    match s.below(13) {
        0 => format!("poisson2d:{x}x{y}"),
        1 => format!("poisson2d9:{x}x{y}"),
        2 => format!("d3n7:{}x{}x{z}", x.min(6), y.min(6)),
        3 => format!("d3n27:{}x{}x{z}", x.min(6), y.min(6)),
        4 => format!("convdiff2d:{x}x{y},peclet={}", s.below(30)),
        5 => format!("convdiff3d:{}x{}x{z},peclet={}", x.min(6), y.min(6), s.below(30)),
        6 => format!("anisotropic2d:{x}x{y},eps={}", 0.5f64.powi(s.below(12) as i32)),
        7 => format!("banded:n={n},d={},seed={}", 2 * s.below(n.min(12)) + 1, s.below(1000)),
        8 => {
            let p = s.below(4);
            format!("gfem:n={},p={p}", n.max(2 * p))
        }
        9 => format!("randspd:n={x},density={},cond=1e{},seed={}", s.unit(), s.below(13), s.below(1000)),
        10 => format!("powerlaw:n={n},seed={}", s.below(1000)),
        11 => format!("random:n={n},nnz_per_row={},seed={}", s.between(1, n.min(9)), s.below(1000)),
        _ => format!("electrostatic:n={n},seed={}", s.below(1000)),
    }
}

/// Any matrix: symmetric or not, dominant or not, with zeros on the diagonal or rows without entries.
fn wild(s: &mut Stream) -> spandrel_formats::Result<(String, Csr<f64>)> {
    let n = if s.one_in(40) { 0 } else { s.between(1, 90) };
    let (longest, symmetric, sign) = (s.below(8), s.one_in(2), if s.one_in(6) { -1.0 } else { 1.0 });
    let (dominance, holes) = (s.of(&[&0.0, &0.5, &1.0, &1.0, &2.0]), s.one_in(4));
    let mut triplets = Triplets::new(n, n)?;
    let mut sums = vec![0.0; n];
    for i in 0..n {
        for _ in 0..s.below(longest + 1) {
            let (j, value) = (s.below(n), 2.0 * s.unit() - 1.0);
            if i == j {
                continue;
            }
            triplets.push(i, j, value)?;
            sums[i] += value.abs();
            if symmetric {
                triplets.push(j, i, sign * value)?;
                sums[j] += value.abs();
            }
        }
    }
    for (i, sum) in sums.iter().enumerate() {
        let value = if holes && s.one_in(20) { 0.0 } else { dominance * (sum + 0.25 + s.unit()) };
        if value != 0.0 || s.one_in(2) {
            triplets.push(i, i, value)?;
        }
    }
    Ok((
        format!("wild {n}, symmetric {symmetric}, sign {sign}, dominance {dominance}, holes {holes}"),
        triplets.to_csr()?,
    ))
}

/// A random order of n.
fn order(s: &mut Stream, n: usize) -> spandrel_formats::Result<Permutation> {
    let mut perm: Vec<Ordinal> = (0..n as Ordinal).collect();
    (1..n).rev().for_each(|last| perm.swap(last, s.below(last + 1)));
    Permutation::new(perm)
}

impl System {
    pub(super) fn new(s: &mut Stream) -> spandrel_formats::Result<Self> {
        let (mut what, mut a) = if s.one_in(3) {
            wild(s)?
        } else {
            let spec = spec(s);
            let a = generate::csr(&spec)?;
            (spec, a)
        };
        let n = a.nrows();
        let mut tame = true;
        if s.one_in(8) {
            a = order(s, n)?.permute_symmetric(&a)?;
            what += ", shuffled";
        }
        if s.one_in(8) && n > 0 {
            // Scale only rows, or rows and columns alike, so that symmetry stays.
            let (reach, both) = (s.of(&[&4, &16, &60, &400]), s.one_in(2));
            let powers: Vec<i32> = (0..n).map(|_| s.below(2 * reach + 1) as i32 - *reach as i32).collect();
            let rows: Vec<usize> = (0..n).flat_map(|i| std::iter::repeat_n(i, a.row_nnz(i))).collect();
            let scale = |i: usize, j: u32| powers[i] + if both { powers[j as usize] } else { 0 };
            let scales: Vec<i32> = rows.iter().zip(a.col_idx()).map(|(&i, &j)| scale(i, j)).collect();
            a.values_mut().iter_mut().zip(scales).for_each(|(v, power)| *v *= 2f64.powi(power));
            tame &= *reach <= 16;
            what += &format!(", scaled by up to 2^{reach}, both sides {both}");
        }
        if s.one_in(60) && a.nnz() > 0 {
            let at = s.below(a.nnz());
            a.values_mut()[at] = *s.of(&[&f64::NAN, &f64::INFINITY]);
            tame = false;
            what += &format!(", entry {at} not finite");
        }
        let seed = s.bits();
        let mut b: Vec<f64> = numbers(seed, n);
        match s.below(12) {
            0 => b = (0..n).map(|i| a.row(i).1.iter().sum()).collect(),
            1 => b.fill(0.0),
            2 if n > 0 => {
                b.fill(0.0);
                b[s.below(n)] = 1.0;
            }
            3 => {
                let power = s.of(&[&-900, &-130, &-60, &60, &120, &900]);
                b.iter_mut().for_each(|b| *b *= 2f64.powi(*power));
                tame = false;
                what += &format!(", b times 2^{power}");
            }
            4 if n > 0 && s.one_in(4) => {
                b[s.below(n)] = f64::NAN;
                tame = false;
                what += ", NaN in b";
            }
            _ => {}
        }
        let x0 = if s.one_in(3) { numbers(seed ^ 1, n) } else { vec![0.0; n] };
        Ok(Self { what, a, b, x0, tame })
    }
}
