//! The profile of a GPU: the measured profile of an H200, scaled for any other GPU by numbers that the driver reports.
//!
//! Each number is scaled by the ratio that limits it:
//!
//! - the cost of a byte by memory clock x bus width; the size that counts as resident by the L2 cache;
//! - latencies (steps, hops, levels) by the clock of the multiprocessors;
//! - numbers for all multiprocessors together (slices in flight) by their number x clock;
//! - calls, the bus and a first set-up depend on the driver and the host, and are not scaled; nor are shares and
//!   ratios.
//!
//! If the driver does not report a number, its ratio is 1.

use spandrel_formats::Profile;
use spandrel_formats::profile::{Cost, Factoring, Host, Iteration, Levels, Memory, Origin, Products, Triangles, Waits};
use spandrel_sptrsv::sweep::STENCILS;

use crate::DeviceInfo;

/// The beginning of the name of the measured GPU.
const MEASURED: &str = "NVIDIA H200";
/// The driver's description of it: clocks of the multiprocessors and of the memory in kHz, bits of the memory's bus,
/// bytes of the second-level cache.
const CLOCK: u32 = 1_980_000;
const MEMORY_CLOCK: u32 = 3_201_000;
const MEMORY_BUS: u32 = 6016;
const L2_CACHE: u32 = 60 << 20;
const MULTIPROCESSORS: u32 = 132;

/// The H200 of `record/h200-*`.
///
/// Products: call and step from products of some thirty real matrices of 100,000 to two million entries, efficiency
/// from stencils of 2 to 17 million rows (`record/h200-spmv.jsonl`, `record/h200-spmv-variants.txt`). A row of CSR has
/// as many lanes as its length requires, so no row is a long chain of additions. Level sets and one thread per row:
/// `record/h200-sptrsv-variants.txt`.
pub fn h200() -> Profile {
    let cost = |call, efficiency, step| Some(Cost { call, row: 0.0, place: 0.0, padded: 1.0, efficiency, step });
    Profile {
        device: "NVIDIA H200".into(),
        origin: Origin::Measured,
        memory: Memory {
            // 3.9 TB/s.
            nanoseconds_per_byte: 0.000256,
            units: 1,
            resident: 50_000_000,
            // The cache is faster than the memory, but a product of a few microseconds is too short to reach its rate.
            resident_rate: Some(0.8),
            near: 50_000_000,
            caches: vec![u64::from(L2_CACHE)],
        },
        products: Products {
            halves_dia: true,
            coo: cost(2000.0, 0.97, 0.0),
            csr: cost(1850.0, 0.93, 0.0),
            csc: cost(1860.0, 0.93, 0.0),
            ell: cost(1750.0, 1.00, 45.0),
            sell: cost(2000.0, 0.92, 50.0),
            dia: cost(1900.0, 0.80, 105.0),
            bdia: cost(1900.0, 1.00, 40.0),
            hyb: cost(2700.0, 0.97, 45.0),
            bsr: cost(2500.0, 1.00, 25.0),
            // BSR with a mask, which a whole product does not need.
            bsrx: None,
            hec: cost(2700.0, 0.95, 45.0),
            hmec: cost(2700.0, 0.95, 45.0),
            dense: cost(1900.0, 1.00, 30.0),
        },
        triangles: Triangles {
            alone: 0,
            shared_level: 0,
            // An analysis takes about as long as this many serial solves.
            paid_back: 4,
            // A step of any other stencil takes 1.6 us with 5 terms, 2.6 with 10 and 3.3 with 13; a level of level sets
            // takes about one (`record/h200-sptrsv.jsonl`).
            stencils: Some(&STENCILS),
            levels: Levels {
                // A single thread block passes x on through shared memory, a grid through the L2 cache.
                level: [400.0, 700.0],
                beside: 350.0,
                slice: 0.4,
                rate: 3000.0,
                // A launch, and rows that are not yet being read.
                change: 3000.0,
                chained: 950.0,
                round: 250.0,
                link: 40,
            },
            waits: Some(Waits {
                seen: 400,
                round: 400,
                end: 400,
                alone: 350,
                beside: 350,
                hop: 500,
                look: 200,
                step: 700,
                // The reciprocal is loaded only when the sum is ready. Level sets have loaded it by then.
                inverse: 200,
            }),
        },
        // This predicts sixteen of nineteen matrices to within a third (`record/h200-factorize.jsonl`).
        factoring: Some(Factoring { hop: 2500.0, shared_term: 3.0 }),
        iteration: Iteration {
            // `record/h200-sptrsv.jsonl`.
            level: 270.0,
            call: 2000.0,
            // 50 GB/s (`record/h200-upload-variants.txt`).
            bus: 0.02,
            // 68 ms, and 45 ms with IC(0), on an H100 with 64^3 points, without the time of a second set-up. If the
            // driver has to compile the kernels, once per machine, both take a second (`record/h100-first-solves.txt`).
            first: 2.3e7,
            coarsening: 2.0,
            coarsening_shared: 0.0,
        },
        // A Xeon of 2023. This predicts seven of eight matrices to within a third.
        host: Host {
            threads: 16,
            nanoseconds_per_byte: 0.0465,
            entry: 6.0,
            term: 0.9,
            // The numbers of the reference profile: a complete factorisation was not measured on this host.
            factor_entry: 45.0,
            factor_flop: 0.05,
        },
    }
}

