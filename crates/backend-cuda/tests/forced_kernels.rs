//! Every kernel of CSR, COO, DIA and bDIA that can be forced, on rows of many shapes. Kernels of the stored order must
//! have its bits; the others must stay within the bound of their sums and repeat their bits. Without a GPU the trials
//! print why they are skipped.

mod gpu;

use std::sync::Arc;

use gpu::device;
use spandrel_backend::{Backend, Coeff, Device, Error, Load, Spmm, Spmv, SpmvTransposed, Step};
use spandrel_backend_cuda::{BdiaKernel, CooKernel, CsrKernel, Cuda, CudaCsr, CudaDia};
use spandrel_formats::{Bdia, Coo, Csc, Csr, Dia, Format, Real};

const KERNELS: [CsrKernel; 9] = [
    CsrKernel::Scalar,
    CsrKernel::Staged,
    CsrKernel::Vector(2),
    CsrKernel::Vector(4),
    CsrKernel::Vector(8),
    CsrKernel::Vector(16),
    CsrKernel::Vector(32),
    CsrKernel::Binned,
    CsrKernel::Balanced,
];

/// Random numbers in [-1, 1) from a seed.
struct Numbers(u64);

impl Numbers {
    fn next<T: Real>(&mut self) -> T {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        T::from_f64((self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
    }

    fn many<T: Real>(&mut self, n: usize) -> Vec<T> {
        (0..n).map(|_| self.next()).collect()
    }
}

/// Rows of the given lengths, with entries spread over the columns.
fn matrix<T: Real>(ncols: usize, lengths: &[usize], numbers: &mut Numbers) -> Csr<T> {
    let (mut ptr, mut cols) = (vec![0], Vec::new());
    for (i, &len) in lengths.iter().enumerate() {
        let shift = if len < ncols { i % (ncols / len.max(1)).max(1) } else { 0 };
        cols.extend((0..len).map(|k| (k * ncols / len + shift).min(ncols - len + k) as u32));
        ptr.push(cols.len() as u32);
    }
    let values = numbers.many(cols.len());
    Csr::new(lengths.len(), ncols, ptr, cols, values).expect("the lengths fit")
}

/// Shapes: (columns, lengths of the rows).
fn shapes() -> Vec<(usize, Vec<usize>)> {
    let stencil = |n: usize, len: usize| (0..n).map(|i| if i % 7 == 0 { len / 2 } else { len }).collect::<Vec<_>>();
    let mut tailed = vec![2; 5000];
    tailed[1] = 9000;
    tailed[2500] = 1791;
    tailed[4999] = 4000;
    let mut gaps = vec![0; 4000];
    gaps[0] = 5;
    gaps[3999] = 3;
    gaps[2000] = 700;
    vec![
        (1, vec![]),
        (5, vec![0]),
        (5, vec![0; 40]),
        (1, vec![1; 33]),
        (50, vec![50]),
        (900, stencil(31, 7)),
        (900, stencil(1024, 27)),
        (900, stencil(1025, 33)),
        (300, vec![8; 2100]),
        (300, vec![16; 700]),
        (300, vec![32; 700]),
        (2000, stencil(300, 150)),
        // More entries than the number from which a step requests all its loads at once, on today's devices.
        (3000, stencil(18_500, 101)),
        (10_000, tailed),
        (1000, gaps),
        (4, (0..6000).map(|i| i % 3).collect()),
    ]
}

fn row<T: Real>(m: &Csr<T>, i: usize, x: &[T]) -> (T, f64) {
    let (cols, values) = m.row(i);
    let each = || cols.iter().zip(values).map(|(&j, &v)| (v, x[j as usize]));
    let size = each().map(|(v, x)| (v * x).as_f64().abs()).sum();
    (each().fold(T::zero(), |acc, (v, x)| v.mul_add(x, acc)), size)
}

/// Compares y with a A x + b y0 of the reference, in bits or within the bound.
fn compare<T: Real>(what: &str, m: &Csr<T>, stored: bool, a: T, x: &[T], b: T, y0: &[T], y: &[T]) {
    assert_eq!(y.len(), m.nrows());
    for i in 0..m.nrows() {
        let (acc, size) = row(m, i, x);
        let expected = if b.is_zero() { a * acc } else { a.mul_add(acc, b * y0[i]) };
        if stored {
            assert!(expected == y[i], "{what}: row {i}: {} instead of {expected}", y[i]);
        } else {
            let base = if b.is_zero() { 0.0 } else { (b * y0[i]).as_f64().abs() };
            let bound = 2.0 * (m.row_nnz(i) + 4) as f64 * T::UNIT_ROUNDOFF * (a.as_f64().abs() * size + base);
            let error = (expected.as_f64() - y[i].as_f64()).abs();
            assert!(error <= bound, "{what}: row {i}: {} instead of {expected}", y[i]);
        }
    }
}

fn products<T: Real>(cuda: &Cuda) {
    let mut numbers = Numbers(7);
    let zero = T::zero();
    for (ncols, lengths) in shapes() {
        let m = matrix::<T>(ncols, &lengths, &mut numbers);
        let (n, k) = (m.nrows(), 5);
        let (x, y0) = (numbers.many::<T>(ncols * k), numbers.many::<T>(n * k));
        for kernel in KERNELS {
            let what = format!("{} {n} x {ncols}, {} entries, {kernel:?}", T::NAME, m.nnz());
            let resident = cuda.load_csr_with(&m, kernel).expect("loads");
            assert_eq!(resident.kernel(), kernel);
            let stored = kernel.stored();
            let device_x = cuda.upload(&x[..ncols]).expect("uploads");
            let (a, b) = (T::from_f64(1.5), T::from_f64(-0.25));
            let mut y = cuda.upload(&y0[..n]).expect("uploads");
            Spmv::<Csr<T>>::spmv(cuda, None, Coeff::host(a), &resident, &device_x, Coeff::host(b), &mut y)
                .expect("multiplies");
            compare(&what, &m, stored, a, &x, b, &y0, &cuda.download(&y).expect("downloads"));

            // With b = 0, y is not read. The dot products equal those of the plain operations, and repetitions have the
            // same bits.
            let mut y = cuda.upload(&vec![T::nan(); n]).expect("uploads");
            Spmv::<Csr<T>>::spmv(cuda, None, Coeff::one(), &resident, &device_x, Coeff::zero(), &mut y)
                .expect("multiplies");
            let plain = cuda.download(&y).expect("downloads");
            compare(&what, &m, stored, T::one(), &x, zero, &[], &plain);
            let w = cuda.upload(&y0[..n]).expect("uploads");
            let mut sums = [zero; 4].map(|value| cuda.scalar(value).expect("a scalar"));
            let [wy, yy, fused_wy, fused_yy] = &mut sums;
            cuda.dot(None, &w, &y, wy).expect("sums");
            cuda.dot(None, &y, &y, yy).expect("sums");
            for _ in 0..3 {
                let mut y = cuda.upload(&vec![T::nan(); n]).expect("uploads");
                Spmv::<Csr<T>>::spmv_dot(cuda, None, &resident, &device_x, &mut y, &w, fused_wy, Some(fused_yy))
                    .expect("multiplies");
                assert!(cuda.download(&y).expect("downloads") == plain, "{what}: spmv_dot has other bits");
            }
            let sums = sums.map(|sum| cuda.download_scalar(&sum).expect("downloads"));
            assert!(sums[0] == sums[2] && sums[1] == sums[3], "{what}: sums {sums:?}");

            // Each of k columns has the bits of its own product.
            let many_x = cuda.upload(&x).expect("uploads");
            let mut many_y = cuda.upload(&vec![T::nan(); n * k]).expect("uploads");
            Spmm::<Csr<T>>::spmm(cuda, None, Coeff::one(), &resident, k, &many_x, Coeff::zero(), &mut many_y)
                .expect("multiplies");
            let many = cuda.download(&many_y).expect("downloads");
            for c in 0..k {
                let one_x = cuda.upload(&x[c * ncols..(c + 1) * ncols]).expect("uploads");
                Spmv::<Csr<T>>::spmv(cuda, None, Coeff::one(), &resident, &one_x, Coeff::zero(), &mut y)
                    .expect("multiplies");
                let one = cuda.download(&y).expect("downloads");
                assert!(many[c * n..(c + 1) * n] == one[..], "{what}: column {c} of spmm has other bits");
            }
        }
    }
}

#[test]
fn every_kernel_on_every_shape() {
    if let Some(cuda) = device() {
        products::<f64>(&cuda);
        products::<f32>(&cuda);
        cuda.synchronize().expect("nothing failed");
    }
}

fn coordinates<T: Real>(cuda: &Cuda) {
    let mut numbers = Numbers(13);
    for (ncols, lengths) in shapes() {
        let m = matrix::<T>(ncols, &lengths, &mut numbers);
        let host = Arc::new(Coo::from_csr(&m).expect("converts"));
        let (x, y0) = (numbers.many::<T>(ncols), numbers.many::<T>(m.nrows()));
        let device_x = cuda.upload(&x).expect("uploads");
        let (a, b) = (T::from_f64(1.5), T::from_f64(-0.25));
        for kernel in [CooKernel::Parallel, CooKernel::Serial, CooKernel::Stored] {
            let what = format!("{} {} x {ncols}, {} entries, {kernel:?}", T::NAME, m.nrows(), m.nnz());
            let resident = Load::<Coo<T>>::load(cuda, host.clone()).expect("loads").with_kernel(kernel);
            assert_eq!(resident.kernel(), kernel);
            let product = || {
                let mut y = cuda.upload(&y0).expect("uploads");
                Spmv::<Coo<T>>::spmv(cuda, None, Coeff::host(a), &resident, &device_x, Coeff::host(b), &mut y)
                    .expect("multiplies");
                cuda.download(&y).expect("downloads")
            };
            let y = product();
            compare(&what, &m, kernel != CooKernel::Parallel, a, &x, b, &y0, &y);
            assert!(product() == y, "{what}: a repetition has other bits");
        }
    }
}

#[test]
fn every_kernel_of_coordinates_on_every_shape() {
    if let Some(cuda) = device() {
        coordinates::<f64>(&cuda);
        coordinates::<f32>(&cuda);
        cuda.synchronize().expect("nothing failed");
    }
}

/// A matrix with entries on whole diagonals, ascending.
fn diagonals<T: Real>(nrows: usize, ncols: usize, offsets: &[i64], numbers: &mut Numbers) -> Csr<T> {
    let (mut ptr, mut cols) = (vec![0], Vec::new());
    for i in 0..nrows as i64 {
        cols.extend(
            offsets.iter().map(|offset| i + offset).filter(|j| (0..ncols as i64).contains(j)).map(|j| j as u32),
        );
        ptr.push(cols.len() as u32);
    }
    let values = numbers.many(cols.len());
    Csr::new(nrows, ncols, ptr, cols, values).expect("columns ascend")
}

/// Matrices by bands: (rows, columns, offsets). For every number in flight there are whole rounds, a remainder of one,
/// and at most half of one; few bands, and more bands and diagonals than are passed by value; offsets outside the
/// matrix, and more columns than rows.
fn bands() -> Vec<(usize, usize, Vec<i64>)> {
    let single = |width: i64| (-(width / 2)..width - width / 2).collect::<Vec<_>>();
    let mut all: Vec<_> =
        [1, 2, 3, 4, 5, 6, 8, 9, 12, 13, 16, 17, 27, 33, 65, 101].map(|d| (1500, 1500, single(d))).into();
    let stencil: Vec<i64> = (-1..=1).flat_map(|k| (-1..=1).map(move |j| 400 * k + 20 * j)).collect();
    all.extend([
        (0, 5, vec![]),
        (5, 5, vec![]),
        (1, 1, vec![0]),
        (63, 63, single(3)),
        (64, 64, single(63)),
        (65, 65, single(129)),
        (1024, 1024, single(5)),
        (8000, 8000, stencil.iter().flat_map(|&offset| offset - 1..=offset + 1).collect()),
        (8000, 8000, stencil),
        (4100, 4100, (-35..=35).map(|k| 50 * k).collect()),
        (4100, 4100, (-20..=20).flat_map(|k| 90 * k - 1..=90 * k + 1).collect()),
        (3000, 3000, single(1201)),
        (3000, 200, single(21)),
        (200, 3000, (0..40).chain(700..720).collect()),
        (2500, 2500, (1000..1017).collect()),
    ]);
    all
}

fn banded<T: Real>(cuda: &Cuda) {
    let mut numbers = Numbers(17);
    let zero = T::zero();
    for (n, ncols, offsets) in bands() {
        let m = diagonals::<T>(n, ncols, &offsets, &mut numbers);
        let host = Bdia::from_csr_with(&m, 0).expect("converts");
        let (x, y0) = (numbers.many::<T>(ncols), numbers.many::<T>(n));
        let device_x = cuda.upload(&x).expect("uploads");
        let w = cuda.upload(&y0).expect("uploads");
        for kernel in
            [BdiaKernel::Window, BdiaKernel::Narrow, BdiaKernel::Single, BdiaKernel::Staged, BdiaKernel::Small]
        {
            let what = format!("{} {n} x {ncols}, {} diagonals, {kernel:?}", T::NAME, offsets.len());
            let resident = match cuda.load_bdia_with(&host, kernel) {
                Err(Error::Unsupported { .. }) if kernel == BdiaKernel::Staged => continue,
                loaded => loaded.expect("loads"),
            };
            assert_eq!(resident.kernel(), kernel);
            let (a, b) = (T::from_f64(1.5), T::from_f64(-0.25));
            let mut y = cuda.upload(&y0).expect("uploads");
            Spmv::<Bdia<T>>::spmv(cuda, None, Coeff::host(a), &resident, &device_x, Coeff::host(b), &mut y)
                .expect("multiplies");
            compare(&what, &m, true, a, &x, b, &y0, &cuda.download(&y).expect("downloads"));

            let mut y = cuda.upload(&vec![T::nan(); n]).expect("uploads");
            Spmv::<Bdia<T>>::spmv(cuda, None, Coeff::one(), &resident, &device_x, Coeff::zero(), &mut y)
                .expect("multiplies");
            let plain = cuda.download(&y).expect("downloads");
            compare(&what, &m, true, T::one(), &x, zero, &[], &plain);
            let mut sums = [zero; 4].map(|value| cuda.scalar(value).expect("a scalar"));
            let [wy, yy, fused_wy, fused_yy] = &mut sums;
            cuda.dot(None, &w, &y, wy).expect("sums");
            cuda.dot(None, &y, &y, yy).expect("sums");
            for both in [true, false, true] {
                let mut y = cuda.upload(&vec![T::nan(); n]).expect("uploads");
                let yy = both.then_some(&mut *fused_yy);
                Spmv::<Bdia<T>>::spmv_dot(cuda, None, &resident, &device_x, &mut y, &w, fused_wy, yy)
                    .expect("multiplies");
                assert!(cuda.download(&y).expect("downloads") == plain, "{what}: spmv_dot has other bits");
            }
            let sums = sums.map(|sum| cuda.download_scalar(&sum).expect("downloads"));
            assert!(sums[0] == sums[2] && sums[1] == sums[3], "{what}: sums {sums:?}");
        }
    }
}

#[test]
fn every_kernel_of_bands_on_every_shape() {
    if let Some(cuda) = device() {
        banded::<f64>(&cuda);
        banded::<f32>(&cuda);
        cuda.synchronize().expect("nothing failed");
    }
}

/// A symmetric matrix with entries on whole diagonals, `offsets` those at or above the main one, ascending.
fn mirrored<T: Real>(n: usize, offsets: &[usize]) -> Csr<T> {
    let (mut ptr, mut cols, mut values) = (vec![0], Vec::new(), Vec::new());
    for i in 0..n {
        let below = offsets.iter().rev().filter(|&&offset| offset > 0 && offset <= i).map(|offset| i - offset);
        let above = offsets.iter().map(|offset| i + offset).filter(|&j| j < n);
        for j in below.chain(above) {
            cols.push(j as u32);
            values.push(Numbers((i.min(j) * 31 + i.max(j)) as u64).next());
        }
        ptr.push(cols.len() as u32);
    }
    Csr::new(n, n, ptr, cols, values).expect("columns ascend")
}

/// Few diagonals and many rows: products with dot products by thread blocks that go through several blocks of rows,
/// compared with the plain product and separate sums.
fn few_diagonals<T: Real>(cuda: &Cuda) {
    let n = 4 * 1024 * cuda.info().multiprocessors as usize + 777;
    let mut numbers = Numbers(23);
    for (n, offsets) in [
        (n, vec![0]),
        (n, vec![0, 1]),
        (2 * n + 1, vec![1, 2, 700]),
        (3 * n, vec![0, 1, 90, 8100]),
        (5 * n + 11, vec![0, 4096]),
        (n, vec![3, n / 3, n - 2]),
        (n - n % 1024, vec![0, 511, 512, 1023]),
    ] {
        let m = mirrored::<T>(n, &offsets);
        let what = format!("{} {n} rows, diagonals {offsets:?}", T::NAME);
        let resident: CudaDia<T> = cuda.load(Arc::new(Dia::from_csr(&m).expect("converts"))).expect("loads");
        assert!(resident.is_symmetric());
        let (x, w) = (numbers.many::<T>(n), numbers.many::<T>(n));
        let (device_x, w) = (cuda.upload(&x).expect("uploads"), cuda.upload(&w).expect("uploads"));
        let mut y = cuda.upload(&vec![T::nan(); n]).expect("uploads");
        Spmv::<Dia<T>>::spmv(cuda, None, Coeff::one(), &resident, &device_x, Coeff::zero(), &mut y)
            .expect("multiplies");
        let plain = cuda.download(&y).expect("downloads");
        compare(&what, &m, true, T::one(), &x, T::zero(), &[], &plain);
        let mut sums = [T::nan(); 4].map(|value| cuda.scalar(value).expect("a scalar"));
        let [wy, yy, fused_wy, fused_yy] = &mut sums;
        cuda.dot(None, &w, &y, wy).expect("sums");
        cuda.dot(None, &y, &y, yy).expect("sums");
        for both in [true, false, true] {
            let mut y = cuda.upload(&vec![T::nan(); n]).expect("uploads");
            let yy = both.then_some(&mut *fused_yy);
            Spmv::<Dia<T>>::spmv_dot(cuda, None, &resident, &device_x, &mut y, &w, fused_wy, yy).expect("multiplies");
            assert!(cuda.download(&y).expect("downloads") == plain, "{what}: spmv_dot has other bits");
        }
        let sums = sums.map(|sum| cuda.download_scalar(&sum).expect("downloads"));
        assert!(sums[0] == sums[2] && sums[1] == sums[3], "{what}: sums {sums:?}");
    }
}

#[test]
fn products_with_few_diagonals_of_many_rows() {
    if let Some(cuda) = device() {
        few_diagonals::<f64>(&cuda);
        few_diagonals::<f32>(&cuda);
        cuda.synchronize().expect("nothing failed");
    }
}

#[test]
fn the_matrices_by_bands_convert() {
    let mut numbers = Numbers(19);
    for (n, ncols, offsets) in bands() {
        let m = diagonals::<f64>(n, ncols, &offsets, &mut numbers);
        let host = Bdia::from_csr_with(&m, 0).expect("converts");
        assert!(host.offsets().map(i64::from).eq(offsets.into_iter().filter(|k| -k < n as i64 && *k < ncols as i64)));
    }
}

#[test]
fn transposes_and_new_values() {
    let Some(cuda) = device().map(|cuda| cuda.with_reproducible(true)) else { return };
    let mut numbers = Numbers(11);
    for (ncols, lengths) in shapes() {
        let mut m = matrix::<f64>(ncols, &lengths, &mut numbers);
        let n = m.nrows();
        let x = numbers.many::<f64>(n);
        let device_x = cuda.upload(&x).expect("uploads");
        let mut y = cuda.zeros(ncols).expect("zeros");
        let mut resident: CudaCsr<f64> = cuda.load(Arc::new(m.clone())).expect("loads");
        for round in 0..3 {
            let csc: Arc<Csc<f64>> = Arc::new(Csc::from_csr(&m).expect("converts"));
            SpmvTransposed::<Csr<f64>>::spmv_transposed(
                &cuda,
                None,
                Coeff::one(),
                &resident,
                &device_x,
                Coeff::zero(),
                &mut y,
            )
            .expect("multiplies");
            let by_rows = cuda.download(&y).expect("downloads");
            compare("transposed", &m.transpose(), true, 1.0, &x, 0.0, &[], &by_rows);
            let columns = Load::<Csc<f64>>::load(&cuda, csc).expect("loads");
            SpmvTransposed::<Csc<f64>>::spmv_transposed(
                &cuda,
                None,
                Coeff::one(),
                &columns,
                &device_x,
                Coeff::zero(),
                &mut y,
            )
            .expect("multiplies");
            assert!(cuda.download(&y).expect("downloads") == by_rows);
            let values = numbers.many::<f64>(m.nnz());
            m.values_mut().copy_from_slice(&values);
            if round == 0 {
                resident.update_values(&cuda, &values).expect("as many values");
            } else {
                resident.update_values_from(&cuda, &cuda.upload(&values).expect("uploads")).expect("as many values");
            }
        }
        assert!(matches!(resident.update_values(&cuda, &vec![0.0; m.nnz() + 1]), Err(Error::Shape { .. })));
    }
}

/// A transposed product that has not run before.
struct First<'a> {
    m: &'a CudaCsr<f64>,
    x: &'a <Cuda as Backend<f64>>::Vector,
    y: &'a mut <Cuda as Backend<f64>>::Vector,
}

// SAFETY: the same operation on the same operands at every call, and none of them moves.
unsafe impl Step<Cuda> for First<'_> {
    fn enqueue(&mut self, cuda: &Cuda) -> spandrel_backend::Result<()> {
        SpmvTransposed::<Csr<f64>>::spmv_transposed(cuda, None, Coeff::one(), self.m, self.x, Coeff::zero(), self.y)
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let Some(cuda) = device() else { return };
    let m = Csr::<f64>::identity(5).expect("small");
    assert!(matches!(cuda.load_csr_with(&m, CsrKernel::Vector(3)), Err(Error::Unsupported { .. })));
    let resident = cuda.load_csr_with(&m, CsrKernel::Staged).expect("loads");
    let (x, mut y) = (cuda.upload(&[1.0; 5]).expect("uploads"), cuda.zeros(5).expect("zeros"));
    let mut first = First { m: &resident, x: &x, y: &mut y };
    assert!(matches!(cuda.capture(&mut first), Err(Error::Device { .. })));
    first.enqueue(&cuda).expect("the device goes on");
    assert!(cuda.capture(&mut first).is_ok());
    let cuda = cuda.with_reproducible(true);
    assert!(matches!(cuda.load_csr_with(&m, CsrKernel::Balanced), Err(Error::Unsupported { .. })));
    assert!(matches!(cuda.load_csr_with(&m, CsrKernel::Vector(4)), Err(Error::Unsupported { .. })));
}
