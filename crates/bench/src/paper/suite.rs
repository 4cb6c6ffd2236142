//! The matrices of Cheng et al. 2018, Table 1, and sherman3, which only its section 5.3 mentions. Each has the
//! published times of one product and a stand-in: a generated matrix of similar size, length of rows and symmetry.

use std::path::Path;

use crate::case::{self, Case};

/// A matrix of the paper.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// Group and name in the collection.
    pub name: &'static str,
    /// Rows.
    pub rows: usize,
    /// Entries.
    pub nnz: usize,
    /// Whether its pattern is symmetric, so that CG applies to it or to its Laplacian.
    pub symmetric: bool,
    /// The generated matrix that replaces it.
    pub stand_in: &'static str,
    /// Table 2: milliseconds of one product by COO, CSR, ELL, HYB, HEC, HMEC(2) on a GTX 1050.
    pub published: Option<[f64; 6]>,
}

impl Named {
    /// The name without the group.
    pub fn short(&self) -> &'static str {
        self.name.split('/').next_back().unwrap_or(self.name)
    }

    /// Its file in a folder.
    pub fn file(&self, folder: &Path) -> Option<Case> {
        case::folder(folder).ok()?.into_iter().find(|case| case.name == self.short())
    }
}

/// An entry without times.
const fn row(name: &'static str, rows: usize, nnz: usize, symmetric: bool, stand_in: &'static str) -> Named {
    Named { name, rows, nnz, symmetric, stand_in, published: None }
}

const fn timed(named: Named, published: [f64; 6]) -> Named {
    Named { published: Some(published), ..named }
}

/// Table 1, and sherman3.
#[rustfmt::skip] // a table
pub const SUITE: [Named; 27] = [
    row("HB/685_bus", 685, 3_249, true, "poisson2d:26"),
    timed(row("HB/1138_bus", 1_138, 4_054, true, "poisson2d:34"), [0.019, 0.024, 0.022, 0.026, 0.027, 0.028]),
    timed(row("HB/bcspwr07", 1_612, 5_824, true, "poisson2d:40"), [0.027, 0.029, 0.025, 0.029, 0.036, 0.029]),
    row("HB/sherman3", 5_005, 20_033, true, "poisson3d:35x11x13"),
    timed(row("HB/bcspwr10", 5_300, 21_842, true, "poisson2d:73"), [0.052, 0.031, 0.039, 0.047, 0.045, 0.041]),
    timed(row("Nasa/barth", 6_691, 26_439, false, "convdiff2d:82"), [0.058, 0.039, 0.046, 0.063, 0.058, 0.048]),
    timed(row("HB/gemat12", 4_929, 33_044, false, "powerlaw:n=4929,alpha=2.2"), [0.062, 0.037, 0.082, 0.035, 0.033, 0.033]),
    row("HB/bcsstk23", 3_134, 45_178, true, "electrostatic:n=3134"),
    row("HB/bcsstk24", 3_562, 159_910, true, "gfem:n=60x60,p=1,dim=2"),
    timed(row("HB/bcsstk28", 4_410, 219_024, true, "gfem:n=66x67,p=1,dim=2"), [0.192, 0.163, 0.167, 0.129, 0.121, 0.112]),
    row("HB/bcsstk25", 15_439, 252_241, true, "electrostatic:n=15439"),
    row("HB/bcsstk16", 4_884, 290_378, true, "banded:n=4884,d=59"),
    row("HB/bcsstk17", 10_974, 428_650, true, "d3n33:22"),
    timed(row("HB/psmigr_1", 3_140, 543_160, false, "random:n=3140,nnz_per_row=173"), [2.212, 2.054, 3.58, 1.26, 1.871, 1.567]),
    timed(row("HB/bcsstk33", 8_738, 591_904, true, "banded:n=8738,d=67"), [0.592, 0.471, 0.495, 0.425, 0.395, 0.362]),
    timed(row("HB/bcsstk29", 13_992, 619_488, true, "gfem:n=118x119,p=1,dim=2"), [1.13, 0.57, 0.698, 0.412, 0.386, 0.335]),
    timed(row("Hollinger/g7jac180", 53_370, 641_290, false, "powerlaw:n=53370,alpha=2.1"), [1.25, 0.78, 2.61, 0.642, 0.593, 0.568]),
    timed(row("Boeing/crystk02", 13_965, 968_583, true, "banded:n=13965,d=69"), [1.48, 0.83, 4.53, 0.715, 0.653, 0.614]),
    timed(row("Boeing/bcsstk36", 23_052, 1_143_140, true, "gfem:n=152x152,p=1,dim=2"), [1.65, 0.99, 1.425, 0.874, 0.71, 0.645]),
    timed(row("ATandT/twotone", 120_750, 1_206_265, false, "powerlaw:n=120750,alpha=2.12"), [3.127, 2.854, 7.48, 2.536, 2.215, 1.984]),
    timed(row("HB/bcsstk30", 28_924, 2_043_492, true, "banded:n=28924,d=71"), [1.92, 1.68, 2.089, 1.398, 1.112, 1.034]),
    timed(row("Boeing/ct20stif", 52_329, 2_600_295, true, "gfem:n=229x229,p=1,dim=2"), [2.86, 2.52, 38.59, 2.21, 1.88, 1.69]),
    timed(row("Rothberg/3dtube", 45_330, 3_213_618, true, "banded:n=45330,d=71"), [4.35, 3.95, 31.14, 3.66, 3.09, 2.97]),
    timed(row("Chen/pkustk04", 55_590, 4_218_660, true, "banded:n=55590,d=75"), [3.89, 3.16, 68.51, 3.27, 2.62, 2.36]),
    timed(row("Chen/pkustk12", 94_653, 7_512_317, true, "banded:n=94653,d=79"), [10.68, 8.59, 95.63, 8.25, 7.14, 6.52]),
    timed(row("Rothberg/gearbox", 153_746, 9_080_404, true, "gfem:n=392x392,p=1,dim=2"), [2.868, 0.952, 5.04, 3.874, 3.498, 3.287]),
    timed(row("Boeing/pwtk", 217_918, 11_524_432, true, "gfem:n=467x467,p=1,dim=2"), [5.914, 5.152, 12.92, 4.967, 4.275, 3.876]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_formats::generate::Spec;

    #[test]
    fn every_stand_in_can_be_generated_and_names_are_once() {
        for named in &SUITE {
            Spec::parse(named.stand_in).unwrap();
            assert_eq!(SUITE.iter().filter(|other| other.short() == named.short()).count(), 1);
        }
        // The paper's order, with sherman3 at the place of its number of entries.
        assert!(SUITE.windows(2).all(|pair| pair[0].nnz <= pair[1].nnz));
    }

    #[test]
    fn small_stand_ins_are_of_like_size() {
        use spandrel_formats::Csr;
        for named in SUITE.iter().filter(|named| named.nnz < 300_000) {
            let csr: Csr<f64> = spandrel_formats::generate::csr(named.stand_in).unwrap();
            let near = |a: usize, b: usize, by: f64| (a as f64 / b as f64 - 1.0).abs() < by;
            assert!(near(csr.nrows(), named.rows, 0.05), "{}: {} rows", named.name, csr.nrows());
            assert!(near(csr.nnz(), named.nnz, 0.75), "{}: {} entries", named.name, csr.nnz());
        }
    }
}
