//! A hash of numbers that is the same on every machine, for repeatable pseudo-random choices.
//!
//! Reference: Steele, Lea, Flood 2014, Fast splittable pseudorandom number generators (SplitMix64).

/// What a SplitMix64 generator adds to its state for each number.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number that a SplitMix64 generator gives in this state; then it adds [`STEP`] to the state. Different states
/// give different numbers.
///
/// ```
/// use spandrel_formats::hash::{STEP, splitmix64};
///
/// // The first numbers for seed 0 of the published generator.
/// assert_eq!((splitmix64(0), splitmix64(STEP)), (0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4));
/// ```
pub const fn splitmix64(state: u64) -> u64 {
    let z = state.wrapping_add(STEP);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
