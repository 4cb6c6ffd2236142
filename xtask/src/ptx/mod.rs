//! `cargo xtask ptx`: compiles the kernels to the committed PTX, with one release of one compiler.
//!
//! It needs and uses no GPU. docs/adr/0015 says why the PTX is committed.

mod compiler;
mod install;
mod resources;
mod source;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use cargo_metadata::MetadataCommand;
use clap::Args;

use compiler::Compiler;
pub(crate) use source::{KERNELS, PTX, Sources, head_lines, sum};
use source::{Output, texts};

/// The options. Without any, everything is built and written.
#[derive(Args, Clone, Debug, Default)]
#[group(multiple = false)]
pub(crate) struct Options {
    /// Write nothing; fail if a committed file is not what its source gives
    #[arg(long)]
    check: bool,
    /// Install the pinned NVRTC and ptxas into the folder `cuda` of cargo's target folder, with python3 and pip
    #[arg(long)]
    install: bool,
    /// Print the SHA-256 over all committed PTX, which records of measurements contain
    #[arg(long)]
    hash: bool,
    /// Only write kernels/resources.txt, from the committed PTX
    #[arg(long)]
    resources: bool,
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    if options.hash {
        let committed = texts(root, PTX)?;
        println!("{}", sum(committed.iter().map(|(name, text)| (name.as_str(), text.as_str()))));
        return Ok(ExitCode::SUCCESS);
    }
    let tools = tools(root)?;
    if options.install {
        install::install(&tools)?;
        return Ok(ExitCode::SUCCESS);
    }
    // The compiler writes paths as they are given to it.
    std::env::set_current_dir(root).with_context(|| format!("cannot enter {}", root.display()))?;
    let sources = Sources::read(root)?;
    let outputs = sources.outputs()?;
    let faults = if options.check {
        check(root, &tools, &sources, &outputs)?
    } else if options.resources {
        write_resources(&compiler::ptxas(&tools)?, &committed(&texts(root, PTX)?, &outputs))?
    } else {
        write(root, &tools, &sources, &outputs)?
    };
    for fault in &faults {
        eprintln!("{fault}");
    }
    println!("ptx: {} kernel files, {} modules, {} faults", sources.kernels().count(), outputs.len(), faults.len());
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The folder of the pinned compilers.
fn tools(root: &Path) -> Result<PathBuf> {
    let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec()?;
    Ok(metadata.target_directory.join("cuda").into())
}

/// All modules, with their heads.
fn build(compiler: &Compiler, sources: &Sources, outputs: &[Output]) -> Result<Vec<(Output, String)>> {
    let texts = parallel(outputs, |output| {
        let text = compiler.compile(output, sources.text(&output.source).unwrap_or_default())?;
        Ok((output.clone(), format!("{}{text}", sources.head(output))))
    });
    texts.into_iter().collect()
}

/// The committed modules.
fn committed(files: &BTreeMap<String, String>, outputs: &[Output]) -> Vec<(Output, String)> {
    let found = outputs.iter().filter_map(|output| Some((output.clone(), files.get(&output.name())?.clone())));
    found.collect()
}

fn write(root: &Path, tools: &Path, sources: &Sources, outputs: &[Output]) -> Result<Vec<String>> {
    let modules = build(&Compiler::find(tools)?, sources, outputs)?;
    let before = texts(root, PTX)?;
    fs::create_dir_all(PTX).with_context(|| format!("cannot make {PTX}"))?;
    for (output, text) in &modules {
        // An unchanged file keeps its time, so that what embeds it is not built again.
        if before.get(&output.name()) != Some(text) {
            let path = format!("{PTX}{}", output.name());
            fs::write(&path, text).with_context(|| format!("cannot write {path}"))?;
            println!("{path}");
        }
    }
    let mut faults = orphans(&before, outputs);
    match compiler::ptxas(tools) {
        Ok(ptxas) => faults.extend(write_resources(&ptxas, &modules)?),
        Err(absent @ compiler::Error::Absent { .. }) => {
            eprintln!("{} WAS NOT WRITTEN: {absent}", resources::FILE);
        }
        Err(error) => return Err(error.into()),
    }
    Ok(faults)
}

fn write_resources(ptxas: &Path, modules: &[(Output, String)]) -> Result<Vec<String>> {
    let table = resources::measure(ptxas, modules)?;
    fs::write(resources::FILE, &table.text).with_context(|| format!("cannot write {}", resources::FILE))?;
    Ok(table.spills)
}

fn check(root: &Path, tools: &Path, sources: &Sources, outputs: &[Output]) -> Result<Vec<String>> {
    let files = texts(root, PTX)?;
    let mut faults = Vec::new();
    let modules = match Compiler::find(tools) {
        Ok(compiler) => {
            let modules = build(&compiler, sources, outputs)?;
            faults.extend(differences(&files, &modules, |ours, committed| ours == committed));
            modules
        }
        Err(absent @ compiler::Error::Absent { .. }) => {
            eprintln!("THE PTX WAS NOT REBUILT, only the sums of its sources were compared: {absent}");
            let heads: Vec<_> = outputs.iter().map(|output| (output.clone(), sources.head(output))).collect();
            faults.extend(differences(&files, &heads, |head, committed| committed.starts_with(head)));
            committed(&files, outputs)
        }
        Err(error) => return Err(error.into()),
    };
    match compiler::ptxas(tools) {
        Ok(ptxas) => {
            let table = resources::measure(&ptxas, &modules)?;
            if fs::read_to_string(resources::FILE).ok().as_deref() != Some(&table.text) {
                faults.push(format!("{}: differs; `cargo xtask ptx` writes it", resources::FILE));
            }
            faults.extend(table.spills);
        }
        Err(absent @ compiler::Error::Absent { .. }) => {
            eprintln!("{} WAS NOT COMPARED: {absent}", resources::FILE);
        }
        Err(error) => return Err(error.into()),
    }
    Ok(faults)
}

/// Committed files that are missing, that nothing expects, or that differ from what is expected.
fn differences(
    files: &BTreeMap<String, String>,
    expected: &[(Output, String)],
    equal: impl Fn(&str, &str) -> bool,
) -> Vec<String> {
    let mut faults = Vec::new();
    for (output, text) in expected {
        let name = output.name();
        match files.get(&name) {
            None => faults.push(format!("{PTX}{name}: missing; `cargo xtask ptx` writes it from {}", output.source)),
            Some(committed) if !equal(text, committed) => {
                faults.push(format!("{PTX}{name}: not what {} gives; `cargo xtask ptx` writes it", output.source));
            }
            Some(_) => {}
        }
    }
    faults.extend(orphans(files, expected.iter().map(|(output, _)| output)));
    faults
}

/// Committed files that no source compiles to.
fn orphans<'a>(files: &BTreeMap<String, String>, outputs: impl IntoIterator<Item = &'a Output>) -> Vec<String> {
    let names: Vec<String> = outputs.into_iter().map(Output::name).collect();
    let orphans = files.keys().filter(|name| !names.contains(name));
    orphans
        .map(|name| {
            format!("{PTX}{name}: no source asks for it: delete it, or write `// Variants: sm_90` into the head")
        })
        .collect()
}

