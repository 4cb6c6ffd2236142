//! The committed PTX: made from the sources as they are, and without contracted or approximate arithmetic.

use std::collections::BTreeMap;

use super::{Breach, Tree, stem};
use crate::ptx::{PTX, Sources, sum};

/// An instruction that may stand in a module although the rule is against it, and why.
#[derive(Clone, Copy, Debug)]
struct Exception {
    stem: &'static str,
    opcode: &'static str,
    why: &'static str,
}

/// Those that there are.
const EXCEPTIONS: &[Exception] = &[];

/// Arithmetic whose rounding must be spelt: without `.rn` the assembler may contract it.
const ROUNDED: [&str; 8] = ["add", "sub", "mul", "mad", "fma", "div", "sqrt", "rcp"];

/// Types of floating-point operands.
const FLOATS: [&str; 7] = ["f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64"];

/// Modifiers of less than full precision, and of numbers flushed to zero.
const INEXACT: [&str; 3] = ["approx", "full", "ftz"];

/// The hash of all committed PTX, as `cargo xtask ptx --hash` prints it.
pub(crate) fn hash(tree: &Tree) -> String {
    sum(modules(tree).filter_map(|(path, text)| Some((path.strip_prefix(PTX)?, text))))
}

fn modules(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    tree.with_ending(&["ptx"]).filter(|(path, _)| path.starts_with(PTX))
}

/// PTX that its sources have left behind, that has none, or that is missing. Needs no compiler: the head bears a sum of
/// the sources.
pub(crate) fn stale(tree: &Tree) -> Vec<Breach> {
    let sources = Sources::of(tree.with_ending(&["cu", "cuh"]));
    let outputs = match sources.outputs() {
        Ok(outputs) => outputs,
        Err(error) => return vec![Breach::new("ptx", "kernels", error.to_string())],
    };
    let mut breaches = Vec::new();
    for output in &outputs {
        let path = format!("{PTX}{}", output.name());
        let what = match tree.text(&path) {
            None => "missing",
            Some(text) if !text.starts_with(&sources.head(output)) => "stale",
            Some(_) => continue,
        };
        let what = format!("is {what}: `cargo xtask ptx` compiles {}", output.source);
        breaches.push(Breach::new("ptx", path, what));
    }
    for (path, _) in modules(tree).filter(|(path, _)| !outputs.iter().any(|o| format!("{PTX}{}", o.name()) == *path)) {
        breaches.push(Breach::new("ptx", path, "no source in kernels asks for it"));
    }
    breaches
}

/// Instructions that would give other bits than the CPU's: contracted, approximate or flushing to zero.
pub(crate) fn instructions(tree: &Tree) -> Vec<Breach> {
    judge(tree, EXCEPTIONS)
}

fn judge(tree: &Tree, exceptions: &[Exception]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut excused = vec![false; exceptions.len()];
    for (path, text) in modules(tree) {
        // Each instruction once, with its first line and how often it stands there.
        let mut found: BTreeMap<&str, (usize, usize, &str)> = BTreeMap::new();
        for (k, line) in text.lines().enumerate() {
            for opcode in opcodes(line) {
                let Some(what) = fault(opcode) else { continue };
                if let Some(k) = exceptions.iter().position(|e| e.stem == stem(path) && e.opcode == opcode) {
                    excused[k] = true;
                    continue;
                }
                found.entry(opcode).or_insert((k + 1, 0, what)).1 += 1;
            }
        }
        for (opcode, (line, times, what)) in found {
            let what = format!("`{opcode}` ({times} times): {what}");
            breaches.push(Breach::new("ptx", format!("{path}:{line}"), what));
        }
    }
    for (exception, _) in exceptions.iter().zip(excused).filter(|(_, excused)| !excused) {
        let what = format!("has no `{}` (any more): drop the exception ({})", exception.opcode, exception.why);
        breaches.push(Breach::new("ptx", format!("{PTX}{}.ptx", exception.stem), what));
    }
    breaches
}

/// The instructions of a line, which are several in text that was written by hand.
fn opcodes(line: &str) -> impl Iterator<Item = &str> {
    let line = line.split_once("//").map_or(line, |(before, _)| before);
    line.split(['{', '}', ';']).filter_map(|statement| {
        let mut words = statement.split_whitespace().skip_while(|word| word.starts_with('@') || word.ends_with(':'));
        words.next().filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()))
    })
}

