//! The bytes that an operation must move: the unit in which this project predicts and reports speed.

/// Compulsory memory traffic of a stored matrix: every stored byte once, x once, y once. Repeated reads of x are not
/// counted. So a measured rate above 100 % of the bandwidth means that caches hold the data, and one below may mean
/// that x is read again.
pub trait Traffic {
    /// Bytes of the stored arrays.
    fn storage(&self) -> u64;
    /// Bytes of `y = A x`: the storage, x read once, y written once.
    #[doc(alias = "spmv")]
    fn spmv_bytes(&self) -> u64;
    /// Multiplications and additions of `y = A x` on entries, not on padding: 2 per entry.
    fn flops(&self) -> u64;
}
