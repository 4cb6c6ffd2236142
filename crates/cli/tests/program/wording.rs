//! Names in any case, wrong names, and counts in words.

use super::*;

#[test]
fn names_do_not_depend_on_case() {
    let commands: [&[&str]; 5] = [
        &["--solver", "CG", "--precond", "IC0", "--format", "ELL", "--backend", "CPU", "--precision", "F64"],
        &["--solver", "BiCGStab", "--precond", "ILU0", "--reorder", "RCM", "--rhs", "Random"],
        &["--solver", "GMRES", "--precond", "ILUk=1", "--precision", "Mixed", "--rhs", "From-Solution"],
        &["--solver", "Auto", "--precond", "SSOR=1.5", "--format", "Auto", "--backend", "Auto"],
        &["--solver", "Direct", "--precision", "F32"],
    ];
    for args in commands {
        let lower: Vec<String> = args.iter().map(|arg| arg.to_lowercase()).collect();
        let lower: Vec<&str> = lower.iter().map(String::as_str).collect();
        let [given, expected] = [args, &lower].map(|args| run_json(&[&["solve", "poisson2d:6"], args].concat()));
        assert_eq!(given.0, 0, "{}", given.1);
        for field in ["solver", "precond", "format", "precision", "reorder", "rhs", "history"] {
            assert_eq!(given.1[field], expected.1[field], "{args:?}: {field}");
        }
    }
    let (code, object) = run_json(&["spmv", "poisson2d:6", "--format", "CSR,Dia", "--precision", "F32"]);
    assert_eq!((code, &object["formats"][0]["format"]), (0, &"csr".into()), "{object}");
    assert_eq!(object["formats"].as_array().map(Vec::len), Some(2));
    // The name of the GPU backend is recognised in any case.
    let kind = |name: &str| run_json(&["solve", "poisson2d:6", "--backend", name]).1["error"]["kind"].clone();
    assert_eq!(kind("CUDA"), kind("cuda"));
}

