//! Every format's product against a plain loop over the rows of the matrix: within the derived bound, and with the bits
//! of the declared order for any number of threads and any vector instructions.

use std::sync::Arc;

use spandrel_backend::{Backend, Coeff, Device, Error, Load, Mat, Order, Phase, Spmm, Spmv, SpmvTransposed, Watch};
use spandrel_backend_cpu::{Cpu, Monitor, Scalar, Simd, Vector};
use spandrel_formats::{Bdia, Bsr, Bsrx, Csc, Csr, Dia, Format, Hmec, Real, Sell, Triplets, for_each_format};

struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n
    }
    /// In [-1, 1), never tiny.
    fn value<T: Real>(&mut self) -> T {
        let v = (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
        T::from_f64(if v.abs() < 1e-6 { 0.5 } else { v })
    }
    fn vector<T: Real>(&mut self, n: usize) -> Vec<T> {
        (0..n).map(|_| self.value()).collect()
    }
}

/// A matrix whose rows have about `lengths(i)` entries, in columns that `column` draws.
fn matrix<T: Real>(
    nrows: usize,
    ncols: usize,
    length: impl Fn(usize, &mut Numbers) -> usize,
    column: impl Fn(usize, &mut Numbers) -> i64,
) -> Csr<T> {
    let mut numbers = Numbers(0x5bd1_e995 + nrows as u64);
    let mut triplets = Triplets::new(nrows, ncols).unwrap();
    for i in 0..nrows {
        let mut columns: Vec<i64> = (0..length(i, &mut numbers)).map(|_| column(i, &mut numbers)).collect();
        columns.sort_unstable();
        columns.dedup();
        for j in columns.into_iter().filter(|&j| j >= 0 && j < ncols as i64) {
            triplets.push(i, j as usize, numbers.value()).unwrap();
        }
    }
    triplets.to_csr().unwrap()
}

fn anywhere(ncols: usize) -> impl Fn(usize, &mut Numbers) -> i64 {
    move |_, numbers| numbers.below(ncols) as i64
}

/// Shapes at the edges of strips, slices, chunks and blocks; the last three are large enough for several threads.
fn matrices<T: Real>() -> Vec<(&'static str, Csr<T>)> {
    let banded = |n: usize| matrix::<T>(n, n, |_, _| 9, |i, numbers| i as i64 + numbers.below(7) as i64 - 3);
    vec![
        ("0 x 0", Csr::new(0, 0, vec![0], vec![], vec![]).unwrap()),
        ("0 x 5", Csr::new(0, 5, vec![0], vec![], vec![]).unwrap()),
        ("5 x 0", Csr::new(5, 0, vec![0; 6], vec![], vec![]).unwrap()),
        ("no entries", Csr::new(70, 33, vec![0; 71], vec![], vec![]).unwrap()),
        ("1 x 1", Csr::identity(1).unwrap()),
        ("one column", matrix(100, 1, |i, _| i % 2, anywhere(1))),
        ("wide", matrix(33, 200, |_, n| n.below(20), anywhere(200))),
        ("tall", matrix(1030, 31, |_, n| n.below(9), anywhere(31))),
        ("1025", matrix(1025, 1025, |i, n| if i == 7 { 900 } else { n.below(6) }, anywhere(1025))),
        ("band 1023", banded(1023)),
        ("band 9001", banded(9001)),
        ("random 9000", matrix(9000, 8000, |_, n| 1 + n.below(12), anywhere(8000))),
        (
            "power law",
            matrix(
                12_345,
                12_345,
                |i, n| if i % 97 == 0 { 400 } else { n.below(5) },
                |_, n| {
                    let r = n.below(12_345) as f64 / 12_345.0;
                    (r * r * 12_345.0) as i64
                },
            ),
        ),
    ]
}

fn devices() -> Vec<Cpu> {
    let threads = |count| Cpu::with_threads(count).unwrap();
    let narrower = Simd::available().map(|simd| threads(1).with_simd(simd));
    narrower.chain([threads(2), threads(3), Cpu::new()]).collect()
}

fn bits<T: Real>(v: &[T]) -> Vec<u64> {
    v.iter().map(|v| if v.is_nan() { u64::MAX } else { v.as_f64().to_bits() }).collect()
}

