//! Compares declarations with kernels: agreement passes, and each kind of disagreement is found.

use std::path::Path;

use super::signature::{InPtx, InSource, Signatures, of_ptx, of_source, of_text};
use super::{Address, Declared, List, Parameter};
use crate::launch::{CoeffArg, TreeArg};

/// The declarations of all files. If a file is missing here, its kernels count as undeclared.
fn declared_everywhere() -> Vec<Declared> {
    let files: [fn(&mut Vec<Declared>); 37] = [
        crate::bdia::declared,
        crate::bsr::declared,
        crate::bsrx::declared,
        crate::coarsen::declared,
        crate::convert::declared,
        crate::coo::declared,
        crate::csr::declared,
        crate::csr::classes::declared,
        crate::csr::marked::declared,
        crate::csr::persistent::declared,
        crate::csr::wrap::declared,
        crate::dense::declared,
        crate::dia::declared,
        crate::ell::declared,
        crate::factor::declared,
        crate::hmec::declared,
        crate::hyb::declared,
        crate::kept::declared,
        crate::levelset::declared,
        crate::peers::declared,
        crate::renumber::declared,
        crate::runs::declared,
        crate::scan::declared,
        crate::sell::declared,
        crate::serial::declared,
        crate::sparse_vec::declared,
        crate::spgemm::declared,
        crate::sptrsv::declared,
        crate::structured::declared,
        crate::sweep::declared,
        crate::sweep::factors::declared,
        crate::sweep::resident::declared,
        crate::syncfree::declared,
        crate::stencil::declared,
        crate::transpose::declared,
        crate::triangle::declared,
        crate::vector::declared,
    ];
    let mut all = Vec::new();
    files.iter().for_each(|declared| declared(&mut all));
    all
}

/// The kernels of each text of a module, by the text's name.
fn compiled(stem: &str) -> Vec<(String, Signatures<InPtx>)> {
    let texts = crate::module::ptx().into_iter().filter(|(name, _)| name.split('.').next() == Some(stem));
    texts.map(|(name, text)| (name, of_ptx(&text))).collect()
}

/// The sources, if this is the repository: a published package has only their PTX.
fn sources() -> Option<&'static Path> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels"));
    folder.is_dir().then_some(folder)
}

/// The kernels' name of a type: without path and `Arg`, and with their names of the types in it.
fn twin(of: &str) -> String {
    let (head, arguments) = of.split_once('<').map_or((of, ""), |(head, rest)| (head, rest));
    let head = head.rsplit("::").next().unwrap_or(head);
    match head {
        "Address" => "T*".to_owned(),
        "f64" => "double".to_owned(),
        head => {
            let arguments = arguments.replace("f32", "float").replace("f64", "double");
            let open = if arguments.is_empty() { "" } else { "<" };
            format!("{}{open}{arguments}", head.strip_suffix("Arg").unwrap_or(head))
        }
    }
}

/// Whether a type of the kernels is this twin. A twin without arguments matches any.
fn is_twin(twin: &str, of: &str) -> bool {
    of == twin || (!twin.contains('<') && of.split('<').next() == Some(twin))
}

/// A name without the prefix that distinguishes it in the kernel: `ca` of a coefficient, `t_`.
fn plain(InSource { name, of }: &InSource) -> &str {
    let name = name.trim_end_matches('_');
    match name.strip_prefix('c') {
        Some(rest) if of.starts_with("Coeff<") && !rest.is_empty() => rest,
        _ => name,
    }
}

/// How a declaration differs from a kernel of a PTX text.
fn in_ptx(kernel: &str, declared: &[Parameter], ptx: &[InPtx]) -> Vec<String> {
    if declared.len() != ptx.len() {
        return vec![format!("{kernel} takes {} parameters, {} are declared", ptx.len(), declared.len())];
    }
    let agree = |d: &Parameter, p: &InPtx| {
        let scalar = ["u32", "u64", "f64"].contains(&d.of) || twin(d.of) == "T*";
        (d.size, d.align, scalar) == (p.size, p.align, !p.bytes)
    };
    let wrong = declared.iter().zip(ptx).enumerate().filter(|(_, (d, p))| !agree(d, p));
    wrong.map(|(k, (d, p))| format!("parameter {k} of {kernel} is {p:?}, `{}: {}` is declared", d.name, d.of)).collect()
}

