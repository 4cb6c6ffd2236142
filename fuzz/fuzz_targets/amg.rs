//! libFuzzer's bytes for `spandrel_fuzz::amg`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| spandrel_fuzz::amg::check(bytes));