/// The results of `work` for each item, in order, on as many threads as there are cores.
fn parallel<I: Sync, O: Send>(items: &[I], work: impl Fn(&I) -> O + Sync) -> Vec<O> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(items.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((k, item)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|k| Some((k, items.get(k)?)))
                {
                    let result = work(item);
                    done.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((k, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    done.sort_by_key(|(k, _)| *k);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_too_many_too_few_or_changed_is_a_fault() {
        let output = |stem: &str| Output { source: format!("kernels/{stem}.cu"), stem: stem.into(), arch: 75 };
        let expected = [(output("csr"), "a".to_owned()), (output("dia"), "b".to_owned())];
        let faults = |files: &[(&str, &str)]| {
            let files = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
            differences(&files, &expected, |ours, committed| ours == committed)
        };
        assert!(faults(&[("csr.ptx", "a"), ("dia.ptx", "b")]).is_empty());
        assert!(faults(&[("csr.ptx", "c"), ("dia.ptx", "b")])[0].contains("csr.ptx: not what"));
        assert!(faults(&[("dia.ptx", "b")])[0].contains("csr.ptx: missing"));
        assert!(faults(&[("csr.ptx", "a"), ("dia.ptx", "b"), ("ell.ptx", "")])[0].contains("ell.ptx: no source asks"));
    }

    #[test]
    fn results_keep_their_order() {
        let items: Vec<usize> = (0..100).collect();
        assert_eq!(parallel(&items, |item| item * 2), (0..200).step_by(2).collect::<Vec<_>>());
        assert!(parallel(&[] as &[usize], |item| *item).is_empty());
    }
}
