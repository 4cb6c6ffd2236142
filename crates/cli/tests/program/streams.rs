//! stdin and stdout under the name `-`, and `--quiet`.

use super::*;

const BANNER: &str = "%%MatrixMarket matrix array real general\n";

/// Runs in `folder`, with `stdin`.
fn piped(folder: &Folder, args: &[&str], stdin: impl Into<Vec<u8>>) -> Output {
    spandrel().current_dir(folder.0.path()).args(args).write_stdin(stdin.into()).output().expect("the program starts")
}

#[track_caller]
fn succeeded(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
}

#[track_caller]
fn misused(folder: &Folder, args: &[&str], part: &str) {
    let output = piped(folder, args, "");
    assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
    assert!(stderr(&output).contains(part), "{args:?}: {}", stderr(&output));
    assert!(std::fs::read_dir(folder.0.path()).expect("a folder").next().is_none(), "{args:?} wrote a file");
}

#[test]
fn a_matrix_goes_through_pipes_as_through_files() {
    let folder = Folder::new();
    let file = folder.name("a.mtx");
    succeeded(&run(&["generate", "poisson2d:5", &file]));
    let text = std::fs::read(&file).expect("a file");
    let generated = piped(&folder, &["generate", "poisson2d:5", "-"], "");
    succeeded(&generated);
    assert_eq!(generated.stdout, text);
    assert!(stderr(&generated).ends_with("written to stdout\n"), "{}", stderr(&generated));

    let converted = piped(&folder, &["convert", "-", "-", "--symmetric"], text.clone());
    succeeded(&converted);
    assert!(stdout(&converted).starts_with("%%MatrixMarket matrix coordinate real symmetric\n"));
    assert!(stderr(&converted).contains("written to stdout (lower triangle)\n"), "{}", stderr(&converted));

    let packed = folder.name("a.mtx.gz");
    succeeded(&run(&["generate", "poisson2d:5", &packed]));
    for stdin in [text, std::fs::read(&packed).expect("a file")] {
        let output = piped(&folder, &["info", "-", "--json"], stdin.clone());
        succeeded(&output);
        assert_eq!((&json(&output)["matrix"]["name"], &json(&output)["matrix"]["nnz"]), (&"stdin".into(), &105.into()));
        for command in ["solve", "spmv"] {
            let output = piped(&folder, &[command, "-"], stdin.clone());
            succeeded(&output);
            assert!(stdout(&output).contains("stdin: 25 x 25, 105 entries"), "{}", stdout(&output));
        }
    }
    assert!(!folder.path("-").exists());
}

#[test]
fn vectors_come_from_stdin() {
    let folder = Folder::new();
    let ones = format!("{BANNER}16 1\n{}", "1\n".repeat(16));
    let output = piped(&folder, &["solve", "poisson2d:4", "--rhs", "-"], ones.clone());
    succeeded(&output);
    assert!(stdout(&output).contains("b        from stdin\n"), "{}", stdout(&output));
    let expected = run_json(&["solve", "poisson2d:4"]).1["history"].clone();
    let output = piped(&folder, &["solve", "poisson2d:4", "--rhs", "-", "--json"], ones.clone());
    assert_eq!(json(&output)["history"], expected);

    // A first guess that is the solution needs no iteration.
    let output = piped(&folder, &["solve", "poisson2d:4", "--rhs", "from-solution", "--x0", "-", "--json"], ones);
    assert_eq!((&json(&output)["status"], &json(&output)["iterations"]), (&"converged".into(), &0.into()));

    let output = piped(&folder, &["solve", "poisson2d:4", "--rhs", "-"], format!("{BANNER}1 1\n1\n"));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("error: stdin: b has 1 element, the matrix needs 16"), "{}", stderr(&output));
    for (args, stdin) in [(&["solve", "-"][..], ""), (&["solve", "poisson2d:4", "--rhs", "-"], "prose\n")] {
        let output = piped(&folder, args, stdin);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).starts_with("error: stdin:1:1: "), "{}", stderr(&output));
    }
}

#[cfg(unix)]
#[test]
fn a_right_hand_side_that_never_ends_is_refused() {
    let zero = std::fs::File::open("/dev/zero").expect("a device");
    let output = std::process::Command::new(program())
        .env(HIDES_GPUS, "")
        .args(["solve", "poisson2d:4", "--rhs", "-"])
        .stdin(zero)
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("error: stdin:1:1: "), "{}", stderr(&output));
}

