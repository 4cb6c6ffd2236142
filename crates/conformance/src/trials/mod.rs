//! All trials of a backend, and of a pair of backends.
//!
//! Order: one matrix after the other, so that the operands and sums of a case are dropped before the next case makes
//! its own.

#[cfg(not(test))]
pub(crate) mod analyze;
#[cfg(not(test))]
pub(crate) mod assemble;
pub(crate) mod cast;
pub(crate) mod checked;
#[cfg(not(test))]
pub(crate) mod classes;
pub(crate) mod coarsen;
#[cfg(not(test))]
pub(crate) mod convert;
#[cfg(not(test))]
pub(crate) mod cuda;
pub(crate) mod download;
#[cfg(not(test))]
pub(crate) mod exhausted;
pub(crate) mod factorize;
pub(crate) mod faults;
pub(crate) mod formats;
#[cfg(not(test))]
pub(crate) mod joined;
pub(crate) mod level1;
pub(crate) mod made;
pub(crate) mod monitor;
pub(crate) mod multigrid;
#[cfg(not(test))]
pub(crate) mod narrow;
#[cfg(not(test))]
pub(crate) mod narrow_dia;
#[cfg(not(test))]
pub(crate) mod new_values;
#[cfg(not(test))]
mod packed;
pub mod pairs;
#[cfg(not(test))]
pub(crate) mod peers;
#[cfg(not(test))]
pub(crate) mod persistent;
pub(crate) mod precond;
pub(crate) mod product;
#[cfg(not(test))]
pub(crate) mod renewed;
pub(crate) mod renumber;
pub(crate) mod repeats;
pub mod reproducible;
#[cfg(not(test))]
pub(crate) mod runs;
pub(crate) mod solve;
#[cfg(not(test))]
pub(crate) mod solver_values;
pub(crate) mod sparse;
pub mod spgemm;
pub(crate) mod sptrsv;
pub(crate) mod sptrsv_factors;
pub(crate) mod sptrsv_refused;
pub(crate) mod sptrsv_repeats;
pub(crate) mod sptrsv_ways;
#[cfg(not(test))]
pub(crate) mod sptrsv_wraps;
#[cfg(not(test))]
pub(crate) mod stencil_updates;
#[cfg(not(test))]
pub(crate) mod stencils;
pub mod steps;
pub(crate) mod transpose;
pub mod unknowns;
#[cfg(not(test))]
pub(crate) mod wrapped;

use std::path::Path;
use std::rc::Rc;

use spandrel_backend::{EveryMethod, MixedPrecision, Result, SparseVector, Spmm, Spmv, SpmvTransposed, Sptrsv};
use spandrel_formats::{Bdia, Bsr, Bsrx, Csc, Csr, Dia, Ell, Format, Real, Sell};
use spandrel_solvers::AmgBackend;
use spandrel_sptrsv::{Plan, Serial, Sweep};

use crate::case::Case;
use crate::subject::{Complete, EveryFactor, EveryPlan, Fleet};
use crate::trial::{Trial, wrong};
use crate::triangle;
use formats::Shared;

/// The products of one format. Separate, because not every backend has all of them.
pub fn of_format<F: Format, D: Spmv<F> + EveryMethod<F::Value> + 'static>(
    fleet: &Rc<Fleet<D>>,
    case: &Rc<Case>,
) -> Vec<Trial> {
    let mut out = Vec::new();
    let shared = Shared::<F::Value>::new(case.clone());
    formats::trials::<F, D>(fleet, &shared, &mut out);
    solve::trials::<F::Value, F, D>(fleet, &shared, &mut out);
    out
}

/// The products of one format with the transpose.
pub fn of_transposed<F: Format, D: SpmvTransposed<F> + 'static>(fleet: &Rc<Fleet<D>>, case: &Rc<Case>) -> Vec<Trial> {
    let mut out = Vec::new();
    formats::transposed::<F, D>(fleet, &Shared::new(case.clone()), &mut out);
    out
}

