//! Solves on several ranks of one process: the same bits for any number, refusals that say what to use, one report.

use super::*;

/// What makes a plain solve comparable: the matrix as it is.
const AS_IT_IS: [&str; 6] = ["--reorder", "none", "--scale", "none", "--format", "csr"];

/// Solves with `--out` and returns status, report and the file.
fn solved(folder: &Folder, args: &[&str]) -> (i32, Value, Vec<u8>) {
    let out = folder.name("x.mtx");
    let (code, object) = run_json(&[&["solve"], args, &["--out", &out]].concat());
    let x = std::fs::read(&out).unwrap_or_default();
    let _ = std::fs::remove_file(out);
    (code, object, x)
}

#[test]
fn x_has_the_bits_of_a_plain_solve_on_any_number_of_ranks() {
    let folder = Folder::new();
    let file = folder.name("a.mtx");
    assert!(run(&["generate", "convdiff2d:60x50,peclet=3", &file]).status.success());
    let numbering = if cfg!(feature = "metis") { "bisection" } else { "bfs" };
    let cases: [(&str, &[&str]); 15] = [
        ("poisson3d:17", &["--solver", "cg", "--precond", "none"]),
        ("poisson3d:17", &["--solver", "cg", "--precond", "jacobi", "--rhs", "random", "--seed", "7"]),
        ("electrostatic:n=4000", &["--solver", "cg", "--precond", "chebyshev=3", "--rhs", "from-solution"]),
        ("poisson3d:28", &["--solver", "cg", "--precond", "amg"]),
        ("poisson3d:30x31x36", &["--solver", "cg", "--precond", "mg=chebyshev"]),
        ("d3n27:32x31x36", &["--solver", "cg", "--precond", "mg=l1-jacobi,degree=1"]),
        ("electrostatic:n=4000", &["--solver", "cg", "--precond", "amg=strength=0.08", "--rhs", "random"]),
        (&file, &["--solver", "bicgstab", "--precond", "jacobi"]),
        (&file, &["--solver", "bicgstab", "--precond", "none", "--rhs", "from-solution", "--precision", "f32"]),
        (&file, &["--solver", "gmres", "--precond", "jacobi", "--restart", "20"]),
        ("poisson2d:9", &["--solver", "cg", "--precond", "jacobi"]),
        ("powerlaw:n=5000", &["--solver", "gmres", "--precond", "none", "--max-iters", "40"]),
        ("electrostatic:n=9000", &["--solver", "cg", "--precond", "jacobi", "--rhs", "random", "--reorder", numbering]),
        ("electrostatic:n=4000", &["--solver", "cg", "--precond", "amg", "--rhs", "from-solution", "--reorder", "bfs"]),
        (&file, &["--solver", "bicgstab", "--precond", "jacobi", "--reorder", numbering]),
    ];
    for (matrix, options) in cases {
        let given = [&[matrix], options].concat();
        let as_it_is: &[&str] = if options.contains(&"--reorder") { &AS_IT_IS[2..] } else { &AS_IT_IS };
        let (code, plain, x) = solved(&folder, &[&given[..], as_it_is].concat());
        for ranks in ["1", "2", "3"] {
            let (found, report, other) = solved(&folder, &[&given[..], &["--ranks", ranks]].concat());
            assert_eq!((found, &report["status"]), (code, &plain["status"]), "{given:?} on {ranks}: {report}");
            assert!(!x.is_empty() && x == other, "{given:?}: x differs on {ranks} ranks");
            for field in [
                "iterations",
                "history",
                "true_residual",
                "matrix",
                "rtol",
                "max_iters",
                "solver",
                "precond",
                "precision",
                "reorder",
            ] {
                assert_eq!(report[field], plain[field], "{given:?} on {ranks} ranks: {field}");
            }
            assert_eq!(report["ranks"].as_array().map(Vec::len), ranks.parse().ok());
            let messages = if ranks == "1" { Value::Null } else { "from device to device".into() };
            assert_eq!(report["messages"], messages, "{given:?} on {ranks} ranks");
        }
        let (_, report, other) = solved(&folder, &[&given[..], &["--ranks", "2", "--messages", "host"]].concat());
        assert_eq!((&report["messages"], &other), (&"through the host".into(), &x), "{given:?}");
    }
}

