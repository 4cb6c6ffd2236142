//! The device: a GPU's context, one queue on it, its kernels, and scratch memory for sums.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaGraph, CudaStream, DriverError, result, sys};
use spandrel_backend::{Device, Error, Gate, Latest, Report, Result, Step, Watch};
use spandrel_formats::Profile;
use spandrel_formats::Real;

use crate::error::{NAME, failed};
use crate::join::Completion;
use crate::kernel::{Entry, ForElement};
use crate::landing::Landing;
use crate::launch::{BLOCK, TreeArg};
use crate::memory::{Address, Buffer};
use crate::module::{Function, Modules};
use crate::opened::{Opened, Queue};
use crate::persistent::Exchange;
use crate::staging::Staging;
use crate::{DeviceInfo, Monitor, first_usable, probe};

/// A GPU as a device: one queue (its own stream) on the device's primary context.
///
/// The first `Cuda` of a process makes that context and loads kernels as they are needed, which takes tenths of a
/// second; both stay for later ones. Device memory goes back to the driver when the last `Cuda` and what was made with
/// it are dropped.
///
/// Operations are enqueued and run in order; only `synchronize`, `download` and `report` wait. Dropping a vector or
/// matrix whose work still runs is safe. A `Cuda` may move between threads; one thread uses it at a time. Several of
/// them, in one thread or many, are independent queues.
pub struct Cuda {
    info: DeviceInfo,
    profile: Profile,
    // Buffers are dropped first, then the queue that frees them.
    scratch: RefCell<Scratch>,
    exchange: RefCell<Exchange>,
    /// Entries of a vector on their way to or from the host.
    packed: RefCell<Option<Buffer<u64>>>,
    landing: RefCell<Landing>,
    /// Completes sums over vectors that are parts of longer ones.
    completion: Completion,
    /// For sums that the devices of the ranks complete themselves.
    gathered: RefCell<Option<Buffer<u64>>>,
    /// Held as long as copies on the queue may use it.
    _staging: Arc<Staging>,
    stream: Arc<CudaStream>,
    context: Arc<CudaContext>,
    /// Dropped after the buffers above, whose memory it may give back.
    queue: Queue,
    capturing: Cell<bool>,
    reproducible: bool,
    /// The largest number of thread blocks in a launch whose warps wait for each other.
    waiting_blocks: usize,
}

/// Memory for block results. Once handed out it stays, because graphs have its address.
struct Scratch {
    /// One word, 0 between operations.
    ticket: Buffer<u32>,
    /// Two sums of this device's elements, if it is joined.
    own: Buffer<u64>,
    current: Room,
    outgrown: Vec<Room>,
}

/// Room for two sums.
struct Room {
    /// Words of one sum.
    words: usize,
    partials: Buffer<u64>,
    /// One per group of block results; 0 between operations.
    tickets: Buffer<u32>,
}

impl Room {
    fn new(stream: &Arc<CudaStream>, words: usize) -> Result<Self> {
        // A group of up to 1024 results on each of at most six levels.
        let groups = words.div_ceil(BLOCK) + 6;
        Ok(Self {
            words,
            partials: Buffer::uninit(stream, 2 * words, "block results")?,
            tickets: Buffer::zeros(stream, groups, "tickets")?,
        })
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuda")
            .field("info", &self.info)
            .field("reproducible", &self.reproducible)
            .finish_non_exhaustive()
    }
}

/// Words for the block results of one sum over `len` elements, on all levels of the tree.
fn words(len: usize) -> usize {
    let (mut level, mut words) = (len.div_ceil(BLOCK), 1);
    while level > 1 {
        words += level;
        level = level.div_ceil(BLOCK);
    }
    words + level
}