/// Vectors, scalars and monitors of one element type.
pub fn of_vectors<T: Real, D: EveryMethod<T> + 'static>(fleet: &Rc<Fleet<D>>, large: bool) -> Vec<Trial> {
    let mut out = Vec::new();
    level1::trials::<T, D>(fleet, large, &mut out);
    checked::trials::<T, D>(fleet, &mut out);
    monitor::trials::<T, D>(fleet, &mut out);
    out
}

/// The products of one format with several right-hand sides.
pub fn of_several<F: Format, D: Spmm<F> + 'static>(fleet: &Rc<Fleet<D>>, case: &Rc<Case>) -> Vec<Trial> {
    let mut out = Vec::new();
    formats::several::<F, D>(fleet, &Shared::new(case.clone()), &mut out);
    out
}

/// The masked product of BSRX.
pub fn of_masked<T: Real, D: Spmv<Bsrx<T>> + 'static>(fleet: &Rc<Fleet<D>>, case: &Rc<Case>) -> Vec<Trial> {
    let mut out = Vec::new();
    formats::masked::<T, D>(fleet, &Shared::new(case.clone()), &mut out);
    out
}

/// The operations with a sparse vector.
pub fn of_sparse_vectors<T: Real, D: SparseVector<T> + 'static>(fleet: &Rc<Fleet<D>>) -> Vec<Trial> {
    let mut out = Vec::new();
    sparse::trials::<T, D>(fleet, &mut out);
    out
}

/// Every trial of one backend. If `large` is false, the cases marked large and the longest vectors are left out.
pub fn of<D>(fleet: &Rc<Fleet<D>>, cases: &[Rc<Case>], large: bool) -> Vec<Trial>
where
    D: Complete<f32> + Complete<f64> + AmgBackend<f64> + MixedPrecision + 'static,
{
    let mut out = Vec::new();
    for case in cases.iter().filter(|case| large || !case.large) {
        matrices::<f32, D>(fleet, case, &mut out);
        matrices::<f64, D>(fleet, case, &mut out);
    }
    out.extend(of_vectors::<f32, D>(fleet, large));
    out.extend(of_vectors::<f64, D>(fleet, large));
    out.extend(of_casts(fleet));
    precond::trials(fleet, &mut out);
    sparse::trials::<f32, D>(fleet, &mut out);
    sparse::trials::<f64, D>(fleet, &mut out);
    out.extend(of_faults::<f32, D>(fleet));
    out.extend(of_faults::<f64, D>(fleet));
    repeats::trials::<f32, D>(fleet, cases, &mut out);
    repeats::trials::<f64, D>(fleet, cases, &mut out);
    out
}

/// Casts between element types.
pub fn of_casts<D: MixedPrecision + 'static>(fleet: &Rc<Fleet<D>>) -> Vec<Trial> {
    let mut out = Vec::new();
    cast::trials(fleet, &mut out);
    out
}

/// Invalid numbers during a solve.
pub fn of_faults<T: Real, D: Spmv<Csr<T>> + EveryMethod<T> + 'static>(fleet: &Rc<Fleet<D>>) -> Vec<Trial> {
    let mut out = Vec::new();
    faults::trials::<T, D>(fleet, &mut out);
    out
}

/// Every method with every preconditioner.
pub fn of_solvers<D: pairs::Solves<f32> + pairs::Solves<f64>>(fleet: &Rc<Fleet<D>>) -> Vec<Trial> {
    let mut out = Vec::new();
    pairs::trials::<f32, D>(fleet, &mut out);
    pairs::trials::<f64, D>(fleet, &mut out);
    out
}

/// Grids of several unknowns per point, from the recognition to the solution.
pub fn of_unknowns<D: unknowns::Grids<f32> + unknowns::Grids<f64>>(fleet: &Rc<Fleet<D>>) -> Vec<Trial> {
    let mut out = Vec::new();
    unknowns::trials::<f32, D>(fleet, &mut out);
    unknowns::trials::<f64, D>(fleet, &mut out);
    out
}

