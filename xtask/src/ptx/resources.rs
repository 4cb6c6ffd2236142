//! kernels/resources.txt: what every kernel needs on every generation of devices, as ptxas reports it. No GPU is
//! needed.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::compiler::PTXAS;
use super::parallel;
use super::source::Output;

/// The file.
pub(crate) const FILE: &str = "kernels/resources.txt";

/// The generations: Turing, Ampere, Hopper, Blackwell. Each uses the newest variant that it can run, as in the backend.
const ARCHS: [u32; 4] = [75, 80, 90, 100];

/// For one kernel on one generation: registers per thread, static shared memory, stack and spills in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Usage {
    kernel: String,
    registers: u32,
    shared: u32,
    stack: u32,
    spill_stores: u32,
    spill_loads: u32,
}

/// The table, and the kernels that spill.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) text: String,
    pub(crate) spills: Vec<String>,
}

/// Runs ptxas over all modules for all generations. An item is (description of the module, its text).
pub(crate) fn measure(ptxas: &Path, modules: &[(Output, String)]) -> Result<Table> {
    let folder = std::env::temp_dir().join(format!("spandrel-xtask-ptxas-{}", std::process::id()));
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let table = measure_in(&folder, ptxas, modules);
    fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    table
}

fn measure_in(folder: &Path, ptxas: &Path, modules: &[(Output, String)]) -> Result<Table> {
    for (output, text) in modules {
        fs::write(folder.join(output.name()), text).with_context(|| format!("cannot write to {}", folder.display()))?;
    }
    let outputs: Vec<&Output> = modules.iter().map(|(output, _)| output).collect();
    let runs = runs(&outputs);
    let answers = parallel(&runs, |&(output, arch)| {
        let answer = Command::new(ptxas)
            .args(["-v", &format!("-arch=sm_{arch}"), "-o"])
            .arg(folder.join(format!("{}.{arch}.cubin", output.stem)))
            .arg(folder.join(output.name()))
            .output()
            .with_context(|| format!("cannot start {}", ptxas.display()))?;
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        if !answer.status.success() {
            bail!("ptxas refuses {} for sm_{arch}:\n{said}", output.name());
        }
        parse(&said).with_context(|| format!("ptxas on {} for sm_{arch}", output.name()))
    });
    let mut rows = Vec::new();
    for ((output, arch), usages) in runs.iter().zip(answers) {
        rows.extend(usages?.into_iter().map(|usage| (output.stem.clone(), usage.kernel.clone(), *arch, usage)));
    }
    rows.sort_by(|a, b| (&a.0, &a.1, a.2).cmp(&(&b.0, &b.1, b.2)));
    Ok(table(rows.into_iter().map(|(_, _, arch, usage)| (arch, usage))))
}

/// Each module with the generations that use it.
fn runs<'a>(outputs: &[&'a Output]) -> Vec<(&'a Output, u32)> {
    let mut runs = Vec::new();
    for output in outputs {
        let newer = |arch| outputs.iter().any(|o| o.stem == output.stem && o.arch > output.arch && o.arch <= arch);
        runs.extend(ARCHS.into_iter().filter(|&arch| output.arch <= arch && !newer(arch)).map(|arch| (*output, arch)));
    }
    runs
}

fn table(rows: impl Iterator<Item = (u32, Usage)>) -> Table {
    let mut table = Table {
        text: format!(
            "# Registers a thread, then bytes of static shared memory, of stack, of spill stores and loads; ptxas {PTXAS} -v.\n\
             # Written by `cargo xtask ptx`.\n{:40} {:6} {:>9} {:>6} {:>5} {:>6} {:>5}\n",
            "kernel", "arch", "registers", "shared", "stack", "stores", "loads"
        ),
        spills: Vec::new(),
    };
    for (arch, usage) in rows {
        let Usage { kernel, registers, shared, stack, spill_stores, spill_loads } = usage;
        let arch = format!("sm_{arch}");
        _ = writeln!(
            table.text,
            "{kernel:40} {arch:6} {registers:9} {shared:6} {stack:5} {spill_stores:6} {spill_loads:5}"
        );
        if spill_stores + spill_loads > 0 {
            table.spills.push(format!("{kernel} spills on {arch}: {spill_stores} bytes stored, {spill_loads} loaded"));
        }
    }
    table
}

