//! libFuzzer's bytes for `spandrel_fuzz::matrix_market`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| spandrel_fuzz::matrix_market::check(bytes));
