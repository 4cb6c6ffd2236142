//! Bad input: each kind ends with its exit status, its kind in JSON, and a helpful message, and never in a panic.

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
    // Without --json there is only the message, on stderr.
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
    refused(&["solve", &beyond], "parse", "beyond.mtx:2:1: 9000000000 rows");
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
    refused(&["solve", &tall, "--reproducible"], "not_reproducible", "leave reproducible out");
    let flat = folder.matrix("flat.mtx", 2, 3, &[(1, 1, "1"), (2, 3, "1")]);
    refused(&["solve", &flat], "underdetermined", "2");
    let small = "poisson2d:4";
    // The reason, and the options that led to it.
    for precond in ["jacobi", "ilu0"] {
        for part in ["direct takes no preconditioner", "(given: --solver, --precond)"] {
            refused(&["solve", small, "--solver", "direct", "--precond", precond], "unsupported", part);
        }
    }
    for part in ["restart is the number of steps of a gmres cycle, and cg has none", "(given: --solver, --restart)"] {
        refused(&["solve", small, "--solver", "cg", "--restart", "5"], "unsupported", part);
    }
    for solver in ["gmres", "direct"] {
        let reason = format!("stagnation is for cg and bicgstab, not for {solver}");
        for part in [reason.as_str(), "(given: --solver, --stagnation)"] {
            refused(&["solve", small, "--solver", solver, "--stagnation", "5"], "unsupported", part);
        }
    }
    refused(&["solve", "convdiff2d:5,peclet=9", "--precond", "ic0"], "unsupported", "ilu0");
    for precond in ["ic0-jacobi=2", "ic0-isai"] {
        refused(
            &["solve", "convdiff2d:5,peclet=9", "--precond", precond],
            "unsupported",
            &precond.replace("ic0", "ilu0"),
        );
    }
    refused(&["solve", small, "--precond", "none", "--precision", "mixed"], "unsupported", "use refined precision");
    for precision in ["mixed", "refined"] {
        refused(
            &["solve", small, "--solver", "direct", "--precision", precision],
            "unsupported",
            &format!("leave {precision} precision out"),
        );
    }
    for part in ["direct factors CSR", "(given: --solver, --format)"] {
        refused(&["solve", small, "--solver", "direct", "--format", "ell"], "unsupported", part);
    }
}

