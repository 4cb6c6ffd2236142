//! Measures the cost of waits between rows: one solve per plan, compared with the prediction.

use std::sync::Arc;

use spandrel_backend::{Sptrsv, Tri};
use spandrel_formats::generate;
use spandrel_formats::profile::{Levels, Waits};
use spandrel_sptrsv::latency::PLAYED;
use spandrel_sptrsv::{
    Capellini, Diagonal, Latency, Levelset, Plan, Sweep, System, Systems, Triangle, Triangular, View, part,
};

use super::measure::{Measured, credible, nanoseconds};
use crate::Result;

impl Measured {
    /// Solves in which rows wait for each other, by level sets, by one thread per row, and by a sweep.
    pub(super) fn waits<B>(&mut self, device: &B) -> Result<()>
    where
        B: Sptrsv<Levelset<f64>> + Sptrsv<Capellini<f64>> + Sptrsv<Sweep<f64>>,
    {
        let lower = |spec: &str| -> Result<_> {
            let lower = part(&generate::csr::<f64>(spec)?, Triangle::Lower)?;
            Ok(Arc::new(Triangular::new(lower, Triangle::Lower, Diagonal::NonUnit)?))
        };
        let grid = lower("poisson2d:400")?;
        let sweep = Sweep::analyze_for(Arc::clone(&grid), Systems::Plain, &self.profile)?;
        let levels = sweep.lattice().levels();
        self.profile.iteration.level = solved(device, sweep)? / levels as f64;

        let matrix = lower(&format!("random:n={PLAYED},nnz_per_row=6"))?;
        let triangles = &self.profile.triangles;
        let Some(waits) = &triangles.waits else { return Ok(()) };
        let expected = Latency::of(&View::of(&matrix), &triangles.levels, waits)?;
        let by_levels = Levelset::analyze_for(Arc::clone(&matrix), Systems::Plain, &self.profile)?;
        let by_levels = credible(solved(device, by_levels)? / (1000.0 * expected.level_sets));
        let by_threads = Capellini::analyze(matrix, Systems::Plain)?;
        let by_threads = credible(solved(device, by_threads)? / (1000.0 * expected.threads));
        self.scale_waits(by_levels.unwrap_or(1.0), by_threads.unwrap_or(1.0));
        Ok(())
    }

    /// Scales the waits by the ratio of measured to predicted times.
    fn scale_waits(&mut self, by_levels: f64, by_threads: f64) {
        let whole = |nanoseconds: &mut u32, ratio: f64| *nanoseconds = (f64::from(*nanoseconds) * ratio).round() as u32;
        let Levels { level, beside, slice: _, rate: _, change: _, chained, round, link } =
            &mut self.profile.triangles.levels;
        level.iter_mut().chain([beside, chained, round]).for_each(|nanoseconds| *nanoseconds *= by_levels);
        whole(link, by_levels);
        if let Some(Waits { seen, round, end, alone, beside, hop, look, step, inverse }) =
            &mut self.profile.triangles.waits
        {
            [seen, round, end, alone, beside].into_iter().for_each(|nanoseconds| whole(nanoseconds, by_levels));
            [hop, look, step, inverse].into_iter().for_each(|nanoseconds| whole(nanoseconds, by_threads));
        }
        // Rows of a factorisation wait as threads do.
        if let Some(factoring) = &mut self.profile.factoring {
            factoring.hop *= by_threads;
            factoring.shared_term *= by_threads;
        }
    }
}

/// Nanoseconds of a solve by a plan.
fn solved<P: Plan<Value = f64>, B: Sptrsv<P>>(device: &B, plan: P) -> Result<f64> {
    let n = plan.nrows();
    let tri = Tri::load(device, plan)?;
    let (b, mut x) = (device.upload(&vec![1.0; n])?, device.zeros(n)?);
    nanoseconds(device, &mut || tri.sptrsv(device, None, System::Plain, &b, &mut x))
}

#[cfg(test)]
mod tests {
    use spandrel_formats::Profile;

    use super::*;

    #[test]
    fn waits_are_scaled_together() {
        let profile = Profile::invented(&[]);
        let mut measured = Measured::begin(&profile);
        measured.scale_waits(2.0, 3.0);
        let (was, is) = (profile.triangles.waits.unwrap(), measured.profile.triangles.waits.unwrap());
        assert_eq!((is.round, is.hop), (2 * was.round, 3 * was.hop));
        assert_eq!(measured.profile.triangles.levels.link, 2 * profile.triangles.levels.link);
        assert_eq!(measured.profile.factoring.unwrap().hop, 3.0 * profile.factoring.unwrap().hop);
    }
}