/// y = a A x + b y0 as the contract words it.
fn specified<T: Real>(csr: &Csr<T>, a: T, x: &[T], b: T, y0: &[T]) -> Vec<T> {
    (0..csr.nrows())
        .map(|i| {
            let (cols, values) = csr.row(i);
            let acc = cols.iter().zip(values).fold(T::zero(), |acc, (&j, &v)| v.mul_add(x[j as usize], acc));
            if b.is_zero() { a * acc } else { a.mul_add(acc, b * y0[i]) }
        })
        .collect()
}

/// gamma(n) of Higham 2002, section 3.1.
fn gamma<T: Real>(n: usize) -> f64 {
    let nu = n as f64 * T::UNIT_ROUNDOFF;
    nu / (1.0 - nu)
}

/// |y - (a A x + b y0)| <= gamma(k + 2) (|a| |A| |x| + |b| |y0|), the right sum in about 106 bits.
fn within_bound<T: Real>(csr: &Csr<T>, a: T, x: &[T], b: T, y0: &[T], y: &[T], what: &str) {
    for i in 0..csr.nrows() {
        let (mut high, mut low, mut magnitude) = (0f64, 0f64, 0f64);
        let mut add = |v: f64| {
            let sum = high + v;
            let part = sum - high;
            low += (high - (sum - part)) + (v - part);
            high = sum;
        };
        let mut term = |factors: [f64; 3]| {
            let (p, q) = (factors[0] * factors[1], factors[2]);
            let error = factors[0].mul_add(factors[1], -p);
            add(p * q);
            add(p.mul_add(q, -(p * q)) + error * q);
            magnitude += (p * q).abs();
        };
        let (cols, values) = csr.row(i);
        for (&j, &v) in cols.iter().zip(values) {
            term([v.as_f64(), x[j as usize].as_f64(), a.as_f64()]);
        }
        if !b.is_zero() {
            term([b.as_f64(), y0[i].as_f64(), 1.0]);
        }
        let error = ((y[i].as_f64() - high) - low).abs();
        let bound = gamma::<T>(cols.len() + 2) * magnitude;
        assert!(error <= bound, "{what}, row {i}: |{} - {}| = {error:e} > {bound:e}", y[i], high + low);
    }
}

fn product<F: Format>(
    be: &Cpu,
    gate: Option<&Monitor>,
    m: &Mat<Cpu, F>,
    a: F::Value,
    x: &[F::Value],
    b: F::Value,
    y: &[F::Value],
) -> Vec<F::Value>
where
    Cpu: Spmv<F> + Backend<F::Value, Vector = Vector<F::Value>, Scalar = Scalar<F::Value>>,
{
    let x = be.upload(x).unwrap();
    let mut y = be.upload(y).unwrap();
    m.spmv(be, gate, Coeff::host(a), &x, Coeff::host(b), &mut y).unwrap();
    be.download(&y).unwrap()
}

#[test]
fn mul_vec_of_the_host_matrix_has_the_bits_of_the_product() {
    fn check<T: Real>()
    where
        Cpu: Spmv<Csr<T>> + Backend<T, Vector = Vector<T>, Scalar = Scalar<T>>,
    {
        let c = T::from_f64;
        for (name, csr) in matrices::<T>() {
            let mut x: Vec<T> = Numbers(99).vector(csr.ncols());
            for special in [None, Some(f64::NAN), Some(f64::NEG_INFINITY), Some(-0.0)] {
                if let (Some(special), false) = (special, x.is_empty()) {
                    let middle = x.len() / 2;
                    x[middle] = c(special);
                }
                let host = csr.mul_vec(&x).unwrap();
                for be in devices() {
                    let m: Mat<Cpu, Csr<T>> = Mat::load(&be, Arc::new(csr.clone())).unwrap();
                    let poison = vec![c(f64::NAN); csr.nrows()];
                    let y = product(&be, None, &m, c(1.0), &x, c(0.0), &poison);
                    assert_eq!(bits(&y), bits(&host), "{name} in {}, {special:?} in x, {}", T::NAME, be.describe());
                }
            }
        }
    }
    check::<f32>();
    check::<f64>();
    let error = Csr::<f64>::identity(3).unwrap().mul_vec(&[1.0]).unwrap_err();
    assert_eq!(error.to_string(), "mul_vec: x has 1 elements, expected 3");
}