/// Every method with every preconditioner on two backends.
pub fn solvers_between<D, E>(left: &Rc<Fleet<D>>, right: &Rc<Fleet<E>>) -> Vec<Trial>
where
    D: pairs::Solves<f32> + pairs::Solves<f64>,
    E: pairs::Solves<f32> + pairs::Solves<f64>,
{
    let mut out = Vec::new();
    pairs::between::<f32, D, E>(left, right, &mut out);
    pairs::between::<f64, D, E>(left, right, &mut out);
    out
}

/// Repetitions of the products of one format.
pub fn of_repeated_format<F: Format, D: Spmv<F> + 'static>(fleet: &Rc<Fleet<D>>, case: &Rc<Case>) -> Vec<Trial> {
    let mut out = Vec::new();
    repeats::format::<F, D>(fleet, &Shared::new(case.clone()), &mut out);
    out
}

macro_rules! each_differing {
    ([$left:ident $right:ident] $(($stem:ident, $Type:ident)),* $(,)?) => {
        [$((
            stringify!($stem),
            Spmv::<spandrel_formats::$Type<f64>>::order($left) != Spmv::<spandrel_formats::$Type<f64>>::order($right)
                || Spmv::<spandrel_formats::$Type<f32>>::order($left) != Spmv::<spandrel_formats::$Type<f32>>::order($right),
        )),*]
    };
}

/// The formats, by stem, that two devices of one backend multiply in different orders.
pub fn differing<D>(left: &Fleet<D>, right: &Fleet<D>) -> Vec<&'static str>
where
    D: Complete<f32> + Complete<f64>,
{
    let (left, right) = (left.first(), right.first());
    let all = spandrel_formats::for_each_format!(each_differing, left, right);
    let transposed = [
        (
            "csr",
            SpmvTransposed::<Csr<f64>>::transposed_order(left) != SpmvTransposed::<Csr<f64>>::transposed_order(right),
        ),
        (
            "csc",
            SpmvTransposed::<Csc<f64>>::transposed_order(left) != SpmvTransposed::<Csc<f64>>::transposed_order(right),
        ),
    ];
    all.into_iter().chain(transposed).filter(|(_, differs)| *differs).map(|(stem, _)| stem).collect()
}

macro_rules! each {
    ([$T:ident $fleet:ident $shared:ident $out:ident] $(($stem:ident, $Type:ident)),* $(,)?) => {
        $(formats::trials::<spandrel_formats::$Type<$T>, _>($fleet, &$shared, $out);)*
    };
}

fn matrices<T: Real, D: Complete<T> + 'static>(fleet: &Rc<Fleet<D>>, case: &Rc<Case>, out: &mut Vec<Trial>) {
    let shared = Shared::<T>::new(case.clone());
    spandrel_formats::for_each_format!(each, T, fleet, shared, out);
    formats::masked::<T, D>(fleet, &shared, out);
    formats::transposed::<Csr<T>, D>(fleet, &shared, out);
    formats::transposed::<Csc<T>, D>(fleet, &shared, out);
    formats::several::<Csr<T>, D>(fleet, &shared, out);
    formats::several::<Sell<T>, D>(fleet, &shared, out);
    formats::several::<Dia<T>, D>(fleet, &shared, out);
    formats::several::<Bsr<T>, D>(fleet, &shared, out);
    solve::trials::<T, Csr<T>, D>(fleet, &shared, out);
    if case.special {
        solve::trials::<T, Ell<T>, D>(fleet, &shared, out);
        solve::trials::<T, Sell<T>, D>(fleet, &shared, out);
        solve::trials::<T, Dia<T>, D>(fleet, &shared, out);
        solve::trials::<T, Bdia<T>, D>(fleet, &shared, out);
    }
}

/// Products, transposes, renumbered copies and downloads of matrices, of one element type.
pub fn of_made<T, D>(fleet: &Rc<Fleet<D>>) -> Vec<Trial>
where
    T: Real,
    D: made::Makes<T> + 'static,
{
    let mut out = Vec::new();
    spgemm::trials::<T, D>(fleet, &mut out);
    transpose::trials::<T, D>(fleet, &mut out);
    download::trials::<T, D>(fleet, &mut out);
    renumber::trials::<T, D>(fleet, &mut out);
    out
}

