//! Conversions, transposes and width rules of all formats of the registry. A new noun is tested without an edit here.

use proptest::prelude::*;
use spandrel_formats::{
    Bdia, Bsr, Bsrx, Coo, Csc, Csr, Dense, Dia, Ell, Format, Hec, Hmec, Hyb, Real, Sell, for_each_format,
};

/// A matrix from (row, column) pairs; values are odd multiples of one half, exact in f32.
fn from_pairs<T: Real>(nrows: usize, ncols: usize, pairs: impl IntoIterator<Item = (usize, usize)>) -> Csr<T> {
    let pairs: std::collections::BTreeSet<(usize, usize)> = pairs.into_iter().collect();
    let mut row_ptr = vec![0u32; nrows + 1];
    for &(i, _) in &pairs {
        row_ptr[i + 1] += 1;
    }
    for i in 0..nrows {
        row_ptr[i + 1] += row_ptr[i];
    }
    let col_idx = pairs.iter().map(|&(_, j)| j as u32).collect();
    let values = pairs.iter().map(|&(i, j)| T::from_f64(((3 * i + 5 * j) % 17) as f64 - 8.5)).collect();
    Csr::new(nrows, ncols, row_ptr, col_idx, values).unwrap()
}

/// Row i has the columns 0..lengths[i].
fn from_lengths(lengths: &[usize]) -> Csr<f64> {
    let ncols = lengths.iter().copied().max().unwrap_or(0);
    from_pairs(lengths.len(), ncols, lengths.iter().enumerate().flat_map(|(i, &len)| (0..len).map(move |j| (i, j))))
}

/// `count` rows of each length, longest last, so that sorting has work.
fn histogram(groups: &[(usize, usize)]) -> Csr<f64> {
    let mut groups = groups.to_vec();
    groups.sort_by_key(|&(_, len)| len);
    from_lengths(&groups.iter().flat_map(|&(count, len)| std::iter::repeat_n(len, count)).collect::<Vec<_>>())
}

/// Shapes and patterns that are difficult for conversions.
fn samples<T: Real>() -> Vec<Csr<T>> {
    let grid = |n: usize| {
        (0..n * n).flat_map(move |r| {
            let (x, y) = (r % n, r / n);
            let near = [(x.wrapping_sub(1), y), (x + 1, y), (x, y.wrapping_sub(1)), (x, y + 1), (x, y)];
            near.into_iter().filter(move |&(x, y)| x < n && y < n).map(move |(x, y)| (r, x + n * y))
        })
    };
    vec![
        from_pairs(0, 0, []),
        from_pairs(0, 5, []),
        from_pairs(5, 0, []),
        from_pairs(4, 7, []),
        from_pairs(1, 1, [(0, 0)]),
        from_pairs(1, 70, (0..70).map(|j| (0, j))),
        from_pairs(70, 1, (0..70).map(|i| (i, 0))),
        from_pairs(33, 65, [(0, 64), (32, 0), (32, 1), (16, 30), (16, 32)]),
        from_pairs(64, 64, (0..64).flat_map(|i| [(i, i), (i, 63 - i), (0, i)])),
        from_pairs(9, 9, (0..81).map(|k| (k / 9, k % 9))),
        from_pairs(144, 144, grid(12)),
        // Beyond the limit of 512 rows, with rows of 0 to 4 entries.
        from_pairs(5000, 300, (0..5000).flat_map(|i| (0..i * i % 5).map(move |k| (i, (i * 7 + k * 61) % 300)))),
    ]
}

fn fits<F: Format>(csr: &Csr<F::Value>) -> Option<F> {
    match F::from_csr(csr) {
        Ok(m) => Some(m),
        Err(spandrel_formats::Error::DoesNotFit { .. }) if csr.nrows() > 1000 => None,
        Err(error) => panic!("{}: {error}", F::NAME),
    }
}

fn check_pair<A: Format, B: Format<Value = A::Value>>(samples: &[Csr<A::Value>]) {
    for csr in samples {
        let Some(a) = fits::<A>(csr) else { continue };
        if fits::<B>(csr).is_none() {
            assert!(spandrel_formats::convert::<A, B>(&a).is_err());
            continue;
        }
        let b: B = spandrel_formats::convert(&a).unwrap();
        assert_eq!(&b.to_csr().unwrap(), csr, "{} -> {}", A::NAME, B::NAME);
        assert_eq!((b.nrows(), b.ncols(), b.nnz()), (csr.nrows(), csr.ncols(), csr.nnz()), "{}", B::NAME);
    }
}

