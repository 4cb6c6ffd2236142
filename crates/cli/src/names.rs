//! Names on the command line: case does not matter, and a wrong name gets the nearest known one as a hint.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser, UnknownArgumentValueParser};
use clap::{Arg, Command, Error};
use std::ffi::OsStr;

use spandrel::ranks::RankPrecond;
use spandrel::solver::{FormatChoice, NullVectors, Reorder, Scale, or_auto};
use spandrel::{Method, Precond};
use spandrel_formats::nearest::nearest;

use crate::args::OrAuto;

/// Right-hand sides that are no file.
pub(crate) const RIGHT_HAND_SIDES: [&str; 3] = ["ones", "random", "from-solution"];

/// Preconditioners as shells offer them, each with a parameter if it needs one.
fn preconditioners() -> impl Iterator<Item = &'static str> {
    std::iter::once("auto").chain(Precond::EXAMPLES.iter().copied()).chain(RankPrecond::EXAMPLES)
}

/// Parses `--solver`.
pub(crate) fn methods() -> impl TypedValueParser<Value = OrAuto<Method>> {
    let names = std::iter::once("auto").chain(Method::ALL.iter().map(|method| method.as_str()));
    PossibleValuesParser::new(names).try_map(|name| or_auto(&name))
}

/// Parses the `--format` of a solve.
pub(crate) fn format_choices() -> impl TypedValueParser<Value = FormatChoice> {
    let names = ["auto", "measured"].into_iter().chain(FormatChoice::NAMES.iter().copied());
    PossibleValuesParser::new(names).try_map(|name| name.parse::<FormatChoice>())
}

/// Parses `--reorder`.
pub(crate) fn orderings() -> impl TypedValueParser<Value = OrAuto<Reorder>> {
    let about = |ordering: &Reorder| match ordering {
        Reorder::None => "As the matrix is numbered",
        Reorder::Bfs => "Breadth-first: neighbours near each other",
        Reorder::Bisection => "Recursive bisection: few neighbours on other ranks",
        Reorder::Rcm => "Reverse Cuthill-McKee: a narrow band",
        Reorder::Amd => "Approximate minimum degree: little fill",
    };
    let values = Reorder::ALL.iter().map(move |ordering| PossibleValue::new(ordering.as_str()).help(about(ordering)));
    let auto = PossibleValue::new("auto").help("By the matrix");
    PossibleValuesParser::new(std::iter::once(auto).chain(values)).try_map(|name| or_auto(&name))
}

/// Parses `--null-space`.
pub(crate) fn null_spaces() -> impl TypedValueParser<Value = NullVectors> {
    let values = NullVectors::ALL.iter().map(|vectors| vectors.as_str());
    PossibleValuesParser::new(values).try_map(|name| name.parse::<NullVectors>())
}

/// Parses `--scale`.
pub(crate) fn scalings() -> impl TypedValueParser<Value = OrAuto<Scale>> {
    let about = |scale: &Scale| match scale {
        Scale::None => "As the matrix is",
        Scale::Equilibrate => "Rows and columns by powers of two",
        Scale::Match => "Maximum product matching: large entries on the diagonal",
    };
    let values = Scale::ALL.iter().map(move |scale| PossibleValue::new(scale.as_str()).help(about(scale)));
    let auto = PossibleValue::new("auto").help("By the matrix");
    PossibleValuesParser::new(std::iter::once(auto).chain(values)).try_map(|name| or_auto(&name))
}

/// The hint after a message if a name is near: `; did you mean ic0?`
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

impl TypedValueParser for Preconditioners {
    type Value = OrAuto<RankPrecond>;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<OrAuto<RankPrecond>, Error> {
        or_auto::<RankPrecond>.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(preconditioners().map(PossibleValue::new)))
    }
}

/// Options of other programs that `solve` does not have, each answered with the one to use. The option nearest in
/// spelling may mean something else.
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
        for name in preconditioners() {
            let parsed = or_auto::<RankPrecond>(&name.to_uppercase()).expect(name);
            assert_eq!(parsed.map_or_else(|| "auto".to_string(), |precond| precond.to_string()), name);
        }
    }

    #[test]
    fn wrong_names_lead_to_the_nearest() {
        assert_eq!(did_you_mean("xyz", RIGHT_HAND_SIDES), "");
        assert_eq!(did_you_mean("Radnom", RIGHT_HAND_SIDES), "; did you mean random?");
    }

    #[test]
    fn names_of_right_hand_sides_have_any_case_and_files_keep_theirs() {
        let given = ["Ones", "RANDOM", "from-solution", "B.mtx", "./Ones"].map(|text| right_hand_side(text).unwrap());
        assert_eq!(given, ["ones", "random", "from-solution", "B.mtx", "./Ones"]);
    }
}