/// Algebraic coarsening, of one element type.
pub fn of_coarsening<T, D>(fleet: &Rc<Fleet<D>>) -> Vec<Trial>
where
    T: Real,
    D: AmgBackend<T> + made::Makes<T> + 'static,
{
    let mut out = Vec::new();
    coarsen::trials::<T, D>(fleet, &mut out);
    out
}

/// Stencil matrices and grids of geometric multigrid, of one element type.
#[cfg(not(test))]
pub fn of_stencils<T, D>(fleet: &Rc<Fleet<D>>) -> Vec<Trial>
where
    T: Real,
    D: spandrel_solvers::multigrid::StencilBackend<T> + spandrel_backend::UpdateValues<Csr<T>> + 'static,
{
    let mut out = Vec::new();
    stencils::trials::<T, D>(fleet, &mut out);
    stencil_updates::trials::<T, D>(fleet, &mut out);
    out
}

/// The triangular solve of one plan.
pub fn of_plan<P, D>(fleet: &Rc<Fleet<D>>, open: fn() -> Result<D>, case: &Rc<triangle::Case>) -> Vec<Trial>
where
    P: Plan,
    D: Sptrsv<P> + Spmv<Csr<f64>> + 'static,
{
    let mut out = Vec::new();
    let shared = sptrsv::Shared::<P::Value>::new(case.clone());
    sptrsv::trials::<P, D>(fleet, &shared, &mut out);
    sptrsv_repeats::beside::<P, D>(fleet, open, &shared, &mut out);
    out
}

macro_rules! each_plan {
    ([$T:ident $fleet:ident $open:ident $shared:ident $out:ident] $(($stem:ident, $Type:ident)),* $(,)?) => {
        $(
            sptrsv::trials::<spandrel_sptrsv::$Type<$T>, _>($fleet, &$shared, $out);
            sptrsv_repeats::beside::<spandrel_sptrsv::$Type<$T>, _>($fleet, $open, &$shared, $out);
        )*
    };
}

macro_rules! each_factor {
    ([$fleet:ident $file:ident $out:ident] $(($stem:ident, $Type:ident)),* $(,)?) => {
        $(sptrsv_factors::trials::<spandrel_sptrsv::$Type<f64>, _>($fleet, &$file, $out);)*
    };
}

/// The triangular solve of every plan: on all triangles and, if a folder of Matrix Market files is given, on the ILU(0)
/// factors. `open` opens a device for another queue beside the fleet's.
pub fn of_plans<D>(fleet: &Rc<Fleet<D>>, open: fn() -> Result<D>, folder: Option<&Path>) -> Vec<Trial>
where
    D: EveryPlan<f32>
        + EveryPlan<f64>
        + Spmv<Csr<f32>>
        + Spmv<Csr<f64>>
        + Sptrsv<Sweep<f32>>
        + Sptrsv<Sweep<f64>>
        + EveryMethod<f32>
        + EveryMethod<f64>
        + 'static,
{
    let mut out = Vec::new();
    let unreadable = |case: &str, why: String| {
        Trial::new(format!("sptrsv/triangle/all/{}/{case}", fleet.name), move || Err(wrong(why)))
    };
    match triangle::all() {
        Ok(cases) => {
            let cases: Vec<_> = cases.into_iter().map(Rc::new).collect();
            for case in &cases {
                triangles::<f32, D>(fleet, open, case, &mut out);
                triangles::<f64, D>(fleet, open, case, &mut out);
            }
            sptrsv_ways::trials::<f32, D>(fleet, &cases, &mut out);
            sptrsv_ways::trials::<f64, D>(fleet, &cases, &mut out);
        }
        Err(error) => out.push(unreadable("cases", format!("{error:#}"))),
    }
    sptrsv_refused::trials::<f32, D>(fleet, &mut out);
    sptrsv_refused::trials::<f64, D>(fleet, &mut out);
    multigrid::trials::<f32, D>(fleet, &mut out);
    multigrid::trials::<f64, D>(fleet, &mut out);
    match folder.map(sptrsv_factors::Factors::of) {
        Some(Ok(files)) => files.iter().for_each(|file| factors::<D>(fleet, file, &mut out)),
        Some(Err(error)) => out.push(unreadable("ilu0", error.to_string())),
        None => {}
    }
    out
}

