//! The guide's commands do what it says: each is run, in the order of its chapter, and must print what the guide shows
//! below it.
//!
//! In a block ```` ```console ```` a line with `$ ` is a command. The lines below it are its output (stdout, then
//! stderr), and `[exit status N]` follows if the status is not 0. Fractions, times and the machine may differ. In ````
//! ```console,varies ```` only the first word of each line and the status are compared. In ```` ```console,picture ````
//! only the files are compared that `docs/pictures` has under the same name. `SPANDREL_GUIDE=write cargo test -p
//! spandrel-cli --test guide` writes what the program prints and draws.

use std::path::{Path, PathBuf};

use assert_cmd::Command;

/// How every command of the guide begins.
const PROGRAM: &str = "$ cargo run --release -p spandrel-cli -- ";
/// A file of the repository that commands read.
const FILE: &str = "crates/cli/testdata/plate.mtx";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The output of a command in `folder`, as the guide shows it. GPUs are hidden.
fn printed(folder: &Path, arguments: &str) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
    command.current_dir(folder).env("CUDA_VISIBLE_DEVICES", "").env_remove("CLICOLOR_FORCE");
    let output = command.args(arguments.split_whitespace()).output().expect("the program starts");
    let mut lines: Vec<String> = Vec::new();
    for text in [output.stdout, output.stderr] {
        lines.extend(String::from_utf8(text).expect("text").trim_end().lines().map(|line| line.trim_end().to_owned()));
    }
    match output.status.code().expect("not killed") {
        0 => {}
        status => lines.push(format!("[exit status {status}]")),
    }
    lines
}

/// Replaces fractions, times and the machine by marks.
fn redacted(line: &str) -> String {
    let first = line.split_whitespace().next().unwrap_or_default();
    if ["machine", "cpu", "cuda"].contains(&first) {
        return format!("{first} [machine]");
    }
    let timed = line.starts_with("read ");
    // The machine on which the profile was measured says so; every other scales it.
    let origin = first == "profile";
    let mark = |word: &str| {
        if origin && ["measured:", "scaled:"].contains(&word) {
            return "[origin]".to_owned();
        }
        let bare = word.trim_matches([',', '(', ')']);
        let is_number = bare.parse::<f64>().is_ok() && (timed || bare.contains(['.', 'e']));
        if is_number || (timed && ["us", "ms", "s"].contains(&bare)) { "#".to_owned() } else { word.to_owned() }
    };
    line.split(' ').map(mark).collect::<Vec<_>>().join(" ")
}

/// The pictures that the commands of a chapter drew, by name.
type Pictures = Vec<(String, Vec<u8>)>;

/// The chapter with the outputs that the program prints now, the differences from what is written, and the pictures.
fn run(chapter: &str, text: &str) -> (String, Vec<String>, Pictures) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join(FILE);
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("the folder can be written");
    std::fs::copy(repository().join(FILE), file).expect("the matrix");

    let (mut made, mut differences, mut pictures) = (String::new(), Vec::new(), Vec::new());
    let mut lines = text.lines().peekable();
    let mut block: Option<fn(&str) -> String> = None;
    let mut is_picture = false;
    while let Some(line) = lines.next() {
        made += line;
        made.push('\n');
        if line.starts_with("```") {
            is_picture = false;
            block = match (block, line) {
                (None, "```console") => Some(redacted),
                (None, "```console,varies") => Some(|line| line.split(' ').next().unwrap_or_default().to_owned()),
                (None, "```console,picture") => {
                    is_picture = true;
                    Some(str::to_owned)
                }
                _ => None,
            };
        } else if let (Some(compared), Some(command)) = (block, line.strip_prefix("$ ")) {
            let Some(arguments) = line.strip_prefix(PROGRAM) else {
                differences.push(format!("{chapter}: `{command}` is not a command of the program's"));
                continue;
            };
            let mut written = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with("$ ") && !line.starts_with("```")) {
                written.push(line);
            }
            let printed = printed(folder.path(), arguments);
            if is_picture {
                let name = arguments.rsplit(' ').next().unwrap_or_default();
                match std::fs::read(folder.path().join(name)) {
                    Ok(drawn) => pictures.push((name.to_owned(), drawn)),
                    Err(_) => {
                        differences.push(format!("{chapter}: `{command}` draws no {name}:\n{}", printed.join("\n")))
                    }
                }
                continue;
            }
            // A blank line between two commands is no output.
            while written.last().is_some_and(|line| line.is_empty()) {
                written.pop();
            }
            if written.iter().map(|l| compared(l)).ne(printed.iter().map(|l| compared(l))) {
                differences.push(format!(
                    "{chapter}: `{command}` prints\n{}\nand not\n{}",
                    printed.join("\n"),
                    written.join("\n")
                ));
            }
            for line in &printed {
                made += line;
                made.push('\n');
            }
            if lines.peek().is_some_and(|line| line.starts_with("$ ")) {
                made.push('\n');
            }
        }
    }
    (made, differences, pictures)
}

