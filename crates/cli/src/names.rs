//! Names on the command line: they do not depend on case, and a wrong one is answered with the nearest that there is.

use clap::builder::{PossibleValue, TypedValueParser, UnknownArgumentValueParser};
use clap::{Arg, Command, Error};
use std::ffi::OsStr;

use crate::args::PrecondName;

/// Right-hand sides that are no file.
pub(crate) const RIGHT_HAND_SIDES: [&str; 3] = ["ones", "random", "from-solution"];

/// Preconditioners as shells and the nearest name offer them, each with a parameter where it needs one.
const PRECONDITIONERS: [&str; 13] = [
    "auto",
    "none",
    "jacobi",
    "block-jacobi=auto",
    "ssor",
    "ilu0",
    "iluk=1",
    "ic0",
    "mg",
    "ilu0-jacobi=3",
    "ic0-jacobi=3",
    "ilu0-isai",
    "ic0-isai",
];

/// The name among `names` that `text` was probably meant to be: more alike than others, and not too different. Case counts for nothing.
pub(crate) fn nearest<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// As clap has it for its own suggestions.
    const ALIKE: f64 = 0.7;
    let text = text.to_lowercase();
    let alike = |name: &str| strsim::jaro(&text, &name.to_lowercase());
    let scored = names.into_iter().map(|name| (alike(name), name)).filter(|(score, _)| *score > ALIKE);
    scored.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

/// What follows a message where a name is near: `; did you mean ic0?`
pub(crate) fn did_you_mean<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(text, names).map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

/// One of [`RIGHT_HAND_SIDES`] in any case, as it is written there; or a file's name, as it is.
pub(crate) fn right_hand_side(text: &str) -> Result<String, std::convert::Infallible> {
    let name = RIGHT_HAND_SIDES.into_iter().find(|name| name.eq_ignore_ascii_case(text));
    Ok(name.unwrap_or(text).to_owned())
}

/// Parses `--precond`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preconditioners;

impl Preconditioners {
    fn parse(text: &str) -> Result<PrecondName, String> {
        let lower = text.to_ascii_lowercase();
        PrecondName::parse(&lower).map_err(|why| {
            let stem = |name: &'static str| name.split_once('=').map_or(name, |(stem, _)| stem);
            let (given, _) = lower.split_once('=').unwrap_or((&lower, ""));
            // Of a known name the parameter is wrong, and the message says how.
            if PRECONDITIONERS.into_iter().map(stem).any(|name| name == given) {
                return why;
            }
            why + &did_you_mean(given, PRECONDITIONERS)
        })
    }
}

impl TypedValueParser for Preconditioners {
    type Value = PrecondName;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<PrecondName, Error> {
        Self::parse.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(PRECONDITIONERS.into_iter().map(PossibleValue::new)))
    }
}

/// Options that `solve` does not have and that users of other programs try, each answered with the one to use: the most alike in
/// letters may mean something else.
pub(crate) fn misnamed() -> impl IntoIterator<Item = Arg> {
    const MISNAMED: [(&str, &str, &[&str]); 5] = [
        ("tol", "--rtol", &["tolerance", "eps", "epsilon"]),
        ("method", "--solver", &["algorithm"]),
        ("iterations", "--max-iters", &["iters", "maxit"]),
        ("output", "--out", &["solution"]),
        ("guess", "--x0", &["initial-guess"]),
    ];
    MISNAMED.map(|(wrong, right, others)| {
        let parser = UnknownArgumentValueParser::suggest_arg(right);
        Arg::new(wrong).long(wrong).aliases(others.iter().copied()).value_name("X").value_parser(parser).hide(true)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preconditioner_that_shells_offer_can_be_parsed() {
        for name in PRECONDITIONERS {
            assert_eq!(PrecondName::parse(name).expect(name).to_string(), name);
            assert_eq!(Preconditioners::parse(&name.to_uppercase()).expect(name).to_string(), name);
        }
    }

    #[test]
    fn wrong_names_lead_to_the_nearest() {
        for (wrong, right) in [("ilu", "ilu0"), ("icc0", "ic0"), ("ILUO", "ilu0"), ("jacoby", "jacobi")] {
            let why = Preconditioners::parse(wrong).unwrap_err();
            assert!(why.ends_with(&format!("; did you mean {right}?")), "{wrong}: {why}");
        }
        for wrong in ["iluk", "iluk=-1", "ssor=2"] {
            assert!(!Preconditioners::parse(wrong).unwrap_err().contains("did you mean"), "{wrong}");
        }
        assert_eq!(nearest("xyz", PRECONDITIONERS), None);
        assert_eq!(nearest("Random", RIGHT_HAND_SIDES), Some("random"));
    }

    #[test]
    fn names_of_right_hand_sides_have_any_case_and_files_keep_theirs() {
        let given = ["Ones", "RANDOM", "from-solution", "B.mtx", "./Ones"].map(|text| right_hand_side(text).unwrap());
        assert_eq!(given, ["ones", "random", "from-solution", "B.mtx", "./Ones"]);
    }
}