/// The numbers of solves at the point where they wrap.
#[cfg(not(test))]
pub(crate) fn of_wraps(fleet: &Rc<Fleet<spandrel_backend_cuda::Cuda>>) -> Vec<Trial> {
    let mut out = Vec::new();
    // The plans' own trials report cases that cannot be read.
    let cases: Vec<_> = triangle::all().unwrap_or_default().into_iter().map(Rc::new).collect();
    sptrsv_wraps::trials::<f32>(fleet, &cases, &mut out);
    sptrsv_wraps::trials::<f64>(fleet, &cases, &mut out);
    out
}

fn triangles<T: Real, D>(fleet: &Rc<Fleet<D>>, open: fn() -> Result<D>, case: &Rc<triangle::Case>, out: &mut Vec<Trial>)
where
    D: EveryPlan<T> + Spmv<Csr<f64>> + 'static,
{
    let shared = sptrsv::Shared::<T>::new(case.clone());
    spandrel_sptrsv::for_each_plan!(each_plan, T, fleet, open, shared, out);
}

fn factors<D: EveryPlan<f64> + 'static>(
    fleet: &Rc<Fleet<D>>,
    file: &Rc<sptrsv_factors::Factors>,
    out: &mut Vec<Trial>,
) {
    spandrel_sptrsv::for_each_plan!(each_factor, fleet, file, out);
}

/// Every incomplete factorisation: on the patterns of all triangles and, if a folder of Matrix Market files is given,
/// on real matrices.
pub fn of_factors<D>(fleet: &Rc<Fleet<D>>, folder: Option<&Path>) -> Vec<Trial>
where
    D: EveryFactor<f32> + EveryFactor<f64> + Sptrsv<Serial<f32>> + Sptrsv<Serial<f64>> + 'static,
{
    let mut out = Vec::new();
    let unreadable = |case: &str, why: String| {
        Trial::new(format!("factorize/all/all/{}/{case}", fleet.name), move || Err(wrong(why)))
    };
    match triangle::all() {
        Ok(cases) => {
            for case in cases.into_iter().map(Rc::new) {
                factors_of_case::<f32, D>(fleet, &case, &mut out);
                factors_of_case::<f64, D>(fleet, &case, &mut out);
            }
        }
        Err(error) => out.push(unreadable("cases", format!("{error:#}"))),
    }
    if let Some(Err(error)) = folder.map(|folder| factorize::of_folder(fleet, folder, &mut out)) {
        out.push(unreadable("files", error.to_string()));
    }
    out
}

/// The incomplete factorisations of one case.
pub fn factors_of_case<T: Real, D>(fleet: &Rc<Fleet<D>>, case: &Rc<triangle::Case>, out: &mut Vec<Trial>)
where
    D: EveryFactor<T> + Sptrsv<Serial<T>> + 'static,
{
    factorize::trials::<T, D>(fleet, case, out);
}

/// What must hold in formats for which two backends declare different orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// Nothing: one trial per such format is skipped with the orders.
    WhereDeclared,
    /// One order: a trial per such format fails.
    Demanded,
}

/// Every comparison of two backends.
pub fn between<D, E>(left: &Rc<Fleet<D>>, right: &Rc<Fleet<E>>, cases: &[Rc<Case>], bits: Bits) -> Vec<Trial>
where
    D: Complete<f32> + Complete<f64> + AmgBackend<f64> + MixedPrecision + 'static,
    E: Complete<f32> + Complete<f64> + AmgBackend<f64> + MixedPrecision + 'static,
{
    let mut out = Vec::new();
    orders::<f32, D, E>(left, right, bits, &mut out);
    orders::<f64, D, E>(left, right, bits, &mut out);
    for case in cases.iter().filter(|case| !case.large) {
        compare::<f32, D, E>(left, right, case, &mut out);
        compare::<f64, D, E>(left, right, case, &mut out);
    }
    vectors_between::<f32, D, E>(left, right, &mut out);
    vectors_between::<f64, D, E>(left, right, &mut out);
    precond::pair(left, right, &mut out);
    out
}

