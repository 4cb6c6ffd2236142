//! The output of the program, word for word. Fractions (times, residuals, rates) and the machine are blanked out.

use super::*;

/// Replaces fractions, times and the machine by marks.
fn redacted(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.starts_with("machine") || line.starts_with("cpu") {
            lines.push(format!("{} [machine]", line.split_whitespace().next().unwrap_or("")));
            continue;
        }
        if line.trim_start().starts_with("profile ") {
            lines.push("      profile [of the machine]".to_string());
            continue;
        }
        if line.starts_with("cuda") {
            lines.push("cuda [gpu or why none]".to_string());
            continue;
        }
        let timed = line.starts_with("read ");
        let mark = |word: &str| {
            let bare = word.trim_matches([',', '(', ')']);
            let fraction = bare.contains(['.', 'e']) || timed;
            if bare.parse::<f64>().is_ok() && fraction {
                word.replace(bare, "[n]")
            } else if timed && ["us", "ms", "s"].contains(&bare) {
                word.replace(bare, "[s]")
            } else {
                word.to_string()
            }
        };
        let out = line.split(' ').map(mark).collect::<Vec<_>>().join(" ");
        lines.push(out);
    }
    lines.join("\n")
}

#[test]
fn help() {
    let commands: [(&str, &[&str]); 10] = [
        ("help", &["--help"]),
        ("help_solve", &["solve", "--help"]),
        ("help_solve_short", &["solve", "-h"]),
        ("help_info", &["info", "--help"]),
        ("help_spmv", &["spmv", "--help"]),
        ("help_convert", &["convert", "--help"]),
        ("help_generate", &["generate", "--help"]),
        ("help_devices", &["devices", "--help"]),
        ("help_completions", &["completions", "--help"]),
        ("help_man", &["man", "--help"]),
    ];
    for (name, args) in commands {
        let output = run(args);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
        let text = stdout(&output);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{name}: a line is longer than 100");
        insta::assert_snapshot!(name, text);
    }
}

#[test]
fn reports() {
    let commands: [(&str, &[&str]); 6] = [
        ("solve", &["solve", "poisson2d:12", "--rhs", "from-solution", "--format", "csr"]),
        ("solve_unconverged", &["solve", "poisson2d:30", "--max-iters", "3", "--format", "csr", "--reorder", "rcm"]),
        ("solve_direct", &["solve", "convdiff2d:6", "--solver", "direct"]),
        ("info", &["info", "poisson2d:6"]),
        ("info_rectangular", &["info", "RECTANGLE"]),
        ("devices", &["devices"]),
    ];
    let folder = Folder::new();
    let rectangle = folder.matrix("r.mtx", 2, 3, &[(1, 1, "1"), (2, 3, "0")]);
    for (name, args) in commands {
        let args: Vec<&str> = args.iter().map(|&arg| if arg == "RECTANGLE" { &rectangle } else { arg }).collect();
        let text = redacted(&stdout(&run(&args))).replace(&rectangle, "r.mtx");
        insta::assert_snapshot!(name, text);
    }
}

#[test]
fn errors() {
    let folder = Folder::new();
    let bad = folder.file("bad.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 0 1\n");
    let missing = folder.name("missing.mtx");
    let commands: [(&str, &[&str]); 5] = [
        ("error_parse", &["solve", &bad]),
        ("error_missing", &["solve", &missing]),
        ("error_generator", &["solve", "poisson2d:4,size=3"]),
        ("error_usage", &["solve", "poisson2d:4", "--format", "jds"]),
        ("error_rtol", &["solve", "poisson2d:4", "--rtol=-1"]),
    ];
    for (name, args) in commands {
        let text = stderr(&run(args)).replace(&bad, "bad.mtx").replace(&missing, "missing.mtx");
        insta::assert_snapshot!(name, text);
    }
}
