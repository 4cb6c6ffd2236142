//! `cargo xtask soak`: builds the conformance suite in release and runs its soak.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::verify;

/// What the soak is asked to do; passed through to it.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Backend: cpu or cuda
    #[arg(long, default_value = "cpu")]
    backend: String,
    /// How long
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Seed of every case; the clock's where it is not given
    #[arg(long)]
    seed: Option<u64>,
    /// Number of the first case
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// So many cases at most
    #[arg(long)]
    cases: Option<u64>,
}

impl Options {
    fn arguments(&self) -> Vec<OsString> {
        let mut words = vec!["soak".to_owned(), "--backend".to_owned(), self.backend.clone()];
        words.extend(["--minutes".to_owned(), self.minutes.to_string(), "--from".to_owned(), self.from.to_string()]);
        words.extend(self.seed.into_iter().flat_map(|seed| ["--seed".to_owned(), seed.to_string()]));
        words.extend(self.cases.into_iter().flat_map(|cases| ["--cases".to_owned(), cases.to_string()]));
        words.into_iter().map(OsString::from).collect()
    }
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    verify::start(&verify::build(root)?, options.arguments())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_passed_through() {
        let options = Options { backend: "cuda".into(), minutes: 2.5, seed: Some(7), from: 3, cases: Some(1) };
        let words = "soak --backend cuda --minutes 2.5 --from 3 --seed 7 --cases 1";
        assert_eq!(options.arguments(), words.split(' ').map(OsString::from).collect::<Vec<_>>());
    }
}