/// What is wrong with an instruction.
fn fault(opcode: &str) -> Option<&'static str> {
    let mut parts = opcode.split('.');
    let verb = parts.next().unwrap_or_default();
    let has = |names: &[&str]| parts.clone().any(|part| names.contains(&part));
    if has(&INEXACT) {
        Some("approximate, or flushes to zero")
    } else if ROUNDED.contains(&verb) && has(&FLOATS) && !has(&["rn"]) {
        Some("not rounded to nearest by itself: the assembler may contract it")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "crates/backend-cuda/ptx/csr.ptx";

    fn of(line: &str) -> usize {
        judge(&Tree::of([(FILE, line)]), &[]).len()
    }

    #[test]
    fn exact_arithmetic_and_whole_numbers_pass() {
        for good in [
            "\tfma.rn.f64 \t%fd1, %fd2, %fd3, %fd4;",
            "\tmul.rn.f32 \t%f1, %f2, %f3;",
            "\t@%p1 add.rn.f64 \t%fd1, %fd2, %fd3;",
            "\tdiv.rn.f32 \t%f1, %f2, %f3;",
            "\tsqrt.rn.f64 \t%fd1, %fd2;",
            "\tadd.s64 \t%rd1, %rd2, %rd3;",
            "\tmul.wide.u32 \t%rd1, %r2, 8;",
            "\tmul.lo.s64 \t%rd1, %rd2, %rd3;",
            "\tmad.lo.s32 \t%r1, %r2, %r3, %r4;",
            "\tsub.s32 \t%r1, %r2, %r3;",
            "\tdiv.u64 \t%rd1, %rd2, %rd3;",
            "\tld.global.f64 \t%fd1, [%rd1];",
            "\tcvt.f64.f32 \t%fd1, %f1;",
            "\tneg.f64 \t%fd1, %fd2;",
            "\tatom.global.add.u32 \t%r1, [%rd1], 1;",
            "// mul.f32",
            ".func (.param .f32 mul.f32) approx",
        ] {
            assert_eq!(of(good), 0, "{good}");
        }
    }

    #[test]
    fn contracted_and_approximate_arithmetic_is_a_breach() {
        for bad in [
            "\tmul.f32 \t%f1, %f2, %f3;",
            "\tmul.f64 \t%fd1, %fd2, %fd3;",
            "\tadd.f64 \t%fd1, %fd2, %fd3;",
            "\t@!%p1 sub.f32 \t%f1, %f2, %f3;",
            "\tfma.rz.f32 \t%f1, %f2, %f3, %f4;",
            "\tmad.f32 \t%f1, %f2, %f3, %f4;",
            "\tdiv.full.f32 \t%f1, %f2, %f3;",
            "\tdiv.approx.f32 \t%f1, %f2, %f3;",
            "\tsqrt.approx.f32 \t%f1, %f2;",
            "\trsqrt.approx.f64 \t%fd1, %fd2;",
            "\tex2.approx.ftz.f32 \t%f1, %f2;",
            "\tadd.rn.ftz.f32 \t%f1, %f2, %f3;",
            "\t{ .reg .f32 t; mul.f32 t, %f1, %f2; }",
            "$L__BB0_1: add.f32 \t%f1, %f2, %f3;",
        ] {
            assert_eq!(of(bad), 1, "{bad}");
        }
        let breaches = judge(&Tree::of([(FILE, "\n\tmul.f32 a;\n\tmul.f32 b;\n\tadd.f32 c;\n")]), &[]);
        let texts: Vec<String> = breaches.into_iter().map(|breach| breach.to_string()).collect();
        assert!(texts.len() == 2 && texts[1].contains("csr.ptx:2") && texts[1].contains("(2 times)"), "{texts:?}");
    }

    #[test]
    fn an_exception_is_for_its_module_and_is_needed() {
        let exception = [Exception { stem: "csr", opcode: "mul.f32", why: "reasons" }];
        assert!(judge(&Tree::of([(FILE, "\tmul.f32 a;")]), &exception).is_empty());
        assert!(judge(&Tree::of([("crates/backend-cuda/ptx/csr.sm_90.ptx", "\tmul.f32 a;")]), &exception).is_empty());
        assert_eq!(judge(&Tree::of([(FILE, "\tmul.f32 a;\n\tmul.f64 b;")]), &exception).len(), 1);
        assert_eq!(judge(&Tree::of([("crates/backend-cuda/ptx/ell.ptx", "\tmul.f32 a;")]), &exception).len(), 2);
        assert!(judge(&Tree::default(), &exception)[0].what.contains("reasons"));
    }

    #[test]
    fn ptx_follows_its_sources() {
        let files = [("kernels/csr.cu", "// CSR.\n// Variants: sm_90\n"), ("kernels/include/a.cuh", "// a\n")];
        let sources = Sources::of(files);
        let outputs = sources.outputs().expect("known variants");
        let texts: Vec<String> = outputs.iter().map(|output| format!("{}//\n", sources.head(output))).collect();
        let newer = "crates/backend-cuda/ptx/csr.sm_90.ptx";
        let fresh = [files[0], files[1], (FILE, texts[0].as_str()), (newer, texts[1].as_str())];
        let places = |tree: &Tree| stale(tree).into_iter().map(|breach| breach.place).collect::<Vec<_>>();
        assert!(places(&Tree::of(fresh)).is_empty());

        assert_eq!(places(&Tree::of([fresh[0], fresh[1], fresh[2]])), [newer]);
        assert_eq!(
            places(&Tree::of([fresh[0], ("kernels/include/a.cuh", "// b\n"), fresh[2], fresh[3]])),
            [FILE, newer]
        );
        assert_eq!(places(&Tree::of([fresh[0], fresh[1], fresh[2], (newer, texts[0].as_str())])), [newer]);
        assert_eq!(places(&Tree::of([("kernels/csr.cu", "// CSR.\n"), fresh[1], fresh[3]])), [FILE, newer]);
        assert_eq!(places(&Tree::of([("kernels/csr.cu", "// Variants: sm_1\n")])), ["kernels"]);
        assert_eq!(places(&Tree::of([fresh[2]])), [FILE]);
    }

    #[test]
    fn the_hash_is_that_of_the_folder() {
        let tree = Tree::of([(FILE, "a"), ("kernels/csr.cu", "b")]);
        assert_eq!(hash(&tree), sum([("csr.ptx", "a")]));
    }
}
