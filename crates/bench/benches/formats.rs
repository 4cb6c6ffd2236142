//! criterion entry point: y = A x in every format, named by the grammar `spmv/bdia/f64/cpu/CASE`.

use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use spandrel_backend::{Backend, Coeff, Mat, Spmv};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csr, Format, for_each_format, generate};

const CASES: [&str; 3] = ["d3n7:64", "d3n27:48", "banded:n=200000,d=33"];

fn one<F: Format<Value = f64>>(c: &mut Criterion, be: &Cpu, case: &str, csr: &Csr<f64>)
where
    Cpu: Spmv<F>,
{
    let Ok(format) = F::from_csr(csr) else { return };
    let mat = Mat::load(be, Arc::new(format)).expect("the matrix fits");
    let x = be.upload(&vec![1.0; csr.ncols()]).expect("the vector fits");
    let mut y = be.zeros(csr.nrows()).expect("the vector fits");
    let mut group = c.benchmark_group(format!("spmv/{}/f64/cpu", F::NAME));
    group.throughput(Throughput::Bytes(mat.spmv_bytes()));
    group.bench_function(case, |b| {
        b.iter(|| mat.spmv(be, None, Coeff::one(), &x, Coeff::zero(), &mut y).expect("sizes match"));
    });
    group.finish();
}

fn formats(c: &mut Criterion) {
    let be = Cpu::new();
    for case in CASES {
        let csr: Csr<f64> = generate::csr(case).expect("a valid specification");
        macro_rules! each {
            ([] $(($stem:ident, $Type:ident)),* $(,)?) => {
                $(one::<spandrel_formats::$Type<f64>>(c, &be, case, &csr);)*
            };
        }
        for_each_format!(each);
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = formats
}
criterion_main!(benches);
