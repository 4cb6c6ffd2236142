//! What each format stores of one 6 x 6 matrix, drawn, and the bytes it reports for f64: reviewed numbers.
//!
//! ```text
//! | 4 . 1 . . . |
//! | . 5 2 . 3 . |
//! | . . 6 . . . |
//! | 8 . . 9 . . |
//! | . 1 . . 7 3 |
//! | . . . . . 2 |
//! ```

use spandrel_formats::{
    Bdia, Bsr, Bsrx, Coo, Csc, Csr, Dense, Dia, Ell, EllBlock, Format, Hec, Hmec, Hyb, PADDING, Sell, SparseVec,
};

fn example() -> Csr<f64> {
    let row_ptr = vec![0, 2, 5, 6, 8, 11, 12];
    let col_idx = vec![0, 2, 1, 2, 4, 2, 0, 3, 1, 4, 5, 5];
    let values = [4, 1, 5, 2, 3, 6, 8, 9, 1, 7, 3, 2].map(f64::from).to_vec();
    Csr::new(6, 6, row_ptr, col_idx, values).unwrap()
}

/// `name v v v | v v v`, cut into groups of `group`.
fn line<N: Copy + Into<f64>>(name: &str, array: &[N], group: usize) -> String {
    let cell = |&v: &N| {
        let v: f64 = v.into();
        if v == f64::from(PADDING) { "*".to_owned() } else { format!("{v:.0}") }
    };
    let groups: Vec<String> =
        array.chunks(group.max(1)).map(|g| g.iter().map(cell).collect::<Vec<_>>().join(" ")).collect();
    format!("{name:<10}{}\n", groups.join(" | "))
}

fn sizes<F: Format>(m: &F) -> String {
    let (name, nrows, ncols, nnz) = (F::NAME, m.nrows(), m.ncols(), m.nnz());
    let (storage, spmv, flops) = (m.storage(), m.spmv_bytes(), m.flops());
    format!("{name} {nrows} x {ncols}, nnz {nnz}\nbytes     storage {storage}, spmv {spmv}; flops {flops}\n")
}

fn rows<T: spandrel_formats::Real + Into<f64>>(csr: &Csr<T>) -> String {
    let all = usize::MAX;
    line("row_ptr", csr.row_ptr(), all) + &line("col_idx", csr.col_idx(), all) + &line("values", csr.values(), all)
}

const ALL: usize = usize::MAX;

#[test]
fn csr() {
    let m = example();
    insta::assert_snapshot!("csr", sizes(&m) + &rows(&m));
}

#[test]
fn coo() {
    let m = Coo::from_csr(&example()).unwrap();
    insta::assert_snapshot!(
        "coo",
        sizes(&m) + &line("rows", m.rows(), ALL) + &line("cols", m.cols(), ALL) + &line("values", m.values(), ALL)
    );
}

#[test]
fn csc() {
    let m = Csc::from_csr(&example()).unwrap();
    insta::assert_snapshot!(
        "csc",
        sizes(&m)
            + &line("col_ptr", m.col_ptr(), ALL)
            + &line("row_idx", m.row_idx(), ALL)
            + &line("values", m.values(), ALL)
    );
}

#[test]
fn ell() {
    let m = Ell::from_csr(&example()).unwrap();
    let text = sizes(&m) + &format!("width     {}\n", m.width());
    insta::assert_snapshot!("ell", text + &line("cols", m.cols(), 6) + &line("values", m.values(), 6));
}

#[test]
fn sell() {
    let m = Sell::from_csr_with(&example(), 2, 4).unwrap();
    let text = sizes(&m) + &format!("c, sigma  {} {}\n", m.c(), m.sigma());
    insta::assert_snapshot!(
        "sell",
        text + &line("slice_ptr", m.slice_ptr(), ALL)
            + &line("perm", m.perm(), 2)
            + &line("cols", m.cols(), 2)
            + &line("values", m.values(), 2)
    );
}

#[test]
fn dia() {
    let m = Dia::from_csr(&example()).unwrap();
    insta::assert_snapshot!("dia", sizes(&m) + &line("offsets", m.offsets(), ALL) + &line("values", m.values(), 6));
}

