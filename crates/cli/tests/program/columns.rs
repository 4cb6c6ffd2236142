//! Right-hand sides of several columns: each is solved as if it were alone, and reported and written with the others.

use super::*;

/// Three columns for four rows.
const B: [[f64; 4]; 3] = [[1.0, 1.0, 1.0, 1.0], [1.0, -2.0, 0.5, 4.0], [0.0, 0.0, 3.0, 0.0]];

fn plain(columns: &[[f64; 4]]) -> String {
    let rows = (0..4).map(|i| columns.iter().map(|column| column[i].to_string()).collect::<Vec<_>>().join(" "));
    rows.map(|row| row + "\n").collect()
}

fn array(columns: &[[f64; 4]]) -> String {
    let values: String = columns.iter().flatten().map(|value| format!("{value}\n")).collect();
    format!("%%MatrixMarket matrix array real general\n4 {}\n{values}", columns.len())
}

/// A two-dimensional .npy file in C order.
fn npy(columns: &[[f64; 4]]) -> Vec<u8> {
    let shape = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': (4, {}), }}", columns.len());
    let header = format!("{shape:<117}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    (0..4).for_each(|i| columns.iter().for_each(|column| bytes.extend(column[i].to_le_bytes())));
    bytes
}

/// The lines of an array file after its comments: the shape, then the values.
fn lines(name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(name).expect("written");
    text.lines().filter(|line| !line.starts_with('%')).map(str::to_owned).collect()
}

#[test]
fn each_column_has_the_answer_that_it_has_alone() {
    let folder = Folder::new();
    let matrix = folder.matrix(
        "a.mtx",
        4,
        4,
        &[
            (1, 1, "4"),
            (1, 2, "-1"),
            (2, 1, "-2"),
            (2, 2, "5"),
            (2, 3, "1"),
            (3, 3, "3"),
            (3, 4, "-1"),
            (4, 1, "1"),
            (4, 4, "6"),
        ],
    );
    let binary = folder.name("b.npy");
    std::fs::write(&binary, npy(&B)).expect("a file");
    let files = [folder.file("b.mtx", &array(&B)), folder.file("b.txt", &plain(&B)), binary];
    for solver in ["auto", "gmres", "direct"] {
        let mut expected = Vec::new();
        let mut alone = Vec::new();
        for (j, column) in B.iter().enumerate() {
            let (b, x) = (folder.file("one.txt", &plain(&[*column])), folder.name("one.mtx"));
            let (code, object) = run_json(&["solve", &matrix, "--solver", solver, "--rhs", &b, "--out", &x]);
            assert_eq!((code, object.get("columns")), (0, None), "{solver}, column {j}: {object}");
            let written = lines(&x);
            assert_eq!(written[0], "4 1");
            expected.extend_from_slice(&written[1..]);
            alone.push(object);
        }
        for file in &files {
            let x = folder.name("x.mtx");
            let (code, object) = run_json(&["solve", &matrix, "--solver", solver, "--rhs", file, "--out", &x]);
            assert_eq!((code, object["status"].as_str()), (0, Some("converged")), "{solver}, {file}: {object}");
            let columns = object["columns"].as_array().expect("a list");
            assert_eq!(columns.len(), 3);
            for (column, alone) in columns.iter().zip(&alone) {
                for field in ["status", "iterations", "restarts", "solver", "precond", "fallback"] {
                    assert_eq!(column[field], alone[field], "{solver}, {file}: {field}");
                }
                assert!(column["true_residual"].as_f64().expect("a number") <= 1e-8, "{column}");
            }
            let iterations = |object: &Value| object["iterations"].as_u64().expect("a number");
            assert_eq!(iterations(&object), columns.iter().map(iterations).sum::<u64>());
            let written = lines(&x);
            assert_eq!((written[0].as_str(), written.len()), ("4 3", 13));
            for (found, expected) in written[1..].iter().zip(&expected) {
                // Factors may take several columns in another order of summation than one.
                let (found, expected): (f64, f64) =
                    (found.parse().expect("a number"), expected.parse().expect("a number"));
                let bound = if solver == "direct" { 64.0 * f64::EPSILON * expected.abs().max(1.0) } else { 0.0 };
                assert!((found - expected).abs() <= bound, "{solver}, {file}: {found} instead of {expected}");
            }
        }
    }
}

#[test]
fn the_report_has_a_line_for_each_column() {
    let folder = Folder::new();
    let b = folder.file("b.txt", &plain(&B));
    let (csv, svg) = (folder.name("h.csv"), folder.name("h.svg"));
    let output = run(&["solve", "poisson2d:2", "--solver", "cg", "--rhs", &b, "--history", &csv, "--plot", &svg]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("b.txt, 3 columns\n") && text.contains("\nconverged: all 3 columns\n"), "{text}");
    for j in 1..=3 {
        let start = format!("column {j}    converged after ");
        assert!(text.lines().any(|line| line.starts_with(&start) && line.contains(": true residual ")), "{text}");
    }
    let history = std::fs::read_to_string(&csv).expect("written");
    assert!(history.starts_with("column,iteration,relative_residual\n1,0,1e0\n"), "{history}");
    assert!(history.contains("\n3,0,1e0\n"), "{history}");
    let drawn = std::fs::read_to_string(&svg).expect("written");
    assert!(drawn.matches("<circle").count() == 3 && drawn.contains(" for 3 columns\n"), "{drawn}");
}

#[test]
fn the_worst_column_decides() {
    let folder = Folder::new();
    // An eigenvector, which cg finds in one iteration, and a column that takes more.
    let n = 20;
    let matrix = format!("poisson1d:{n}");
    let angle = std::f64::consts::PI / f64::from(n + 1);
    let rows = (1..=n).map(|i| format!("{} {}\n", (angle * f64::from(i)).sin(), f64::from(i * i)));
    let b = folder.file("b.txt", &rows.collect::<String>());
    let x = folder.name("x.mtx");
    let args = ["solve", &matrix, "--rhs", &b, "--solver", "cg", "--precond", "none", "--max-iters", "3", "--out", &x];
    let (code, object) = run_json(&args);
    assert_eq!((code, object["status"].as_str()), (3, Some("max_iterations")), "{object}");
    let words: Vec<_> = object["columns"].as_array().expect("a list").iter().map(|column| &column["status"]).collect();
    assert_eq!(words, ["converged", "max_iterations"]);
    assert_eq!(object["true_residual"], object["columns"][1]["true_residual"]);
    assert_eq!(lines(&x)[0], "20 2");
    let output = run(&args);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        stdout(&output).contains("max_iterations: 1 of 2 columns converged\nraise --max-iters"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn a_first_guess_has_a_column_for_each() {
    let folder = Folder::new();
    let (b, x) = (folder.file("b.txt", &plain(&B)), folder.name("x.mtx"));
    assert_eq!(run_json(&["solve", "poisson2d:2", "--rhs", &b, "--rtol", "1e-12", "--out", &x]).0, 0);
    let (code, object) = run_json(&["solve", "poisson2d:2", "--rhs", &b, "--x0", &x]);
    assert_eq!((code, &object["iterations"]), (0, &0.into()), "{object}");
    for (columns, found) in [(1, "1 column"), (2, "2 columns")] {
        let guess = folder.file("x0.txt", &plain(&B[..columns]));
        let (code, object) = run_json(&["solve", "poisson2d:2", "--rhs", &b, "--x0", &guess]);
        assert_eq!((code, &object["error"]["kind"]), (1, &"shape".into()), "{object}");
        let message = object["error"]["message"].as_str().expect("a message");
        assert!(
            message.contains(&format!("x0 has {found}, b has 3 columns; give a first guess for each")),
            "{message}"
        );
    }
    let several = folder.file("x0.txt", &plain(&B));
    let (code, object) = run_json(&["solve", "poisson2d:2", "--x0", &several]);
    assert_eq!((code, &object["error"]["kind"]), (1, &"shape".into()), "{object}");
}

#[test]
fn an_element_that_is_no_number_is_named_with_its_column() {
    let folder = Folder::new();
    let mut columns = B;
    columns[2][1] = f64::NAN;
    let b = folder.file("b.txt", &plain(&columns));
    for solver in ["auto", "direct"] {
        let (code, object) = run_json(&["solve", "poisson2d:2", "--solver", solver, "--rhs", &b]);
        assert_eq!((code, object["status"].as_str()), (3, Some("not_finite")), "{object}");
        assert_eq!(object["message"], "element 2 of column 3 of b (counted from 1) is NaN");
    }
    let short = folder.file("short.txt", "1 2\n3 4\n");
    let (code, object) = run_json(&["solve", "poisson2d:2", "--rhs", &short]);
    let message = object["error"]["message"].as_str().expect("a message");
    assert!(code == 1 && message.contains("b has 2 elements in each column, the matrix needs 4"), "{message}");
}
