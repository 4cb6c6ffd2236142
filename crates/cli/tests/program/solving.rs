//! Solves that succeed: every solver, preconditioner, format, precision, option and file.

use super::*;

fn residual(object: &Value) -> f64 {
    object["true_residual"].as_f64().unwrap_or(f64::INFINITY)
}

#[track_caller]
fn solved(args: &[&str]) -> Value {
    let (code, object) = run_json(args);
    assert_eq!((code, object["status"].as_str()), (0, Some("converged")), "{args:?}: {object}");
    let rtol = object["rtol"].as_f64().unwrap();
    assert!(residual(&object) <= rtol, "{object}");
    object
}

#[test]
fn every_format_gives_the_same_answer() {
    let mut iterations = Vec::new();
    for format in FORMATS {
        let object = solved(&["solve", "poisson2d:12", "--format", format, "--rhs", "from-solution"]);
        assert_eq!(object["format"], *format);
        assert!(object["forward_error"].as_f64().unwrap() < 1e-6, "{object}");
        iterations.push(object["iterations"].as_u64().unwrap());
    }
    assert!(iterations.iter().all(|&k| k == iterations[0]), "{iterations:?}");
}

#[test]
fn solvers_and_preconditioners() {
    for solver in ["auto", "cg", "bicgstab", "gmres"] {
        for precond in ["auto", "none", "jacobi"] {
            solved(&["solve", "d3n7:6", "--solver", solver, "--precond", precond, "--rhs", "random", "--seed", "3"]);
        }
    }
    let object = solved(&["solve", "d3n7:6", "--solver", "direct"]);
    assert_eq!((object["iterations"].as_u64(), object["solver"].as_str()), (Some(0), Some("direct")));
    assert!(residual(&object) < 1e-12);
    let object = solved(&["solve", "convdiff2d:12,peclet=5"]);
    assert_eq!((object["solver"].as_str(), object["matrix"]["symmetric"].as_bool()), (Some("bicgstab"), Some(false)));
    assert_eq!(solved(&["solve", "poisson2d:40"])["solver"], "cg");
    // A small system is solved by a complete factorisation, without incomplete factors.
    assert_eq!(solved(&["solve", "poisson2d:8"])["solver"], "direct");
}

#[test]
fn auto_takes_the_factors_that_the_matrix_has() {
    for (matrix, solver, precond) in [
        ("d3n7:6", "cg", "ic0"),
        ("convdiff2d:12,peclet=5", "gmres", "ilu0"),
        ("convdiff2d:12,peclet=5", "auto", "ilu0"),
    ] {
        let object = solved(&["solve", matrix, "--solver", solver]);
        assert_eq!((&object["precond"], &object["precond_fallback"]), (&precond.into(), &Value::Null), "{object}");
        assert_eq!(object["factor"]["shift"], 0.0);
    }
    // Elimination leaves no pivot in row 2, counted from 0.
    let folder = Folder::new();
    let entries = [
        (1, 1, "2"),
        (1, 3, "1"),
        (2, 2, "1"),
        (3, 1, "2"),
        (3, 2, "1"),
        (3, 3, "1"),
        (2, 4, "1"),
        (4, 3, "1"),
        (4, 4, "3"),
    ];
    let open = folder.matrix("open.mtx", 4, 4, &entries);
    let object = solved(&["solve", &open, "--solver", "gmres", "--rhs", "from-solution"]);
    assert_eq!(
        (object["precond"].as_str(), object["precond_fallback"]["from"].as_str()),
        (Some("jacobi"), Some("ilu0"))
    );
    assert_eq!((&object["precond_fallback"]["to"], &object["factor"]), (&"jacobi".into(), &Value::Null));
    let output = run(&["solve", &open, "--solver", "gmres", "--rhs", "from-solution"]);
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(said.contains("note: ilu0 was chosen and failed") && said.contains("row 2"), "{said}");
    assert!(stdout(&output).contains("so jacobi took its place"));
    let (code, object) = run_json(&["solve", &open, "--precond", "ilu0"]);
    assert_eq!((code, object["status"].as_str()), (3, Some("zero_pivot")), "asked for, it is no choice: {object}");
}

