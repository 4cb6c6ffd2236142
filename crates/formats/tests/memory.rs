//! Sizes that are legal and fit into no memory give typed errors, in a process with a limited address space.

use std::process::Command;

use spandrel_formats::generate::csr;
use spandrel_formats::matrix_market::read_bytes;
use spandrel_formats::{Bsr, Coo, Csc, Csr, Error, Format, Hmec, Sell, convert};

/// Set in the process that runs under the limit.
const BOUNDED: &str = "SPANDREL_TEST_BOUNDED";
/// KiB of address space: far below 4 bytes for each of 2^31 columns.
const LIMIT: usize = 3 << 20;

macro_rules! no_memory {
    ($($what:expr),* $(,)?) => {
        $(match $what.map(|_| ()) {
            Err(Error::OutOfMemory { bytes, .. }) => assert!(bytes > 1 << 30, "{}: {bytes}", stringify!($what)),
            other => panic!("{}: {other:?}", stringify!($what)),
        })*
    };
}

#[test]
fn what_no_memory_holds_is_a_typed_error() {
    if std::env::var_os(BOUNDED).is_some() {
        return bounded();
    }
    let program = std::env::current_exe().unwrap();
    let script = format!("ulimit -v {LIMIT} || exit 77; exec \"$0\" --exact what_no_memory_holds_is_a_typed_error");
    let run =
        Command::new("sh").arg("-c").arg(script).arg(program).env(BOUNDED, "1").env("RAYON_NUM_THREADS", "2").output();
    match run {
        Ok(run) if run.status.code() != Some(77) => {
            let text = [run.stdout, run.stderr].concat();
            assert!(run.status.success(), "{}: {}", run.status, String::from_utf8_lossy(&text));
        }
        other => println!("skipped: no shell here that limits memory ({other:?})"),
    }
}

fn bounded() {
    let wide = "%%MatrixMarket matrix coordinate real general\n1 2147483647 2\n1 1 1\n1 2147483647 2\n";
    let a: Csr<f64> = read_bytes("wide.mtx", wide.as_bytes()).unwrap();
    let coo: Coo<f64> = convert(&a).unwrap();
    no_memory!(
        a.try_transpose(),
        Format::transpose(&a),
        Csc::from_csr(&a),
        convert::<_, Csc<f64>>(&coo),
        coo.transpose(),
        Sell::from_csr(&a).unwrap().transpose(),
        Hmec::from_csr(&a).unwrap().transpose(),
        Bsr::from_csr_with(&a, 2),
    );
    let column = Csc::from_transposed(a);
    no_memory!(column.to_csr(), column.transpose(), convert::<_, Coo<f64>>(&column));
    no_memory!(
        csr::<f64>("randspd:n=2000000000,density=0,cond=10"),
        csr::<f64>("powerlaw:n=1000000000"),
        csr::<f64>("banded:n=40000,d=50001"),
        csr::<f64>("random:n=2000000000,nnz_per_row=1"),
        csr::<f64>("electrostatic:n=140000000"),
        csr::<f64>("gfem:n=200000000,p=1"),
        csr::<f64>("gfem:n=2000000000x1,p=0,dim=2"),
    );
}
