//! The library's side of a contest: its products and its form of the triangles.

use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, Result};
use spandrel_backend::Backend;
use spandrel_backend_cuda::Vector;

use super::peer::{Given, Peer};
use super::triangles::{Parts, Way};
use super::{Entry, Line, Setup, Underway, boxed, set_up, shifted};
use crate::gpu::cg::{Libraries, algorithms_by_speed};
use crate::gpu::cusparse::{Algorithm, Forms};
use crate::krylov::Method;

/// Of algorithms sorted by speed, the fastest, and the fastest that needs only the matrix's rows.
fn taken(ranked: &[Algorithm]) -> Vec<Algorithm> {
    let of_rows = ranked.iter().find(|algorithm| algorithm.takes_rows());
    let mut taken: Vec<Algorithm> = ranked.first().into_iter().chain(of_rows).copied().collect();
    taken.dedup();
    taken
}

impl<'a> Underway<'a> {
    /// The peer with each of its products and the faster form of its triangles.
    pub(super) fn add_peers(&mut self, method: Method, shift: f64, entries: &mut Vec<Entry<'a>>) {
        let Some(libraries) = self.libraries else { return };
        let line = Line { shift, ..self.line(method, "cusparse+cublas", "f64") };
        let known = self.products(libraries).and_then(|algorithms| {
            let first = *algorithms.first().context("a product to solve with")?;
            Ok((self.way(libraries, method, shift, first)?, algorithms))
        });
        let (way, algorithms) = match known {
            Ok(known) => known,
            Err(why) => return entries.push(self.failed(line, &why)),
        };
        for algorithm in algorithms {
            let line = line.clone();
            match self.peer(libraries, method, shift, (algorithm, way)) {
                Ok((peer, setup, kernel)) => {
                    let mut entry = self.judged(Line { kernel, ..line }, &setup, boxed(Ok(peer)));
                    entry.line.setup_resident_ms = setup.part("transfer").map(|transfer| setup.total() - transfer);
                    entries.push(entry);
                }
                Err(why) => entries.push(self.failed(line, &why)),
            }
        }
    }

    /// The algorithms of the product, determined once per matrix.
    fn products(&mut self, libraries: &Libraries) -> Result<Vec<Algorithm>> {
        if self.algorithms.is_empty() {
            let (gpu, csr) = (self.gpu, &self.csr);
            let y: Vector<f64> = gpu.be.zeros(self.b.len())?;
            let at = [self.b.device_pointer(), y.device_pointer()];
            let forms = Forms::new(gpu, csr);
            let ranked = algorithms_by_speed(gpu, &libraries.cusparse, &forms, at, |algorithm, why| {
                eprintln!("  {} {}: {why:#}", algorithm.noun(), algorithm.kernel());
            })?;
            self.algorithms = taken(&ranked);
        }
        Ok(self.algorithms.clone())
    }

    fn given<'c>(
        &self,
        libraries: &'a Libraries,
        csr: &'c spandrel_formats::Csr<f64>,
        (method, shift): (Method, f64),
        (algorithm, way): (Algorithm, Way),
    ) -> Result<Given<'a, 'c>> {
        let gpu = self.gpu;
        let shifted = if shift > 0.0 { Some(gpu.be.upload(&shifted(csr, shift))?) } else { None };
        let parts = if way == Way::Split { Some(Parts::new(gpu, csr, method)?) } else { None };
        Ok(Given { gpu, libraries, method, csr, shifted, algorithm, parts, b: Rc::clone(&self.b) })
    }

    /// The faster form of the triangles.
    fn way(&self, libraries: &'a Libraries, method: Method, shift: f64, algorithm: Algorithm) -> Result<Way> {
        let mut best: Option<(f64, Way)> = None;
        let mut failure = None;
        for way in Way::ALL {
            let ms = self
                .given(libraries, &self.csr, (method, shift), (algorithm, way))
                .and_then(|given| Peer::new(&given, self.limits))
                .and_then(|(peer, _)| peer.application_ms());
            match ms {
                Ok(ms) if best.is_none_or(|(least, _)| ms < least) => best = Some((ms, way)),
                Ok(_) => {}
                Err(why) => failure = Some(why),
            }
        }
        match (best, failure) {
            (Some((_, way)), _) => Ok(way),
            (None, failure) => Err(failure.context("no way to try")?),
        }
    }

    fn peer(
        &self,
        libraries: &'a Libraries,
        method: Method,
        shift: f64,
        (algorithm, way): (Algorithm, Way),
    ) -> Result<(Peer<'a>, Setup, String)> {
        let csr = Arc::clone(&self.csr);
        let given = self.given(libraries, &csr, (method, shift), (algorithm, way))?;
        let (peer, setup) = set_up(|| Peer::new(&given, self.limits))?;
        let captured = if peer.is_captured() { "graph" } else { "no graph" };
        let product = format!("{} {}", algorithm.noun(), algorithm.kernel());
        Ok((peer, setup, format!("{product}, SpSV of triangles {}, {captured}", way.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_own_product_takes_part() {
        use Algorithm::{Coo1, Csr1, Csr2, Sell1};
        assert_eq!(taken(&[Sell1, Csr2, Coo1, Csr1]), [Sell1, Csr2]);
        assert_eq!(taken(&[Csr2, Sell1, Csr1]), [Csr2]);
        assert_eq!(taken(&[Coo1, Sell1]), [Coo1], "where neither runs");
        assert!(taken(&[]).is_empty());
    }
}