#[test]
fn values_that_f32_holds_are_told() {
    let why = |matrix: &str| {
        let object = solved(&["solve", matrix, "--backend", "cpu", "--precond", "jacobi", "--rtol", "1e-2"]);
        assert_eq!(object["format"], "dia", "{object}");
        object["why"]["format"].as_str().unwrap().to_owned()
    };
    // The seven diagonals inside the matrix, 4 bytes per entry; two vectors of f64; the offsets: 4.8 MB.
    let (n, line, plane) = (48 * 48 * 48, 48, 48 * 48);
    let bytes = 4 * (7 * n - 2 * (1 + line + plane)) + 2 * 8 * n + 4 * 7;
    assert!((4_800_000..4_900_000).contains(&bytes));
    let said = why("d3n7:48");
    assert!(said.ends_with("; stored in f32, which holds every value: 4.8 MB"), "{said}");
    let small = why("d3n7:20");
    assert!(!small.contains("f32"), "{small}");
}

#[test]
fn auto_takes_multigrid_for_large_grids() {
    let large = "poisson2d:160";
    let object = solved(&["solve", large, "--backend", "cpu"]);
    assert_eq!((&object["precond"], &object["precond_fallback"]), (&"mg".into(), &Value::Null), "{object}");
    assert!(object["iterations"].as_u64().unwrap() < 10, "{object}");
    let why = object["why"]["precond"].as_str().unwrap();
    assert!(why.starts_with("a 160x160 grid, 5-point stencil, diagonally dominant: "), "{why}");
    // Not a grid in this numbering, but large.
    let object = solved(&["solve", large, "--backend", "cpu", "--reorder", "rcm"]);
    assert_eq!((&object["precond"], &object["precond_fallback"]), (&"amg".into(), &Value::Null), "{object}");
    // Cases for ic0: a small matrix, one that is no M-matrix, promised bits, other precisions, and a method that takes
    // any preconditioner.
    for args in [
        ["poisson2d:40", "--rtol", "1e-8"],
        ["elasticity2d:60", "--max-iters", "10000"],
        [large, "--precision", "mixed"],
        [large, "--precision", "refined"],
    ] {
        let [matrix, option, value] = args;
        let object = solved(&["solve", matrix, "--backend", "cpu", option, value]);
        assert_eq!((&object["precond"], &object["precond_fallback"]), (&"ic0".into(), &Value::Null), "{object}");
    }
    assert_eq!(solved(&["solve", large, "--backend", "cpu", "--reproducible"])["precond"], "ic0");
    assert_eq!(solved(&["solve", large, "--backend", "cpu", "--solver", "bicgstab"])["precond"], "ic0");
    let (_, object) = run_json(&["solve", large, "--backend", "cpu", "--precision", "f32"]);
    assert_eq!(object["precond"], "mg", "{object}");
}

#[test]
fn multigrid_that_comes_to_nothing_is_given_up_once() {
    // The Laplacian without fixed boundary values. Constants are its null space, and b = 1 is not in its range, so
    // every method diverges.
    let n = 160;
    let inside = |x: usize, y: usize| (x < n && y < n).then(|| x + n * y);
    let mut entries = Vec::new();
    for (x, y) in (0..n * n).map(|i| (i % n, i / n)) {
        let neighbours =
            [inside(x + 1, y), inside(x, y + 1), inside(x.wrapping_sub(1), y), inside(x, y.wrapping_sub(1))];
        let row = x + n * y + 1;
        entries.push(format!("{row} {row} {}", neighbours.iter().flatten().count()));
        entries.extend(neighbours.iter().flatten().map(|col| format!("{row} {} -1", col + 1)));
    }
    let head = format!("%%MatrixMarket matrix coordinate real general\n{0} {0} {1}\n", n * n, entries.len());
    let folder = Folder::new();
    let free = folder.file("free.mtx", &format!("{head}{}\n", entries.join("\n")));
    let args = ["solve", &free, "--backend", "cpu", "--max-iters", "300", "--solver", "cg"];
    let (_, object) = run_json(&args);
    assert_eq!(object["precond_fallback"]["from"], "mg", "{object}");
    assert_eq!((&object["precond_fallback"]["to"], &object["precond"]), (&"ic0".into(), &"ic0".into()));
    let why = object["precond_fallback"]["why"].as_str().unwrap();
    assert!(why.starts_with("cg ended as diverged after "), "{object}");
    assert!(object["message"].as_str().unwrap().contains("so ic0 took its place"), "{object}");
    let said = String::from_utf8(run(&args).stderr.clone()).unwrap();
    assert!(said.contains("note: mg was given up"), "{said}");
    let (_, object) = run_json(&[&args[..], &["--precond", "mg"]].concat());
    let found = (&object["precond"], &object["precond_fallback"]);
    assert_eq!(found, (&"mg".into(), &Value::Null), "asked for, it is no choice");
    // If rounding ends the solve, the preconditioner is not at fault.
    let (_, object) = run_json(&["solve", "poisson2d:200", "--backend", "cpu", "--rtol", "1e-30"]);
    assert_eq!((&object["precond"], object["status"].as_str()), (&"mg".into(), Some("backward_stable")), "{object}");
}