/// Everything that the contract asks of a format, on one matrix.
fn format_keeps_the_contract<F: Format>(name: &str, csr: &Csr<F::Value>, host: &Arc<F>, be: &Cpu)
where
    Cpu: Spmv<F> + Backend<F::Value, Vector = Vector<F::Value>, Scalar = Scalar<F::Value>>,
{
    let c = <F::Value as Real>::from_f64;
    let what = format!("{name} as {} on {}", F::NAME, be.describe());
    assert_eq!(Spmv::<F>::order(be), Order::Stored);
    let m: Mat<Cpu, F> = Mat::load(be, host.clone()).unwrap();
    let mut numbers = Numbers(77);
    let x: Vec<F::Value> = numbers.vector(csr.ncols());
    let y0: Vec<F::Value> = numbers.vector(csr.nrows());
    let poison = vec![F::Value::from_f64(f64::NAN); csr.nrows()];
    for (a, b) in [(1.0, 0.0), (0.7, 0.0), (-1.0, 1.0), (1.3, -0.4), (0.0, 1.0), (0.0, 0.0)] {
        let (a, b) = (c(a), c(b));
        let start = if b == c(0.0) { &poison } else { &y0 };
        let y = product(be, None, &m, a, &x, b, start);
        assert_eq!(bits(&y), bits(&specified(csr, a, &x, b, start)), "{what}, a = {a}, b = {b}");
        if be.thread_count() == 1 {
            within_bound(csr, a, &x, b, &y0, &y, &what);
        }
    }
    // Fused with dot products, against the product and the dot products.
    let (xv, w) = (be.upload(&x).unwrap(), be.upload(&y0).unwrap());
    let (mut y, mut wy, mut yy) =
        (be.upload(&poison).unwrap(), be.scalar(c(f64::NAN)).unwrap(), be.scalar(c(7.0)).unwrap());
    let spec = be.upload(&specified(csr, c(1.0), &x, c(0.0), &poison)).unwrap();
    let (mut spec_wy, mut spec_yy) = (be.scalar(c(0.0)).unwrap(), be.scalar(c(0.0)).unwrap());
    be.dot(None, &w, &spec, &mut spec_wy).unwrap();
    be.dot(None, &spec, &spec, &mut spec_yy).unwrap();
    be.spmv_dot(None, m.resident(), &xv, &mut y, &w, &mut wy, None).unwrap();
    assert_eq!(bits(y.as_slice()), bits(spec.as_slice()), "{what}, fused");
    let value = |s: &Scalar<F::Value>| bits(&[be.download_scalar(s).unwrap()]);
    assert_eq!(value(&wy), value(&spec_wy), "{what}, w . y");
    be.fill(None, c(f64::NAN), &mut y).unwrap();
    be.spmv_dot(None, m.resident(), &xv, &mut y, &w, &mut wy, Some(&mut yy)).unwrap();
    assert_eq!(bits(y.as_slice()), bits(spec.as_slice()), "{what}, fused with norm");
    assert_eq!((value(&wy), value(&yy)), (value(&spec_wy), value(&spec_yy)), "{what}, w . y and y . y");
    // An element of x that is not finite shows in every row that has an entry there.
    if csr.ncols() > 0 {
        let mut bad = x.clone();
        bad[csr.ncols() / 2] = c(f64::NAN);
        bad[0] = c(f64::INFINITY);
        let y = product(be, None, &m, c(1.0), &bad, c(0.0), &poison);
        let expected = specified(csr, c(1.0), &bad, c(0.0), &poison);
        if F::MULTIPLIES_FILL {
            for (y, expected) in y.iter().zip(&expected) {
                assert!(!num_finite(*y) || num_finite(*expected), "{what}: lost a NaN");
                assert!(num_finite(*expected) || !num_finite(*y), "{what}: lost a NaN");
            }
        } else {
            assert_eq!(bits(&y), bits(&expected), "{what}, NaN in x");
        }
    }
    // A stopped gate.
    let mut stopped = be.monitor(&Watch { threshold: 1.0, divergence: 2.0, max_iters: 1 }).unwrap();
    be.observe(&be.scalar(c(0.0)).unwrap(), Phase::Full, &mut stopped).unwrap();
    assert_eq!(product(be, Some(&stopped), &m, c(1.0), &x, c(0.0), &y0), y0, "{what}, gated");
    let mut y = be.upload(&y0).unwrap();
    let mut wy = be.scalar(c(5.0)).unwrap();
    be.spmv_dot(Some(&stopped), m.resident(), &xv, &mut y, &w, &mut wy, Some(&mut yy)).unwrap();
    assert_eq!((be.download(&y).unwrap(), be.download_scalar(&wy).unwrap()), (y0, c(5.0)), "{what}, gated");
}