#[test]
fn a_result_on_stdout_has_it_to_itself() {
    let folder = Folder::new();
    let outputs: [(&[&str], &[u8], &str); 4] = [
        (&["solve", "poisson2d:4", "--out", "-"], BANNER.as_bytes(), "x written to stdout\n"),
        (
            &["solve", "poisson2d:4", "--history", "-"],
            b"iteration,relative_residual\n0,",
            "history written to stdout\n",
        ),
        (&["solve", "poisson2d:4", "--plot", "-"], b"<svg ", "plot written to stdout\n"),
        (&["info", "poisson2d:4", "--spy", "-"], b"\x89PNG", "spy plot written to stdout\n"),
    ];
    for (args, begin, report) in outputs {
        let output = piped(&folder, args, "");
        succeeded(&output);
        assert!(output.stdout.starts_with(begin), "{args:?}");
        assert!(stderr(&output).starts_with("matrix"), "{}", stderr(&output));
        assert!(stderr(&output).ends_with(report), "{}", stderr(&output));
        assert!(!folder.path("-").exists());

        let quiet = piped(&folder, &[args, &["--quiet"]].concat(), "");
        assert_eq!((quiet.status.code(), stderr(&quiet).as_str()), (Some(0), ""), "{args:?}");
        assert!(quiet.stdout.starts_with(begin), "{args:?}");
    }
    // The output has the content that a file would have.
    let x = folder.name("x.mtx");
    succeeded(&run(&["solve", "poisson2d:4", "--out", &x]));
    let piped_x = piped(&folder, &["solve", "poisson2d:4", "--out", "-"], "");
    assert_eq!(piped_x.stdout, std::fs::read(&x).expect("a file"));
    // A file of that name is still possible.
    succeeded(&piped(&folder, &["solve", "poisson2d:4", "--out", "./-"], ""));
    assert!(folder.path("-").is_file());
}

#[test]
fn stdin_and_stdout_are_given_once() {
    let folder = Folder::new();
    let large = "poisson2d:4000";
    misused(&folder, &["solve", large, "--out", "-", "--history", "-"], "--out and --history would both go to stdout");
    misused(&folder, &["solve", large, "--plot", "-", "--json"], "--json and --plot would both go to stdout");
    misused(&folder, &["convert", large, "-", "--json"], "--json and OUT would both go to stdout");
    misused(&folder, &["generate", large, "-", "--json"], "--json and OUT would both go to stdout");
    misused(&folder, &["info", large, "--spy", "-", "--json"], "--json and --spy would both go to stdout");
    misused(&folder, &["solve", "-", "--rhs", "-"], "MATRIX and --rhs would both be read from stdin");
    misused(&folder, &["solve", large, "--rhs", "-", "--x0", "-"], "--rhs and --x0 would both be read from stdin");
}

#[test]
fn quiet_leaves_out_notes_but_neither_results_nor_errors() {
    let folder = Folder::new();
    let indefinite = folder.matrix("i.mtx", 2, 2, &[(1, 1, "1"), (1, 2, "2"), (2, 1, "2"), (2, 2, "1")]);
    let b = folder.file("b.mtx", &format!("{BANNER}2 1\n1\n-1\n"));
    let upper = "%%MatrixMarket matrix coordinate real symmetric\n2 2 3\n1 1 2\n1 2 -1\n2 2 2\n";
    let upper = folder.file("upper.mtx", upper);
    let noted: [(&[&str], i32); 2] =
        [(&["solve", &indefinite, "--rhs", &b, "--max-iters", "40"], 0), (&["solve", &upper], 0)];
    for (args, code) in noted {
        let loud = run(args);
        assert_eq!(loud.status.code(), Some(code), "{}", stderr(&loud));
        assert!(stderr(&loud).starts_with("note: "), "{}", stderr(&loud));
        for quiet in ["--quiet", "-q"] {
            let output = run(&[args, &[quiet]].concat());
            assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(code), ""));
            assert!(stdout(&output).starts_with("matrix"), "{}", stdout(&output));
        }
    }
    let output = run(&["--quiet", "solve", &folder.name("missing.mtx")]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""));
    assert!(stderr(&output).starts_with("error: "), "{}", stderr(&output));
}