#[test]
fn gmres_has_a_cycle() {
    let iterations = |restart: &str| {
        let object = solved(&[
            "solve",
            "convdiff2d:24,peclet=20",
            "--solver",
            "gmres",
            "--precond",
            "none",
            "--restart",
            restart,
        ]);
        (object["iterations"].as_u64().unwrap(), object["restarts"].as_u64().unwrap())
    };
    let (long, short) = (iterations("1000"), iterations("5"));
    assert!(long.1 == 0 && short.1 > 0 && long.0 < short.0, "{long:?} {short:?}");
    // The cyclic shift: a cycle shorter than n gains nothing.
    let folder = Folder::new();
    let shift = folder.matrix("shift.mtx", 4, 4, &[(2, 1, "1"), (3, 2, "1"), (4, 3, "1"), (1, 4, "1")]);
    let b = folder.file("b.mtx", "%%MatrixMarket matrix array real general\n4 1\n1\n0\n0\n0\n");
    let (code, object) = run_json(&["solve", &shift, "--rhs", &b, "--solver", "gmres", "--restart", "2"]);
    assert_eq!((code, object["status"].as_str()), (3, Some("stagnated")), "{object}");
    assert_eq!(solved(&["solve", &shift, "--rhs", &b, "--solver", "gmres"])["iterations"], 4);
    // auto begins with bicgstab. It may answer three times to a scalar that vanishes, which may not be enough.
    let object = solved(&["solve", &shift, "--rhs", &b]);
    assert!(object["fallback"].is_null() || object["solver"] == "gmres", "{object}");
}

#[test]
fn preconditioners_by_triangular_solves() {
    let iterations = |object: &Value| object["iterations"].as_u64().unwrap();
    for (matrix, solver, preconds) in [
        ("d3n27:8", "cg", ["ic0", "ssor", "ssor=1.3"].as_slice()),
        (
            "convdiff3d:8,peclet=10",
            "bicgstab",
            ["ilu0", "iluk=1", "iluk=2", "ilut", "ilut=0.01,3", "ilutp", "ssor"].as_slice(),
        ),
    ] {
        let jacobi = iterations(&solved(&["solve", matrix, "--solver", solver, "--precond", "jacobi"]));
        for precond in preconds {
            for extra in [["--precision", "f64"].as_slice(), &["--precision", "f32"], &["--reproducible"]] {
                let mut args = vec!["solve", matrix, "--solver", solver, "--precond", precond, "--backend", "cpu"];
                args.extend(extra);
                let object = solved(&args);
                assert!(extra.contains(&"f32") || iterations(&object) < jacobi, "{object}");
                assert_eq!(
                    (&object["precond"], &object["factor"]["shift"]),
                    (&(*precond).into(), &0.0.into()),
                    "{object}"
                );
                // The stencil is found in factors without fill, but not in factors with fill.
                let plan =
                    if precond.starts_with("iluk") || precond.starts_with("ilut") { None } else { Some("sweep") };
                assert!(plan.is_none_or(|plan| object["factor"]["plan"] == plan), "{object}");
                assert!(object["factor"]["nnz"].as_u64().unwrap() > 512, "{object}");
            }
        }
    }
    let folder = Folder::new();
    // Only row 4 is coupled, to row 1.
    let entries = [(1, 1, "4"), (2, 2, "4"), (3, 3, "4"), (4, 4, "4"), (5, 5, "4"), (4, 1, "1"), (1, 4, "1")];
    let scattered = folder.matrix("scattered.mtx", 5, 5, &entries);
    let object = solved(&["solve", &scattered, "--precond", "ic0", "--reorder", "rcm", "--backend", "cpu"]);
    assert!(object["factor"]["plan"].is_string(), "{object}");
    // Kershaw's matrix: positive definite, and IC(0) needs a shift.
    let entries = [
        [(1, 1, "3"), (1, 2, "-2"), (1, 4, "2")],
        [(2, 1, "-2"), (2, 2, "3"), (2, 3, "-2")],
        [(3, 2, "-2"), (3, 3, "3"), (3, 4, "-2")],
        [(4, 1, "2"), (4, 3, "-2"), (4, 4, "3")],
    ];
    let kershaw = folder.matrix("kershaw.mtx", 4, 4, &entries.concat());
    let object = solved(&["solve", &kershaw, "--precond", "ic0", "--backend", "cpu"]);
    assert!(object["factor"]["shift"].as_f64().unwrap() > 0.0, "{object}");
    let text = stdout(&run(&["solve", &kershaw, "--precond", "ic0", "--backend", "cpu"]));
    assert!(text.contains("diag(A)"), "{text}");
    assert!(solved(&["solve", "d3n7:6", "--precond", "jacobi"])["factor"].is_null());
}