#[test]
fn first_guess_and_right_hand_side_come_from_files() {
    let folder = Folder::new();
    let numbers = |scale: usize| (0..2500).map(|i| format!("{}\n", i % scale)).collect::<String>();
    let (b, x0) = (folder.file("b.txt", &numbers(17)), folder.file("x0.txt", &numbers(5)));
    let given = ["poisson2d:50", "--solver", "cg", "--precond", "jacobi", "--rhs", &b, "--x0", &x0];
    let (_, plain, x) = solved(&folder, &[&given[..], &AS_IT_IS].concat());
    for ranks in ["1", "3"] {
        let (_, report, other) = solved(&folder, &[&given[..], &["--ranks", ranks]].concat());
        assert_eq!((&report["iterations"], &x), (&plain["iterations"], &other));
    }
}

#[test]
fn the_policy_takes_cg_or_bicgstab_with_jacobi() {
    for (matrix, solver, precond) in [
        ("poisson2d:50", "cg", "jacobi"),
        ("convdiff2d:50,peclet=3", "bicgstab", "jacobi"),
        ("saddle", "bicgstab", "none"),
    ] {
        let folder = Folder::new();
        let saddle = folder.matrix("saddle.mtx", 2, 2, &[(1, 1, "2"), (1, 2, "1"), (2, 1, "1")]);
        let matrix = if matrix == "saddle" { &saddle } else { matrix };
        let (code, report) = run_json(&["solve", matrix, "--ranks", "2"]);
        assert_eq!((&report["solver"], &report["precond"]), (&solver.into(), &precond.into()), "{report}");
        // BiCGStab breaks down on the saddle point, and says so.
        let converged = report["status"] == "converged" && report["true_residual"].as_f64().unwrap() <= 1e-8;
        assert_eq!((code == 0, converged), (precond == "jacobi", precond == "jacobi"), "{report}");
    }
}

#[test]
fn blocks_of_ranks_precondition_and_say_that_they_depend_on_them() {
    for (matrix, precond) in [
        ("poisson2d:60", "blockwise=ic0"),
        ("poisson2d:60", "blockwise=mg"),
        ("poisson2d:60", "schwarz=ic0,overlap=2"),
        ("poisson2d:60", "blockwise=jacobi"),
        ("convdiff2d:60,peclet=3", "blockwise=ilut=1e-2,5"),
        ("convdiff2d:60,peclet=3", "schwarz=ilu0,overlap=1"),
        ("convdiff2d:60,peclet=3", "blockwise=ilutp"),
    ] {
        for ranks in ["1", "3"] {
            let (code, report) = run_json(&["solve", matrix, "--precond", precond, "--ranks", ranks]);
            assert_eq!((code, &report["status"]), (0, &"converged".into()), "{precond} on {ranks}: {report}");
            assert!(report["true_residual"].as_f64().unwrap() <= 1e-8, "{report}");
        }
    }
    // On one rank a block is the whole matrix.
    let iterations = |args: &[&str]| run_json(&[&["solve", "poisson2d:60"], args].concat()).1["iterations"].clone();
    let plain = iterations(&[&["--solver", "cg", "--precond", "ic0"][..], &AS_IT_IS].concat());
    assert_eq!(iterations(&["--ranks", "1", "--precond", "blockwise=ic0"]), plain);
}