#[test]
fn the_commands_print_what_the_guide_shows() {
    let folder = repository().join("docs/guide");
    let mut chapters: Vec<PathBuf> =
        std::fs::read_dir(&folder).expect("the guide").map(|entry| entry.expect("a chapter").path()).collect();
    chapters.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    chapters.sort();
    assert!(chapters.len() > 10, "{chapters:?}");

    let write = std::env::var_os("SPANDREL_GUIDE").is_some_and(|value| value == "write");
    let (mut differences, mut commands) = (Vec::new(), 0);
    for path in chapters {
        let text = std::fs::read_to_string(&path).expect("a chapter");
        let name = path.file_name().expect("a name").to_string_lossy();
        let (made, found, pictures) = run(&name, &text);
        commands += text.lines().filter(|line| line.starts_with(PROGRAM)).count();
        if write {
            std::fs::write(&path, made).expect("the chapter can be written");
        } else {
            differences.extend(found);
        }
        for (file, drawn) in pictures {
            let path = repository().join("docs/pictures").join(&file);
            if write {
                std::fs::write(&path, drawn).expect("the picture can be written");
            } else if std::fs::read(&path).ok().as_ref() != Some(&drawn) {
                differences.push(format!("{name}: docs/pictures/{file} is not what its command draws"));
            }
        }
    }
    assert!(commands > 10, "{commands} commands");
    assert!(differences.is_empty(), "{}\nSPANDREL_GUIDE=write writes what is printed", differences.join("\n\n"));
}

#[test]
fn what_may_differ_is_blanked_out() {
    assert_eq!(redacted("machine  cpu: 2 threads"), "machine [machine]");
    assert_eq!(redacted("  profile measured: 33.6 MB"), redacted("  profile scaled: 21.5 MB"));
    assert_ne!(redacted("  profile measured: 33.6 MB"), redacted("  profile calibrated: 33.6 MB"));
    assert_eq!(redacted("read 193 us, analyze 231 us"), "read # #, analyze # #".replace("#,", "#"));
    assert_eq!(
        redacted("converged after 10 iterations: true residual 1.57e-15, asked"),
        "converged after 10 iterations: true residual # asked"
    );
}

#[test]
fn a_wrong_output_is_found() {
    let text = format!("```console\n{PROGRAM}solve poisson2d:4 --max-iters 1\nconverged\n```\n");
    let (made, differences, _) = run("chapter", &text);
    assert_eq!(differences.len(), 1);
    assert!(made.contains("max_iterations after 1") && made.contains("[exit status 3]\n```\n"), "{made}");
    assert!(run("chapter", &made).1.is_empty());
    assert_eq!(run("chapter", "```console\n$ rm -r x\n```\n").1.len(), 1);
}

#[test]
fn a_picture_is_read_or_missed() {
    let text = format!("```console,picture\n{PROGRAM}info poisson2d:4 --spy a.png\n```\n");
    let (made, differences, pictures) = run("chapter", &text);
    assert_eq!((made.as_str(), differences.len(), pictures.len()), (text.as_str(), 0, 1));
    assert!(pictures[0].0 == "a.png" && !pictures[0].1.is_empty());
    let (_, differences, pictures) = run("chapter", &text.replace("--spy a.png", "b.png"));
    assert_eq!((differences.len(), pictures.len()), (1, 0));
}