/// How a declaration differs from a kernel of a source.
fn in_source(kernel: &str, declared: &[Parameter], source: &[InSource]) -> Vec<String> {
    if declared.len() != source.len() {
        return vec![format!("{kernel} takes {} parameters, {} are declared", source.len(), declared.len())];
    }
    let agree = |d: &Parameter, s: &InSource| d.name == plain(s) && is_twin(&twin(d.of), &s.of);
    let wrong = declared.iter().zip(source).enumerate().filter(|(_, (d, s))| !agree(d, s));
    let line = |(k, (d, s)): (usize, (&Parameter, &InSource))| {
        format!("parameter {k} of {kernel} is `{} {}`, `{}: {}` is declared", s.of, s.name, d.name, d.of)
    };
    wrong.map(line).collect()
}

/// How declarations differ from the kernels that they name.
fn disagreements(all: &[Declared]) -> Vec<String> {
    let mut found = Vec::new();
    let mut stems: Vec<&str> = all.iter().map(|declared| declared.stem).collect();
    stems.sort_unstable();
    stems.dedup();
    for stem in stems {
        let texts = compiled(stem);
        let source = sources().map(|folder| of_source(folder, stem));
        for Declared { name, parameters, .. } in all.iter().filter(|declared| declared.stem == stem) {
            let mut there = false;
            for (element, declared) in parameters {
                let kernel = format!("{name}_{element}");
                for (text, kernels) in &texts {
                    let Some(ptx) = kernels.get(&kernel) else { continue };
                    there = true;
                    found.extend(in_ptx(&format!("{kernel} in {text}"), declared, ptx));
                }
                match source.as_ref().map(|kernels| kernels.get(&kernel)) {
                    Some(Some(source)) => found.extend(in_source(&kernel, declared, source)),
                    // Every kernel in PTX has a source.
                    Some(None) if texts.iter().any(|(_, kernels)| kernels.contains_key(&kernel)) => {
                        found.push(format!("{kernel} is not found in kernels/{stem}.cu"));
                    }
                    Some(None) | None => {}
                }
            }
            if !there {
                found.push(format!("{stem} has no kernel {name}"));
            }
        }
    }
    found
}