#[test]
fn what_cannot_run_on_ranks_is_refused_with_what_to_use() {
    let folder = Folder::new();
    let wide = folder.file("wide.txt", &"1 2\n".repeat(16));
    let flat = folder.matrix("flat.mtx", 2, 3, &[(1, 1, "1"), (2, 3, "1")]);
    let cases: [(&[&str], i32, &str, &str); 23] = [
        (&["poisson2d:4", "--ranks", "2", "--solver", "direct"], 1, "unsupported", "use cg, bicgstab or gmres"),
        (&["poisson2d:4", "--ranks", "2", "--precond", "ic0"], 1, "unsupported", "blockwise=ic0"),
        (&["convdiff2d:4,peclet=1", "--ranks", "2", "--precond", "amg"], 1, "unsupported", "amg needs a symmetric"),
        (&["poisson2d:4", "--ranks", "2", "--precond", "mg"], 1, "unsupported", "use mg=chebyshev"),
        (
            &["convdiff2d:4,peclet=1", "--ranks", "2", "--precond", "mg=chebyshev"],
            1,
            "unsupported",
            "equals its transpose",
        ),
        (&["poisson2d:4", "--ranks", "2", "--precond", "blockwise=ic0-isai"], 1, "unsupported", "blockwise=ilu0"),
        (&["convdiff2d:4,peclet=1", "--ranks", "2", "--precond", "blockwise=ic0"], 1, "unsupported", "blockwise=ilu0"),
        (&["poisson2d:4", "--ranks", "2", "--format", "dia"], 1, "unsupported", "leave dia out"),
        (&["poisson2d:4", "--ranks", "2", "--reorder", "rcm"], 1, "unsupported", "use bfs"),
        (
            &["elasticity2d:4", "--ranks", "2", "--precond", "amg=unknowns=2", "--reorder", "bfs"],
            1,
            "unsupported",
            "side by side",
        ),
        (&["poisson2d:4", "--ranks", "2", "--scale", "equilibrate"], 1, "unsupported", "solve without ranks"),
        (&["poisson2d:4", "--ranks", "2", "--precision", "mixed"], 1, "unsupported", "use f64 or f32"),
        (&["poisson2d:4", "--ranks", "2", "--least-squares"], 1, "unsupported", "solve without ranks"),
        (&["poisson2d:4", "--ranks", "2", "--backend", "cuda"], 1, "unsupported", "ranks run on the CPU"),
        (&["poisson2d:4", "--ranks", "2", "--rhs", &wide], 1, "unsupported", "2 columns"),
        (&["-", "--ranks", "2"], 1, "unsupported", "give a file"),
        (&["poisson2d:4", "--ranks", "2", "--coordinates", &wide], 1, "unsupported", "leave --coordinates out"),
        (&["poisson2d:4", "--ranks", "2", "--near-null-space", &wide], 1, "unsupported", "leave --near-null-space out"),
        (&[&flat, "--ranks", "2"], 1, "not_square", "2 x 3"),
        (
            &["poisson2d:4", "--ranks", "2", "--reproducible", "--precond", "blockwise=ilu0"],
            1,
            "not_reproducible",
            "depends on the number of ranks",
        ),
        (&["poisson2d:4", "--precond", "blockwise=ic0"], 1, "unsupported", "add --ranks K"),
        (&["poisson2d:4", "--rank-wait", "5"], 2, "usage", "add --ranks K"),
        (&["poisson2d:4", "--messages", "host"], 2, "usage", "add --ranks K"),
    ];
    for (args, code, kind, said) in cases {
        let (found, report) = run_json(&[&["solve"], args].concat());
        let message = report["error"]["message"].as_str().unwrap_or_default();
        assert_eq!((found, &report["error"]["kind"]), (code, &kind.into()), "{args:?}: {report}");
        assert!(message.contains(said), "{args:?}: {message}");
    }
    for (other, said) in [
        (&["--ranks", "2"][..], "leave one out"),
        (&["--device", "0"], "leave --device out"),
        (&["--backend", "cpu"], "leave one of the two out"),
    ] {
        let (code, report) = run_json(&[&["solve", "poisson2d:4", "--gpus", "2"], other].concat());
        assert_eq!((code, &report["error"]["kind"]), (2, &"usage".into()), "{other:?}: {report}");
        assert!(report["error"]["message"].as_str().unwrap().contains(said), "{other:?}: {report}");
    }
    // These tests hide the GPUs of the machine.
    let (code, report) = run_json(&["solve", "poisson2d:4", "--gpus", "2"]);
    let kind = if cfg!(feature = "cuda") { "no_gpu" } else { "unsupported" };
    assert_eq!((code, &report["error"]["kind"]), (1, &kind.into()), "{report}");
    assert!(report["error"]["message"].as_str().unwrap().contains("on the CPU with --ranks"), "{report}");
    for bad in [&["--gpus", "0"][..], &["--ranks", "0"], &["--ranks", "5000"], &["--ranks", "2", "--rank-wait", "0"]] {
        assert_eq!(run(&[&["solve", "poisson2d:4"], bad].concat()).status.code(), Some(2), "{bad:?}");
    }
}

