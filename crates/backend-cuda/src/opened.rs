//! What a process keeps of a device that it has opened: the primary context, the kernels loaded there, and page-locked
//! memory for copies.
//!
//! A driver takes about a tenth of a second to make a context, and as long again to load the kernels of a solve. So
//! nothing releases them: the first `Cuda` of a device pays for both, and later ones find them. This is also what the
//! CUDA runtime does. Device memory is not kept: once the last `Cuda` is dropped, freed memory goes back to the driver.
//!
//! After a kernel has failed, the driver refuses everything until the process ends, also a new context.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{CudaContext, CudaStream, DriverError, result, sys};
use spandrel_backend::Result;

use crate::error::failed;
use crate::module::Modules;
use crate::staging::Lanes;

/// The devices that are open, by their numbers.
static OPENED: Mutex<BTreeMap<usize, Arc<Opened>>> = Mutex::new(BTreeMap::new());

/// Locks what stays consistent between any two statements of those who hold it.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An open device.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Errors are recorded in a context object, so each `Cuda` has its own object of the same context.
    context: Arc<CudaContext>,
    modules: Modules,
    /// Those of a `Cuda` that was dropped.
    lanes: Mutex<Lanes>,
    /// Number of queues.
    queues: Mutex<usize>,
}

impl Opened {
    /// The device with this number, opened if it is not.
    ///
    /// # Errors
    /// The driver's reason if it refuses a context.
    pub(crate) fn of(ordinal: usize) -> Result<Arc<Self>> {
        if let Some(opened) = locked(&OPENED).get(&ordinal) {
            return Ok(Arc::clone(opened));
        }
        // Other devices may be opened meanwhile. If another thread opens this one, the driver makes one context.
        let context = CudaContext::new(ordinal).map_err(|error| failed("opening the device", error))?;
        let opened =
            Arc::new(Self { context, modules: Modules::default(), lanes: Mutex::default(), queues: Mutex::new(0) });
        Ok(Arc::clone(locked(&OPENED).entry(ordinal).or_insert(opened)))
    }

    /// The kernels.
    pub(crate) fn modules(&self) -> &Modules {
        &self.modules
    }

    /// The lanes of a `Cuda` that was dropped, if no other one has them.
    pub(crate) fn take_lanes(&self) -> Lanes {
        std::mem::take(&mut *locked(&self.lanes))
    }

    /// Keeps lanes for the next `Cuda`, unless it keeps others with more slots.
    pub(crate) fn keep_lanes(&self, mut lanes: Lanes) {
        let mut kept = locked(&self.lanes);
        if kept.slots() < lanes.slots() {
            std::mem::swap(&mut *kept, &mut lanes);
        }
    }

    /// The context of kernels and lanes.
    pub(crate) fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }
}

/// A queue on an open device, as one of those that need its memory.
#[derive(Debug)]
pub(crate) struct Queue {
    opened: Arc<Opened>,
    stream: Arc<CudaStream>,
}

impl Queue {
    /// Counts a queue. From the first one on, the device's pool keeps freed memory, so that later allocations of a
    /// solve cost nothing.
    pub(crate) fn new(opened: Arc<Opened>, stream: Arc<CudaStream>) -> Result<Self> {
        let mut queues = locked(&opened.queues);
        if *queues == 0 {
            keep_freed_memory(stream.context(), u64::MAX)
                .map_err(|error| failed("setting the memory pool up", error))?;
        }
        *queues += 1;
        drop(queues);
        Ok(Self { opened, stream })
    }

    pub(crate) fn opened(&self) -> &Opened {
        &self.opened
    }
}

impl Drop for Queue {
    /// Gives freed memory back with the last queue. Buffers that outlive it are given back when they are freed.
    fn drop(&mut self) {
        let mut queues = locked(&self.opened.queues);
        *queues -= 1;
        if *queues == 0 {
            let context = self.stream.context();
            let given_back = self.stream.synchronize().and_then(|()| keep_freed_memory(context, 0));
            context.record_err(given_back);
        }
    }
}

/// Sets how many bytes of freed memory the device's pool keeps, and gives the rest back.
fn keep_freed_memory(context: &CudaContext, mut bytes: u64) -> std::result::Result<(), DriverError> {
    if !context.has_async_alloc() {
        return Ok(());
    }
    context.bind_to_thread()?;
    // SAFETY: the context is bound, the pool is its device's, and the attribute's value is a live u64.
    unsafe {
        let pool = result::device::get_default_mem_pool(context.cu_device())?;
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        sys::cuMemPoolSetAttribute(pool, attribute, std::ptr::from_mut(&mut bytes).cast()).result()?;
        result::mem_pool::trim_to(pool, usize::try_from(bytes).unwrap_or(usize::MAX))
    }
}
