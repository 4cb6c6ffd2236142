//! The messages for systems that have no answer, or none as good as requested.

use super::*;

#[test]
fn a_singular_matrix_is_told_by_its_rows_and_solved_where_b_allows_it() {
    let folder = Folder::new();
    let twice = folder.matrix("twice.mtx", 3, 3, &[(1, 1, "1"), (1, 2, "2"), (2, 3, "5"), (3, 1, "1"), (3, 2, "2")]);
    let consistent = folder.file("b.txt", "3\n5\n3\n");
    let (code, object) = run_json(&["solve", &twice, "--rhs", &consistent]);
    assert_eq!((code, object["status"].as_str()), (0, Some("converged")), "{object}");
    assert!(
        object["message"].as_str().unwrap().contains("rows 1 and 3 are equal, but this b has an answer"),
        "{object}"
    );
    let apart = folder.file("c.txt", "3\n5\n4\n");
    let (code, object) = run_json(&["solve", &twice, "--rhs", &apart]);
    assert_eq!((code, object["status"].as_str()), (3, Some("inconsistent")), "{object}");
    let message = object["message"].as_str().unwrap();
    assert!(message.contains("row 3 is equal to row 1, but b is 4 there instead of 3"), "{message}");
    let text = stdout(&run(&["solve", &twice, "--rhs", &apart]));
    assert!(text.contains("no x solves this system"), "{text}");
    // A named method reports its own failure, and nothing takes over.
    let (_, object) = run_json(&["solve", &twice, "--rhs", &apart, "--solver", "direct"]);
    assert_eq!(object["status"], "zero_pivot", "{object}");
}

#[test]
fn what_is_solved_to_rounding_is_said_and_can_be_accepted() {
    // Hilbert's matrix of order 12: a condition number of about 1e16.
    let folder = Folder::new();
    let values: Vec<String> = (0..144).map(|k| format!("{:e}", 1.0 / (1 + k / 12 + k % 12) as f64)).collect();
    let entries: Vec<_> = values.iter().enumerate().map(|(k, v)| (k / 12 + 1, k % 12 + 1, v.as_str())).collect();
    let hilbert = folder.matrix("hilbert.mtx", 12, 12, &entries);
    let (code, object) = run_json(&["solve", &hilbert, "--rtol", "1e-14"]);
    assert_eq!((code, object["status"].as_str()), (3, Some("backward_stable")), "{object}");
    assert!(object["backward_error"]["normwise"].as_f64().unwrap() <= 7.2e-15, "{object}");
    assert!(object["condition"].as_f64().unwrap() > 1e15, "{object}");
    let accepted = run(&["solve", &hilbert, "--rtol", "1e-14", "--accept", "backward"]);
    assert_eq!(accepted.status.code(), Some(0));
    let text = stdout(&accepted);
    assert!(text.contains("backward error") && text.contains("condition number about"), "{text}");
}

#[test]
fn where_no_preconditioner_can_be_made_x_is_where_the_solve_would_have_begun() {
    let folder = Folder::new();
    let zero = folder.matrix("zero.mtx", 2, 2, &[(1, 1, "0"), (1, 2, "1"), (2, 1, "1"), (2, 2, "0")]);
    let (x0, out) = (folder.file("x0.txt", "3\n4\n"), folder.name("x.mtx"));
    let (code, object) = run_json(&["solve", &zero, "--precond", "jacobi", "--out", &out]);
    assert_eq!((code, object["status"].as_str()), (3, Some("zero_pivot")), "{object}");
    assert!(object["message"].as_str().unwrap().ends_with("x.mtx gets x0 = 0"), "{object}");
    assert!(std::fs::read_to_string(&out).unwrap().contains("2 1\n0"));
    run_json(&["solve", &zero, "--precond", "jacobi", "--out", &out, "--x0", &x0]);
    assert!(std::fs::read_to_string(&out).unwrap().contains("2 1\n3"));
}

#[test]
fn a_symmetric_file_with_the_upper_triangle_is_read_with_a_note() {
    let folder = Folder::new();
    let text = "%%MatrixMarket matrix coordinate real symmetric\n2 2 3\n1 1 2\n1 2 -1\n2 2 2\n";
    let file = folder.file("upper.mtx", text);
    let output = run(&["solve", &file]);
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("upper.mtx:4: 1 entry lies above the diagonal"), "{said}");
    let file = folder.file("both.mtx", &text.replace("2 2 3", "2 2 4").replace("1 2 -1", "1 2 -1\n2 1 -1"));
    let (code, object) = run_json(&["solve", &file]);
    assert_eq!((code, object["error"]["kind"].as_str()), (1, Some("parse")), "{object}");
}
