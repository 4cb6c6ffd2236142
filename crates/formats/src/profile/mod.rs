//! What the policies know of a device: rates, latencies and costs, as plain data that every crate can read.
//!
//! Backends hold the numbers and hand them out (`Device::profile` in `spandrel-backend`); policies in this workspace
//! take `&Profile` and name no device. [`Profile::reference`] is the one profile that belongs to no device: it stays
//! the same everywhere.
//!
//! A time is in nanoseconds unless its name says otherwise.

mod invented;
mod numbers;
mod reference;

use std::fmt;

use crate::for_each_format;

pub use numbers::BadNumber;

/// Lower halves of stencils: for each stencil, the differences of its points, ascending by (dz, dy, dx).
pub type Stencils = &'static [&'static [[i32; 3]]];

/// Where the numbers of a profile come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Measured on this kind of device; the measurements are in `record/`.
    Measured,
    /// Scaled from a measured device by what the driver or the system says of this one.
    Scaled,
    /// Measured on this machine by a calibration.
    Calibrated,
}

impl Origin {
    /// The word in listings and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::Measured => "measured",
            Origin::Scaled => "scaled",
            Origin::Calibrated => "calibrated",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What the policies know of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The device whose numbers these are, in words.
    pub device: String,
    /// Where they come from.
    pub origin: Origin,
    /// Moving bytes.
    pub memory: Memory,
    /// y = A x in each format.
    pub products: Products,
    /// Triangular solves.
    pub triangles: Triangles,
    /// Incomplete factors computed on the device. `None` if the device is the host.
    pub factoring: Option<Factoring>,
    /// One iteration of a preconditioned solver, and the set-up of multigrid.
    pub iteration: Iteration,
    /// The host that feeds the device. A CPU is its own host.
    pub host: Host,
}

/// The cost of moving bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Nanoseconds per byte that one unit of the device moves from memory: one core of a CPU, or a whole GPU.
    pub nanoseconds_per_byte: f64,
    /// How many such units share the work of an operation: the threads of a CPU, 1 for a GPU.
    pub units: usize,
    /// Bytes of a product up to which a cache holds it from one call to the next.
    pub resident: u64,
    /// Rate of such a product as a share of the memory's rate. `None` if its bytes cost nothing beyond the work on
    /// them.
    pub resident_rate: Option<f64>,
    /// Bytes of a vector up to which its elements are read in any order about as fast as in their own.
    pub near: u64,
    /// Bytes of each level of cache, as the driver or the system gives them; empty if unknown. They decide nothing.
    pub caches: Vec<u64>,
}

/// The cost of a product y = A x in one format. Which terms matter depends on the device: a core pays per row and
/// place, a GPU per byte and for the longest row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Nanoseconds per call.
    pub call: f64,
    /// Nanoseconds per stored row (per column in CSC).
    pub row: f64,
    /// Nanoseconds per place: an entry, or padding that is walked over.
    pub place: f64,
    /// Factor on rows and places if more than a fiftieth of the places is padding: ELL then needs masks.
    pub padded: f64,
    /// Share of the memory's rate that the format's access reaches, above 0.
    pub efficiency: f64,
    /// Nanoseconds per place of the longest chain that one thread sums in order.
    pub step: f64,
}

/// The work of one product, as [`Profile::product`] prices it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Stored rows (columns in CSC).
    pub rows: u64,
    /// Entries and padding that is walked over.
    pub places: u64,
    /// Entries without padding.
    pub entries: u64,
    /// Bytes that the device moves.
    pub bytes: u64,
    /// Places of the longest chain.
    pub chain: u64,
}

