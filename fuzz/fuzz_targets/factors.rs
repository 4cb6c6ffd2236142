//! libFuzzer's bytes for `spandrel_fuzz::factors`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| spandrel_fuzz::factors::check(bytes));
