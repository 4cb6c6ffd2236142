//! The numbers of a profile by name, for listings and for the file of a calibration.

use std::collections::BTreeMap;

use super::{Cost, Factoring, Iteration, Levels, Profile, Waits};

/// The reason why a profile rejects a set of numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNumber {
    /// The profile has a number that the set lacks.
    #[error("{0} is missing")]
    Missing(String),
    /// The set has a number that the profile lacks.
    #[error("{0} is no number of this device")]
    Unknown(String),
    /// A number that no measurement can give.
    #[error("{0} is out of range")]
    Range(String),
}

/// A number that is set from a float; whole numbers are rounded.
enum Number<'a> {
    Float(&'a mut f64),
    Whole(&'a mut u32),
    Bytes(&'a mut u64),
}

impl Number<'_> {
    fn get(&self) -> f64 {
        match self {
            Number::Float(number) => **number,
            Number::Whole(number) => f64::from(**number),
            Number::Bytes(number) => **number as f64,
        }
    }
    fn set(self, to: f64) {
        match self {
            Number::Float(number) => *number = to,
            Number::Whole(number) => *number = to.round() as u32,
            Number::Bytes(number) => *number = to.round() as u64,
        }
    }
}

impl Profile {
    /// The measured numbers of the device by name, such as `products.csr.call`. Threads, caches and what follows from
    /// the kind of device are not among them.
    pub fn numbers(&self) -> BTreeMap<String, f64> {
        let mut numbers = BTreeMap::new();
        // The visit changes nothing by itself.
        self.clone().visit(&mut |name, number| {
            numbers.insert(name, number.get());
        });
        numbers
    }

    /// Sets the numbers from [`Profile::numbers`] of a device of the same kind: all of them or, after an error, none.
    ///
    /// # Errors
    /// [`BadNumber`] for the first wrong number.
    pub fn set_numbers(&mut self, numbers: &BTreeMap<String, f64>) -> Result<(), BadNumber> {
        let known = self.numbers();
        if let Some(name) = known.keys().find(|name| !numbers.contains_key(*name)) {
            return Err(BadNumber::Missing(name.clone()));
        }
        for (name, &number) in numbers {
            if !known.contains_key(name) {
                return Err(BadNumber::Unknown(name.clone()));
            }
            // These numbers are divisors.
            let is_rate = [".efficiency", "_rate", ".rate"].iter().any(|end| name.ends_with(end));
            let least = if is_rate { f64::MIN_POSITIVE } else { 0.0 };
            if !(least..=1e18).contains(&number) {
                return Err(BadNumber::Range(name.clone()));
            }
        }
        self.visit(&mut |name, number| number.set(numbers[&name]));
        Ok(())
    }

    fn visit(&mut self, each: &mut impl FnMut(String, Number<'_>)) {
        let Profile { device: _, origin: _, memory, products, triangles, factoring, iteration, host } = self;
        each("memory.nanoseconds_per_byte".into(), Number::Float(&mut memory.nanoseconds_per_byte));
        each("memory.resident".into(), Number::Bytes(&mut memory.resident));
        if let Some(rate) = &mut memory.resident_rate {
            each("memory.resident_rate".into(), Number::Float(rate));
        }
        for (name, cost) in products.iter_mut() {
            let Some(Cost { call, row, place, padded, efficiency, step }) = cost else { continue };
            let mut of = |what: &str, number| each(format!("products.{name}.{what}"), Number::Float(number));
            of("call", call);
            of("row", row);
            of("place", place);
            of("padded", padded);
            of("efficiency", efficiency);
            of("step", step);
        }
        let Levels { level: [block, grid], beside, slice, rate, change, chained, round, link } = &mut triangles.levels;
        let mut of = |what: &str, number| each(format!("levels.{what}"), Number::Float(number));
        of("block", block);
        of("grid", grid);
        of("beside", beside);
        of("slice", slice);
        of("rate", rate);
        of("change", change);
        of("chained", chained);
        of("round", round);
        each("levels.link".into(), Number::Whole(link));
        if let Some(Waits { seen, round, end, alone, beside, hop, look, step, inverse }) = &mut triangles.waits {
            let mut of = |what: &str, number| each(format!("waits.{what}"), Number::Whole(number));
            of("seen", seen);
            of("round", round);
            of("end", end);
            of("alone", alone);
            of("beside", beside);
            of("hop", hop);
            of("look", look);
            of("step", step);
            of("inverse", inverse);
        }
        if let Some(Factoring { hop, shared_term }) = factoring {
            each("factoring.hop".into(), Number::Float(hop));
            each("factoring.shared_term".into(), Number::Float(shared_term));
        }
        let Iteration { level, call, bus, first, coarsening, coarsening_shared } = iteration;
        let mut of = |what: &str, number| each(format!("iteration.{what}"), Number::Float(number));
        of("level", level);
        of("call", call);
        of("bus", bus);
        of("first", first);
        of("coarsening", coarsening);
        of("coarsening_shared", coarsening_shared);
        each("host.nanoseconds_per_byte".into(), Number::Float(&mut host.nanoseconds_per_byte));
        each("host.entry".into(), Number::Float(&mut host.entry));
        each("host.term".into(), Number::Float(&mut host.term));
        each("host.factor_entry".into(), Number::Float(&mut host.factor_entry));
        each("host.factor_flop".into(), Number::Float(&mut host.factor_flop));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_taken_over_by_name() {
        for mut profile in [Profile::reference(), Profile::invented(&[])] {
            let (before, mut numbers) = (profile.clone(), profile.numbers());
            profile.set_numbers(&numbers).unwrap();
            assert_eq!(profile, before);
            numbers.insert("products.csr.call".into(), 7.0);
            numbers.insert("levels.link".into(), 9.0);
            profile.set_numbers(&numbers).unwrap();
            assert_eq!((profile.products.csr.unwrap().call, profile.triangles.levels.link), (7.0, 9));
            assert_eq!(profile.numbers(), numbers);
        }
    }

    #[test]
    fn what_is_missing_unknown_or_absurd_is_named_and_nothing_is_taken_over() {
        let mut profile = Profile::reference();
        let (before, numbers) = (profile.clone(), profile.numbers());
        let name = |name: &str| name.to_owned();
        let mut fewer = numbers.clone();
        fewer.remove("host.term");
        assert_eq!(profile.set_numbers(&fewer), Err(BadNumber::Missing(name("host.term"))));
        // A GPU's numbers are not a CPU's.
        let other = Profile::invented(&[]).numbers();
        assert!(matches!(profile.set_numbers(&other), Err(BadNumber::Unknown(_))));
        for (of, bad) in [
            ("products.csr.call", -1.0),
            ("products.csr.call", f64::NAN),
            ("products.csr.row", f64::INFINITY),
            ("products.csr.efficiency", 0.0),
            ("levels.rate", 0.0),
        ] {
            let mut changed = numbers.clone();
            changed.insert(name(of), bad);
            assert_eq!(profile.set_numbers(&changed), Err(BadNumber::Range(name(of))), "{bad}");
        }
        assert_eq!(profile, before);
    }
}
