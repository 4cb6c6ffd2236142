//! libFuzzer's bytes for `spandrel_fuzz::constructors`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| spandrel_fuzz::constructors::check(bytes));