fn num_finite<T: Real>(v: T) -> bool {
    v.as_f64().is_finite()
}

macro_rules! format_tests {
    ([] $(($stem:ident, $Format:ident)),* $(,)?) => {$(
        #[test]
        fn $stem() {
            fn run<T: Real>() -> usize {
                let devices = devices();
                let mut fitted = 0;
                for (name, csr) in matrices::<T>() {
                    // Dense storage is granted up to 1 GiB; past a few chunks it shows nothing new.
                    if stringify!($stem) == "dense" && csr.nrows() * csr.ncols() > 1 << 20 {
                        continue;
                    }
                    let host = match spandrel_formats::$Format::from_csr(&csr) {
                        Ok(host) => Arc::new(host),
                        Err(spandrel_formats::Error::DoesNotFit { .. }) => continue,
                        Err(error) => panic!("{name}: {error}"),
                    };
                    devices.iter().for_each(|be| format_keeps_the_contract(name, &csr, &host, be));
                    fitted += 1;
                }
                fitted
            }
            // DIA and bDIA refuse scattered entries; the rest must fit.
            assert!(run::<f64>() >= 8);
            assert!(run::<f32>() >= 8);
        }
    )*};
}
for_each_format!(format_tests);

#[test]
fn sell_of_any_slice_and_window() {
    for (name, csr) in matrices::<f64>() {
        for (c, sigma) in [(1, 1), (3, 1), (3, 9), (8, 8), (32, 1024), (32, 4096), (40, 1 << 20), (2000, 2000)] {
            let Ok(host) = Sell::from_csr_with(&csr, c, sigma) else {
                continue;
            };
            for be in [Cpu::with_threads(1).unwrap(), Cpu::with_threads(3).unwrap()] {
                let m = Mat::load(&be, host.clone()).unwrap();
                let mut numbers = Numbers(3);
                let (x, y0) = (numbers.vector(csr.ncols()), numbers.vector(csr.nrows()));
                for (a, b) in [(1.0, 0.0), (0.5, 2.0)] {
                    let y = product(&be, None, &m, a, &x, b, &y0);
                    assert_eq!(bits(&y), bits(&specified(&csr, a, &x, b, &y0)), "{name}, c = {c}, sigma = {sigma}");
                }
                let (mut y, mut wy) = (be.upload(&y0).unwrap(), be.scalar(0.0).unwrap());
                let (xv, w) = (be.upload(&x).unwrap(), be.upload(&y0).unwrap());
                Spmv::<Sell<f64>>::spmv_dot(&be, None, m.resident(), &xv, &mut y, &w, &mut wy, None).unwrap();
                let mut expected = be.scalar(0.0).unwrap();
                be.dot(None, &w, &y, &mut expected).unwrap();
                assert_eq!(wy, expected, "{name}, c = {c}, sigma = {sigma}");
            }
        }
    }
}

#[test]
fn blocks_of_any_size_and_hmec_of_any_depth() {
    fn check<F: Format<Value = f64>>(what: String, csr: &Csr<f64>, host: F)
    where
        Cpu: Spmv<F> + Backend<f64, Vector = Vector<f64>, Scalar = Scalar<f64>>,
    {
        let be = Cpu::with_threads(3).unwrap();
        let m = Mat::load(&be, host).unwrap();
        let mut numbers = Numbers(5);
        let (x, y0): (Vec<f64>, Vec<f64>) = (numbers.vector(csr.ncols()), numbers.vector(csr.nrows()));
        for (a, b) in [(1.0, 0.0), (0.5, 2.0)] {
            let y = product(&be, None, &m, a, &x, b, &y0);
            assert_eq!(bits(&y), bits(&specified(csr, a, &x, b, &y0)), "{what}");
        }
    }
    let mut fitted = 0;
    for (name, csr) in matrices::<f64>() {
        for dim in [1, 2, 3, 4, 5, 6, 7, 8, 50] {
            if let Ok(host) = Bsr::from_csr_with(&csr, dim) {
                check(format!("{name}, blocks of {dim}"), &csr, host);
                fitted += 1;
            }
        }
        for p in 1..=5 {
            check(format!("{name}, hmec({p})"), &csr, Hmec::from_csr_with(&csr, p).unwrap());
        }
    }
    assert!(fitted >= 60, "{fitted} fitted");
}