#[test]
fn preconditioners_that_are_products() {
    let iterations = |object: &Value| object["iterations"].as_u64().unwrap();
    for (matrix, solver, preconds) in [
        ("poisson2d:24", "cg", ["ic0-jacobi=4", "ic0-isai", "block-jacobi=24"].as_slice()),
        ("convdiff2d:24,peclet=20", "bicgstab", ["ilu0-jacobi=4", "ilu0-isai", "block-jacobi=24"].as_slice()),
    ] {
        let jacobi = iterations(&solved(&["solve", matrix, "--solver", solver, "--precond", "jacobi"]));
        for precond in preconds {
            for extra in [["--precision", "f64"].as_slice(), &["--precision", "mixed"], &["--reproducible"]] {
                let mut args = vec!["solve", matrix, "--solver", solver, "--precond", precond, "--backend", "cpu"];
                args.extend(extra);
                let object = solved(&args);
                assert!(iterations(&object) < jacobi, "{object}");
                assert_eq!(object["precond"], *precond);
                // The report must say that the factors are approximate.
                let approximate = !precond.starts_with("block");
                assert_eq!(object["factor"]["approximate"].as_bool(), approximate.then_some(true), "{object}");
                let text = stdout(&run(&args));
                assert_eq!(text.contains("approximately by"), approximate, "{text}");
            }
        }
    }
    let exact = solved(&["solve", "poisson2d:8", "--precond", "ic0", "--backend", "cpu"]);
    assert_eq!(exact["factor"]["approximate"], false);
}

#[test]
fn several_unknowns_a_point() {
    for (matrix, unknowns, preconds) in [
        ("elasticity2d:24x20", 2, ["ic0", "ssor"]),
        ("elasticity3d:9x8x7", 3, ["ic0", "ssor"]),
        ("system3d:9x8x7,b=4,coupling=full,peclet=2", 4, ["ilu0", "ilu0"]),
        ("system2d:24x20,b=5", 5, ["ic0", "ilu0"]),
    ] {
        for precond in preconds {
            let solver = if precond == "ilu0" { "bicgstab" } else { "cg" };
            let object = solved(&["solve", matrix, "--solver", solver, "--precond", precond, "--backend", "cpu"]);
            assert_eq!(object["factor"]["plan"], "sweep", "{object}");
        }
        let object = solved(&["solve", matrix, "--precond", "block-jacobi=auto", "--backend", "cpu"]);
        assert_eq!(object["precond"], format!("block-jacobi={unknowns}"), "{object}");
        let object = solved(&["solve", matrix, "--precond", "mg", "--backend", "cpu"]);
        assert!(object["factor"]["levels"].as_u64() > Some(1), "{object}");
        let (_, info) = run_json(&["info", matrix]);
        assert_eq!(info["grid"]["unknowns"], unknowns, "{info}");
    }
    for matrix in ["poisson2d:8", "random:n=200,nnz_per_row=5"] {
        let (code, object) = run_json(&["solve", matrix, "--precond", "block-jacobi=auto", "--backend", "cpu"]);
        assert!(code != 0 && object["error"]["message"].as_str().unwrap().contains("block-jacobi=4"), "{object}");
    }
}

