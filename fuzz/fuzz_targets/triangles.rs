//! libFuzzer's bytes for `spandrel_fuzz::triangles`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| spandrel_fuzz::triangles::check(bytes));