/// Everything that holds for any format and any matrix without explicit zeros.
fn check_laws<F: Format>(csr: &Csr<F::Value>) {
    let Some(m) = fits::<F>(csr) else { return };
    assert_eq!(&m.to_csr().unwrap(), csr, "{}", F::NAME);
    let t = m.transpose().unwrap();
    assert_eq!(t.to_csr().unwrap(), csr.transpose(), "{} transposed", F::NAME);
    assert_eq!((t.nrows(), t.ncols(), t.nnz()), (csr.ncols(), csr.nrows(), csr.nnz()), "{} transposed", F::NAME);
    assert_eq!(&t.transpose().unwrap().to_csr().unwrap(), csr, "{} transposed twice", F::NAME);
    let bytes = F::Value::BYTES as u64;
    let vectors = (csr.nrows() + csr.ncols()) as u64 * bytes;
    assert!(m.spmv_bytes() >= csr.nnz() as u64 * bytes && m.spmv_bytes() <= m.storage() + vectors, "{}", F::NAME);
    assert_eq!(m.flops(), 2 * csr.nnz() as u64, "{}", F::NAME);
}

/// An explicit zero and a NaN: entries in some formats, fill and an entry in the others.
fn check_special<F: Format>() {
    let values: Vec<F::Value> = [1.0, 0.0, f64::NAN].map(F::Value::from_f64).to_vec();
    let csr = Csr::new(2, 3, vec![0, 2, 3], vec![0, 2, 1], values).unwrap();
    let back = F::from_csr(&csr).unwrap().to_csr().unwrap();
    let kept: &[u32] = if F::MULTIPLIES_FILL { &[0, 1] } else { &[0, 2, 1] };
    assert_eq!(back.col_idx(), kept, "{}", F::NAME);
    assert_eq!(F::from_csr(&csr).unwrap().nnz(), back.nnz(), "{}", F::NAME);
    assert!(back.get(1, 1).is_some_and(|v| v.as_f64().is_nan()), "{}", F::NAME);
}

macro_rules! pairs {
    ([$samples:ident] $(($source:ident, $Source:ident)),*) => { $( for_each_format!(targets, $Source, $samples); )* };
}
macro_rules! targets {
    ([$Source:ident $samples:ident] $(($target:ident, $Target:ident)),*) => { $(
        check_pair::<$Source<f64>, $Target<f64>>($samples);
    )* };
}
macro_rules! laws {
    ([$csr:ident $T:ident] $(($stem:ident, $Type:ident)),*) => { $( check_laws::<$Type<$T>>($csr); )* };
}
macro_rules! specials {
    ([] $(($stem:ident, $Type:ident)),*) => { $(
        assert_eq!(<$Type<f64>>::NAME, stringify!($stem));
        check_special::<$Type<f32>>();
        check_special::<$Type<f64>>();
    )* };
}

fn all_laws(csr: &Csr<f64>) {
    for_each_format!(laws, csr, f64);
    let narrow = &csr.map(|v| v as f32);
    for_each_format!(laws, narrow, f32);
}

#[test]
fn every_ordered_pair_of_formats() {
    let samples = &samples::<f64>();
    for_each_format!(pairs, samples);
}

#[test]
fn laws_of_every_format() {
    samples().iter().for_each(all_laws);
}

#[test]
fn explicit_zeros_and_nan() {
    for_each_format!(specials);
}

/// Any shape up to 40 x 40, empty ones included.
fn any_matrix() -> impl Strategy<Value = Csr<f64>> {
    (0usize..40, 0usize..40)
        .prop_flat_map(|(nrows, ncols)| {
            let pairs = prop::collection::vec((0..nrows.max(1), 0..ncols.max(1)), 0..200);
            (Just(nrows), Just(ncols), pairs)
        })
        .prop_map(|(nrows, ncols, pairs)| from_pairs(nrows, ncols, if nrows * ncols == 0 { vec![] } else { pairs }))
}