macro_rules! products {
    ([] $(($stem:ident, $Type:ident)),* $(,)?) => {
        /// The cost of a product in each format, one field per entry of `for_each_format!`: a profile that lacks one
        /// does not compile. `None` for a format that is listed and never chosen.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Products {
            /// Whether the device stores one half of a symmetric matrix in DIA.
            pub halves_dia: bool,
            $(
                #[doc = concat!("In ", stringify!($stem), ".")]
                pub $stem: Option<Cost>,
            )*
        }

        impl Products {
            /// The formats and their costs, in the order of the registry.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, Option<Cost>)> + '_ {
                [$((stringify!($stem), self.$stem)),*].into_iter()
            }
            /// The same, for changing them.
            pub fn iter_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut Option<Cost>)> {
                [$((stringify!($stem), &mut self.$stem)),*].into_iter()
            }
            /// The cost in the format of that name.
            pub fn cost(&self, name: &str) -> Option<Cost> {
                self.iter().find(|(stem, _)| *stem == name).and_then(|(_, cost)| cost)
            }
        }
    };
}
for_each_format!(products);

/// The cost of triangular solves.
#[derive(Clone, Debug, PartialEq)]
pub struct Triangles {
    /// Bytes of a solve below which a single unit is fastest. 0 if there is only one.
    pub alone: u64,
    /// Entries of a level from which several units are faster than one. 0 if there is only one.
    pub shared_level: usize,
    /// Solves from which an analysis by levels is paid back.
    pub paid_back: usize,
    /// The stencils that the device has sweep kernels for. `None` if it sweeps any.
    pub stencils: Option<Stencils>,
    /// How level sets are cut.
    pub levels: Levels,
    /// What it costs if rows wait for each other. `None` if the device does not solve that way.
    pub waits: Option<Waits>,
}

/// How level sets are cut into slices, chains and segments: the costs that the cut minimises.
#[derive(Clone, Debug, PartialEq)]
pub struct Levels {
    /// Minimum nanoseconds per level: for a single thread block, and for a grid.
    pub level: [f64; 2],
    /// Nanoseconds per further row of a level for a single thread block, whose lanes wait one after the other.
    pub beside: f64,
    /// Nanoseconds per slice for a grid, with all slices in progress.
    pub slice: f64,
    /// Bytes per nanosecond of a grid.
    pub rate: f64,
    /// Nanoseconds to change between a thread block and a grid.
    pub change: f64,
    /// Nanoseconds per level of chains.
    pub chained: f64,
    /// Nanoseconds per further round of entries, eight per lane.
    pub round: f64,
    /// Nanoseconds per further row of a chain.
    pub link: u32,
}

/// Latencies of solves in which rows wait for each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Waits {
    /// Level sets: until a waiting warp sees a row that is known.
    pub seen: u32,
    /// Level sets: a round of entries.
    pub round: u32,
    /// Level sets: the end of a slice.
    pub end: u32,
    /// Level sets: a level that a single thread block solves.
    pub alone: u32,
    /// Level sets: each further row of such a level.
    pub beside: u32,
    /// One thread per row: until another warp sees a row that is known.
    pub hop: u32,
    /// One thread per row: a look at what rows of other warps have.
    pub look: u32,
    /// One thread per row: a step.
    pub step: u32,
    /// One thread per row: what a step takes besides if it ends a row whose diagonal entry is not 1.
    pub inverse: u32,
}

/// The cost of computing incomplete factors on the device.
#[derive(Clone, Debug, PartialEq)]
pub struct Factoring {
    /// Nanoseconds from the completion of a row until another row has seen it and taken its last term.
    pub hop: f64,
    /// Nanoseconds per term if 32 lanes share a row.
    pub shared_term: f64,
}

/// What an iteration costs besides its bytes, and what multigrid costs before the first one.
#[derive(Clone, Debug, PartialEq)]
pub struct Iteration {
    /// Nanoseconds per level of a sweep.
    pub level: f64,
    /// Nanoseconds per call.
    pub call: f64,
    /// Nanoseconds per byte from the host to the device.
    pub bus: f64,
    /// Nanoseconds that a first set-up of geometric multigrid takes longer than one of IC(0), whatever its size:
    /// loading kernels.
    pub first: f64,
    /// Nanoseconds per entry of the matrix to set up algebraic multigrid: what one unit of the device does alone.
    pub coarsening: f64,
    /// The same, of what its units share, on one unit.
    pub coarsening_shared: f64,
}

