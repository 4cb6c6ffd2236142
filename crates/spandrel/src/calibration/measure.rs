//! Measures the numbers of a device's profile: rates, calls, products of each format, and waits in triangular solves.
//!
//! A model of a product has more terms than one measurement can separate, so the terms keep the proportions of the
//! present profile. A product of a few rows gives the call. One that fits a cache gives the rows and places. One that
//! does not gives the share of the memory's rate. Waits are scaled by the ratio of the measured and the predicted time
//! of a solve. What is not measured stays as it was.

use std::hint::black_box;
use std::time::{Duration, Instant};

use spandrel_backend::{Backend, Coeff, Mat, Spmv};
use spandrel_formats::choose::choose;
use spandrel_formats::profile::{Cost, Origin, Work};
use spandrel_formats::{Csr, Format, Profile, generate};
use spandrel_sptrsv::{Factor, Ilu0};

use crate::Result;
use crate::any::{AnyBackend, EveryFormat};

/// No measurement begins after this time; each takes a fraction of a second.
const PATIENCE: Duration = Duration::from_secs(8);
/// The minimum time of a run of calls, so that the clock and the wait for the device are a small part of it.
const RUN: Duration = Duration::from_millis(2);
/// The number of runs; the median counts.
const RUNS: usize = 5;
/// The maximum number of calls per run.
const CALLS: usize = 1 << 14;
/// The minimum and maximum bytes of a vector that no cache can hold together with another one.
const STREAMED: [u64; 2] = [32 << 20, 256 << 20];
/// The range of a credible ratio to the old number. A ratio outside it means a disturbed measurement.
const CREDIBLE: [f64; 2] = [0.02, 50.0];

/// Measures the device on this machine within about ten seconds, and returns its profile with the new numbers. Blocks.
///
/// Nothing is stored ([`super::store`] does that).
///
/// # Errors
/// A device that fails, or has no room for some hundred megabytes.
pub fn calibrate(device: &AnyBackend) -> Result<Profile> {
    let mut measured = Measured::begin(device.profile());
    measured.host()?;
    match device {
        #[cfg(feature = "cpu")]
        AnyBackend::Cpu(_) => {
            // The costs in a CPU's profile are those of one core.
            let core = crate::Cpu::with_threads(1)?;
            measured.memory(&core)?;
            // A CPU is its own host.
            measured.profile.host.nanoseconds_per_byte = measured.profile.memory.nanoseconds_per_byte;
            if let Some(&last) = measured.profile.memory.caches.last() {
                measured.profile.memory.resident = last;
            }
            measured.products(&core)?;
        }
        #[cfg(feature = "cuda-core")]
        AnyBackend::Cuda(cuda) => {
            measured.memory(cuda)?;
            measured.bus(cuda)?;
            measured.products(cuda)?;
            measured.waits(cuda)?;
        }
    }
    measured.profile.origin = Origin::Calibrated;
    Ok(measured.profile)
}

/// The profile as measured so far.
pub(super) struct Measured {
    pub(super) profile: Profile,
    begin: Instant,
}

/// Nanoseconds per call of work that a device may do asynchronously.
pub(super) fn nanoseconds<B: Backend<f64>>(
    device: &B,
    work: &mut dyn FnMut() -> spandrel_backend::Result<()>,
) -> Result<f64> {
    let mut run = |calls: usize| -> Result<Duration> {
        device.synchronize()?;
        let begin = Instant::now();
        (0..calls).try_for_each(|_| work())?;
        device.synchronize()?;
        Ok(begin.elapsed())
    };
    // The first use loads kernels and touches buffers.
    run(1)?;
    let mut calls = 1;
    while run(calls)? < RUN && calls < CALLS {
        calls *= 2;
    }
    let mut times: Vec<f64> =
        (0..RUNS).map(|_| Ok(run(calls)?.as_nanos() as f64 / calls as f64)).collect::<Result<_>>()?;
    times.sort_by(f64::total_cmp);
    Ok(times[RUNS / 2])
}

/// A ratio, if it is credible.
pub(super) fn credible(ratio: f64) -> Option<f64> {
    (CREDIBLE[0]..=CREDIBLE[1]).contains(&ratio).then_some(ratio)
}

