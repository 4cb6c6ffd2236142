//! What a process keeps of a device between its handles.

use spandrel_backend::{Backend, Device};
use spandrel_backend_cuda::Cuda;

mod gpu;

/// 1 + 1/2 + ... by the kernels of sums.
fn sum(device: &Cuda) -> f64 {
    let v: Vec<f64> = (1..=5000).map(|i| f64::from(i).recip()).collect();
    let (v, ones) = (device.upload(&v).expect("room"), device.upload(&vec![1.0; v.len()]).expect("room"));
    let mut sums = device.scalars(1, 0.0).expect("room");
    device.dot(None, &v, &ones, &mut sums[0]).expect("a sum");
    device.download_scalars(&sums).expect("a number")[0]
}

fn outside(device: &Cuda) -> usize {
    device.stream().context().mem_get_info().expect("a device").0
}

#[test]
fn memory_goes_back_with_the_last_handle() {
    const BYTES: usize = 1 << 30;
    let Some(first) = gpu::device() else { return };
    let expected = sum(&first);
    let free = outside(&first);
    let v = Backend::<f64>::zeros(&first, BYTES / 8).expect("room");
    drop(v);
    first.synchronize().expect("a device");
    assert!(outside(&first) + BYTES <= free, "the pool keeps freed memory for its handles");
    let second = Cuda::new().expect("a second handle");
    drop(first);
    assert!(outside(&second) + BYTES <= free, "a handle is left");
    assert_eq!(sum(&second).to_bits(), expected.to_bits());
    drop(second);
    let third = Cuda::new().expect("a third handle");
    assert!(outside(&third) + BYTES / 2 > free, "{} of {free} bytes are free", outside(&third));
    assert_eq!(sum(&third).to_bits(), expected.to_bits());
}
