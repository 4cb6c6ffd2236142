//! Fuzz targets: each takes any bytes, and panics if a library breaks a promise. A refusal must be a typed error.
//!
//! `fuzz_targets/NAME.rs` passes libFuzzer's bytes to `NAME::check`. `corpus/NAME` holds the inputs that are worth
//! keeping, among them every input that found a defect. The test `corpus` of `spandrel-conformance` compiles this file
//! too, with the stable compiler and without a fuzzer, and replays them.

pub mod amg;
pub mod constructors;
pub mod conversions;
pub mod factors;
pub mod generate;
pub mod input;
pub mod matrix_market;
pub mod product;
pub mod robust;
pub mod triangles;
pub mod vectors;

/// Every target with its name, which is also the name of its folder in `corpus`.
pub const TARGETS: [(&str, fn(&[u8])); 9] = [
    ("amg", amg::check),
    ("constructors", constructors::check),
    ("conversions", conversions::check),
    ("factors", factors::check),
    ("generate", generate::check),
    ("matrix_market", matrix_market::check),
    ("robust", robust::check),
    ("triangles", triangles::check),
    ("vectors", vectors::check),
];