/// A matrix, with the work of its product in each format.
struct Sample {
    csr: Csr<f64>,
    choice: spandrel_formats::Choice,
}

impl Sample {
    fn of(spec: &str, profile: &Profile) -> Result<Self> {
        let csr = generate::csr::<f64>(spec)?;
        let choice = choose(&csr, profile);
        Ok(Self { csr, choice })
    }

    /// The work of a product in a format, and its time in nanoseconds; `None` if the matrix does not fit.
    fn timed<F: Format<Value = f64>, B: Spmv<F>>(&self, device: &B) -> Result<Option<(Work, f64)>> {
        let Some(candidate) = self.choice.candidate(F::NAME).filter(|candidate| candidate.spmv.is_ok()) else {
            return Ok(None);
        };
        let Ok(stored) = F::from_csr(&self.csr) else { return Ok(None) };
        let (rows, columns) = (self.csr.nrows(), self.csr.ncols());
        let work = Work {
            rows: rows as u64,
            places: candidate.places,
            entries: self.csr.nnz() as u64,
            bytes: candidate.moved,
            // Short compared with the bytes of a large matrix, and a core has no chains.
            chain: 0,
        };
        let a = Mat::load(device, stored)?;
        let (x, mut y) = (device.upload(&vec![1.0; columns])?, device.zeros(rows)?);
        let mut product = || a.spmv(device, None, Coeff::one(), &x, Coeff::zero(), &mut y);
        let time = nanoseconds(device, &mut product)?;
        Ok(Some((work, time)))
    }
}

impl Measured {
    pub(super) fn begin(profile: &Profile) -> Self {
        Self { profile: profile.clone(), begin: Instant::now() }
    }

    fn has_time(&self) -> bool {
        self.begin.elapsed() < PATIENCE
    }

