//! libFuzzer's bytes for `spandrel_fuzz::conversions`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| spandrel_fuzz::conversions::check(bytes));