#[test]
fn declarations_are_those_of_the_kernels() {
    let all = declared_everywhere();
    assert!(all.len() > 200, "{} kernels are declared", all.len());
    let found = disagreements(&all);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_kernel_is_declared_once() {
    let all = declared_everywhere();
    for (text, ptx) in crate::module::ptx() {
        let stem = text.split('.').next().unwrap_or_default();
        for kernel in of_ptx(&ptx).keys() {
            let name = kernel.rsplit_once('_').map_or("", |(name, _)| name);
            let count = all.iter().filter(|declared| declared.stem == stem && declared.name == name).count();
            assert_eq!(count, 1, "{kernel} of {text} has one declaration in `kernels!`");
        }
    }
}

/// Declarations with one mistake each.
mod wrong {
    use super::*;

    kernels! {
        #[allow(dead_code)]
        struct OneTooFew { n: u64, x: Address, y: Address }
        in VECTOR { ENTRY: "copy_vector" }

        #[allow(dead_code)]
        struct OneTooMany { n: u64, x: Address, y: Address, gate: Address, more: u32 }
        in VECTOR { ENTRY: "copy_vector" }

        #[allow(dead_code)]
        struct TooSmall { n: u32, x: Address, y: Address, gate: Address }
        in VECTOR { ENTRY: "copy_vector" }

        #[allow(dead_code)]
        struct OtherSizesSwapped { squared: Address, monitor: Address, phase: u32 }
        in VECTOR { ENTRY: "observe_scalar" }

        #[allow(dead_code)]
        struct AddressesSwapped { n: u64, y: Address, x: Address, gate: Address }
        in VECTOR { ENTRY: "copy_vector" }

        #[allow(dead_code)]
        struct NumberForAddress { n: u64, x: Address, y: u64, gate: Address }
        in VECTOR { ENTRY: "copy_vector" }

        #[allow(dead_code)]
        struct OtherElement { n: u64, value: CoeffArg<f32>, y: Address, gate: Address }
        in VECTOR { ENTRY: "fill_vector" }

        #[allow(dead_code)]
        struct OtherStructure { n: u64, value: TreeArg, y: Address, gate: Address }
        in VECTOR { ENTRY: "fill_vector" }

        #[allow(dead_code)]
        struct NumberForStructure { n: u64, value: u64, y: Address, gate: Address }
        in VECTOR { ENTRY: "fill_vector" }

        #[allow(dead_code)]
        struct OfAnotherModule { n: u64, x: Address, y: Address, gate: Address }
        in CSR { ENTRY: "copy_vector" }
    }
}

#[test]
fn each_wrong_declaration_is_found() {
    let mut all = Vec::new();
    wrong::declared(&mut all);
    let expected: [(&str, bool); 10] = [
        ("copy_vector_f64 in vector.ptx takes 4 parameters, 3 are declared", true),
        ("copy_vector_f64 in vector.ptx takes 4 parameters, 5 are declared", true),
        ("parameter 0 of copy_vector_f64 in vector.ptx is", true),
        ("parameter 1 of observe_scalar_f64 in vector.ptx is", true),
        ("parameter 1 of copy_vector_f64 is `T* x`, `y: ", false),
        ("parameter 2 of copy_vector_f64 is `T* y`, `y: u64` is declared", false),
        ("parameter 1 of fill_vector_f64 is `Coeff<double> value`", false),
        ("parameter 1 of fill_vector_f64 is `Coeff<double> value`", false),
        ("parameter 1 of fill_vector_f64 in vector.ptx is", true),
        ("csr has no kernel copy_vector", true),
    ];
    assert_eq!(all.len(), expected.len());
    for (declared, (message, without_sources)) in all.iter().zip(expected) {
        let found = disagreements(std::slice::from_ref(declared));
        let shown = found.iter().any(|line| line.starts_with(message));
        assert!(shown || (!without_sources && sources().is_none()), "{message}: {found:?}");
    }
}

#[test]
fn parameters_are_listed_in_the_order_of_their_declaration() {
    parameters! {
        struct Middle { b: u64, c: u32 }
        struct All { a: u32, middle: Middle, d: Address }
    }
    let all = All { a: 1, middle: Middle { b: 2, c: 3 }, d: Address::NULL.offset(4) };
    let mut list = List::of(&all);
    let addresses = list.addresses();
    // SAFETY: the addresses are those of the fields, which are borrowed.
    let values = unsafe {
        (
            *addresses[0].cast::<u32>(),
            *addresses[1].cast::<u64>(),
            *addresses[2].cast::<u32>(),
            *addresses[3].cast::<u64>(),
        )
    };
    assert_eq!((addresses.len(), values), (4, (1, 2, 3, 4)));
}

#[test]
fn ptx_is_read() {
    let text = "// head\n.visible .entry a_b_f32(\n\t.param .u64 a_b_f32_param_0,\n\t.param .align 8 .b8 a_b_f32_param_1[40],\n\t.param .u64 .ptr .global .align 16 a_b_f32_param_2,\n\t.param .f32 a_b_f32_param_3\n)\n.maxntid 256, 1, 1\n{\n}\n\n.visible .entry c_d_f32()\n{\n}\n";
    let found = of_ptx(text);
    let word = |size| InPtx { size, align: size, bytes: false };
    assert_eq!(found["a_b_f32"], [word(8), InPtx { size: 40, align: 8, bytes: true }, word(8), word(4)]);
    assert_eq!(found["c_d_f32"], []);
}

#[test]
fn macros_are_expanded_as_the_compiler_does() {
    let text = "// A comment with __global__ f(int a)\n#define THREADS 256\n#define UNPACK(...) __VA_ARGS__\n#define EACH(ENTRY) ENTRY(float, f32) ENTRY(double, f64)\n#define OF(T, t, name, BOUNDS, OWN) \\\n    extern \"C\" __global__ void __launch_bounds__ BOUNDS spmv_##name##csr_##t(UNPACK OWN, const __grid_constant__ Sides<T, 2> s, T* x) { \\\n        f<T>(x); \\\n    }\n#define BOTH(T, t) OF(T, t, , (THREADS, 2), (u32 n, const T* __restrict__ a)) OF(T, t, short_, (THREADS), (u32 n))\nEACH(BOTH)\n";
    let found = of_text(text);
    let of = |of: &str, name: &str| InSource { name: name.to_owned(), of: of.to_owned() };
    assert_eq!(
        found.keys().collect::<Vec<_>>(),
        ["spmv_csr_f32", "spmv_csr_f64", "spmv_short_csr_f32", "spmv_short_csr_f64"]
    );
    assert_eq!(found["spmv_csr_f64"], [of("u32", "n"), of("T*", "a"), of("Sides<double,2>", "s"), of("T*", "x")]);
    assert_eq!(found["spmv_short_csr_f32"], [of("u32", "n"), of("Sides<float,2>", "s"), of("T*", "x")]);
}