    /// One core of the host: its rate, and the price of a factorisation.
    fn host(&mut self) -> Result<()> {
        let n = (STREAMED[0] / 8) as usize;
        let (x, mut y) = (vec![1.0f64; n], vec![0.0f64; n]);
        let mut times: Vec<f64> = (0..RUNS)
            .map(|_| {
                let begin = Instant::now();
                y.iter_mut().zip(black_box(&x)).for_each(|(y, x)| *y += 0.5 * x);
                black_box(&mut y);
                begin.elapsed().as_nanos() as f64
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let host = &mut self.profile.host;
        host.nanoseconds_per_byte = times[RUNS / 2] / (24 * n) as f64;

        let a = generate::csr::<f64>("d3n7:24")?;
        let factor = Ilu0::symbolic(&a)?;
        let mut times = Vec::with_capacity(RUNS);
        for _ in 0..RUNS {
            let begin = Instant::now();
            black_box(factor.numeric(a.values())?);
            times.push(begin.elapsed().as_nanos() as f64);
        }
        times.sort_by(f64::total_cmp);
        let expected = 1000.0 * spandrel_sptrsv::Numeric::of(&factor, &self.profile).host;
        if let Some(ratio) = credible(times[RUNS / 2] / expected) {
            let host = &mut self.profile.host;
            (host.entry, host.term) = (ratio * host.entry, ratio * host.term);
        }
        Ok(())
    }

    /// y <- a x + b y of vectors that do not fit a cache.
    fn memory<B: Backend<f64>>(&mut self, device: &B) -> Result<()> {
        let bytes = (2 * self.profile.memory.resident).clamp(STREAMED[0], STREAMED[1]);
        let n = (bytes / 8) as usize;
        let (x, mut y) = (device.upload(&vec![1.0; n])?, device.zeros(n)?);
        let half = Coeff::host(0.5);
        let time = nanoseconds(device, &mut || device.axpby(None, half, &x, half, &mut y))?;
        self.profile.memory.nanoseconds_per_byte = time / (24 * n) as f64;
        Ok(())
    }

    /// The rate from the host to the device.
    #[cfg(feature = "cuda-core")]
    fn bus<B: Backend<f64>>(&mut self, device: &B) -> Result<()> {
        let host = vec![1.0f64; (STREAMED[0] / 8) as usize];
        let mut to = device.upload(&host)?;
        let time = nanoseconds(device, &mut || device.write(&host, &mut to))?;
        self.profile.iteration.bus = time / STREAMED[0] as f64;
        Ok(())
    }

    /// Each format's product of a few rows, of what fits a cache, and of what does not.
    fn products<B: EveryFormat<f64>>(&mut self, device: &B) -> Result<()> {
        let resident = self.profile.memory.resident;
        // 12 bytes per entry, of which a row has 7, and some for the vectors.
        let side = |bytes: u64| ((bytes / 100).clamp(4000, 2_000_000) as f64).cbrt() as usize;
        let few = Sample::of("poisson1d:4", &self.profile)?;
        let cached = Sample::of(&format!("d3n7:{}", side(resident / 8)), &self.profile)?;
        let large = Sample::of(&format!("d3n7:{}", side(3 * resident)), &self.profile)?;
        let samples = [&few, &cached, &large];
        macro_rules! formats {
            ([] $(($stem:ident, $Type:ident)),*) => {
                $(self.product::<spandrel_formats::$Type<f64>, B>(device, samples)?;)*
            };
        }
        spandrel_formats::for_each_format!(formats);
        if let Some(csr) = self.profile.products.csr.filter(|_| self.profile.iteration.call > 0.0) {
            self.profile.iteration.call = csr.call;
        }
        Ok(())
    }

    fn product<F: Format<Value = f64>, B: Spmv<F>>(&mut self, device: &B, samples: [&Sample; 3]) -> Result<()> {
        let [few, cached, large] = samples;
        let Some(mut cost) = self.profile.products.cost(F::NAME) else { return Ok(()) };
        if !self.has_time() {
            return Ok(());
        }
        let walked = |cost: &Cost, work: Work| cost.row * work.rows as f64 + cost.place * work.places as f64;
        if let Some((work, time)) = few.timed::<F, B>(device)? {
            cost.call = (time - walked(&cost, work)).max(0.0);
        }
        if walked(&cost, Work { rows: 1, places: 1, entries: 1, bytes: 0, chain: 0 }) > 0.0
            && let Some((work, time)) = cached.timed::<F, B>(device)?
            && let Some(ratio) = credible((time - cost.call) / walked(&cost, work))
        {
            (cost.row, cost.place) = (ratio * cost.row, ratio * cost.place);
        }
        if self.has_time()
            && let Some((work, time)) = large.timed::<F, B>(device)?
        {
            let bytes = self.profile.memory.nanoseconds_per_byte * work.bytes as f64;
            // A core that takes longer to walk the rows than its bytes take says nothing about the bytes.
            let share = credible(bytes / (time - cost.call)).filter(|share| *share < 2.0);
            if let Some(share) = share.filter(|_| time > 1.1 * walked(&cost, work)) {
                cost.efficiency = share;
            }
        }
        self.profile.products.iter_mut().filter(|(name, _)| *name == F::NAME).for_each(|(_, of)| *of = Some(cost));
        Ok(())
    }
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use super::*;
    use crate::any::Choice;

    #[test]
    fn a_calibration_is_of_this_device_within_its_time_and_can_be_kept() {
        let device = AnyBackend::open(Choice::Cpu).unwrap();
        let begin = Instant::now();
        let measured = calibrate(&device).unwrap();
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
        assert_eq!((measured.origin, &measured.device), (Origin::Calibrated, &device.profile().device));
        // A core moves between 1 and 500 GB/s, and a product is called in less than a millisecond.
        let rate = 1.0 / measured.memory.nanoseconds_per_byte;
        assert!((1.0..500.0).contains(&rate), "{rate} GB/s");
        for (name, cost) in measured.products.iter() {
            assert_eq!(cost.is_some(), device.profile().products.cost(name).is_some(), "{name}");
            assert!(cost.is_none_or(|cost| cost.call < 1e6 && cost.efficiency > 0.0), "{name}: {cost:?}");
        }
        assert_ne!(measured.numbers(), device.profile().numbers());
        let mut kept = device.profile().clone();
        kept.set_numbers(&measured.numbers()).unwrap();
        assert_eq!(kept.products, measured.products);
        // A device uses the new numbers for its choices.
        let device = device.with_profile(measured.clone());
        assert_eq!(device.profile(), &measured);
    }
}
