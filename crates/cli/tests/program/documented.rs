//! The README names everything that programs match on: statuses, error kinds, fields, CSV columns.

use super::*;
use spandrel::solvers::Status;

const README: &str = include_str!("../../README.md");

#[track_caller]
fn documented(word: &str) {
    assert!(README.contains(&format!("`{word}`")), "README.md does not say what `{word}` is");
}

/// Every text of a program's source that follows `Failure::new(`, and every kind that an error of a library becomes.
fn kinds() -> Vec<String> {
    fn files(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("sources") {
            let path = entry.expect("sources").path();
            if path.is_dir() { files(&path, found) } else { found.push(path) }
        }
    }
    let mut paths = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut paths);
    let mut kinds = Vec::new();
    for path in paths {
        let source = std::fs::read_to_string(&path).expect("a source");
        let arrow = path.ends_with("failure.rs").then_some("=> ");
        for mark in ["Failure::new("].into_iter().chain(arrow) {
            kinds.extend(source.split(mark).skip(1).filter_map(|rest| {
                rest.trim_start()
                    .strip_prefix('"')
                    .and_then(|rest| rest.split_once('"'))
                    .map(|(kind, _)| kind.to_string())
            }));
        }
    }
    kinds.sort();
    kinds.dedup();
    kinds
}

#[test]
fn every_status_and_every_error_kind() {
    Status::ALL.iter().for_each(|status| documented(status.as_str()));
    let kinds = kinds();
    assert!(kinds.len() > 15 && kinds.iter().any(|kind| kind == "same_file"), "{kinds:?}");
    kinds.iter().for_each(|kind| documented(kind));
    documented("usage");
}

/// The names of all fields, those of nested objects as `outer.inner`.
fn fields(prefix: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                found.push(format!("{prefix}{name}"));
                fields(&format!("{prefix}{name}."), value, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| fields(prefix, value, found)),
        _ => {}
    }
}

#[test]
fn every_exit_status() {
    let guide = include_str!("../../../../docs/guide/first-solve.md");
    let help = stdout(&run(&["--help"]));
    let man = stdout(&run(&["man"])).replace('\\', "");
    for place in [README, guide, &help, &stdout(&run(&["solve", "--help"])), &man, &stdout(&run(&["man", "solve"]))] {
        for status in ["0", "1", "2", "3", "130"] {
            assert!(place.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == status), "{status}: {place}");
        }
    }
}

#[test]
fn every_field_and_column() {
    let folder = Folder::new();
    let (csv, out) = (folder.name("h.csv"), folder.name("a.mtx"));
    let indefinite = folder.matrix("i.mtx", 2, 2, &[(1, 1, "1"), (1, 2, "2"), (2, 1, "2"), (2, 2, "1")]);
    let b = folder.file("b.mtx", "%%MatrixMarket matrix array real general\n2 1\n1\n-1\n");
    let open = folder.matrix("o.mtx", 2, 2, &[(1, 1, "1"), (1, 2, "2"), (2, 1, "3"), (2, 2, "6")]);
    let wide = folder.file("wide.txt", "1 1\n-1 1\n");
    let commands: [&[&str]; 10] = [
        &["solve", &open],
        &["solve", "poisson2d:40", "--ranks", "2"],
        &["solve", &indefinite, "--rhs", &b, "--history", &folder.name("one.csv")],
        &["solve", &indefinite, "--rhs", &b, "--max-iters", "40"],
        &["solve", &indefinite, "--rhs", &wide, "--history", &csv],
        &["info", "poisson2d:4"],
        &["spmv", "powerlaw:n=300", "--format", "csr,dia"],
        &["generate", "poisson2d:3", &out],
        &["generate", "--list"],
        &["devices"],
    ];
    for args in commands {
        let mut found = Vec::new();
        fields("", &run_json(args).1, &mut found);
        assert!(found.len() > 3, "{args:?}");
        found.iter().for_each(|field| documented(field));
    }
    for column in std::fs::read_to_string(&csv).expect("a history").lines().next().expect("a head").split(',') {
        documented(column);
    }
}
