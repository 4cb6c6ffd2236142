//! How much of this machine's memory bandwidth the products and the steps of CG reach.
//!
//! Run `cargo run --release -p spandrel-backend-cpu --example bandwidth -- [edge] [rounds] [filter]`: STREAM copy and triad
//! (plain stores, 16 and 24 bytes an element), then y = A x for 3-D stencils of `edge`^3 points, a band of 33 diagonals,
//! irregular rows, and the fused steps of CG. All contestants run in turn, round after round; the medians are printed, so
//! that what else runs on the machine touches all alike. Bytes are those of `Traffic`: each array once.
//! Reference: McCalpin, Memory bandwidth and machine balance in current high performance computers, 1995.

use std::time::Instant;

use spandrel_backend::{Backend, Coeff, Device, Mat, Spmv};
use spandrel_backend_cpu::{Cpu, Scalar, Vector};
use spandrel_formats::{Bdia, Bsr, Coo, Csr, Dia, Ell, Format, Hmec, Sell, Traffic, Triplets};

/// Elements of a STREAM array: 160 MB.
const STREAM: usize = 20_000_000;

struct Contestant<'a> {
    name: String,
    bytes: u64,
    run: Box<dyn FnMut() + 'a>,
    seconds: Vec<f64>,
}

fn contestant<'a>(name: impl Into<String>, bytes: u64, run: impl FnMut() + 'a) -> Contestant<'a> {
    Contestant { name: name.into(), bytes, run: Box::new(run), seconds: Vec::new() }
}

/// The Laplacian-like matrix of a grid of edge^3 points whose rows reach the neighbours that `reach` admits.
fn stencil(edge: i64, reach: impl Fn(i64, i64, i64) -> bool) -> Csr<f64> {
    let n = edge * edge * edge;
    let offsets: Vec<(i64, i64, i64)> = (-1..=1)
        .flat_map(|z| (-1..=1).flat_map(move |y| (-1..=1).map(move |x| (x, y, z))))
        .filter(|&(x, y, z)| reach(x, y, z))
        .collect();
    let inside = |v: i64| (0..edge).contains(&v);
    let (mut row_ptr, mut col_idx, mut values) = (vec![0u32], Vec::new(), Vec::new());
    for row in 0..n {
        let (x, y, z) = (row % edge, row / edge % edge, row / edge / edge);
        for &(dx, dy, dz) in &offsets {
            if inside(x + dx) && inside(y + dy) && inside(z + dz) {
                col_idx.push((row + dx + edge * (dy + edge * dz)) as u32);
                values.push(if (dx, dy, dz) == (0, 0, 0) { offsets.len() as f64 } else { -1.0 });
            }
        }
        row_ptr.push(col_idx.len() as u32);
    }
    Csr::new(n as usize, n as usize, row_ptr, col_idx, values).expect("a stencil's rows are sorted")
}

/// `n` rows of `width` diagonals around the main one.
fn band(n: usize, width: usize) -> Csr<f64> {
    let (mut row_ptr, mut col_idx, mut values) = (vec![0u32], Vec::new(), Vec::new());
    for i in 0..n {
        for j in i.saturating_sub(width / 2)..n.min(i + width / 2 + 1) {
            col_idx.push(j as u32);
            values.push(1.0 + (i + j) as f64 * 1e-9);
        }
        row_ptr.push(col_idx.len() as u32);
    }
    Csr::new(n, n, row_ptr, col_idx, values).expect("a band's rows are sorted")
}

/// `n` rows of 4 to 40 entries near the diagonal, some of 400.
fn irregular(n: usize) -> Csr<f64> {
    let mut state = 1u64;
    let mut draw = move |bound: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % bound
    };
    let mut triplets = Triplets::new(n, n).expect("small");
    for i in 0..n {
        let length = if draw(1000) == 0 { 400 } else { 4 + draw(37) };
        for _ in 0..length {
            let j = (i + draw(4000)).saturating_sub(2000).min(n - 1);
            triplets.push(i, j, 1.0).expect("inside");
        }
    }
    triplets.to_csr().expect("small")
}

