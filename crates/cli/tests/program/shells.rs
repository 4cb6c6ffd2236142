//! Shell completions and manual pages.

use super::*;

#[test]
fn every_shell_gets_a_script_with_commands_options_and_names() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell", "BASH"] {
        let output = run(&["completions", shell]);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
        let script = stdout(&output);
        for word in ["spandrel", "solve", "completions", "precond", "reproducible", "max-iters"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
        assert!(!script.contains("tolerance\"") && !script.contains("--tol"), "{shell} offers what does not exist");
    }
    assert_eq!(run(&["completions", "tcsh"]).status.code(), Some(2));
}

#[test]
fn bash_completes_commands_and_names() {
    let folder = Folder::new();
    let script = folder.file("spandrel.bash", &stdout(&run(&["completions", "bash"])));
    let completed = |words: &[&str]| {
        let (last, before) = (words[words.len() - 1], words[words.len() - 2]);
        let text = format!(
            "set -u; source '{script}'; COMP_WORDS=({}); COMP_CWORD={}; _spandrel spandrel '{last}' '{before}'; \
             echo ${{COMPREPLY[@]}}",
            words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
            words.len() - 1
        );
        let output = std::process::Command::new("bash").args(["--norc", "-c", &text]).output().ok()?;
        assert!(output.status.success(), "{}", stderr(&output));
        Some(stdout(&output).trim().to_string())
    };
    let Some(commands) = completed(&["spandrel", "co"]) else {
        eprintln!("skipped: there is no bash");
        return;
    };
    assert_eq!(commands, "convert completions");
    assert_eq!(completed(&["spandrel", "solve", "a.mtx", "--solver", "b"]).unwrap(), "bicgstab");
    assert_eq!(completed(&["spandrel", "solve", "a.mtx", "--precond", "ilu0-j"]).unwrap(), "ilu0-jacobi=3");
}

#[test]
fn there_is_a_page_for_the_program_and_one_for_each_command() {
    let folder = Folder::new();
    let commands = ["solve", "info", "spmv", "convert", "generate", "devices", "completions", "man"];
    let page = stdout(&run(&["man"]));
    assert!(page.contains(".TH spandrel 1 ") && page.contains(".SH NOTES"), "{page}");
    assert!(page.contains("130 ended by Ctrl\\-C"), "{page}");
    let output = run(&["man", "--dir", &text(folder.0.path())]);
    assert_eq!((output.status.code(), stdout(&output).as_str(), stderr(&output).as_str()), (Some(0), "", ""));
    assert_eq!(std::fs::read_to_string(folder.path("spandrel.1")).expect("a page"), page);
    for command in commands {
        assert!(page.contains(&format!("spandrel\\-{command}(1)")), "{command} is missing in {page}");
        let own = stdout(&run(&["man", command]));
        assert!(own.contains(&format!(".TH spandrel-{command} 1 ")), "{own}");
        assert_eq!(std::fs::read_to_string(folder.path(&format!("spandrel-{command}.1"))).expect("a page"), own);
    }
    assert_eq!(std::fs::read_dir(folder.0.path()).expect("a folder").count(), 1 + commands.len());
    let solve = stdout(&run(&["man", "SOLVE"]));
    assert!(solve.contains("\\-\\-precond") && solve.contains("130 ended by Ctrl\\-C"), "{solve}");

    let (code, object) = run_json(&["man", "sovle"]);
    assert_eq!((code, &object["error"]["kind"]), (2, &"usage".into()), "{object}");
    let output = run(&["man", "sovle"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("did you mean solve?"), "{}", stderr(&output));
    assert_eq!(run(&["man", "--dir", &folder.name("absent")]).status.code(), Some(1));
}
