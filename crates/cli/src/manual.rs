//! `spandrel completions` and `spandrel man`: shell completions and manual pages, written from the definition of the
//! command line.

use std::io;
use std::path::PathBuf;

use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Cli;
use crate::failure::{Failure, Result};
use crate::names;
use crate::output::{self, Target};

/// Print a script that completes this program's commands, options and names in a shell.
///
/// bash: write it to ~/.local/share/bash-completion/completions/spandrel
///
/// zsh: write it to _spandrel in a folder of $fpath
///
/// fish: write it to ~/.config/fish/completions/spandrel.fish
///
/// PowerShell and elvish: append it to $PROFILE or rc.elv
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum, ignore_case = true)]
    shell: Shell,
}

/// Print the manual page of the program or of one of its commands.
///
/// Read it with `spandrel man solve | man -l -`, or install all pages with `spandrel man --dir
/// ~/.local/share/man/man1`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The command whose page to print, such as solve. Default: the page of the program.
    #[arg(value_name = "COMMAND")]
    of: Option<String>,
    /// Write every page into this folder, as spandrel.1, spandrel-solve.1 and so on.
    #[arg(long, value_name = "FOLDER", conflicts_with = "of", value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,
}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<()> {
    let mut command = Cli::command();
    let name = command.get_name().to_string();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

pub(crate) fn man(args: &ManArgs) -> Result<()> {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    if let Some(folder) = &args.dir {
        let commands = std::iter::once(&program).chain(program.get_subcommands());
        for command in commands.filter(|command| !command.is_hide_set()) {
            let target = Target::check(&folder.join(format!("{}.1", page_name(command))))?;
            target.write(page(command)?.as_bytes())?;
        }
        return Ok(());
    }
    let Some(wanted) = &args.of else { return output::print(&page(&program)?) };
    let found = program.get_subcommands().find(|command| command.get_name().eq_ignore_ascii_case(wanted));
    let command = found.ok_or_else(|| {
        let names: Vec<&str> = program.get_subcommands().map(Command::get_name).collect();
        let nearest = names::did_you_mean(wanted, names.iter().copied());
        Failure::new(crate::USAGE, format!("there is no command {wanted}; there are {}{nearest}", names.join(", ")))
    })?;
    output::print(&page(command)?)
}

/// `spandrel-solve`.
fn page_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

/// The page in troff.
fn page(command: &Command) -> Result<String> {
    let mut text = Vec::new();
    let refuse = |error: io::Error| Failure::new("io", format!("cannot write the manual page: {error}"));
    let source = format!("spandrel {}", env!("CARGO_PKG_VERSION"));
    Man::new(command.clone()).source(source).manual("Spandrel").render(&mut text).map_err(refuse)?;
    // What `man` calls a section of remarks.
    Ok(String::from_utf8_lossy(&text).replace(".SH EXTRA", ".SH NOTES"))
}