#[test]
fn faults_of_inputs_are_told_once_with_their_place() {
    let folder = Folder::new();
    let bad = folder.file("bad.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n1 0 1\n");
    let hollow = folder.matrix("hollow.mtx", 2, 2, &[(1, 1, "1"), (1, 2, "1")]);
    let out = folder.name("x.mtx");
    let missing = folder.name("missing.mtx");
    let short = folder.file("b.txt", "1\n2\n3\n");
    for (args, kind, said) in [
        (&[&bad[..]][..], "parse", "bad.mtx:4:3: column index 0"),
        (&[&missing], "io", "give a Matrix Market file"),
        (&["poisson2d:4,size=3"], "spec", "spandrel generate --list"),
        (&[&hollow, "--precond", "jacobi"], "zero_pivot", "the diagonal entry of row 1 is missing"),
        (&[&hollow, "--precond", "jacobi", "--reorder", "bfs"], "zero_pivot", "the diagonal entry of row 1 is missing"),
        (&["poisson2d:40", "--rhs", &short], "shape", "b has 3 elements"),
    ] {
        let (code, report) = run_json(&[&["solve"], args, &["--ranks", "3", "--out", &out]].concat());
        let message = report["error"]["message"].as_str().unwrap_or_default();
        assert_eq!((code, &report["error"]["kind"]), (1, &kind.into()), "{args:?}: {report}");
        assert!(message.contains(said), "{args:?}: {message}");
        assert!(!folder.path("x.mtx").exists(), "{args:?} has written a file");
    }
}

#[test]
fn files_are_written_and_not_converging_is_status_3() {
    let folder = Folder::new();
    let (out, csv, svg) = (folder.name("x.mtx"), folder.name("h.csv"), folder.name("p.svg"));
    let args = ["poisson2d:40", "--ranks", "2", "--max-iters", "5", "--out", &out, "--history", &csv, "--plot", &svg];
    let output = run(&[&["solve"], &args[..]].concat());
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("2 ranks, each") && text.contains("max_iterations after 5 iterations"), "{text}");
    assert!(text.contains(&format!("x written to {out}")), "{text}");
    assert_eq!(std::fs::read_to_string(&csv).unwrap().lines().count(), 7);
    assert!(std::fs::read_to_string(&svg).unwrap().contains("cg with jacobi on csr"));
}

#[test]
fn mpirun_is_answered() {
    let start = |args: &[&str]| {
        let mut command = spandrel();
        command.env("OMPI_COMM_WORLD_SIZE", "2").args(["solve", "poisson2d:4", "--json"]).args(args);
        json(&command.output().expect("the program starts"))
    };
    let both = start(&["--ranks", "2"]);
    assert!(both["error"]["message"].as_str().unwrap().ends_with("leave --ranks out"), "{both}");
    // A build with MPI would wait for the other process. CI has one; the answer is tested beside `asked` too.
    if cfg!(not(feature = "mpi")) {
        let without = start(&[]);
        let said = without["error"]["message"].as_str().unwrap();
        assert!(said.contains("this build of spandrel has no MPI; build it with --features mpi"), "{said}");
        assert!(said.ends_with("--ranks 2"), "{said}");
    }
}