#[test]
fn two_precisions_reach_what_f64_reaches() {
    for precision in ["mixed", "refined"] {
        for (matrix, solver, preconds) in [
            ("poisson2d:24", "cg", ["jacobi", "ic0", "block-jacobi=4"].as_slice()),
            ("convdiff2d:24,peclet=20", "bicgstab", ["jacobi", "ilu0"].as_slice()),
        ] {
            for precond in preconds {
                for format in ["auto", "sell"] {
                    let chosen = ["--solver", solver, "--precond", precond, "--format", format];
                    let goal =
                        ["--precision", precision, "--rtol", "1e-12", "--rhs", "from-solution", "--reorder", "rcm"];
                    let object = solved(&[&["solve", matrix][..], &chosen, &goal].concat());
                    assert_eq!(object["precision"], precision);
                    assert!(object["forward_error"].as_f64().unwrap() < 1e-9, "{object}");
                }
            }
        }
        let object = solved(&["solve", "poisson2d:8", "--precision", precision]);
        assert_eq!(object["rtol"], 1e-8);
        let object = solved(&["solve", "poisson2d:8", "--precision", precision, "--reproducible", "--backend", "cpu"]);
        assert_eq!(object["reproducible"], true);
    }
    solved(&["solve", "poisson2d:8", "--precision", "refined", "--precond", "none"]);
    let (code, object) = run_json(&["solve", "poisson2d:16", "--precision", "refined", "--rtol", "1e-30"]);
    assert_eq!((code, object["status"].as_str()), (3, Some("stagnated")), "{object}");
    assert!(residual(&object) < 1e-14, "{object}");
}

#[test]
fn multigrid() {
    let iterations = |object: &Value| object["iterations"].as_u64().unwrap();
    for (matrix, solver) in [("d3n27:12", "cg"), ("poisson2d:31x20", "cg"), ("convdiff2d:20,peclet=0.5", "bicgstab")] {
        let jacobi = iterations(&solved(&["solve", matrix, "--solver", solver, "--precond", "jacobi"]));
        for extra in [["--precision", "f64"].as_slice(), &["--precision", "f32"], &["--reproducible"]] {
            let by = |precond: &str| {
                let args = ["solve", matrix, "--solver", solver, "--precond", precond, "--backend", "cpu"];
                let object = solved(&[&args[..], extra].concat());
                assert!(iterations(&object) < jacobi && object["precond"] == precond, "{object}");
                object["factor"].clone()
            };
            let swept = by("mg=gauss-seidel");
            assert!(swept["plan"] == "sweep" && swept["levels"].as_u64().unwrap() >= 3, "{swept}");
            assert_eq!(by("mg")["plan"], if solver == "cg" { "dia" } else { "sweep" });
        }
    }
    let text = stdout(&run(&["solve", "d3n7:8", "--precond", "mg=2", "--backend", "cpu"]));
    assert!(text.contains("mg=2, 2 grids, by dia"), "{text}");
    for extra in
        [["--precision", "f64"].as_slice(), &["--precision", "f32"], &["--precision", "mixed"], &["--reproducible"]]
    {
        let object =
            solved(&[&["solve", "poisson3d:20", "--solver", "cg", "--precond", "mg=chebyshev"], extra].concat());
        assert!(iterations(&object) < 10 && object["precond"] == "mg=chebyshev", "{object}");
        for degree in [1, 3, 4] {
            let precond = format!("mg=chebyshev,degree={degree}");
            let options = ["solve", "poisson3d:20", "--solver", "cg", "--precond", &precond];
            let of_degree = solved(&[&options[..], extra].concat());
            assert!(iterations(&of_degree) < 15 && of_degree["precond"] == *precond, "{of_degree}");
        }
        let l1 = solved(&[&["solve", "poisson3d:20", "--solver", "cg", "--precond", "mg=l1-jacobi"], extra].concat());
        assert!(iterations(&l1) < 20 && l1["precond"] == "mg=l1-jacobi" && l1["factor"]["plan"] == "dia", "{l1}");
        assert_eq!(
            (&object["factor"]["plan"], object["factor"]["levels"].as_u64()),
            (&"dia".into(), Some(3)),
            "{object}"
        );
    }
}