#[test]
fn numbers_are_read_in_any_usual_spelling() {
    let plain = run_json(&["solve", "poisson2d:20", "--precond", "iluk=2", "--max-iters", "1000", "--threads", "2"]).1;
    for args in [
        ["solve", "Poisson2d:2e1", "--precond", "ILUK=+2", "--max-iters", "1e3", "--threads", "+2"],
        ["solve", "poisson2d:+20", "--precond", "iluk=2", "--max-iters", "+1000", "--threads", "2e0"],
    ] {
        let (code, object) = run_json(&args);
        assert_eq!((code, &object["iterations"], &object["history"]), (0, &plain["iterations"], &plain["history"]));
    }
    for (option, value) in
        [("--max-iters", "1.5"), ("--max-iters", "1e99"), ("--check-every", "many"), ("--device", "-1")]
    {
        let output = run(&["solve", "poisson2d:4", option, value]);
        assert_eq!(output.status.code(), Some(2), "{option} {value}");
        assert!(
            stderr(&output).contains("not a whole number from 0 on; write e.g. 1000 or 1e3"),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn a_wrong_name_is_answered_with_the_nearest() {
    let answers: [(&[&str], i32, &str); 11] = [
        (&["--tol", "1e-6"], 2, "--rtol"),
        (&["--tol=1e-6"], 2, "--rtol"),
        (&["--tolerance", "1e-6"], 2, "--rtol"),
        (&["--eps", "1e-6"], 2, "--rtol"),
        (&["--method", "cg"], 2, "--solver"),
        (&["--maxit", "7"], 2, "--max-iters"),
        (&["--output", "x.mtx"], 2, "--out"),
        (&["--solver", "bicg"], 2, "bicgstab"),
        (&["--precond", "ILU"], 2, "did you mean ilu0?"),
        (&["--format", "elll"], 2, "ell"),
        (&["--rhs", "radnom"], 1, "did you mean random?"),
    ];
    for (args, code, right) in answers {
        let output = run(&[&["solve", "poisson2d:4"], args].concat());
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        let text = stderr(&output);
        let advice = text.find("tip: ").or_else(|| text.find("; did you")).unwrap_or_else(|| panic!("no tip: {text}"));
        let advice = text[advice..].lines().next().unwrap_or_default();
        assert!(advice.contains(right) && !advice.contains("--atol"), "{args:?}: {text}");
    }
    assert!(!stdout(&run(&["solve", "--help"])).contains("--tol"));
}

/// The first place where the number 1 is followed by a plural.
fn one_of_many(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_plural = |word: &str| {
        let word = word.trim_end_matches([',', ';', ':', ')', '.']);
        word.len() > 3 && word.ends_with('s') && word.chars().all(|c| c.is_ascii_lowercase())
    };
    let pair = words.windows(2).find(|pair| pair[0].trim_start_matches('(') == "1" && is_plural(pair[1]))?;
    Some(pair.join(" "))
}

#[test]
fn one_thing_is_not_called_several() {
    assert_eq!(one_of_many("row (1 entries, 12 rows)").as_deref(), Some("(1 entries,"));
    let folder = Folder::new();
    let one = folder.matrix("one.mtx", 1, 1, &[(1, 1, "2")]);
    let zero = folder.matrix("zero.mtx", 1, 1, &[(1, 1, "0")]);
    let flat = folder.matrix("flat.mtx", 1, 2, &[(1, 2, "2")]);
    let short = folder.file("b.mtx", "%%MatrixMarket matrix array real general\n1 1\n1\n");
    let (out, svg) = (folder.name("out.mtx"), folder.name("x.svg"));
    let commands: [&[&str]; 13] = [
        &["info", &one],
        &["info", &zero],
        &["info", &flat],
        &["info", "poisson1d:2"],
        &["spmv", &one],
        &["convert", &one, &out],
        &["convert", &zero, &out, "--compress", "0"],
        &["solve", &one, "--precond", "jacobi", "--plot", &svg],
        &["solve", &one, "--solver", "direct", "--threads", "1"],
        &["solve", &one, "--solver", "gmres", "--restart", "1", "--precond", "none"],
        &["solve", "poisson2d:9", "--precond", "mg=1", "--max-iters", "1"],
        &["solve", "poisson2d:4", "--rhs", &short],
        &["devices", "--threads", "1"],
    ];
    for args in commands {
        let output = run(args);
        let text = stdout(&output) + &stderr(&output);
        assert_eq!(one_of_many(&text), None, "{args:?}: {text}");
    }
    assert!(stdout(&run(&["solve", &one, "--threads", "1"])).contains("cpu: 1 thread,"));
}

#[test]
fn the_plot_says_how_the_solve_ended() {
    let folder = Folder::new();
    let one = folder.matrix("one.mtx", 1, 1, &[(1, 1, "2")]);
    let plot = |args: &[&str]| stdout(&run(&[&["solve", &one, "--plot", "-"], args].concat()));
    let iterated = plot(&["--solver", "cg", "--precond", "jacobi", "--format", "csr"]);
    assert!(iterated.contains("cg with jacobi on csr, f64: converged after 1 iteration\n"), "{iterated}");
    let direct = plot(&["--solver", "direct"]);
    assert!(direct.contains("direct, f64: converged\n") && !direct.contains("iterations"), "{direct}");
}

#[test]
fn a_saving_that_nobody_would_notice_is_no_advice() {
    let folder = Folder::new();
    let one = folder.matrix("one.mtx", 1, 1, &[(1, 1, "2")]);
    for args in [["solve", &one], ["info", &one]] {
        let text = stdout(&run(&args));
        assert!(!text.contains("% less time"), "{text}");
    }
    let large = stdout(&run(&["info", "electrostatic:n=5000"]));
    assert!(large.contains("% less time per product than csr"), "{large}");
}
