//! libFuzzer's bytes for `spandrel_fuzz::generate`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| spandrel_fuzz::generate::check(bytes));