/// Enough rows for HMEC's blocks.
fn tall_matrix() -> impl Strategy<Value = Csr<f64>> {
    prop::collection::vec(0usize..8, 500..2500).prop_map(|lengths| {
        let n = lengths.len();
        let row = |(i, &len): (usize, &usize)| (0..len).map(move |k| (i, (i * 5 + k * 37) % n)).collect::<Vec<_>>();
        from_pairs(n, n, lengths.iter().enumerate().flat_map(row))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn round_trips_and_transposes(csr in any_matrix()) {
        all_laws(&csr);
    }

    #[test]
    fn every_parameter_keeps_the_matrix_and_the_invariants(
        csr in any_matrix(), c in 1usize..9, windows in 0usize..4, b in 1usize..9, width in 0usize..9, gap in 0usize..6,
    ) {
        let sigma = if windows == 0 { 1 } else { c * windows };
        let sell = Sell::from_csr_with(&csr, c, sigma).unwrap();
        prop_assert_eq!(&sell.to_csr().unwrap(), &csr);
        let (nrows, ncols, c, sigma, ptr, perm, cols, values) = sell.clone().into_parts();
        prop_assert_eq!(Sell::new(nrows, ncols, c, sigma, ptr, perm, cols, values).unwrap(), sell);

        let bsr = Bsr::from_csr_with(&csr, b).unwrap();
        prop_assert_eq!(&bsr.to_csr().unwrap(), &csr);
        prop_assert_eq!(bsr.transpose().unwrap(), Bsr::from_csr_with(&csr.transpose(), b).unwrap());
        let (nrows, ncols, b, ptr, cols, values) = bsr.clone().into_parts();
        prop_assert_eq!(Bsr::new(nrows, ncols, b, ptr, cols, values).unwrap(), bsr);

        let hyb = Hyb::from_csr_with(&csr, width).unwrap();
        prop_assert_eq!(&hyb.to_csr().unwrap(), &csr);
        let (ell, coo) = hyb.clone().into_parts();
        prop_assert_eq!(&Hyb::new(ell, coo).unwrap(), &hyb);
        prop_assert_eq!(Ell::try_from(hyb).unwrap().to_csr().unwrap(), csr.clone());

        let bdia = Bdia::from_csr_with(&csr, gap).unwrap();
        prop_assert_eq!(&bdia.to_csr().unwrap(), &csr);
        prop_assert_eq!(bdia.transpose().unwrap(), Bdia::from_csr_with(&csr.transpose(), gap).unwrap());
        let (nrows, ncols, bands, values) = bdia.clone().into_parts();
        prop_assert!(bands.windows(2).all(|w| w[1].start as i64 - w[0].start as i64 - w[0].width as i64 > gap as i64));
        prop_assert_eq!(Bdia::new(nrows, ncols, bands, values).unwrap(), bdia);
    }

    #[test]
    fn direct_conversions_agree_with_the_hub(csr in any_matrix()) {
        let coo = Coo::from_csr(&csr).unwrap();
        let csc = Csc::from_csr(&csr).unwrap();
        prop_assert_eq!(&Coo::from(csr.clone()), &coo);
        prop_assert_eq!(&Csr::from(coo.clone()), &csr);
        prop_assert_eq!(&Csc::from(&coo), &csc);
        prop_assert_eq!(&Coo::from(&csc), &coo);
        prop_assert_eq!(&Csr::from(csc.clone()), &csr);
        prop_assert_eq!(&csc.clone().into_transposed(), &csr.transpose());
        prop_assert_eq!(&Coo::from(&Dense::from_csr(&csr).unwrap()), &coo);
        let (dia, ell, bsr) = (Dia::from_csr(&csr).unwrap(), Ell::from_csr(&csr).unwrap(), Bsr::from_csr(&csr).unwrap());
        let bdia = Bdia::from(dia.clone());
        prop_assert_eq!(&bdia, &Bdia::from_csr_with(&csr, 0).unwrap());
        prop_assert_eq!(&Dia::from(bdia), &dia);
        let filled = Dia::from(Bdia::from_csr(&csr).unwrap());
        prop_assert_eq!((filled.to_csr().unwrap(), filled.nnz()), (csr.clone(), csr.nnz()));
        prop_assert_eq!(&Ell::try_from(Hyb::from(ell.clone())).unwrap(), &ell);
        prop_assert_eq!(&Bsr::from(Bsrx::from(bsr.clone())), &bsr);
        let (nrows, ncols, values) = Dense::from_csr(&csr).unwrap().into_parts();
        prop_assert_eq!(Dense::new(nrows, ncols, values).unwrap().to_csr().unwrap(), csr.clone());
        let (nrows, ncols, offsets, values) = dia.clone().into_parts();
        prop_assert_eq!(Dia::new(nrows, ncols, offsets, values).unwrap(), dia);
        let (nrows, ncols, width, cols, values) = ell.clone().into_parts();
        prop_assert_eq!(Ell::new(nrows, ncols, width, cols, values).unwrap(), ell);
    }

    #[test]
    fn a_mask_keeps_its_rows_alone(csr in any_matrix(), b in 1usize..5, picks in prop::collection::vec(any::<bool>(), 40)) {
        let full = Bsrx::from(Bsr::from_csr_with(&csr, b).unwrap());
        let mask: Vec<u32> = (0..full.block_rows() as u32).filter(|&i| picks[i as usize]).collect();
        let masked = full.with_mask(mask).unwrap();
        let kept = Csr::from_csr(&csr).unwrap();
        let pairs = (0..kept.nrows()).filter(|i| picks[i / b]).flat_map(|i| kept.row(i).0.iter().map(move |&j| (i, j as usize)));
        let expected = from_pairs::<f64>(csr.nrows(), csr.ncols(), pairs);
        prop_assert_eq!(&masked.to_csr().unwrap(), &expected);
        prop_assert_eq!(masked.nnz(), expected.nnz());
        prop_assert_eq!(&masked.transpose().unwrap().to_csr().unwrap(), &expected.transpose());
        prop_assert_eq!(Bsr::from(masked), Bsr::from_csr_with(&expected, b).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(12) })]

    #[test]
    fn sorted_hybrids_keep_the_matrix_and_the_invariants(csr in tall_matrix(), p in 1usize..4) {
        let hmec = Hmec::from_csr_with(&csr, p).unwrap();
        prop_assert_eq!(&hmec.to_csr().unwrap(), &csr);
        let lengths: Vec<usize> = hmec.perm().iter().map(|&i| csr.row_nnz(i as usize)).collect();
        for (new, pair) in hmec.perm().windows(2).enumerate() {
            prop_assert!(lengths[new] > lengths[new + 1] || lengths[new] == lengths[new + 1] && pair[0] < pair[1]);
        }
        // At most one third of a block that the rule made is padding.
        for block in hmec.blocks() {
            prop_assert!(3 * block.nnz() > 2 * block.cols().len());
            prop_assert!(block.rows() > 512);
        }
        let (nrows, ncols, perm, blocks, rest, p) = hmec.clone().into_parts();
        prop_assert_eq!(&Hmec::new(nrows, ncols, perm, blocks, rest, p).unwrap(), &hmec);
        let hec = Hec::from_csr(&csr).unwrap();
        prop_assert_eq!(&Hec::try_from(hmec).unwrap(), &hec);
        prop_assert_eq!(&Hmec::from(hec.clone()), &Hmec::from_csr_with(&csr, 1).unwrap());
        let (nrows, ncols, perm, block, rest) = hec.clone().into_parts();
        prop_assert_eq!(Hec::new(nrows, ncols, perm, block, rest).unwrap(), hec);
    }
}

fn shapes(csr: &Csr<f64>, p: usize) -> (Vec<(usize, usize)>, usize) {
    let m = Hmec::from_csr_with(csr, p).unwrap();
    (m.blocks().iter().map(|block| (block.rows(), block.width())).collect(), m.rest().nrows())
}

#[test]
fn hmec_stops_at_512_rows() {
    assert_eq!(shapes(&histogram(&[(512, 3)]), 2), (vec![], 512));
    assert_eq!(shapes(&histogram(&[(513, 3)]), 2), (vec![(513, 3)], 0));
    // Empty rows do not count.
    assert_eq!(shapes(&histogram(&[(100, 0), (512, 3)]), 2), (vec![], 512));
    assert_eq!(shapes(&histogram(&[(100, 0), (513, 3)]), 2), (vec![(513, 3)], 0));
    assert_eq!(shapes(&histogram(&[(600, 0)]), 2), (vec![], 0));
}

#[test]
fn hmec_takes_strictly_more_than_two_thirds() {
    // 600 rows: two columns hold 600 + c entries, two thirds of 1200 are 800.
    assert_eq!(shapes(&histogram(&[(400, 1), (200, 2)]), 1), (vec![(600, 1)], 200));
    assert_eq!(shapes(&histogram(&[(399, 1), (201, 2)]), 1), (vec![(600, 2)], 0));
    // Three columns of 600 rows, two thirds of 1800 are 1200: 1201 pass, 1200 do not.
    assert_eq!(shapes(&histogram(&[(600, 2)]), 1), (vec![(600, 2)], 0));
    assert_eq!(shapes(&histogram(&[(599, 2), (1, 3)]), 1), (vec![(600, 3)], 0));
    assert_eq!(shapes(&histogram(&[(1, 1), (598, 2), (1, 3)]), 1), (vec![(600, 2)], 1));
    // 601 rows: two thirds of 1202 are 801.33: 801 fails, 802 passes.
    assert_eq!(shapes(&histogram(&[(401, 1), (200, 2)]), 1), (vec![(601, 1)], 200));
    assert_eq!(shapes(&histogram(&[(400, 1), (201, 2)]), 1), (vec![(601, 2)], 0));
}

#[test]
fn hmec_makes_at_most_p_blocks_of_the_rows_that_are_left() {
    // Columns of 6000, 1900, 600 entries: each fails beside the one before.
    let csr = histogram(&[(4100, 1), (1300, 2), (600, 3)]);
    assert_eq!(shapes(&csr, 1), (vec![(6000, 1)], 1900));
    assert_eq!(shapes(&csr, 2), (vec![(6000, 1), (1900, 1)], 600));
    assert_eq!(shapes(&csr, 3), (vec![(6000, 1), (1900, 1), (600, 1)], 0));
    assert_eq!(shapes(&csr, 9), shapes(&csr, 3));
    // No more columns than the longest row, although padding would still be under one third.
    assert_eq!(shapes(&histogram(&[(600, 5)]), 2), (vec![(600, 5)], 0));
}

#[test]
fn hyb_takes_the_widest_column_that_pays() {
    let width = |groups: &[(usize, usize)]| Hyb::choose_width(&histogram(groups));
    assert_eq!(width(&[]), 0);
    assert_eq!(width(&[(4095, 5)]), 0);
    assert_eq!(width(&[(4096, 5)]), 5);
    // A third of the rows, exactly and one less.
    assert_eq!(width(&[(20000, 1), (10000, 3)]), 3);
    assert_eq!(width(&[(20001, 1), (9999, 3)]), 1);
    // More than a third, but fewer than 4096.
    assert_eq!(width(&[(7905, 1), (4095, 2)]), 1);
    assert_eq!(width(&[(7904, 1), (4096, 2)]), 2);
    let hyb = Hyb::from_csr(&histogram(&[(20001, 1), (9999, 3)])).unwrap();
    assert_eq!((hyb.ell().width(), hyb.ell().nnz(), hyb.coo().nnz()), (1, 30000, 2 * 9999));
}

#[test]
fn bsr_takes_the_block_size_with_the_fewest_bytes() {
    let blocks = |b: usize, n: usize| {
        (0..n).flat_map(move |k| (0..b * b).map(move |e| (k * b + e / b, (k * 7 % n) * b + e % b)))
    };
    for b in [2, 3, 4, 6, 8] {
        let csr = from_pairs::<f64>(24 * b, 24 * b, blocks(b, 24));
        assert_eq!(Bsr::from_csr(&csr).unwrap().block_dim(), b);
    }
    assert_eq!(Bsr::from_csr(&Csr::<f64>::identity(50).unwrap()).unwrap().block_dim(), 2);
}

#[test]
fn sell_sorts_inside_its_windows_alone() {
    let csr = from_lengths(&[1, 3, 2, 3, 0, 1, 2, 2]);
    let perm = |c, sigma| Sell::from_csr_with(&csr, c, sigma).unwrap().perm().to_vec();
    assert_eq!(perm(2, 1), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(perm(2, 4), [1, 3, 2, 0, 6, 7, 5, 4]);
    assert_eq!(perm(2, 8), [1, 3, 2, 6, 7, 0, 5, 4]);
    assert_eq!(Sell::from_csr_with(&csr, 2, 8).unwrap().slice_ptr(), [0, 3, 5, 7, 8]);
    // Windows that are not a power of two, over more than one task.
    let csr = from_pairs::<f64>(20000, 9, (0..20000).flat_map(|i| (0..i * 7 % 9).map(move |j| (i, j))));
    let sell = Sell::from_csr_with(&csr, 4, 1500).unwrap();
    let longest_first =
        |window: &[u32]| window.windows(2).all(|w| csr.row_nnz(w[0] as usize) >= csr.row_nnz(w[1] as usize));
    assert!(sell.perm().chunks(1500).all(longest_first));
    assert_eq!(sell.to_csr().unwrap(), csr);
}