/// The profile of a GPU.
pub fn of(info: &DeviceInfo) -> Profile {
    let mut profile = h200();
    profile.host.threads = rayon::current_num_threads();
    if !info.name.starts_with(MEASURED) {
        scale(&mut profile, info);
    }
    profile
}

/// Scales the H200's numbers to another GPU. See the module's head.
fn scale(profile: &mut Profile, info: &DeviceInfo) {
    let ratio = |measured: f64, here: f64| if here > 0.0 { measured / here } else { 1.0 };
    let of = |measured: u32, here: u32| ratio(f64::from(measured), f64::from(here));
    let byte = of(MEMORY_CLOCK, info.memory_clock) * of(MEMORY_BUS, info.memory_bus);
    let latency = of(CLOCK, info.clock);
    let all = latency * of(MULTIPROCESSORS, info.multiprocessors);
    let whole = |nanoseconds: &mut u32| *nanoseconds = (f64::from(*nanoseconds) * latency).round() as u32;

    profile.device.clone_from(&info.name);
    profile.origin = Origin::Scaled;
    profile.memory.nanoseconds_per_byte *= byte;
    if info.l2_cache > 0 {
        let by_cache = 1.0 / of(L2_CACHE, info.l2_cache);
        profile.memory.resident = (profile.memory.resident as f64 * by_cache) as u64;
        profile.memory.near = (profile.memory.near as f64 * by_cache) as u64;
        profile.memory.caches = vec![u64::from(info.l2_cache)];
    }
    profile.products.iter_mut().filter_map(|(_, cost)| cost.as_mut()).for_each(|cost| cost.step *= latency);
    let Levels { level, beside, slice, rate, change: _, chained, round, link } = &mut profile.triangles.levels;
    level.iter_mut().chain([beside, chained, round]).for_each(|nanoseconds| *nanoseconds *= latency);
    *slice *= all;
    *rate /= byte;
    whole(link);
    if let Some(Waits { seen, round, end, alone, beside, hop, look, step, inverse }) = &mut profile.triangles.waits {
        [seen, round, end, alone, beside, hop, look, step, inverse].into_iter().for_each(whole);
    }
    if let Some(Factoring { hop, shared_term }) = &mut profile.factoring {
        (*hop, *shared_term) = (*hop * latency, *shared_term * latency);
    }
    profile.iteration.level *= latency;
}

#[cfg(test)]
mod tests {
    use spandrel_formats::{Survey, generate};

    use super::*;

    #[test]
    fn blocks_are_left_out_where_they_cannot_win() {
        for spec in ["d3n27:40", "poisson2d:300", "random:n=20000,nnz_per_row=9"] {
            let a = generate::csr::<f64>(spec).unwrap();
            assert!(Survey::of(&a).choose(&a, &h200()).candidate("bsr").is_none(), "{spec}");
        }
    }

    fn info(name: &str) -> DeviceInfo {
        DeviceInfo {
            ordinal: 0,
            name: name.into(),
            memory: 1 << 34,
            compute_capability: (9, 0),
            multiprocessors: MULTIPROCESSORS,
            driver_version: crate::NEEDED_VERSION,
            clock: CLOCK,
            memory_clock: MEMORY_CLOCK,
            memory_bus: MEMORY_BUS,
            l2_cache: L2_CACHE,
        }
    }

    #[test]
    fn the_measured_gpu_has_what_was_measured_and_scaling_to_itself_changes_nothing() {
        let mut measured = h200();
        measured.host.threads = rayon::current_num_threads();
        assert_eq!(of(&info("NVIDIA H200")), measured);
        let other = of(&info("Stand-in"));
        measured.device = "Stand-in".into();
        measured.origin = Origin::Scaled;
        assert_eq!(other, measured);
    }

    #[test]
    fn another_gpu_is_scaled_by_what_bounds_each_number() {
        let here = DeviceInfo {
            clock: CLOCK / 2,
            memory_clock: MEMORY_CLOCK / 2,
            memory_bus: MEMORY_BUS / 4,
            l2_cache: L2_CACHE / 2,
            multiprocessors: MULTIPROCESSORS / 4,
            ..info("Stand-in")
        };
        let (small, measured) = (of(&here), h200());
        assert_eq!(small.origin, Origin::Scaled);
        assert_eq!(small.memory.nanoseconds_per_byte, 8.0 * measured.memory.nanoseconds_per_byte);
        assert_eq!(small.memory.resident, measured.memory.resident / 2);
        let (ell, wanted) = (small.products.ell.unwrap(), measured.products.ell.unwrap());
        assert_eq!((ell.step, ell.call, ell.efficiency), (2.0 * wanted.step, wanted.call, wanted.efficiency));
        assert_eq!(small.triangles.levels.slice, 8.0 * measured.triangles.levels.slice);
        assert_eq!(small.triangles.waits.unwrap().hop, 2 * measured.triangles.waits.unwrap().hop);
        assert_eq!(small.factoring.unwrap().hop, 2.0 * measured.factoring.unwrap().hop);
        assert_eq!(small.iteration.bus, measured.iteration.bus);
    }

    #[test]
    fn what_the_driver_does_not_give_is_not_scaled_by() {
        let unknown = DeviceInfo {
            clock: 0,
            memory_clock: 0,
            memory_bus: 0,
            l2_cache: 0,
            multiprocessors: 0,
            ..info("Stand-in")
        };
        let (here, measured) = (of(&unknown), h200());
        assert_eq!((here.memory, here.triangles), (measured.memory, measured.triangles));
    }
}
