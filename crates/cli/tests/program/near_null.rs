//! Coordinates and near-null-space vectors: they ask for algebraic multigrid, and both words give the same x.

use super::*;

/// Points of a side of the square.
const SIDE: usize = 12;
const SQUARE: &str = "elasticity2d:12";

fn points() -> impl Iterator<Item = [f64; 2]> {
    (0..SIDE * SIDE).map(|p| [(p % SIDE) as f64, (p / SIDE) as f64])
}

#[test]
fn coordinates_stand_for_rigid_body_modes() {
    let folder = Folder::new();
    let lines: String = points().map(|[x, y]| format!("{x} {y}\n")).collect();
    let coordinates = folder.file("points.txt", &lines);
    // Two translations, and the rotation about the centre.
    let centre = (SIDE - 1) as f64 / 2.0;
    let rows = points().flat_map(|[x, y]| [[1.0, 0.0, centre - y], [0.0, 1.0, x - centre]]);
    let modes = folder.file("modes.txt", &rows.map(|[a, b, c]| format!("{a} {b} {c}\n")).collect::<String>());

    let (by_points, by_modes) = (folder.name("points.mtx"), folder.name("modes.mtx"));
    let (status, report) =
        run_json(&["solve", SQUARE, "--backend", "cpu", "--coordinates", &coordinates, "--out", &by_points]);
    assert_eq!((status, &report["status"]), (0, &Value::from("converged")), "{report}");
    assert!(report["precond"].as_str().unwrap_or_default().starts_with("amg"), "{report}");
    let precond = ["--precond", "amg=unknowns=2", "--near-null-space", &modes];
    let arguments = [&["solve", SQUARE, "--backend", "cpu", "--out", &by_modes][..], &precond].concat();
    let (status, named) = run_json(&arguments);
    assert_eq!((status, &named["iterations"]), (0, &report["iterations"]), "{named}");
    assert_eq!(std::fs::read(&by_points).expect("x"), std::fs::read(&by_modes).expect("x"));
}

#[test]
fn what_does_not_fit_is_refused() {
    let folder = Folder::new();
    let few = folder.file("few.txt", "0 0\n1 0\n");
    let output = run(&["solve", SQUARE, "--coordinates", &few]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("2 points of 2 coordinates do not fit the matrix's 288 rows"),
        "{}",
        stderr(&output)
    );
    let vector = folder.file("vector.txt", "1\n2\n3\n");
    let output = run(&["solve", SQUARE, "--near-null-space", &vector]);
    assert!(stderr(&output).contains("the near-null space has 3 elements"), "{}", stderr(&output));
    let ones = folder.file("ones.txt", &"1\n".repeat(288));
    let output = run(&["solve", SQUARE, "--near-null-space", &ones, "--precond", "ic0"]);
    assert!(stderr(&output).contains("only amg takes near-null-space vectors"), "{}", stderr(&output));
    let output = run(&["solve", SQUARE, "--near-null-space", &ones, "--coordinates", &few]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let output = run(&["solve", SQUARE, "--coordinates", "nothing.txt"]);
    assert!(stderr(&output).contains("a row for each point"), "{}", stderr(&output));
}