impl Cuda {
    /// Opens the first device of the driver's list that can run the kernels ([`DeviceInfo::check`]).
    ///
    /// # Errors
    /// As [`Error::Device`]: the reason of the probe, or of the first device if all are too old; the driver's reason if
    /// it refuses a context.
    pub fn new() -> Result<Self> {
        let first = first_usable().map_err(|reason| Error::Device { device: NAME, why: reason.to_string() })?;
        Self::on(first.ordinal)
    }

    /// Opens the device with this number in the list of [`probe()`].
    ///
    /// # Errors
    /// As [`Cuda::new`]; also for a number that is not in the list, and for a device older than
    /// [`NEEDED_CAPABILITY`](crate::NEEDED_CAPABILITY).
    pub fn on(ordinal: usize) -> Result<Self> {
        let unusable = |why: String| Error::Device { device: NAME, why };
        let found = probe().map_err(|reason| unusable(reason.to_string()))?;
        let Some(info) = found.get(ordinal).cloned() else {
            return Err(unusable(format!("there is no device {ordinal}: the driver shows {}", found.len())));
        };
        info.check().map_err(|reason| unusable(reason.to_string()))?;
        let opened = Opened::of(ordinal)?;
        let context = CudaContext::new(ordinal).map_err(|error| failed("opening the device", error))?;
        // SAFETY: done before the first allocation. Every buffer is used on the one stream that it was made on; what
        // comes from elsewhere is waited for in `wrap`.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(|error| failed("opening a queue", error))?;
        let queue = Queue::new(Arc::clone(&opened), Arc::clone(&stream))?;
        let scratch = Scratch {
            ticket: Buffer::zeros(&stream, 1, "a ticket")?,
            own: Buffer::zeros(&stream, 2, "two sums")?,
            current: Room::new(&stream, words(1 << 22))?,
            outgrown: Vec::new(),
        };
        Ok(Self {
            profile: crate::profile::of(&info),
            info,
            scratch: RefCell::new(scratch),
            exchange: RefCell::default(),
            packed: RefCell::default(),
            landing: RefCell::default(),
            completion: RefCell::default(),
            gathered: RefCell::default(),
            _staging: Staging::of(&stream, opened),
            stream,
            context,
            queue,
            capturing: Cell::new(false),
            reproducible: false,
            waiting_blocks: usize::MAX,
        })
    }

    /// The same device, restricted to kernels with an order of summation that the CPU backend shares.
    ///
    /// Results then have the same bits on both. It costs speed if the lengths of rows differ much, because the longest
    /// row is summed by one thread. It applies to matrices that are loaded from now on.
    #[must_use]
    pub fn with_reproducible(self, reproducible: bool) -> Self {
        Self { reproducible, ..self }
    }

    /// The same device with another profile for the policies, for example a calibrated one.
    #[must_use]
    pub fn with_profile(self, profile: Profile) -> Self {
        Self { profile, ..self }
    }

    /// The same device with a limit, at least one, on the thread blocks of a launch whose warps wait for each other.
    ///
    /// It shows that progress does not depend on how many run at once. It applies to what is loaded from now on.
    #[doc(hidden)]
    #[must_use]
    pub fn with_waiting_blocks(self, most: usize) -> Self {
        Self { waiting_blocks: most.max(1), ..self }
    }

    /// Limits the number of thread blocks that wait for each other.
    pub(crate) fn waiting(&self, blocks: usize) -> usize {
        blocks.min(self.waiting_blocks)
    }

    /// Loads a kernel from a text in the same way as the backend's kernels.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver refuses it.
    #[doc(hidden)]
    pub fn load_text(&self, text: &str) -> Result<()> {
        Modules::load(&self.context, "the kernel given", text.into(), "given").map(drop)
    }

    /// Returns true if the device is restricted to orders of summation that the CPU shares.
    pub fn reproducible(&self) -> bool {
        self.reproducible
    }

    /// The description of the device by its driver.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The stream, for a caller who enqueues work in its order.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    pub(crate) fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Streaming multiprocessors.
    pub(crate) fn multiprocessors(&self) -> usize {
        self.info.multiprocessors as usize
    }

