//! What the words in the tables mean.

/// Words of the columns "ours", "best peer" and "auto".
const WORDS: [(&str, &str); 44] = [
    ("coo", "triplets sorted by row"),
    ("csr", "compressed rows"),
    ("csc", "compressed columns, multiplied on a GPU by the kernels of CSR"),
    ("ell", "rows padded to one width"),
    ("sell", "SELL-C-sigma, slices of rows padded each to its own width; cuSPARSE's sliced ELL"),
    ("dia", "whole diagonals"),
    ("bdia", "bands of neighbouring diagonals"),
    ("hyb", "ELL for the typical part of each row, COO for the rest"),
    ("bsr", "dense blocks in compressed rows"),
    ("bsrx", "BSR with a mask of block rows"),
    ("hec", "one ELL block of the longer rows, CSR for the rest"),
    ("hmec", "several ELL blocks of falling width, CSR for the rest"),
    ("dense", "every entry stored"),
    (
        "symmetric",
        "of DIA: only the diagonals from the main one up are stored and read, each entry counts for both halves",
    ),
    ("full", "of DIA: both halves stored"),
    (
        "values in f32",
        "of DIA: every value is one that f32 holds, and stored so; sums are in f64 and have the same bits",
    ),
    ("window", "of bDIA: the part of x that 1024 rows need lies in shared memory; for wide bands"),
    ("narrow", "of bDIA: four rows a thread; for narrow bands"),
    ("single", "of bDIA: a row a thread; for narrow bands of fewer rows"),
    ("small", "of bDIA: a row a thread in blocks of 64; for few rows"),
    (
        "staged",
        "of CSR: a warp brings 32 rows to shared memory, then a lane walks each. Of bDIA: values and x of 64 rows are brought there",
    ),
    ("scalar", "of CSR: a thread a row"),
    ("vector", "of CSR: so many lanes a row as the number in brackets says"),
    ("binned", "of CSR: as many lanes a row as its length asks for, rows in classes by length"),
    ("balanced", "of CSR: a warp for every few hundred entries of whole rows; for power-law rows"),
    ("serial", "a triangular solve by one thread, row after row"),
    ("elementwise", "a warp a row, waiting for one flag a row (Chen et al. 2023, Algorithm 1)"),
    ("levelset", "rows, or chains of neighbouring rows, by levels of dependencies"),
    ("syncfree", "no levels: each row waits for those it needs (Liu et al. 2016)"),
    ("capellini", "a thread a row, no analysis (Su et al. 2020)"),
    ("structured", "the published method for grids (Chen et al. 2023, Algorithm 2)"),
    ("sweep", "our own for grids: a schedule that follows from the stencil, values packed in the order of use"),
    ("resident", "of the sweep: analysed on the GPU, from a matrix that lies there"),
    ("alg1", "the first of cuSPARSE's algorithms for the format"),
    ("alg2", "the second"),
    ("SpSV", "cuSPARSE's triangular solve, after its analysis"),
    ("device scalars", "of CG by libraries: alpha and beta stay on the GPU"),
    ("host scalars", "of CG by libraries: each dot product comes to the host"),
    ("graph", "the iteration is replayed as a CUDA graph"),
    ("split", "of SpSV in a solve: each triangle stored by itself"),
    ("whole", "of SpSV in a solve: both triangles read from the factor as csrilu02 or csric02 leave it"),
    ("ilu0", "incomplete factors without fill"),
    ("ic0", "incomplete Cholesky factors without fill"),
    ("forced", "chosen by the bench, not by the library"),
];

/// The table of all of them.
pub(crate) fn section() -> String {
    let mut out = String::from("\n## Words in the tables\n\n| word | means |\n|---|---|\n");
    WORDS.iter().for_each(|(word, means)| out += &format!("| {word} | {means} |\n"));
    out
}

/// Whether a word, or what is before its bracket, is explained.
#[cfg(test)]
pub(crate) fn explains(word: &str) -> bool {
    let stem = word.split('(').next().unwrap_or_default().trim();
    WORDS.iter().any(|(known, _)| *known == stem)
}