#[test]
fn an_indefinite_matrix_makes_auto_go_on_with_bicgstab() {
    let folder = Folder::new();
    let entries = [(1, 1, "1"), (1, 2, "2"), (2, 1, "2"), (2, 2, "1"), (3, 3, "5")];
    let indefinite = folder.matrix("indefinite.mtx", 3, 3, &entries);
    let b = folder.file("b.mtx", "%%MatrixMarket matrix array real general\n3 1\n1\n-1\n2\n");
    // With a limit of iterations there is no factorisation.
    let object = solved(&["solve", &indefinite, "--rhs", &b, "--max-iters", "60"]);
    assert_eq!((object["solver"].as_str(), object["fallback"]["from"].as_str()), (Some("bicgstab"), Some("cg")));
    assert_eq!(object["fallback"]["status"], "indefinite_matrix");
    let direct = solved(&["solve", &indefinite, "--rhs", &b, "--solver", "direct"]);
    assert!(direct["message"].as_str().unwrap().contains("LU"), "{direct}");
    let spent = object["fallback"]["iterations"].as_u64().unwrap();
    let switch = format!("cg ended as indefinite_matrix after {spent} iterations, so bicgstab took over");
    assert!(object["message"].as_str().unwrap().starts_with(&switch), "{object}");
    let text = stdout(&run(&["solve", &indefinite, "--rhs", &b, "--max-iters", "60"]));
    assert!(text.contains("bicgstab took over"), "{text}");
    let refined = solved(&["solve", &indefinite, "--rhs", &b, "--precision", "refined"]);
    assert_eq!(refined["fallback"]["status"], "indefinite_matrix", "{refined}");
}

#[test]
fn single_precision_has_a_goal_that_it_can_reach() {
    let object = solved(&["solve", "poisson2d:16", "--precision", "f32"]);
    assert_eq!((object["precision"].as_str(), object["rtol"].as_f64()), (Some("f32"), Some(1e-5)));
    let (code, object) = run_json(&["solve", "poisson2d:16", "--precision", "f32", "--rtol", "1e-12"]);
    assert_eq!((code, object["status"].as_str()), (3, Some("backward_stable")), "{object}");
    let accepted = ["solve", "poisson2d:16", "--precision", "f32", "--rtol", "1e-12", "--accept", "backward"];
    assert_eq!(run(&accepted).status.code(), Some(0));
}

#[test]
fn b_of_zero_gives_x_of_zero() {
    let folder = Folder::new();
    let b = folder.file("b.mtx", "%%MatrixMarket matrix array real general\n4 1\n0\n0\n0\n0\n");
    for solver in ["cg", "bicgstab", "gmres", "direct"] {
        let out = folder.name("x.mtx");
        let object = solved(&["solve", "poisson2d:2", "--rhs", &b, "--solver", solver, "--out", &out]);
        assert_eq!((residual(&object), object["iterations"].as_u64()), (0.0, Some(0)));
        let numbers = vector(&out);
        assert_eq!(numbers, [0.0; 4], "{solver}");
    }
}

#[test]
fn a_matrix_without_rows_is_solved_by_nothing() {
    let folder = Folder::new();
    let empty = folder.matrix("empty.mtx", 0, 0, &[]);
    for solver in ["auto", "cg", "bicgstab", "gmres", "direct"] {
        for reorder in ["none", "rcm", "amd"] {
            solved(&["solve", &empty, "--solver", solver, "--reorder", reorder]);
        }
    }
    for format in FORMATS {
        solved(&["solve", &empty, "--format", format]);
    }
}

