//! Bad input: each kind ends with its exit status, its word in JSON, and a message that helps. Never a panic.

use super::*;

/// An error: exit 1, the object on stdout, the message on stderr too.
#[track_caller]
fn refused(args: &[&str], kind: &str, part: &str) {
    let output = run(&[args, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(1), "{args:?}: {}", stderr(&output));
    let object = json(&output);
    assert_eq!(object["error"]["kind"], kind, "{object}");
    let message = object["error"]["message"].as_str().expect("a message");
    assert!(message.contains(part), "{part:?} is not in {message:?}");
    assert!(stderr(&output).contains(message));
    // Without --json nothing but the message, on stderr.
    let plain = run(args);
    assert_eq!(plain.status.code(), Some(1));
    assert_eq!(stdout(&plain), "");
    assert!(stderr(&plain).starts_with("error: "), "{}", stderr(&plain));
}

/// A solve that ends without an answer: exit 3 and the status.
#[track_caller]
fn unsolved(args: &[&str], status: &str) -> Value {
    let (code, object) = run_json(args);
    assert_eq!((code, object["status"].as_str()), (3, Some(status)), "{object}");
    object
}

#[track_caller]
fn misused(args: &[&str]) {
    let output = run(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
    assert_eq!(stdout(&output), "");
    assert!(stderr(&output).starts_with("error: "));
    let (code, object) = run_json(args);
    assert_eq!((code, object["error"]["kind"].as_str()), (2, Some("usage")));
}

#[test]
fn files_that_cannot_be_read() {
    let folder = Folder::new();
    let missing = folder.name("missing.mtx");
    for command in ["solve", "info", "spmv"] {
        refused(&[command, &missing], "io", "missing.mtx");
        refused(&[command, &text(folder.0.path())], "io", "directory");
    }
    refused(&["solve", &folder.file("empty.mtx", "")], "parse", "empty.mtx:1:1");
    refused(&["solve", &folder.file("prose.mtx", "not a matrix\n")], "parse", "prose.mtx:1:1");
}

#[test]
fn files_that_lie() {
    let folder = Folder::new();
    let banner = "%%MatrixMarket matrix coordinate real general\n";
    let huge = folder.file("huge.mtx", &format!("{banner}10 10 1000000000000000000\n1 1 1\n"));
    let (code, object) = run_json(&["solve", &huge]);
    assert_eq!(code, 1, "{object}");
    let wide = folder.file("wide.mtx", &format!("{banner}2000000000 2000000000 1\n1 1 1\n"));
    assert_eq!(run_json(&["solve", &wide]).0, 1);
    let beyond = folder.file("beyond.mtx", &format!("{banner}9000000000 9000000000 1\n1 1 1\n"));
    refused(&["solve", &beyond], "too_large", "rows");
    refused(&["solve", &folder.file("short.mtx", &format!("{banner}2 2 2\n1 1 1\n"))], "parse", "short.mtx:");
    refused(&["solve", &folder.file("zero.mtx", &format!("{banner}2 2 1\n1 0 1\n"))], "parse", "zero.mtx:3:3");
}

#[test]
fn matrices_that_a_method_cannot_take() {
    let folder = Folder::new();
    let tall = folder.matrix("tall.mtx", 3, 2, &[(1, 1, "1"), (2, 2, "1"), (3, 1, "1")]);
    refused(&["solve", &tall, "--solver", "cg"], "not_square", "--solver direct");
    refused(&["solve", &tall, "--solver", "bicgstab"], "not_square", "3 x 2");
    refused(&["solve", &tall, "--reorder", "rcm"], "not_square", "--reorder");
    refused(&["solve", &tall, "--reproducible"], "not_reproducible", "--reproducible");
    let flat = folder.matrix("flat.mtx", 2, 3, &[(1, 1, "1"), (2, 3, "1")]);
    refused(&["solve", &flat], "underdetermined", "2");
    let small = "poisson2d:4";
    refused(&["solve", small, "--solver", "direct", "--precond", "jacobi"], "unsupported", "--precond");
    refused(&["solve", small, "--solver", "direct", "--format", "ell"], "unsupported", "--format");
}

#[test]
fn a_dense_format_that_is_too_large_says_so() {
    refused(&["solve", "poisson2d:300", "--format", "dense"], "does_not_fit", "dense");
}

#[test]
fn vectors_of_the_wrong_shape() {
    let folder = Folder::new();
    let short = folder.file("b.mtx", "%%MatrixMarket matrix array real general\n3 1\n1\n2\n3\n");
    refused(&["solve", "poisson2d:4", "--rhs", &short], "shape", "the matrix needs 16");
    refused(&["solve", "poisson2d:4", "--x0", &short], "shape", "x0 has 3 elements");
    let wide = folder.file("wide.mtx", "%%MatrixMarket matrix array real general\n8 2\n".to_string().as_str());
    let (code, _) = run_json(&["solve", "poisson2d:4", "--rhs", &wide]);
    assert_eq!(code, 1);
    refused(&["solve", "poisson2d:4", "--rhs", &folder.name("none.mtx")], "io", "none.mtx");
}

#[test]
fn generators_that_do_not_exist_or_are_misspelt() {
    refused(&["solve", "poison2d:4"], "spec", "poisson2d");
    refused(&["solve", "poisson2d:"], "spec", "poisson2d:N");
    refused(&["solve", "poisson2d:four"], "spec", "four");
    refused(&["solve", "poisson2d:4,color=3"], "spec", "color");
    refused(&["info", "banded:n=10"], "spec", "d is missing");
    let (code, _) = run_json(&["solve", "d3n7:100000"]);
    assert_eq!(code, 1);
}

#[test]
fn a_gpu_that_is_not_there() {
    let (code, object) = run_json(&["solve", "poisson2d:4", "--backend", "cuda"]);
    assert_eq!(code, 1);
    // With a GPU in the machine the reason is this build.
    let kind = object["error"]["kind"].as_str().unwrap();
    assert!(["no_gpu", "unsupported"].contains(&kind), "{object}");
}

#[test]
fn values_that_no_method_can_use() {
    let folder = Folder::new();
    for (name, value) in [("nan.mtx", "nan"), ("inf.mtx", "inf")] {
        let matrix = folder.matrix(name, 2, 2, &[(1, 1, "1"), (2, 1, value), (2, 2, "1")]);
        for solver in ["auto", "cg", "bicgstab", "direct"] {
            let object = unsolved(&["solve", &matrix, "--solver", solver], "not_finite");
            assert!(object["message"].as_str().unwrap().contains("row 2, column 1"), "{object}");
            assert!(object["true_residual"].is_null());
        }
    }
    let b = folder.file("b.mtx", "%%MatrixMarket matrix array real general\n4 1\n1\nnan\n3\n4\n");
    let object = unsolved(&["solve", "poisson2d:2", "--rhs", &b], "not_finite");
    assert!(object["message"].as_str().unwrap().contains("element 2"), "{object}");
}

#[test]
fn matrices_that_have_no_answer() {
    let folder = Folder::new();
    let hollow = folder.matrix("hollow.mtx", 2, 2, &[(1, 2, "1"), (2, 1, "1")]);
    unsolved(&["solve", &hollow, "--solver", "cg", "--precond", "jacobi"], "zero_pivot");
    let zero = folder.matrix("zero.mtx", 2, 2, &[(1, 1, "0"), (1, 2, "1"), (2, 1, "1"), (2, 2, "1")]);
    unsolved(&["solve", &zero, "--precond", "jacobi"], "zero_pivot");
    let singular = folder.matrix("singular.mtx", 2, 2, &[(1, 1, "1"), (1, 2, "2"), (2, 1, "2"), (2, 2, "4")]);
    let object = unsolved(&["solve", &singular, "--solver", "direct"], "zero_pivot");
    assert!(object["message"].as_str().unwrap().contains("singular"), "{object}");
    let empty_row = folder.matrix("row.mtx", 2, 2, &[(1, 1, "1")]);
    unsolved(&["solve", &empty_row, "--solver", "direct"], "zero_pivot");
    // [1 2; 2 1] has the eigenvalue -1 for (1, -1).
    let indefinite = folder.matrix("indefinite.mtx", 2, 2, &[(1, 1, "1"), (1, 2, "2"), (2, 1, "2"), (2, 2, "1")]);
    let b = folder.file("b.mtx", "%%MatrixMarket matrix array real general\n2 1\n1\n-1\n");
    unsolved(&["solve", &indefinite, "--solver", "cg", "--rhs", &b], "indefinite_matrix");
}

#[test]
fn results_that_cannot_be_written_are_refused_before_the_work() {
    let folder = Folder::new();
    let nowhere = folder.name("absent/x");
    // A solve of this size would take minutes.
    let large = "poisson2d:4000";
    for option in ["--out", "--history", "--plot"] {
        refused(&["solve", large, option, &nowhere], "io", "absent");
        refused(&["solve", large, option, &text(folder.0.path())], "io", "directory");
    }
    refused(&["info", large, "--spy", &nowhere], "io", "absent");
    refused(&["generate", large, &folder.name("absent/a.mtx")], "io", "absent");
    refused(&["convert", large, &folder.name("a.txt")], "unsupported", ".mtx");
}

#[test]
fn a_failed_solve_leaves_an_old_result_alone() {
    let folder = Folder::new();
    let old = folder.file("x.mtx", "old");
    refused(&["solve", &folder.name("missing.mtx"), "--out", &old], "io", "missing.mtx");
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "old");
}

#[test]
fn bad_usage() {
    misused(&["solve"]);
    misused(&["solve", "poisson2d:4", "--format", "jds"]);
    misused(&["solve", "poisson2d:4", "--solver", "gmres"]);
    misused(&["solve", "poisson2d:4", "--precond", "ilu0"]);
    misused(&["solve", "poisson2d:4", "--precision", "mixed"]);
    misused(&["solve", "poisson2d:4", "--threads", "0"]);
    misused(&["solve", "poisson2d:4", "--check-every", "0"]);
    for rtol in ["--rtol=-1e-8", "--rtol=nan", "--rtol=inf", "--rtol=tiny", "--atol=-1"] {
        misused(&["solve", "poisson2d:4", rtol]);
    }
    misused(&["spmv", "poisson2d:4", "--format", "csr,jds"]);
    misused(&["generate", "poisson2d:4"]);
    misused(&["fly"]);
}