    /// The compute capability as 10 * major + minor.
    pub(crate) fn capability(&self) -> u32 {
        10 * self.info.compute_capability.0 + self.info.compute_capability.1
    }

    pub(crate) fn function<T: Real, P: ForElement<T>>(&self, entry: Entry<P>) -> Result<Function> {
        let opened = self.queue.opened();
        opened.modules().function(opened.context(), self.capability(), entry.source, entry.name, T::NAME)
    }

    /// Reserves scratch memory for sums over `len` elements. This happens when vectors are made, because a recorded
    /// step must not allocate.
    pub(crate) fn reserve(&self, len: usize) -> Result<()> {
        let wanted = words(len);
        let mut scratch = self.scratch.borrow_mut();
        if scratch.current.words >= wanted {
            return Ok(());
        }
        if self.capturing.get() {
            return Err(Error::Device {
                device: NAME,
                why: "a recorded step needs memory: make its vectors before recording".into(),
            });
        }
        let larger = Room::new(&self.stream, wanted.max(2 * scratch.current.words))?;
        let outgrown = std::mem::replace(&mut scratch.current, larger);
        scratch.outgrown.push(outgrown);
        Ok(())
    }

    /// The tree for up to two sums over `len` elements; the second `out` is null if there is only one. If the device is
    /// joined, [`Cuda::complete`] must follow the kernel, also if it only counts the sums.
    pub(crate) fn tree<T: Real>(&self, len: usize, mut out: [Address; 2]) -> Result<TreeArg> {
        self.reserve(len)?;
        let scratch = self.scratch.borrow();
        // There is room for two sums.
        let earlier = self.earlier_sums().min(usize::from(out[1] == Address::NULL));
        if self.is_joined() {
            for (k, out) in out.iter_mut().enumerate().filter(|(_, out)| **out != Address::NULL) {
                *out = scratch.own.address(earlier + k);
            }
        }
        let stride = words(len);
        Ok(TreeArg {
            partials: scratch.current.partials.pointer().offset(earlier * stride * T::BYTES),
            stride: stride as u64,
            tickets: scratch.current.tickets.pointer(),
            out,
        })
    }

    /// Where the last kernels have left the block results of their sums over `len` elements. The only block of a short
    /// vector is the whole sum.
    pub(crate) fn block_results<T: Real, const K: usize>(&self, len: usize) -> [Address; K] {
        let scratch = self.scratch.borrow();
        std::array::from_fn(|k| match len.div_ceil(BLOCK) {
            0 | 1 => scratch.own.address(k),
            _ => scratch.current.partials.pointer().offset(k * words(len) * T::BYTES),
        })
    }

    /// Room for `len` elements of type `T` on their way to or from the host. The next call returns the same memory.
    pub(crate) fn packed<T: Real>(&self, len: usize) -> Result<Address> {
        let words = (len * T::BYTES).div_ceil(size_of::<u64>());
        let mut packed = self.packed.borrow_mut();
        match &*packed {
            Some(room) if room.len() >= words => Ok(room.pointer()),
            _ => {
                Ok(packed.insert(Buffer::uninit(&self.stream, words.next_power_of_two(), "packed entries")?).pointer())
            }
        }
    }

    /// Host memory for what arrives from the device.
    pub(crate) fn landing(&self) -> &RefCell<Landing> {
        &self.landing
    }

    /// What completes the sums of this device at present.
    pub(crate) fn completion(&self) -> &Completion {
        &self.completion
    }

    /// The slots of persistent solves.
    pub(crate) fn exchange(&self) -> &RefCell<Exchange> {
        &self.exchange
    }

    /// Whether a step is being recorded.
    pub(crate) fn is_capturing(&self) -> bool {
        self.capturing.get()
    }