#[test]
fn least_squares_by_direct() {
    let folder = Folder::new();
    // The line through (0, 1), (1, 3), (2, 5): 1 + 2 t.
    let entries = [(1, 1, "1"), (2, 1, "1"), (2, 2, "1"), (3, 1, "1"), (3, 2, "2")];
    let tall = folder.matrix("tall.mtx", 3, 2, &entries);
    let b = folder.file("b.mtx", "%%MatrixMarket matrix array real general\n3 1\n1\n3\n5\n");
    let out = folder.name("x.mtx");
    solved(&["solve", &tall, "--rhs", &b, "--out", &out]);
    let x = vector(&out);
    assert!((x[0] - 1.0).abs() < 1e-12 && (x[1] - 2.0).abs() < 1e-12, "{x:?}");
    // No line goes through (0, 1), (1, 3), (2, 8); the nearest leaves a residual of sqrt(3/2).
    let b = folder.file("b.mtx", "%%MatrixMarket matrix array real general\n3 1\n1\n3\n8\n");
    let (code, object) = run_json(&["solve", &tall, "--rhs", &b]);
    assert_eq!((code, object["status"].as_str()), (0, Some("converged")), "{object}");
    assert!((residual(&object) - (1.5f64 / 74.0).sqrt()).abs() < 1e-12, "{object}");
    assert!(object["message"].as_str().unwrap().contains("no x has a smaller residual"), "{object}");
    assert_eq!(object["least_squares"], true);
    assert_eq!(solved(&["solve", "poisson2d:3", "--solver", "direct"])["least_squares"], false);
}

/// The numbers of an n x 1 array file.
fn vector(name: &str) -> Vec<f64> {
    let contents = std::fs::read_to_string(name).unwrap();
    contents.lines().filter(|line| !line.starts_with('%')).skip(1).map(|line| line.trim().parse().unwrap()).collect()
}

#[test]
fn renumbering_gives_x_in_the_old_numbering() {
    let folder = Folder::new();
    let mut answers = Vec::new();
    for reorder in ["none", "rcm", "amd"] {
        for solver in ["auto", "direct"] {
            let out = folder.name("x.mtx");
            let args = ["solve", "electrostatic:n=400", "--rhs", "random", "--rtol", "1e-12", "--out", &out];
            solved(&[&args[..], &["--reorder", reorder, "--solver", solver]].concat());
            answers.push(vector(&out));
        }
    }
    let size = answers[0].iter().fold(0.0, |m: f64, v| m.max(v.abs()));
    for other in &answers[1..] {
        let apart = answers[0].iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(apart <= 1e-8 * size, "{apart} of {size}");
    }
}

#[test]
fn a_good_first_guess_needs_no_iteration() {
    let folder = Folder::new();
    let out = folder.name("x.mtx");
    solved(&["solve", "poisson2d:9", "--rtol", "1e-10", "--out", &out]);
    let object = solved(&["solve", "poisson2d:9", "--x0", &out]);
    assert_eq!(object["iterations"], 0, "{object}");
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    let folder = Folder::new();
    let mut answers = Vec::new();
    for threads in ["1", "2", "3"] {
        for check_every in ["1", "7"] {
            let out = folder.name("x.mtx");
            let args = ["solve", "d3n7:24", "--reproducible", "--out", &out, "--threads", threads];
            let object = solved(&[&args[..], &["--check-every", check_every]].concat());
            assert_eq!(object["n_threads"].to_string(), threads);
            answers.push(std::fs::read(&out).unwrap());
        }
    }
    assert!(answers.iter().all(|x| x == &answers[0]));
}

#[test]
fn a_solve_that_stands_still_is_ended_where_that_is_asked_for() {
    let args = ["solve", "randspd:n=300,density=0.02,cond=1e5", "--precond", "none", "--solver", "cg"];
    let free = solved(&args);
    let (code, object) = run_json(&[&args[..], &["--stagnation", "1"]].concat());
    assert_eq!((code, object["status"].as_str()), (3, Some("stagnated")), "{object}");
    assert!(object["iterations"].as_u64() < free["iterations"].as_u64(), "{object}");
    solved(&[&args[..], &["--stagnation", "10000"]].concat());
}

#[test]
fn history_and_plot_are_written() {
    let folder = Folder::new();
    let (csv, svg) = (folder.name("h.csv"), folder.name("p.svg"));
    let object = solved(&["solve", "poisson2d:10", "--precond", "jacobi", "--history", &csv, "--plot", &svg]);
    let contents = std::fs::read_to_string(&csv).unwrap();
    let lines: Vec<&str> = contents.lines().collect();
    assert_eq!(lines[0], "iteration,relative_residual");
    let history = object["history"].as_array().unwrap();
    assert_eq!(history.len(), object["iterations"].as_u64().unwrap() as usize + 1);
    assert_eq!(lines.len(), history.len() + 1);
    assert_eq!(lines[1], "0,1e0");
    let last: f64 = lines.last().unwrap().split(',').nth(1).unwrap().parse().unwrap();
    assert_eq!(Some(last), history.last().unwrap().as_f64());
    assert!(std::fs::read_to_string(&svg).unwrap().contains("poisson2d:10"));
}

