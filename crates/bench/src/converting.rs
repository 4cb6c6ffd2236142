//! `spandrel-bench convert`.

use anyhow::{Result, bail};
use clap::Args;
use serde_json::Value;
use spandrel_bench::gpu::spmv::error_line;
use spandrel_bench::gpu::{Gpu, convert};

use super::{Backend, Common, Device};

/// The formats that are made on the device, and CSR for a matrix that is used in place.
const FORMATS: [&str; 7] = ["coo", "ell", "sell", "dia", "bdia", "hyb", "csr"];

#[derive(Debug, Args)]
pub(crate) struct Contest {
    #[command(flatten)]
    common: Common,
    /// Formats, comma separated (default: all that are made on the device, and csr, wrapped)
    #[arg(long, value_delimiter = ',')]
    formats: Vec<String>,
    /// Element types, comma separated
    #[arg(long, value_delimiter = ',', default_value = "f64")]
    types: Vec<String>,
    #[command(flatten)]
    device: Device,
}

pub(crate) fn run(contest: &Contest) -> Result<()> {
    let Contest { common, formats, types, device } = contest;
    if device.backend != Backend::Cuda {
        bail!("conversions are timed on a GPU: --backend cuda");
    }
    if let Some(other) = formats.iter().find(|format| !FORMATS.contains(&format.as_str())) {
        bail!("no format that is made on the device is called {other}: {}", FORMATS.join(", "));
    }
    common.output.pool()?;
    let (gpu, provenance) = (Gpu::open()?, device.provenance());
    // Report a hash that does not fit before the work begins.
    gpu.header(&provenance, None)?;
    let plan = convert::Plan {
        formats: formats.clone(),
        effort: common.output.effort(device.backend),
        room: gpu.room(device.max_gib, device.group_gib)?,
    };
    let mut lines: Vec<Value> = Vec::new();
    for case in common.cases()? {
        for element in types {
            eprintln!("{} {element}", case.name);
            let found = match element.as_str() {
                "f32" => convert::run::<f32>(&gpu, &case, &plan),
                "f64" => convert::run::<f64>(&gpu, &case, &plan),
                other => bail!("no element type is called {other}: f32, f64"),
            };
            match found {
                Ok(more) => lines.extend(more),
                Err(why) => {
                    eprintln!("  left out: {why:#}");
                    lines.push(error_line("convert", "case", element, "spandrel", &case.name, &format!("{why:#}")));
                }
            }
            gpu.check()?;
            common.output.save(&gpu.header(&provenance, None)?, &lines)?;
        }
    }
    println!("{}", convert::table(&lines, false));
    for error in lines.iter().filter(|line| line.get("error").is_some()) {
        println!("left out: {} {}: {}", error["case"], error["noun"], error["error"]);
    }
    super::write_markdown(&common.output, &convert::table(&lines, true))
}
