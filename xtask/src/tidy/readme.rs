//! README's commands are run by CI, README and CONTRIBUTING name the same test command, and README's examples are
//! compiled: what a newcomer pastes is what is tested.

use super::{Breach, Tree};
use crate::ci::Step;

/// The file whose examples are doc tests, and hold README's.
const TESTED: &str = "crates/spandrel/README.md";

/// The command that runs all steps.
const ALL: &str = "cargo xtask ci";

/// What may come before it: packages of the distribution.
const PACKAGES: &str = "bash .ci/packages";

/// The command that runs those that test.
const TEST: &str = "cargo xtask test";

/// Pages that name [`TEST`] in a shell block.
const PAGES: [&str; 2] = ["README.md", "CONTRIBUTING.md"];

/// Pages without the test command, commands in README's shell blocks that no step runs, examples that nothing compiles,
/// and a `.ci/run` that does something else than [`ALL`].
pub(crate) fn check(tree: &Tree, steps: &[Step]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let Some(readme) = tree.text("README.md") else {
        return vec![Breach::new("readme", "README.md", "is missing")];
    };
    for page in PAGES {
        let named = commands(tree.text(page).unwrap_or_default()).iter().any(|(_, command)| *command == TEST);
        if !named {
            breaches.push(Breach::new("readme", page, format!("does not name the test command `{TEST}`")));
        }
    }
    for (line, command) in commands(readme) {
        let run = [ALL, TEST].contains(&command) || steps.iter().any(|step| step.command() == Some(command));
        if !run {
            breaches.push(Breach::new("readme", format!("README.md:{line}"), format!("CI does not run `{command}`")));
        }
    }
    let tested = tree.text(TESTED).unwrap_or_default();
    for (line, block) in examples(readme) {
        if !tested.contains(&block) {
            let what = format!("the example is not compiled: it does not stand in {TESTED} word by word");
            breaches.push(Breach::new("readme", format!("README.md:{line}"), what));
        }
    }
    let script = tree.text(".ci/run").unwrap_or_default();
    let body: Vec<&str> = script
        .lines()
        .map(str::trim)
        .filter(|line| {
            !line.is_empty() && !line.starts_with('#') && !line.starts_with("set ") && !line.starts_with("cd ")
        })
        .collect();
    if body != [ALL] && body != [PACKAGES, ALL] {
        breaches.push(Breach::new("readme", ".ci/run", format!("runs something else than `{ALL}`: {body:?}")));
    }
    breaches
}

/// Fences that hold commands, and those (up to a comma: `rust,no_run`) that hold code.
const SHELL: [&str; 4] = ["sh", "bash", "shell", "console"];
const RUST: [&str; 2] = ["rust", "rs"];

/// Blocks of Rust with their fences' lines, each with the number of its first line. Whatever stands behind the comma of
/// a fence (`no_run`, `ignore`) is part of the block, and so must stand in the tested file as well.
fn examples(readme: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut block: Option<(usize, String, bool)> = None;
    for (k, line) in readme.lines().enumerate() {
        match (&mut block, line.strip_prefix("```")) {
            (None, Some(info)) => {
                let language = info.split(',').next().unwrap_or_default().trim();
                block = Some((k + 1, format!("{line}\n"), RUST.contains(&language)));
            }
            (Some((_, text, _)), None) => *text += &format!("{line}\n"),
            (Some((at, text, is_rust)), Some(_)) => {
                if *is_rust {
                    found.push((*at, format!("{text}```\n")));
                }
                block = None;
            }
            (None, None) => {}
        }
    }
    found
}

/// Lines of the shell blocks that call cargo, with their numbers. Remarks behind ` #` are dropped.
fn commands(readme: &str) -> Vec<(usize, &str)> {
    let mut inside = false;
    let mut found = Vec::new();
    for (k, line) in readme.lines().enumerate() {
        if let Some(language) = line.strip_prefix("```") {
            inside = !inside && SHELL.contains(&language.trim());
        } else if inside {
            let line = line.trim_start().trim_start_matches("$ ");
            let command = line.split_once(" #").map_or(line, |(command, _)| command).trim();
            if command.starts_with("cargo ") {
                found.push((k + 1, command));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ci::{What, full};

    const STEPS: &[Step] = &[full("solve", What::Command("cargo run -- solve", &[])), full("tidy", What::Tidy)];
    const README: &str = "# A\n```sh\ncargo run -- solve   # solves\ncargo xtask test\n```\n```rust\nlet a = 1;\n```\n";
    const CONTRIBUTING: &str = "```sh\ncargo xtask test\ncargo xtask ci\n```\n";
    const SCRIPT: &str = "#!/usr/bin/env bash\nset -euo pipefail\ncd \"$(dirname \"$0\")/..\"\ncargo xtask ci\n";

    fn count(readme: &str, script: &str) -> usize {
        let tested = "# spandrel\n```rust\nlet a = 1;\n```\n";
        let files = [("README.md", readme), ("CONTRIBUTING.md", CONTRIBUTING), (".ci/run", script), (TESTED, tested)];
        check(&Tree::of(files), STEPS).len()
    }

    #[test]
    fn commands_that_ci_runs_pass() {
        assert_eq!(count(README, SCRIPT), 0);
    }

    #[test]
    fn each_lack_is_a_breach() {
        assert_eq!(count(&README.replace("-- solve", "-- other"), SCRIPT), 1);
        assert_eq!(count(&README.replace("cargo xtask test", ""), SCRIPT), 1);
        assert_eq!(count(README, &SCRIPT.replace("cargo xtask ci", "cargo xtask test")), 1);
        assert_eq!(count(README, &format!("{SCRIPT}cargo run -- secret\n")), 1);
        assert_eq!(count(README, ""), 1);
        assert_eq!(count(&README.replace("let a = 1", "let a = 2"), SCRIPT), 1);
        assert_eq!(check(&Tree::of([(".ci/run", SCRIPT)]), STEPS).len(), 1);
    }

    #[test]
    fn other_names_of_a_language_are_judged_too() {
        for fence in ["bash", "shell", "console"] {
            assert_eq!(count(&README.replace("```sh", &format!("```{fence}")), SCRIPT), 0, "{fence}");
            let other = README.replace("```sh", &format!("```{fence}")).replace("-- solve", "-- other");
            assert_eq!(count(&other, SCRIPT), 1, "{fence}");
        }
        for fence in ["rust,no_run", "rust,ignore", "rs"] {
            assert_eq!(count(&README.replace("```rust", &format!("```{fence}")), SCRIPT), 1, "{fence}");
        }
    }
}