#[test]
fn the_iteration_limit_is_an_end_of_its_own() {
    let folder = Folder::new();
    let out = folder.name("x.mtx");
    let (code, object) = run_json(&["solve", "poisson2d:40", "--max-iters", "5", "--out", &out]);
    assert_eq!((code, object["status"].as_str(), object["iterations"].as_u64()), (3, Some("max_iterations"), Some(5)));
    assert_eq!(vector(&out).len(), 1600);
}

#[test]
fn the_default_limit_is_twenty_iterations_per_row() {
    assert_eq!(solved(&["solve", "poisson2d:5"])["max_iters"], 500);
    assert_eq!(solved(&["solve", "poisson2d:1"])["max_iters"], 20);
    assert_eq!(solved(&["solve", "poisson2d:5", "--max-iters", "77"])["max_iters"], 77);
}

#[test]
fn no_iteration_and_no_tolerance() {
    let (code, object) = run_json(&["solve", "poisson2d:5", "--max-iters", "0"]);
    assert_eq!((code, object["status"].as_str(), &object["iterations"]), (3, Some("max_iterations"), &0.into()));
    assert_eq!(residual(&object), 1.0);
    // Zero is reached only by luck. Either way the status agrees with the residual.
    let (code, object) = run_json(&["solve", "poisson2d:5", "--rtol", "0"]);
    let converged = object["status"] == "converged";
    assert_eq!((code == 0, residual(&object) == 0.0), (converged, converged), "{object}");
    assert!(residual(&object) < 1e-12, "{object}");
}

#[test]
fn the_object_has_the_promised_fields() {
    let object = solved(&["solve", "poisson2d:6", "--solver", "cg"]);
    for field in ["matrix", "backend", "device", "format", "solver", "precond", "precision", "status", "iterations"] {
        assert!(!object[field].is_null(), "{field}");
    }
    for field in ["name", "nrows", "ncols", "nnz", "symmetric"] {
        assert!(!object["matrix"][field].is_null(), "{field}");
    }
    for field in ["residual", "true_residual", "rtol"] {
        assert!(object[field].is_f64(), "{field}");
    }
    let seconds = object["seconds"].as_object().unwrap();
    let phases = ["read", "analyze", "load", "setup", "solve"];
    let sum: f64 = phases.iter().map(|phase| seconds[*phase].as_f64().unwrap()).sum();
    assert!(sum <= seconds["total"].as_f64().unwrap() * 1.000001);
    assert_eq!(object["history"][0], 1.0);
}

#[test]
fn cg_on_a_matrix_that_is_not_symmetric_is_told_so() {
    let output = run(&["solve", "convdiff2d:12,peclet=5", "--solver", "cg", "--max-iters", "5"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stdout(&output).contains("CG is for symmetric matrices, and this one is not"), "{}", stdout(&output));
    // The matrix is symmetric, so the only advice is about the limit, which is too low.
    let output = run(&["solve", "poisson2d:30", "--solver", "cg", "--max-iters", "5"]);
    assert!(stdout(&output).contains("raise --max-iters"), "{}", stdout(&output));
}

#[test]
fn a_right_hand_side_is_read_from_plain_text_and_npy() {
    let folder = Folder::new();
    let text = folder.file("b.txt", "# loads\n1\n1\n1\n1\n");
    let mut npy = b"\x93NUMPY\x01\x00".to_vec();
    let header = format!("{:<117}\n", "{'descr': '<f8', 'fortran_order': False, 'shape': (4,), }");
    npy.extend((header.len() as u16).to_le_bytes());
    npy.extend(header.as_bytes());
    npy.extend([1.0f64; 4].iter().flat_map(|v| v.to_le_bytes()));
    let packed = folder.name("b.npy");
    std::fs::write(&packed, npy).expect("a file");
    let (_, ones) = run_json(&["solve", "poisson2d:2"]);
    for file in [&text, &packed] {
        let (code, object) = run_json(&["solve", "poisson2d:2", "--rhs", file]);
        assert_eq!((code, &object["true_residual"]), (0, &ones["true_residual"]), "{file}: {object}");
    }
}