#[test]
fn bdia() {
    let m = Bdia::from_csr(&example()).unwrap();
    let bands: String =
        m.bands().iter().map(|band| format!("band      {} wide {}\n", band.start, band.width)).collect();
    insta::assert_snapshot!("bdia", sizes(&m) + &bands + &line("values", m.values(), 6));
}

#[test]
fn hyb() {
    let m = Hyb::from_csr_with(&example(), 2).unwrap();
    insta::assert_snapshot!(
        "hyb",
        sizes(&m)
            + &line("ell.cols", m.ell().cols(), 6)
            + &line("ell.vals", m.ell().values(), 6)
            + &line("coo.rows", m.coo().rows(), ALL)
            + &line("coo.cols", m.coo().cols(), ALL)
            + &line("coo.vals", m.coo().values(), ALL)
    );
}

#[test]
fn bsr() {
    let m = Bsr::from_csr_with(&example(), 2).unwrap();
    insta::assert_snapshot!(
        "bsr",
        sizes(&m)
            + &line("row_ptr", m.row_ptr(), ALL)
            + &line("col_idx", m.col_idx(), ALL)
            + &line("values", m.values(), 4)
    );
}

#[test]
fn bsrx() {
    let m = Bsrx::from(Bsr::from_csr_with(&example(), 2).unwrap()).with_mask(vec![0, 2]).unwrap();
    insta::assert_snapshot!(
        "bsrx",
        sizes(&m)
            + &line("row_start", m.row_start(), ALL)
            + &line("row_end", m.row_end(), ALL)
            + &line("mask", m.mask(), ALL)
            + &line("col_idx", m.col_idx(), ALL)
            + &line("values", m.values(), 4)
    );
}

/// The rule makes no block of 6 rows, so these are made by hand from the sorted rows 1 4 0 3 2 5.
fn blocks() -> (Vec<u32>, EllBlock<f64>, EllBlock<f64>) {
    let first = EllBlock::new(
        6,
        2,
        6,
        vec![1, 1, 0, 0, 2, 5, 2, 4, 2, 3, PADDING, PADDING],
        [5, 1, 4, 8, 6, 2, 2, 7, 1, 9, 0, 0].map(f64::from).to_vec(),
    );
    let second = EllBlock::new(2, 1, 6, vec![4, 5], vec![3.0, 3.0]);
    (vec![1, 4, 0, 3, 2, 5], first.unwrap(), second.unwrap())
}

fn draw(block: &EllBlock<f64>) -> String {
    format!("block     {} x {}\n", block.rows(), block.width())
        + &line("cols", block.cols(), block.rows())
        + &line("values", block.values(), block.rows())
}

#[test]
fn hmec() {
    let (perm, first, second) = blocks();
    let rest = Csr::new(0, 6, vec![0], vec![], vec![]).unwrap();
    let m = Hmec::new(6, 6, perm, vec![first, second], rest, 2).unwrap();
    assert_eq!(m.to_csr().unwrap(), example());
    let text: String = m.blocks().iter().map(draw).collect();
    insta::assert_snapshot!("hmec", sizes(&m) + &line("perm", m.perm(), ALL) + &text + "rest\n" + &rows(m.rest()));
}

#[test]
fn hec() {
    let (perm, first, _) = blocks();
    let rest = Csr::new(2, 6, vec![0, 1, 2], vec![4, 5], vec![3.0, 3.0]).unwrap();
    let m = Hec::new(6, 6, perm, Some(first), rest).unwrap();
    assert_eq!(m.to_csr().unwrap(), example());
    insta::assert_snapshot!(
        "hec",
        sizes(&m) + &line("perm", m.perm(), ALL) + &draw(m.block().unwrap()) + "rest\n" + &rows(m.rest())
    );
}

#[test]
fn dense() {
    let m = Dense::from_csr(&example()).unwrap();
    insta::assert_snapshot!("dense", sizes(&m) + &line("values", m.values(), 6));
}

#[test]
fn sparse_vec() {
    let v = SparseVec::from_dense(&[0.0, 5.0, 0.0, 0.0, 7.0, 0.0]).unwrap();
    insta::assert_snapshot!(
        "sparse_vec",
        format!("len {}\n", v.len()) + &line("indices", v.indices(), ALL) + &line("values", v.values(), ALL)
    );
}
