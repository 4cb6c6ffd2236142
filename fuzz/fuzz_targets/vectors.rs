//! libFuzzer's bytes for `spandrel_fuzz::vectors`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| spandrel_fuzz::vectors::check(bytes));