#[test]
fn bsrx_touches_the_rows_of_its_mask_alone() {
    for (name, csr) in matrices::<f64>() {
        let Ok(full) = Bsrx::from_csr(&csr) else {
            continue;
        };
        let mask: Vec<u32> = (0..full.block_rows() as u32).filter(|row| row % 3 != 1).collect();
        let dim = full.block_dim();
        let host = full.with_mask(mask).unwrap();
        for be in devices() {
            let m = Mat::load(&be, host.clone()).unwrap();
            let mut numbers = Numbers(6);
            let (x, y0) = (numbers.vector(csr.ncols()), numbers.vector(csr.nrows()));
            for (a, b) in [(1.0, 0.0), (0.5, 2.0)] {
                let y = product(&be, None, &m, a, &x, b, &y0);
                let all = specified(&csr, a, &x, b, &y0);
                let expected: Vec<f64> =
                    (0..csr.nrows()).map(|i| if i / dim % 3 != 1 { all[i] } else { y0[i] }).collect();
                assert_eq!(bits(&y), bits(&expected), "{name}");
            }
        }
    }
}

#[test]
fn transposed_products_have_the_bits_of_the_transpose() {
    fn run<T: Real>() {
        for (name, csr) in matrices::<T>() {
            let transpose = csr.transpose();
            for be in devices() {
                let rows = Mat::load(&be, csr.clone()).unwrap();
                let columns = Mat::load(&be, Csc::from_csr(&csr).unwrap()).unwrap();
                let mut numbers = Numbers(8);
                let x: Vec<T> = numbers.vector(csr.nrows());
                let y0: Vec<T> = numbers.vector(csr.ncols());
                for (a, b) in [(1.0, 0.0), (-0.3, 0.0), (0.5, 2.0)] {
                    let (a, b) = (T::from_f64(a), T::from_f64(b));
                    let start = if b.is_zero() { vec![T::nan(); csr.ncols()] } else { y0.clone() };
                    let xv = be.upload(&x).unwrap();
                    let expected = bits(&specified(&transpose, a, &x, b, &start));
                    let mut y = be.upload(&start).unwrap();
                    rows.spmv_transposed(&be, None, Coeff::host(a), &xv, Coeff::host(b), &mut y).unwrap();
                    assert_eq!(bits(y.as_slice()), expected, "{name}, csr on {}", be.describe());
                    let mut y = be.upload(&start).unwrap();
                    columns.spmv_transposed(&be, None, Coeff::host(a), &xv, Coeff::host(b), &mut y).unwrap();
                    assert_eq!(bits(y.as_slice()), expected, "{name}, csc on {}", be.describe());
                }
            }
        }
    }
    assert_eq!(SpmvTransposed::<Csr<f64>>::transposed_order(&Cpu::new()), Order::Stored);
    run::<f32>();
    run::<f64>();
}

fn columns_of_spmm<F: Format<Value = f64>>(name: &str, csr: &Csr<f64>, host: F)
where
    Cpu: Spmm<F> + Backend<f64, Vector = Vector<f64>, Scalar = Scalar<f64>>,
{
    let host = Arc::new(host);
    let devices = devices();
    let loaded: Vec<Mat<Cpu, F>> = devices.iter().map(|be| Mat::load(be, host.clone()).unwrap()).collect();
    for k in [0, 1, 2, 3, 4, 5, 9] {
        let mut numbers = Numbers(9);
        let x: Vec<f64> = numbers.vector(csr.ncols() * k);
        let y0: Vec<f64> = numbers.vector(csr.nrows() * k);
        for (a, b) in [(1.0, 0.0), (0.5, 2.0)] {
            let column = |j: usize| {
                let (x, y0) = (&x[j * csr.ncols()..][..csr.ncols()], &y0[j * csr.nrows()..][..csr.nrows()]);
                bits(&specified(csr, a, x, b, y0))
            };
            let expected: Vec<u64> = (0..k).flat_map(column).collect();
            for (be, m) in devices.iter().zip(&loaded) {
                let xv = be.upload(&x).unwrap();
                let mut y = be.upload(&y0).unwrap();
                m.spmm(be, None, Coeff::host(a), k, &xv, Coeff::host(b), &mut y).unwrap();
                assert!(bits(y.as_slice()) == expected, "{name}, {}, {k} columns", F::NAME);
            }
        }
    }
}

