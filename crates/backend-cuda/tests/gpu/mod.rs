//! The device of the tests that need a GPU.

use spandrel_backend_cuda::Cuda;

/// The GPU. Without one a trial is skipped and says so, or fails if `SPANDREL_REQUIRE` is `cuda`.
pub(crate) fn device() -> Option<Cuda> {
    let required = std::env::var_os("SPANDREL_REQUIRE").is_some_and(|name| name == "cuda");
    Cuda::new()
        .map_err(|why| {
            assert!(!required, "cuda is required and cannot be tried: {why}");
            eprintln!("skipped: {why}");
        })
        .ok()
}