/// The comparisons of two backends in multigrid.
pub fn grids_between<D, E>(left: &Rc<Fleet<D>>, right: &Rc<Fleet<E>>) -> Vec<Trial>
where
    D: Spmv<Csr<f32>>
        + Spmv<Csr<f64>>
        + Sptrsv<Sweep<f32>>
        + Sptrsv<Sweep<f64>>
        + EveryMethod<f32>
        + EveryMethod<f64>
        + 'static,
    E: Spmv<Csr<f32>>
        + Spmv<Csr<f64>>
        + Sptrsv<Sweep<f32>>
        + Sptrsv<Sweep<f64>>
        + EveryMethod<f32>
        + EveryMethod<f64>
        + 'static,
{
    let mut out = Vec::new();
    multigrid::pair::<f32, D, E>(left, right, &mut out);
    multigrid::pair::<f64, D, E>(left, right, &mut out);
    out
}

/// The comparisons of two backends in one format.
pub fn format_between<F, D, E>(left: &Rc<Fleet<D>>, right: &Rc<Fleet<E>>, case: &Rc<Case>) -> Vec<Trial>
where
    F: Format,
    D: Spmv<F> + EveryMethod<F::Value> + 'static,
    E: Spmv<F> + EveryMethod<F::Value> + 'static,
{
    let mut out = Vec::new();
    let shared = Shared::<F::Value>::new(case.clone());
    formats::pair::<F, D, E>(left, right, &shared, &mut out);
    solve::pair::<F::Value, F, D, E>(left, right, &shared, &mut out);
    out
}

/// The comparisons of two backends in vectors, scalars and monitors.
pub fn vectors_between<T, D, E>(left: &Rc<Fleet<D>>, right: &Rc<Fleet<E>>, out: &mut Vec<Trial>)
where
    T: Real,
    D: EveryMethod<T> + 'static,
    E: EveryMethod<T> + 'static,
{
    level1::pair::<T, D, E>(left, right, out);
    checked::pair::<T, D, E>(left, right, out);
}

macro_rules! each_order {
    ([$T:ident $left:ident $right:ident $bits:ident $out:ident] $(($stem:ident, $Type:ident)),* $(,)?) => {
        $(formats::orders::<spandrel_formats::$Type<$T>, _, _>($left, $right, $bits, $out);)*
    };
}

fn orders<T, D, E>(left: &Rc<Fleet<D>>, right: &Rc<Fleet<E>>, bits: Bits, out: &mut Vec<Trial>)
where
    T: Real,
    D: Complete<T> + 'static,
    E: Complete<T> + 'static,
{
    spandrel_formats::for_each_format!(each_order, T, left, right, bits, out);
}

macro_rules! each_pair {
    ([$T:ident $left:ident $right:ident $shared:ident $out:ident] $(($stem:ident, $Type:ident)),* $(,)?) => {
        $(formats::pair::<spandrel_formats::$Type<$T>, _, _>($left, $right, &$shared, $out);)*
    };
}

fn compare<T: Real, D: Complete<T> + 'static, E: Complete<T> + 'static>(
    left: &Rc<Fleet<D>>,
    right: &Rc<Fleet<E>>,
    case: &Rc<Case>,
    out: &mut Vec<Trial>,
) {
    let shared = Shared::<T>::new(case.clone());
    spandrel_formats::for_each_format!(each_pair, T, left, right, shared, out);
    solve::pair::<T, Csr<T>, D, E>(left, right, &shared, out);
    solve::pair::<T, Ell<T>, D, E>(left, right, &shared, out);
    solve::pair::<T, Sell<T>, D, E>(left, right, &shared, out);
    solve::pair::<T, Dia<T>, D, E>(left, right, &shared, out);
    solve::pair::<T, Bdia<T>, D, E>(left, right, &shared, out);
}