#[test]
fn each_column_of_a_multiple_product_has_the_bits_of_its_own() {
    for (name, csr) in matrices::<f64>() {
        columns_of_spmm(name, &csr, csr.clone());
        if let Ok(sell) = Sell::from_csr(&csr) {
            columns_of_spmm(name, &csr, sell);
        }
        if let Ok(dia) = Dia::from_csr(&csr) {
            columns_of_spmm(name, &csr, dia);
        }
        if let Ok(bsr) = Bsr::from_csr(&csr) {
            columns_of_spmm(name, &csr, bsr);
        }
    }
}

/// Diagonals of values that f32 holds exactly, some of them signed zeros, subnormals and infinities. Unless `all`, one
/// value is not exact.
fn held_by_f32(nrows: usize, ncols: usize, offsets: &[i32], all: bool) -> Dia<f64> {
    let mut numbers = Numbers(0x9e37_79b9 + nrows as u64);
    let mut values = vec![0.0; nrows * offsets.len()];
    for (&offset, column) in offsets.iter().zip(values.chunks_exact_mut(nrows)) {
        let inside = |&i: &usize| (0..ncols as i64).contains(&(i as i64 + i64::from(offset)));
        for i in (0..nrows).filter(inside) {
            column[i] = match numbers.below(5000) {
                0 => f64::INFINITY,
                1 => f64::NEG_INFINITY,
                2..100 => -0.0,
                100..200 => f64::from(f32::from_bits(1 + numbers.below(1 << 20) as u32)),
                _ => f64::from(numbers.value::<f32>()),
            };
        }
    }
    if !all {
        values[(-i64::from(offsets[0])).max(0) as usize] = 0.1;
    }
    Dia::new(nrows, ncols, offsets.to_vec(), values).unwrap()
}

/// y = A x by diagonals in order, for values that CSR would leave out.
fn by_diagonals(m: &Dia<f64>, a: f64, x: &[f64], b: f64, y0: &[f64]) -> Vec<f64> {
    let row = |i: usize| {
        let acc =
            m.offsets().iter().zip(m.values().chunks_exact(m.nrows())).fold(0.0, |acc: f64, (&offset, column)| {
                let j = usize::try_from(i as i64 + i64::from(offset)).ok().filter(|&j| j < m.ncols());
                j.map_or(acc, |j| column[i].mul_add(x[j], acc))
            });
        if b == 0.0 { a * acc } else { a.mul_add(acc, b * y0[i]) }
    };
    (0..m.nrows()).map(row).collect()
}