    /// Room for the values of all ranks, for sums.
    pub(crate) fn gathered(&self) -> &RefCell<Option<Buffer<u64>>> {
        &self.gathered
    }

    /// Only the ticket.
    pub(crate) fn ticket(&self) -> Address {
        self.scratch.borrow().ticket.pointer()
    }
}

/// Bytes that the device's pool has reserved and that no buffer uses.
fn kept_memory(context: &Arc<CudaContext>) -> std::result::Result<u64, DriverError> {
    if !context.has_async_alloc() {
        return Ok(0);
    }
    let (mut reserved, mut used) = (0u64, 0u64);
    // SAFETY: the device is that of a live context, and the pool is its own; the values of both attributes are live
    // u64s.
    unsafe {
        let pool = result::device::get_default_mem_pool(context.cu_device())?;
        let reserved_now = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
        let used_now = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT;
        result::mem_pool::get_attribute(pool, reserved_now, std::ptr::from_mut(&mut reserved).cast())?;
        result::mem_pool::get_attribute(pool, used_now, std::ptr::from_mut(&mut used).cast())?;
    }
    Ok(reserved.saturating_sub(used))
}

/// The address of the gate.
pub(crate) fn gate_pointer(gate: Gate<'_, Cuda>) -> Address {
    gate.map_or(Address::NULL, Monitor::pointer)
}

/// A captured step.
pub struct Graph(CudaGraph);

// SAFETY: the driver's graph objects belong to no thread and need no context to be destroyed; they only may not be used
// by two threads at once. `CudaGraph` is their one owner, and `Graph` is not `Sync`.
unsafe impl Send for Graph {}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Graph")
    }
}

impl Device for Cuda {
    const NAME: &'static str = NAME;
    type Graph = Graph;
    type Monitor = Monitor;

    fn describe(&self) -> String {
        self.info.to_string()
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn free_memory(&self) -> Result<Option<u64>> {
        let outside = self.context.mem_get_info().map(|(free, _)| free as u64);
        let free = outside.and_then(|free| Ok(free + kept_memory(&self.context)?));
        free.map(Some).map_err(|error| failed("asking for free memory", error))
    }

    fn synchronize(&self) -> Result<()> {
        self.stream.synchronize().map_err(|error| failed("synchronize", error))?;
        self.context.check_err().map_err(|error| failed("freeing memory", error))
    }

    fn capture<S: Step<Self>>(&self, step: &mut S) -> Result<Graph> {
        // Modules are loaded by the plain run before; a step that was never run would load them here, which a capture
        // in relaxed mode allows.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        self.stream.begin_capture(mode).map_err(|error| failed("beginning to record", error))?;
        self.capturing.set(true);
        let enqueued = step.enqueue(self);
        self.capturing.set(false);
        // End the capture in any case, because a queue that is left recording refuses everything.
        let graph = self.stream.end_capture(sys::CUgraphInstantiate_flags(0));
        enqueued?;
        match graph.map_err(|error| failed("recording a step", error))? {
            Some(graph) => Ok(Graph(graph)),
            None => Err(Error::Device { device: NAME, why: "recording a step gave no graph: report it".into() }),
        }
    }

    unsafe fn replay<S: Step<Self>>(&self, graph: &Graph, _: &mut S) -> Result<()> {
        graph.0.launch().map_err(|error| failed("replaying a step", error))
    }

    fn monitor(&self, watch: &Watch) -> Result<Monitor> {
        Monitor::new(self, watch)
    }

    fn resume(&self, monitor: &mut Monitor) -> Result<()> {
        monitor.resume(self)
    }

    fn rearm(&self, monitor: &mut Monitor, watch: &Watch) -> Result<()> {
        monitor.rearm(watch)
    }

    fn report_latest(&self, monitor: &Monitor) -> Result<Latest> {
        monitor.latest()
    }

    fn report(&self, monitor: &Monitor) -> Result<Report> {
        monitor.report()
    }
}