/// The host of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Threads that set up what the device runs.
    pub threads: usize,
    /// Nanoseconds per byte of one core.
    pub nanoseconds_per_byte: f64,
    /// Nanoseconds per entry of an incomplete factorisation on one core.
    pub entry: f64,
    /// Nanoseconds per term of an incomplete factorisation on one core.
    pub term: f64,
    /// Nanoseconds per entry of the factors of a complete factorisation, solves included, whatever the number of cores.
    pub factor_entry: f64,
    /// Nanoseconds per operation of a complete factorisation on one core.
    pub factor_flop: f64,
}

impl Profile {
    /// The fixed profile by which choices are made that have to be the same on every machine: those of a run that
    /// promises the bits of every backend, and those of a CPU that was not calibrated. It is a model of one core, not a
    /// description of any device here.
    ///
    /// Its numbers may change between releases. They never depend on the machine, its threads, or a calibration.
    pub fn reference() -> Self {
        reference::profile()
    }

    /// Expected nanoseconds of a product at that cost.
    pub fn product(&self, cost: &Cost, work: Work) -> f64 {
        let Work { rows, places, entries, bytes, chain } = work;
        let masked = if places > entries + entries / 50 { cost.padded } else { 1.0 };
        let walked = masked * (cost.row * rows as f64 + cost.place * places as f64);
        let rate = if bytes > self.memory.resident { Some(1.0) } else { self.memory.resident_rate };
        let traffic =
            rate.map_or(0.0, |rate| self.memory.nanoseconds_per_byte * bytes as f64 / (rate * cost.efficiency));
        cost.call + walked.max(traffic.max(cost.step * chain as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_costs_are_those_of_the_registry_in_its_order() {
        macro_rules! stems {
            ([] $(($stem:ident, $Type:ident)),*) => { [$(stringify!($stem)),*] };
        }
        let mut reference = Profile::reference();
        let names: Vec<_> = reference.products.iter().map(|(name, _)| name).collect();
        assert_eq!(names, for_each_format!(stems));
        assert_eq!(reference.products.cost("csr"), reference.products.csr);
        assert_eq!(reference.products.cost("no such format"), None);
        reference.products.iter_mut().filter(|(name, _)| *name == "csr").for_each(|(_, cost)| *cost = None);
        assert_eq!(reference.products.csr, None);
    }

    #[test]
    fn a_product_costs_its_call_and_the_slowest_of_work_bytes_and_chain() {
        let mut profile = Profile::reference();
        profile.memory = Memory {
            nanoseconds_per_byte: 0.5,
            units: 1,
            resident: 1000,
            resident_rate: None,
            near: 100,
            caches: Vec::new(),
        };
        let cost = Cost { call: 10.0, row: 1.0, place: 2.0, padded: 3.0, efficiency: 0.5, step: 4.0 };
        let work = Work { rows: 10, places: 100, entries: 100, bytes: 1000, chain: 1 };
        // 10 rows and 100 places; the bytes are in the cache and free.
        assert_eq!(profile.product(&cost, work), 10.0 + 210.0);
        assert_eq!(profile.product(&cost, Work { places: 103, ..work }), 10.0 + 3.0 * 216.0);
        assert_eq!(profile.product(&cost, Work { bytes: 1001, ..work }), 10.0 + 1001.0);
        assert_eq!(profile.product(&cost, Work { chain: 100, ..work }), 10.0 + 400.0);
        profile.memory.resident_rate = Some(2.0);
        assert_eq!(profile.product(&cost, work), 10.0 + 500.0);
    }
}
