//! [`Profile::reference`]: the fixed model of one core by which choices are made that have to agree between machines.
//!
//! The costs of products are fitted by least relative error to f64 products of some 260 real matrices that ran on one
//! core; SELL's are a tenth higher and ELL's factor is set so that the choice is right most often. How often is in
//! `record/cpu-spmv.jsonl`. Most matrices that fit a cache are decided by these costs, large ones by the bytes. There
//! CSC reaches 0.5 to 0.75 of the rate of CSR, and CSR 0.6 to 1.1 of that of SELL: a row that ends is a branch that is
//! predicted wrongly (`record/cpu-large-products.txt`).
//!
//! Level sets that no device asked for are cut by the costs here, so that their order of execution is the same
//! everywhere too.

use super::{Cost, Host, Iteration, Levels, Memory, Origin, Products, Profile, Triangles};

/// Half of what the two cores of the fit move: 43 GB/s.
const NANOSECONDS_PER_BYTE: f64 = 0.0465;

pub(super) fn profile() -> Profile {
    let cost = |call, row, place| Some(Cost { call, row, place, padded: 1.0, efficiency: 1.0, step: 0.0 });
    Profile {
        device: "the reference, a model of one core".into(),
        origin: Origin::Measured,
        memory: Memory {
            nanoseconds_per_byte: NANOSECONDS_PER_BYTE,
            units: 1,
            // What a large third-level cache holds.
            resident: 32 << 20,
            resident_rate: None,
            near: 1 << 20,
            caches: Vec::new(),
        },
        products: Products {
            halves_dia: false,
            coo: cost(131.0, 1.320, 0.6110),
            csr: cost(16.2, 0.526, 0.2930).map(|csr| Cost { efficiency: 0.9, ..csr }),
            csc: cost(6.7, 0.397, 0.3660).map(|csc| Cost { efficiency: 0.7, ..csc }),
            ell: cost(42.9, 0.183, 0.2080).map(|ell| Cost { padded: 1.2, ..ell }),
            sell: cost(2.0, 0.842, 0.2740),
            dia: cost(48.5, 0.000, 0.1086),
            bdia: cost(46.8, 0.000, 0.1090),
            hyb: cost(141.0, 1.318, 0.3110).map(|hyb| Cost { efficiency: 0.9, ..hyb }),
            bsr: cost(16.5, 2.105, 0.1700),
            // BSR with a mask, which a whole product does not need.
            bsrx: None,
            hec: cost(27.7, 0.416, 0.2900).map(|hec| Cost { efficiency: 0.9, ..hec }),
            hmec: cost(33.1, 0.409, 0.2850).map(|hmec| Cost { efficiency: 0.9, ..hmec }),
            dense: cost(17.1, 0.000, 0.0738),
        },
        triangles: Triangles {
            // Waking a second core costs more than the solve.
            alone: 1024 * 1024,
            // Some microseconds of work, against a wait of half of one.
            shared_level: 2048,
            // An analysis takes about as long as this many serial solves.
            paid_back: 4,
            stencils: None,
            levels: Levels {
                level: [400.0, 700.0],
                beside: 350.0,
                slice: 0.4,
                rate: 3000.0,
                change: 3000.0,
                chained: 950.0,
                round: 250.0,
                link: 40,
            },
            waits: None,
        },
        factoring: None,
        iteration: Iteration {
            level: 0.0,
            call: 0.0,
            bus: 0.0,
            first: 0.0,
            // `record/cpu-large-products.txt`.
            coarsening: 20.0,
            coarsening_shared: 90.0,
        },
        host: Host {
            threads: 1,
            nanoseconds_per_byte: NANOSECONDS_PER_BYTE,
            entry: 6.0,
            term: 0.9,
            // Set by factorisations of some two hundred real matrices on two cores, most of them within a factor of
            // two.
            factor_entry: 45.0,
            factor_flop: 0.05,
        },
    }
}