fn narrow_and_wide_agree<F: Format<Value = f64> + From<Dia<f64>>>(what: &str, dia: &Dia<f64>, narrow: bool)
where
    Cpu: Spmv<F> + Backend<f64, Vector = Vector<f64>, Scalar = Scalar<f64>>,
{
    let mut numbers = Numbers(31);
    let (x, y0): (Vec<f64>, Vec<f64>) = (numbers.vector(dia.ncols()), numbers.vector(dia.nrows()));
    for be in devices() {
        let what = format!("{what} as {} on {}", F::NAME, be.describe());
        let m: Mat<Cpu, F> = Mat::load(&be, F::from(dia.clone())).unwrap();
        assert_eq!(m.is_narrow(&be), narrow, "{what}");
        let host = F::from(dia.clone());
        assert_eq!((m.storage() < host.storage(), m.spmv_bytes() < host.spmv_bytes()), (narrow, narrow), "{what}");
        for (a, b) in [(1.0, 0.0), (0.7, -0.4)] {
            let expected = by_diagonals(dia, a, &x, b, &y0);
            assert!(expected.iter().any(|v| v.is_finite()) && expected.iter().any(|v| !v.is_finite()), "{what}");
            assert_eq!(bits(&product(&be, None, &m, a, &x, b, &y0)), bits(&expected), "{what}, a = {a}, b = {b}");
        }
        let expected = be.upload(&by_diagonals(dia, 1.0, &x, 0.0, &y0)).unwrap();
        let (xv, w) = (be.upload(&x).unwrap(), be.upload(&y0).unwrap());
        let (mut y, mut wy, mut yy) =
            (be.zeros(dia.nrows()).unwrap(), be.scalar(0.0).unwrap(), be.scalar(0.0).unwrap());
        be.spmv_dot(None, m.resident(), &xv, &mut y, &w, &mut wy, Some(&mut yy)).unwrap();
        assert_eq!(bits(y.as_slice()), bits(expected.as_slice()), "{what}, fused");
        let (mut spec_wy, mut spec_yy) = (be.scalar(0.0).unwrap(), be.scalar(0.0).unwrap());
        be.dot(None, &w, &expected, &mut spec_wy).unwrap();
        be.dot(None, &expected, &expected, &mut spec_yy).unwrap();
        let value = |s: &Scalar<f64>| bits(&[be.download_scalar(s).unwrap()]);
        assert_eq!((value(&wy), value(&yy)), (value(&spec_wy), value(&spec_yy)), "{what}, fused");
    }
}

/// Large enough to be kept in f32: strips cut at either end, more diagonals than pass over the accumulators together,
/// matrices that are not square.
#[test]
fn diagonals_kept_in_f32_give_the_bits_of_f64() {
    let many: Vec<i32> = (-6..7).map(|k| 61 * k).chain([5000]).collect();
    let cases: [(&str, usize, usize, Vec<i32>); 3] = [
        ("14 diagonals", 40_009, 40_009, many),
        ("tall", 150_001, 140_003, vec![-149_990, -70_000, 0, 139_990]),
        ("wide", 140_003, 150_001, vec![-139_990, -3, 1, 149_970]),
    ];
    for (what, nrows, ncols, offsets) in cases {
        for narrow in [true, false] {
            let dia = held_by_f32(nrows, ncols, &offsets, narrow);
            narrow_and_wide_agree::<Dia<f64>>(what, &dia, narrow);
            narrow_and_wide_agree::<Bdia<f64>>(what, &dia, narrow);
        }
        let dia = held_by_f32(nrows, ncols, &offsets, true);
        let k = 3;
        let mut numbers = Numbers(9);
        let (x, y0): (Vec<f64>, Vec<f64>) = (numbers.vector(ncols * k), numbers.vector(nrows * k));
        let columns = y0.chunks_exact(nrows).zip(x.chunks_exact(ncols));
        let expected: Vec<Vec<u64>> = columns.map(|(y0, x)| bits(&by_diagonals(&dia, 0.5, x, 2.0, y0))).collect();
        for be in devices() {
            let m = Mat::load(&be, dia.clone()).unwrap();
            assert!(m.is_narrow(&be));
            let (xv, mut y) = (be.upload(&x).unwrap(), be.upload(&y0).unwrap());
            m.spmm(&be, None, Coeff::host(0.5), k, &xv, Coeff::host(2.0), &mut y).unwrap();
            for (j, (y, expected)) in y.as_slice().chunks_exact(nrows).zip(&expected).enumerate() {
                assert!(bits(y) == *expected, "{what}, column {j} of {k}");
            }
        }
    }
}

#[test]
fn a_resident_matrix_shares_the_host_arrays() {
    let host = Arc::new(Csr::<f64>::identity(1000).unwrap());
    let resident = Cpu::new().load(host.clone()).unwrap();
    assert_eq!(Arc::strong_count(&host), 2);
    drop(resident);
    assert_eq!(Arc::strong_count(&host), 1);
}

#[test]
fn wrong_sizes_are_refused_above_the_kernels() {
    let be = Cpu::new();
    let m = Mat::load(&be, Csr::<f64>::identity(3).unwrap()).unwrap();
    let (x, mut y) = (be.upload(&[1.0; 2]).unwrap(), be.upload(&[0.0; 3]).unwrap());
    let found = m.spmv(&be, None, Coeff::one(), &x, Coeff::zero(), &mut y);
    assert!(matches!(found, Err(Error::Shape { op: "spmv", what: "x", found: 2, expected: 3 })));
}
