//! libFuzzer's bytes for `spandrel_fuzz::robust`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| spandrel_fuzz::robust::check(bytes));