/// The output of `ptxas -v`: an entry's own lines, then those of functions that were not inlined into it.
fn parse(said: &str) -> Result<Vec<Usage>> {
    let mut usages: Vec<Usage> = Vec::new();
    for line in said.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let kernel = rest.split('\'').next().unwrap_or_default().to_owned();
            usages.push(Usage { kernel, ..Usage::default() });
        }
        let Some(usage) = usages.last_mut() else { continue };
        let line = line.split_once(" : ").map_or(line, |(_, rest)| rest).trim();
        for part in line.trim_start_matches("Used ").split(", ") {
            let Some((number, what)) = part.split_once(' ') else { continue };
            let Ok(number) = number.parse::<u32>() else { continue };
            match what {
                "registers" => usage.registers = number,
                "bytes smem" => usage.shared = number,
                "bytes stack frame" => usage.stack += number,
                "bytes spill stores" => usage.spill_stores += number,
                "bytes spill loads" => usage.spill_loads += number,
                _ => {}
            }
        }
    }
    ensure!(
        !usages.is_empty() && usages.iter().all(|usage| usage.registers > 0),
        "it says nothing of registers:\n{said}"
    );
    Ok(usages)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'spmv_csr_f64' for 'sm_90'
ptxas info    : Function properties for spmv_csr_f64
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 16 bytes cumulative stack size, 8208 bytes smem, 424 bytes cmem[0]
ptxas info    : Function properties for _Z3addv
    8 bytes stack frame, 4 bytes spill stores, 0 bytes spill loads
ptxas info    : Compile time = 12.719 ms
ptxas info    : Compiling entry function 'spmv_csr_f32' for 'sm_90'
ptxas info    : Function properties for spmv_csr_f32
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 17 registers, used 0 barriers
";

    #[test]
    fn the_words_of_ptxas_are_read() {
        let usages = parse(SAID).expect("two kernels");
        let first = Usage {
            kernel: "spmv_csr_f64".into(),
            registers: 40,
            shared: 8208,
            stack: 24,
            spill_stores: 12,
            spill_loads: 12,
        };
        assert_eq!(usages[0], first);
        assert_eq!(usages[1], Usage { kernel: "spmv_csr_f32".into(), registers: 17, ..Usage::default() });
        assert!(parse("ptxas info    : 0 bytes gmem\n").is_err());
    }

    #[test]
    fn a_spill_is_named() {
        let table = table(parse(SAID).expect("two kernels").into_iter().map(|usage| (90, usage)));
        assert_eq!(table.spills.len(), 1);
        assert!(table.spills[0].contains("spmv_csr_f64 spills on sm_90"), "{}", table.spills[0]);
        assert_eq!(table.text.lines().count(), 5);
    }

    #[test]
    fn a_generation_takes_the_newest_variant_that_it_runs() {
        let output = |stem: &str, arch| Output { source: String::new(), stem: stem.into(), arch };
        let (csr, newer, dia) = (output("csr", 75), output("csr", 90), output("dia", 75));
        let runs: Vec<(String, u32)> =
            runs(&[&csr, &newer, &dia]).into_iter().map(|(o, arch)| (o.name(), arch)).collect();
        let expected = [
            ("csr.ptx", 75),
            ("csr.ptx", 80),
            ("csr.sm_90.ptx", 90),
            ("csr.sm_90.ptx", 100),
            ("dia.ptx", 75),
            ("dia.ptx", 80),
            ("dia.ptx", 90),
            ("dia.ptx", 100),
        ];
        assert_eq!(runs, expected.map(|(name, arch)| (name.to_owned(), arch)));
    }
}