fn spmv<'a, F: Format<Value = f64>>(
    cpu: &'a Cpu,
    what: &str,
    csr: &Csr<f64>,
    convert: impl Fn(&Csr<f64>) -> spandrel_formats::Result<F>,
) -> Contestant<'a>
where
    Cpu: Spmv<F> + Backend<f64, Vector = Vector<f64>, Scalar = Scalar<f64>>,
    <Cpu as spandrel_backend::Load<F>>::Resident: 'a,
{
    let host = convert(csr).expect("fits");
    let bytes = Traffic::spmv(&host);
    let m = Mat::load(cpu, host).expect("memory");
    let x = cpu.upload(&vec![1.0; csr.ncols()]).expect("memory");
    let mut y: Vector<f64> = cpu.zeros(csr.nrows()).expect("memory");
    contestant(format!("{what} {}", F::NAME), bytes, move || {
        m.spmv(cpu, None, Coeff::one(), &x, Coeff::zero(), &mut y).expect("sizes agree");
    })
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| arguments.next().and_then(|a| a.parse().ok()).unwrap_or(default);
    let (edge, rounds) = (number(128), number(9));
    let filter = std::env::args().nth(3).unwrap_or_default();
    let cpu = Cpu::new();
    let n = edge * edge * edge;
    let vector = |value: f64| cpu.upload(&vec![value; n]).expect("memory");
    let ones = vector(1.0);
    // STREAM's rule: each array at least four times the last cache.
    let long = |value: f64| cpu.upload(&vec![value; STREAM]).expect("memory");
    let (stream_x, stream_y, mut stream_z) = (long(1.0), long(2.0), long(0.0));
    let mut stream_copy = long(0.0);
    let scalar = |value: f64| cpu.scalar(value).expect("memory");
    let seven = stencil(edge as i64, |x, y, z| x.abs() + y.abs() + z.abs() <= 1);
    let laplacian = Mat::load(&cpu, seven.clone()).expect("memory");
    let (p, q) = (vector(0.5), vector(0.25));
    let (mut x, mut r, mut rr) = (vector(0.0), vector(0.0), scalar(0.0));
    let (mut direction, mut product, mut curvature) = (vector(1.0), vector(0.0), scalar(0.0));
    let wide = (n * 8) as u64;
    let mut all = vec![
        contestant("copy", 16 * STREAM as u64, || cpu.copy(None, &stream_x, &mut stream_copy).expect("sizes agree")),
        contestant("triad", 24 * STREAM as u64, || {
            // z <- x + 3 y with z not read.
            let (one, three) = (Coeff::host(1.0), Coeff::host(3.0));
            cpu.axpbypcz(None, one, &stream_x, three, &stream_y, Coeff::zero(), &mut stream_z).expect("sizes agree");
        }),
        contestant("cg_update", 6 * wide, || {
            cpu.cg_update(None, Coeff::host(1e-9), &p, &q, &mut x, &mut r, &mut rr).expect("sizes agree");
        }),
        contestant("cg direction", 3 * wide, || {
            cpu.axpby(None, Coeff::one(), &ones, Coeff::host(0.5), &mut direction).expect("sizes agree");
        }),
        contestant("d3n7 csr spmv_dot", laplacian.spmv_bytes(), || {
            let m = laplacian.resident();
            Spmv::<Csr<f64>>::spmv_dot(&cpu, None, m, &p, &mut product, &p, &mut curvature, None).expect("sizes agree");
        }),
    ];
    let wanted = |what: &str| filter.is_empty() || what.contains(&filter);
    let mut formats = |what: &str, csr: &Csr<f64>, diagonals: bool, packed: bool| {
        if !wanted(what) {
            return;
        }
        all.push(spmv(&cpu, what, csr, |csr| Ok(csr.clone())));
        all.push(spmv(&cpu, what, csr, Coo::from_csr));
        all.push(spmv(&cpu, what, csr, Sell::from_csr));
        all.push(spmv(&cpu, what, csr, Hmec::from_csr));
        if packed {
            all.push(spmv(&cpu, what, csr, Ell::from_csr));
        }
        if diagonals {
            all.push(spmv(&cpu, what, csr, Dia::from_csr));
            all.push(spmv(&cpu, what, csr, Bdia::from_csr));
        }
        all.push(spmv(&cpu, what, csr, Bsr::from_csr));
    };
    formats("d3n7", &seven, true, true);
    formats("d3n27", &stencil(edge as i64, |_, _, _| true), true, true);
    formats("band33", &band(2_000_000, 33), true, true);
    formats("irregular", &irregular(400_000), false, false);
    for _ in 0..=rounds {
        for contestant in &mut all {
            let start = Instant::now();
            (contestant.run)();
            contestant.seconds.push(start.elapsed().as_secs_f64());
        }
    }
    let rates: Vec<(String, f64, f64)> = all
        .into_iter()
        .map(|mut c| {
            // The first round warms up.
            c.seconds.remove(0);
            c.seconds.sort_by(f64::total_cmp);
            let median = c.seconds[c.seconds.len() / 2];
            (c.name, median, c.bytes as f64 / median / 1e9)
        })
        .collect();
    println!("{}; {n} unknowns, {rounds} rounds, medians", cpu.describe());
    println!("{:24} {:>10} {:>8} {:>8}", "", "ms", "GB/s", "of triad");
    let triad = rates[1].2;
    for (name, seconds, rate) in &rates {
        println!("{name:24} {:10.3} {rate:8.2} {:7.0} %", seconds * 1e3, 100.0 * rate / triad);
    }
}
