//! Fuzz targets: each takes any bytes and panics where a promise of the libraries is broken. What is refused must be a typed error.
//!
//! `fuzz_targets/NAME.rs` hands libFuzzer's bytes to `NAME::check`; `corpus/NAME` holds the inputs that are worth keeping, each finding
//! among them. The test `corpus` of `spandrel-conformance` compiles this file once more, with the stable compiler and without a fuzzer, and
//! replays them.

pub mod constructors;
pub mod conversions;
pub mod factors;
pub mod generate;
pub mod input;
pub mod matrix_market;
pub mod product;
pub mod triangles;
pub mod vectors;

/// Every target with its name, which is also that of its folder in `corpus`.
pub const TARGETS: [(&str, fn(&[u8])); 7] = [
    ("constructors", constructors::check),
    ("conversions", conversions::check),
    ("factors", factors::check),
    ("generate", generate::check),
    ("matrix_market", matrix_market::check),
    ("triangles", triangles::check),
    ("vectors", vectors::check),
];
