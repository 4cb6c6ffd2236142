//! The meaning of the words in the tables.

/// The page of the words and the machines.
pub(crate) const PAGE: &str = "docs/results/words.md";

/// The words in the columns that name formats, kernels and plans.
const WORDS: [(&str, &str); 44] = [
    ("coo", "triplets, sorted by row"),
    ("csr", "compressed rows"),
    ("csc", "compressed columns; on a GPU multiplied by the kernels of CSR"),
    ("ell", "rows padded to one width"),
    ("sell", "SELL-C-sigma: slices of rows, each padded to its own width; of a peer, cuSPARSE's sliced ELL"),
    ("dia", "whole diagonals"),
    ("bdia", "bands of neighbouring diagonals"),
    ("hyb", "ELL for the typical part of each row, COO for the rest"),
    ("bsr", "dense blocks in compressed rows"),
    ("bsrx", "BSR with a mask of block rows"),
    ("hec", "one ELL block of the longer rows, CSR for the rest"),
    ("hmec", "several ELL blocks of decreasing width, CSR for the rest"),
    ("dense", "every entry stored"),
    ("symmetric", "DIA that stores only the diagonals from the main one upwards"),
    ("full", "DIA that stores both halves"),
    ("values in f32", "values that f32 represents exactly are stored in f32; sums are in f64 and have the same bits"),
    ("window", "bDIA kernel for wide bands: the part of x that 1024 rows need is in shared memory"),
    ("narrow", "bDIA kernel for narrow bands: four rows per thread"),
    ("single", "bDIA kernel for narrow bands with fewer rows: one row per thread"),
    ("small", "bDIA kernel for few rows: one row per thread, in blocks of 64"),
    (
        "staged",
        "CSR kernel: a warp copies 32 rows to shared memory, then each lane sums one row; for bDIA, 64 rows with their part of x",
    ),
    ("scalar", "CSR kernel: one thread per row"),
    ("vector", "CSR kernel: as many lanes per row as the number in brackets"),
    ("binned", "CSR kernel: rows in classes by length, with more lanes for longer rows"),
    ("balanced", "CSR kernel for power-law rows: one warp for every few hundred entries of whole rows"),
    ("serial", "triangular solve by one thread, row after row"),
    ("elementwise", "triangular solve by one warp per row with one flag per row (Chen et al. 2023, Algorithm 1)"),
    ("levelset", "triangular solve by levels of rows or [chains](../glossary.md)"),
    ("syncfree", "triangular solve without levels: each row waits for the rows that it needs (Liu et al. 2016)"),
    ("capellini", "triangular solve by one thread per row, without an analysis (Su et al. 2020)"),
    ("structured", "the published triangular solve for grids (Chen et al. 2023, Algorithm 2)"),
    ("sweep", "our triangular solve for grids, see [the sweep](../design/sweep.md)"),
    ("resident", "a sweep that was analysed on the GPU, from a matrix in device memory"),
    ("alg1", "the first of cuSPARSE's algorithms for the format"),
    ("alg2", "the second"),
    ("SpSV", "cuSPARSE's triangular solve, after its analysis"),
    ("device scalars", "the peer's CG with alpha and beta on the GPU"),
    ("host scalars", "the peer's CG that reads each dot product on the host"),
    ("graph", "the iteration is replayed as a CUDA graph"),
    ("split", "SpSV with each triangle stored by itself"),
    ("whole", "SpSV that reads both triangles from the factor of csrilu02 or csric02"),
    ("ilu0", "incomplete LU factors without fill"),
    ("ic0", "incomplete Cholesky factors without fill"),
    ("forced", "chosen by the bench, not by the library"),
];

/// The table of all these words.
pub(crate) fn section() -> String {
    let mut out = String::from(
        "# Words and machines\n\nWhat the names in the tables of results mean. The [glossary](../glossary.md) explains the project's other \
         terms.\n\n## Words\n\n| word | meaning |\n|---|---|\n",
    );
    WORDS.iter().for_each(|(word, means)| out += &format!("| {word} | {means} |\n"));
    out
}

/// Whether a word is explained, or the part before its bracket.
#[cfg(test)]
pub(crate) fn explains(word: &str) -> bool {
    let stem = word.split('(').next().unwrap_or_default().trim();
    WORDS.iter().any(|(known, _)| *known == stem)
}
