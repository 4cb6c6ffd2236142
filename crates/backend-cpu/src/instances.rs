//! Instances of the operations for f32 and f64, compiled with this crate in development builds. There every crate above
//! can use what a crate below has compiled. Otherwise each program, test and example would compile all kernels again.
//! Optimised builds inline across crates and use nothing from here.

use std::hint::black_box;

use spandrel_backend::{
    Analyze, Backend, BicgstabSteps, Cast, CgSteps, Coarsen, Download, Factorize, Load, Renumber, SparseVector, Spgemm,
    Spmm, Spmv, SpmvTransposed, Sptrsv, Transpose,
};
use spandrel_formats::{Bsr, Csc, Csr, Dia, Format, Real, Sell, SparseVec};
use spandrel_sptrsv::{Factor, Plan, Ssor, Sweep};

use crate::Cpu;

/// Never called. Its presence makes the compiler compile everything that it names.
#[used]
static INSTANCES: [fn(); 2] = [of_type::<f32>, of_type::<f64>];

/// Makes the compiler compile these functions.
macro_rules! compile {
    ($($function:expr),* $(,)?) => {
        $(black_box($function as *const ());)*
    };
}

macro_rules! formats {
    ([$T:ident] $(($stem:ident, $Type:ident)),*) => { $(of_format::<spandrel_formats::$Type<$T>>();)* };
}
macro_rules! plans {
    ([$T:ident] $(($stem:ident, $Type:ident)),*) => { $(of_plan::<spandrel_sptrsv::$Type<$T>>();)* };
}
macro_rules! factors {
    ([$T:ident] $(($stem:ident, $Type:ident)),*) => { $(of_factor::<spandrel_sptrsv::$Type<$T>>();)* };
}

fn of_type<T: Real>() {
    compile!(
        <Cpu as Backend<T>>::zeros,
        <Cpu as Backend<T>>::upload,
        <Cpu as Backend<T>>::write,
        <Cpu as Backend<T>>::download,
        <Cpu as Backend<T>>::scalar,
        <Cpu as Backend<T>>::download_scalar,
        <Cpu as Backend<T>>::scalars,
        <Cpu as Backend<T>>::download_scalars,
        <Cpu as Backend<T>>::fill,
        <Cpu as Backend<T>>::copy,
        <Cpu as Backend<T>>::axpby,
        <Cpu as Backend<T>>::axpby_chain,
        <Cpu as Backend<T>>::axpbypcz,
        <Cpu as Backend<T>>::hadamard,
        <Cpu as Backend<T>>::assign,
        <Cpu as Backend<T>>::dot,
        <Cpu as Backend<T>>::norm2,
        <Cpu as Backend<T>>::observe,
        <Cpu as Backend<T>>::require_positive,
        <Cpu as Backend<T>>::require_nonzero,
        <Cpu as CgSteps<T>>::cg_update,
        <Cpu as BicgstabSteps<T>>::bicgstab_half,
        <Cpu as BicgstabSteps<T>>::bicgstab_update,
        <Cpu as Backend<T>>::hadamard_dot,
        <Cpu as CgSteps<T>>::cg_step,
        <Cpu as CgSteps<T>>::cg_direction,
        <Cpu as BicgstabSteps<T>>::bicgstab_first,
        <Cpu as BicgstabSteps<T>>::bicgstab_second,
        <Cpu as BicgstabSteps<T>>::bicgstab_direction,
        <Cpu as Cast<T, f32>>::binade,
        <Cpu as Cast<T, f32>>::cast,
        <Cpu as Cast<T, f64>>::cast,
        <Cpu as Load<SparseVec<T>>>::load,
        <Cpu as SparseVector<T>>::sparse_axpy,
        <Cpu as SparseVector<T>>::sparse_dot,
        <Cpu as SparseVector<T>>::gather,
        <Cpu as SparseVector<T>>::scatter,
        <Cpu as SparseVector<T>>::download_sparse,
        <Cpu as SpmvTransposed<Csr<T>>>::spmv_transposed,
        <Cpu as SpmvTransposed<Csc<T>>>::spmv_transposed,
        <Cpu as Spmm<Csr<T>>>::spmm,
        <Cpu as Spmm<Sell<T>>>::spmm,
        <Cpu as Spmm<Dia<T>>>::spmm,
        <Cpu as Spmm<Bsr<T>>>::spmm,
        <Cpu as Analyze<Csr<T>, Sweep<T>>>::analyze,
        <Cpu as Download<Csr<T>>>::download_matrix,
        <Cpu as Download<Csr<T>>>::download_rows,
        <Cpu as Spgemm<Csr<T>>>::spgemm_symbolic,
        <Cpu as Spgemm<Csr<T>>>::spgemm_numeric,
        <Cpu as Transpose<Csr<T>>>::transpose_symbolic,
        <Cpu as Transpose<Csr<T>>>::transpose_numeric,
        <Cpu as Renumber<Csr<T>>>::breadth_first,
        <Cpu as Renumber<Csr<T>>>::renumbered,
        <Cpu as Renumber<Csr<T>>>::renumber_values,
        <Cpu as Coarsen<Csr<T>>>::aggregate,
        <Cpu as Coarsen<Csr<T>>>::prolongation,
        <Cpu as Coarsen<Csr<T>>>::scaling,
        <Cpu as Coarsen<Csr<T>>>::coarser_symbolic,
        <Cpu as Coarsen<Csr<T>>>::coarser_numeric,
        <Cpu as Coarsen<Csr<T>>>::scaled,
        <Cpu as Coarsen<Csr<T>>>::scaled_into,
    );
    spandrel_formats::for_each_format!(formats, T);
    spandrel_sptrsv::for_each_plan!(plans, T);
    spandrel_sptrsv::for_each_factor!(factors, T);
    of_factor::<Ssor<T>>();
}

fn of_format<F: Format>()
where
    Cpu: Spmv<F>,
{
    compile!(F::from_csr, F::to_csr, <Cpu as Load<F>>::load, <Cpu as Spmv<F>>::spmv, <Cpu as Spmv<F>>::spmv_dot);
}

fn of_plan<P: Plan>()
where
    Cpu: Sptrsv<P>,
{
    compile!(
        P::analyze,
        <Cpu as Load<P>>::load,
        <Cpu as Sptrsv<P>>::sptrsv,
        <Cpu as Sptrsv<P>>::sptrsv_in_place,
        <Cpu as Sptrsv<P>>::update,
        <Cpu as Sptrsv<P>>::update_from,
    );
}

fn of_factor<F: Factor>()
where
    Cpu: Factorize<F>,
{
    compile!(F::symbolic, F::numeric, <Cpu as Load<F>>::load, <Cpu as Factorize<F>>::factorize);
}