#[test]
fn a_matrix_too_large_for_32_bit_indices_is_refused_before_any_backend_sees_it() {
    // 2.2e9 rows; 4.7e8 rows with 3.3e9 entries.
    for matrix in ["d3n7:1300", "d3n7:780"] {
        for command in ["solve", "spmv", "info"] {
            refused(&[command, matrix], "too_large", "at most 2147483647 fit the 32-bit indices");
        }
    }
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
fn a_number_is_a_gpus() {
    for command in ["solve", "spmv"] {
        let (code, object) = run_json(&[command, "poisson2d:4", "--backend", "cpu", "--device", "0"]);
        assert_eq!((code, &object["error"]["kind"]), (2, &"usage".into()), "{object}");
        assert!(object["error"]["message"].as_str().unwrap().contains("--device 0"), "{object}");
        let (code, object) = run_json(&[command, "poisson2d:4", "--device", "first"]);
        assert_eq!((code, &object["error"]["kind"]), (2, &"usage".into()), "{object}");
    }
    let (code, object) = run_json(&["solve", "poisson2d:4", "--solver", "direct", "--device", "0"]);
    assert_eq!((code, &object["error"]["kind"]), (1, &"unsupported".into()), "{object}");
}

#[test]
fn a_gpu_that_is_not_there() {
    for command in ["solve", "spmv"] {
        let expected = if cfg!(feature = "cuda") { "no_gpu" } else { "unsupported" };
        for which in [["--backend", "cuda"], ["--device", "0"], ["--device", "7"]] {
            let (code, object) = run_json(&[&[command, "poisson2d:4"], &which[..]].concat());
            assert_eq!((code, &object["error"]["kind"]), (1, &expected.into()), "{object}");
            assert!(object["error"]["message"].as_str().unwrap().contains("--backend cpu"), "{object}");
        }
    }
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
fn multigrid_needs_a_grid() {
    for reorder in [["--reorder", "none"], ["--reorder", "rcm"]] {
        let mut args = vec!["solve", "electrostatic:n=300", "--precond", "mg"];
        args.extend(reorder);
        refused(&args, "not_a_grid", "mg needs a stencil on a grid");
    }
    refused(&["solve", "d3n7:6", "--solver", "direct", "--precond", "mg"], "unsupported", "takes no preconditioner");
    for matrix in ["convdiff2d:20,peclet=1", "electrostatic:n=300", "elasticity2d:8"] {
        refused(&["solve", matrix, "--precond", "mg=chebyshev"], "unsupported", "use mg=gauss-seidel");
    }
}

#[test]
fn matrices_that_have_no_answer() {
    let folder = Folder::new();
    let hollow = folder.matrix("hollow.mtx", 2, 2, &[(1, 2, "1"), (2, 1, "1")]);
    unsolved(&["solve", &hollow, "--solver", "cg", "--precond", "jacobi"], "zero_pivot");
    let zero = folder.matrix("zero.mtx", 2, 2, &[(1, 1, "0"), (1, 2, "1"), (2, 1, "1"), (2, 2, "1")]);
    unsolved(&["solve", &zero, "--precond", "jacobi"], "zero_pivot");
    for precond in ["ssor", "ilu0", "iluk=1", "mg"] {
        unsolved(&["solve", &zero, "--precond", precond, "--backend", "cpu"], "zero_pivot");
    }
    let negative = folder.matrix("negative.mtx", 2, 2, &[(1, 1, "1"), (2, 2, "-1")]);
    let object = unsolved(&["solve", &negative, "--precond", "ic0", "--backend", "cpu"], "indefinite_matrix");
    assert!(object["message"].as_str().unwrap().contains("row 1"), "{object}");
    let singular = folder.matrix("singular.mtx", 2, 2, &[(1, 1, "1"), (1, 2, "2"), (2, 1, "2"), (2, 2, "4")]);
    let object = unsolved(&["solve", &singular, "--precond", "block-jacobi=2", "--backend", "cpu"], "zero_pivot");
    assert!(object["message"].as_str().unwrap().contains("from row 0 on is singular"), "{object}");
    for precond in ["ilu0-jacobi=2", "ilu0-isai"] {
        unsolved(&["solve", &singular, "--precond", precond, "--backend", "cpu"], "zero_pivot");
    }
    let object = unsolved(&["solve", &singular, "--precond", "ilu0", "--backend", "cpu"], "zero_pivot");
    assert!(object["message"].as_str().unwrap().contains("pivot of row 1"), "{object}");
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
fn outputs_that_would_overwrite_something_are_refused_before_the_work() {
    let folder = Folder::new();
    let large = "poisson2d:4000";
    let (one, other) = (folder.name("one"), folder.name("./one"));
    for (a, b) in [("--out", "--history"), ("--history", "--plot"), ("--out", "--plot")] {
        refused(&["solve", large, a, &one, b, &other], "same_file", b);
    }
    let a = folder.matrix("a.mtx", 1, 1, &[(1, 1, "2")]);
    let contents = std::fs::read(&a).unwrap();
    refused(&["solve", &a, "--out", &a], "same_file", "MATRIX");
    refused(&["solve", large, "--rhs", &a, "--history", &a], "same_file", "--rhs");
    refused(&["solve", large, "--x0", &a, "--plot", &a], "same_file", "--x0");
    refused(&["convert", &a, &a], "same_file", "MATRIX");
    refused(&["info", &a, "--spy", &a], "same_file", "--spy");
    assert_eq!(std::fs::read(&a).unwrap(), contents);
    // A device that accepts everything may be named several times.
    if Path::new("/dev/null").exists() {
        let args = ["solve", &a, "--out", "/dev/null", "--history", "/dev/null"];
        assert_eq!(run(&args).status.code(), Some(0));
    }
}

#[cfg(unix)]
#[test]
fn links_and_folders_that_take_no_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let link = folder.path("link.mtx");
    std::os::unix::fs::symlink(folder.path("absent"), &link).unwrap();
    refused(&["solve", "poisson2d:4000", "--out", &text(&link)], "io", "symbolic link");
    // Not even root can make files here.
    if Path::new("/proc/self").exists() {
        refused(&["solve", "poisson2d:4000", "--out", "/proc/x.mtx"], "io", "/proc/x.mtx");
    }
    let closed = folder.path("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o555)).unwrap();
    if std::fs::write(closed.join("probe"), "").is_ok() {
        eprintln!("skipped: this user may write everywhere");
        return;
    }
    refused(&["solve", "poisson2d:4000", "--out", &text(&closed.join("x.mtx"))], "io", "ermission");
}

#[test]
fn a_full_disk_at_the_end_does_not_lose_the_answer() {
    if !Path::new("/dev/full").exists() {
        eprintln!("skipped: this system has no /dev/full");
        return;
    }
    let folder = Folder::new();
    let csv = folder.name("h.csv");
    for option in ["--out", "--plot"] {
        let args = ["solve", "poisson2d:5", option, "/dev/full", "--history", &csv];
        let (code, object) = run_json(&args);
        assert_eq!((code, object["status"].as_str()), (1, Some("converged")), "{object}");
        assert_eq!(object["error"]["kind"], "io");
        assert!(object["error"]["message"].as_str().unwrap().contains("/dev/full"), "{object}");
        let output = run(&args);
        assert_eq!(output.status.code(), Some(1));
        assert!(stdout(&output).contains("converged"), "{}", stdout(&output));
        assert!(stdout(&output).contains("history written") && !stdout(&output).contains("to /dev/full"));
        assert!(stderr(&output).starts_with("error: "), "{}", stderr(&output));
        assert!(std::fs::read_to_string(&csv).unwrap().lines().count() > 1);
    }
    refused(&["convert", "poisson2d:5", "/dev/full"], "io", "/dev/full");
    refused(&["convert", "poisson2d:5", &folder.name("absent/a.mtx")], "io", "absent");
}

#[test]
fn a_matrix_without_entries_has_no_answer() {
    let folder = Folder::new();
    let void = folder.matrix("void.mtx", 3, 3, &[]);
    unsolved(&["solve", &void, "--solver", "direct"], "zero_pivot");
    for solver in ["auto", "cg", "bicgstab", "gmres"] {
        let (code, object) = run_json(&["solve", &void, "--solver", solver]);
        assert_eq!(code, 3, "{object}");
        assert_ne!(object["status"], "converged");
        assert!(object["iterations"].as_u64().unwrap() <= 1, "{object}");
    }
}

#[test]
fn what_single_precision_cannot_hold_is_not_called_a_defect() {
    let folder = Folder::new();
    let large = folder.matrix("large.mtx", 2, 2, &[(1, 1, "1"), (2, 2, "1e60")]);
    for command in ["solve", "spmv"] {
        refused(&[command, &large, "--precision", "f32"], "parse", "too large for f32");
        refused(&[command, &large, "--precision", "f32"], "parse", "read it as f64");
    }
}

#[test]
fn an_element_of_the_first_guess_that_is_no_number_is_named() {
    let folder = Folder::new();
    let guess = folder.file("x0.mtx", "%%MatrixMarket matrix array real general\n2 1\n1\nnan\n");
    let identity = folder.matrix("identity.mtx", 2, 2, &[(1, 1, "1"), (2, 2, "1")]);
    let object = unsolved(&["solve", &identity, "--x0", &guess], "not_finite");
    assert_eq!(object["message"], "element 2 (counted from 1) of x0 is NaN");
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
    misused(&["solve", "poisson2d:4", "--solver", "minres"]);
    misused(&["solve", "poisson2d:4", "--solver", "gmres", "--restart", "0"]);
    for precond in [
        "ilutp=x",
        "ilut=-1",
        "ilut=1e-3,0.5",
        "iluk",
        "iluk=-1",
        "ssor=2",
        "ssor=x",
        "ic0=1",
        "block-jacobi",
        "block-jacobi=0",
        "ilu0-jacobi",
        "ic0-jacobi=0",
        "mg=0",
    ] {
        misused(&["solve", "poisson2d:4", "--precond", precond]);
    }
    misused(&["solve", "poisson2d:4", "--precision", "f16"]);
    misused(&["spmv", "poisson2d:4", "--precision", "mixed"]);
    misused(&["solve", "poisson2d:4", "--threads", "0"]);
    misused(&["solve", "poisson2d:4", "--check-every", "0"]);
    misused(&["solve", "poisson2d:4", "--stagnation", "0"]);
    for rtol in ["--rtol=-1e-8", "--rtol=nan", "--rtol=inf", "--rtol=tiny", "--atol=-1"] {
        misused(&["solve", "poisson2d:4", rtol]);
    }
    // A number with a minus is not taken for another option.
    for (option, part) in
        [("--rtol", "is not negative"), ("--atol", "is not negative"), ("--max-iters", "whole number from 0 on")]
    {
        let args = ["solve", "poisson2d:4", option, "-1"];
        misused(&args);
        assert!(stderr(&run(&args)).contains(part), "{option}: {}", stderr(&run(&args)));
    }
    misused(&["spmv", "poisson2d:4", "--format", "csr,jds"]);
    misused(&["generate", "poisson2d:4"]);
    misused(&["fly"]);
}
