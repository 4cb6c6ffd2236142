//! The fuzz targets without a fuzzer: every input of `fuzz/corpus`, including each finding, and small random ones.

#[path = "../../../fuzz/src/lib.rs"]
pub mod fuzz;

use std::path::Path;

use proptest::prelude::*;

#[test]
fn every_input_of_the_corpus_keeps_the_promises() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, check) in fuzz::TARGETS {
        let folder = corpus.join(name);
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut count = 0;
        for entry in entries {
            let path = entry.expect("a listed file").path();
            // The output of a failing test is shown. Its last line is the input that failed.
            println!("{}", path.display());
            check(&std::fs::read(&path).expect("a readable file"));
            count += 1;
        }
        assert!(count > 0, "{} is empty", folder.display());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_keep_the_promises(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for (_, check) in fuzz::TARGETS {
            check(&bytes);
        }
    }
}
