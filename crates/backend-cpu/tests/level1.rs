//! Level 1, the fused steps, the monitor and the gate, against their specifications written out here.

use spandrel_backend::{
    Backend, BicgstabHalf, BicgstabSteps, BicgstabUpdate, CgSteps, CgUpdate, Coeff, Device, Error, Phase, Quantity,
    Stop, Watch,
};
use spandrel_backend_cpu::{Cpu, Scalar, Simd, Vector};
use spandrel_formats::Real;

const LENGTHS: [usize; 12] = [0, 1, 31, 32, 33, 1023, 1024, 1025, 4096, 5000, 70_001, 1_100_000];

/// Reproducible values of mixed sign and size.
fn numbers<T: Real>(n: usize, seed: u64) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..n)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            T::from_f64((state >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
        })
        .collect()
}

fn devices() -> Vec<Cpu> {
    let threads = |count| Cpu::with_threads(count).unwrap();
    let narrower = Simd::available().map(|simd| threads(1).with_simd(simd));
    narrower.chain([threads(2), threads(3), Cpu::new()]).collect()
}

/// The tree of `Backend::dot`, element by element.
fn tree<T: Real>(terms: &[(T, T)]) -> T {
    fn level<T: Real>(n: usize, add: impl Fn(usize, T) -> T) -> Vec<T> {
        (0..n)
            .step_by(1024)
            .map(|start| {
                let mut lanes = [T::zero(); 32];
                for i in start..n.min(start + 1024) {
                    lanes[(i - start) % 32] = add(i, lanes[(i - start) % 32]);
                }
                for width in [16, 8, 4, 2, 1] {
                    for l in 0..width {
                        lanes[l] += lanes[l + width];
                    }
                }
                lanes[0]
            })
            .collect()
    }
    if terms.is_empty() {
        return T::zero();
    }
    let mut sums = level(terms.len(), |i, acc| terms[i].0.mul_add(terms[i].1, acc));
    while sums.len() > 1 {
        sums = level(sums.len(), |i, acc| acc + sums[i]);
    }
    sums[0]
}

fn pairs<T: Real>(x: &[T], y: &[T]) -> Vec<(T, T)> {
    x.iter().copied().zip(y.iter().copied()).collect()
}

fn bits<T: Real>(v: &[T]) -> Vec<u64> {
    v.iter().map(|v| if v.is_nan() { u64::MAX } else { v.as_f64().to_bits() }).collect()
}

fn up<T: Real>(cpu: &Cpu, v: &[T]) -> Vector<T> {
    cpu.upload(v).unwrap()
}

fn dot_follows_the_tree<T: Real>() {
    for cpu in devices() {
        for n in LENGTHS {
            let (x, y) = (numbers::<T>(n, 1), numbers::<T>(n, 2));
            let mut out = cpu.scalar(T::nan()).unwrap();
            cpu.dot(None, &up(&cpu, &x), &up(&cpu, &y), &mut out).unwrap();
            let expected = tree(&pairs(&x, &y));
            assert_eq!(bits(&[cpu.download_scalar(&out).unwrap()]), bits(&[expected]), "n = {n} on {}", cpu.describe());
            cpu.norm2(None, &up(&cpu, &x), &mut out).unwrap();
            let expected = tree(&pairs(&x, &x)).sqrt();
            assert_eq!(bits(&[cpu.download_scalar(&out).unwrap()]), bits(&[expected]), "norm, n = {n}");
        }
    }
}

#[test]
fn dot_is_the_documented_tree_for_any_length_threads_and_instructions() {
    dot_follows_the_tree::<f32>();
    dot_follows_the_tree::<f64>();
}

fn elementwise<T: Real>() {
    let c = T::from_f64;
    for cpu in devices() {
        for n in LENGTHS {
            let (x, y, z) = (numbers::<T>(n, 3), numbers::<T>(n, 4), numbers::<T>(n, 5));
            for (a, b) in [(1.0, 0.0), (0.7, 0.0), (-0.3, 1.0), (1.1, -2.3), (0.0, 1.0)] {
                let (a, b) = (c(a), c(b));
                // With b = 0, y holds NaN and must not be read.
                let start = if b.is_zero() { vec![T::nan(); n] } else { y.clone() };
                let mut v = up(&cpu, &start);
                cpu.axpby(None, Coeff::host(a), &up(&cpu, &x), Coeff::host(b), &mut v).unwrap();
                let expected: Vec<T> =
                    (0..n).map(|i| if b.is_zero() { a * x[i] } else { a.mul_add(x[i], b * y[i]) }).collect();
                assert_eq!(bits(&cpu.download(&v).unwrap()), bits(&expected));
                let start = if b.is_zero() { vec![T::nan(); n] } else { z.clone() };
                let mut v = up(&cpu, &start);
                let two = c(2.0);
                cpu.axpbypcz(
                    None,
                    Coeff::host(a),
                    &up(&cpu, &x),
                    Coeff::host(two),
                    &up(&cpu, &y),
                    Coeff::host(b),
                    &mut v,
                )
                .unwrap();
                let expected: Vec<T> = (0..n)
                    .map(|i| {
                        let rest = if b.is_zero() { two * y[i] } else { two.mul_add(y[i], b * z[i]) };
                        a.mul_add(x[i], rest)
                    })
                    .collect();
                assert_eq!(bits(&cpu.download(&v).unwrap()), bits(&expected));
            }
            let mut v = up(&cpu, &vec![T::nan(); n]);
            cpu.hadamard(None, &up(&cpu, &x), &up(&cpu, &y), &mut v).unwrap();
            assert_eq!(bits(&cpu.download(&v).unwrap()), bits(&(0..n).map(|i| x[i] * y[i]).collect::<Vec<T>>()));
            cpu.copy(None, &up(&cpu, &x), &mut v).unwrap();
            assert_eq!(cpu.download(&v).unwrap(), x);
            cpu.fill(None, c(1.5), &mut v).unwrap();
            assert_eq!(cpu.download(&v).unwrap(), vec![c(1.5); n]);
            cpu.write(&y, &mut v).unwrap();
            assert_eq!(cpu.download(&v).unwrap(), y);
            assert_eq!(Backend::<T>::len(&cpu, &v), n);
            assert_eq!(cpu.download(&<Cpu as Backend<T>>::zeros(&cpu, n).unwrap()).unwrap(), vec![T::zero(); n]);
        }
    }
}

#[test]
fn elementwise_operations_round_as_specified() {
    elementwise::<f32>();
    elementwise::<f64>();
}

#[test]
fn a_coefficient_is_formed_as_host_times_one_quotient_after_the_other() {
    let cpu = Cpu::new();
    let s = |v: f32| cpu.scalar(v).unwrap();
    // Products first would underflow to 0 / 0.
    let (n0, d0, n1, d1) = (s(1e-30), s(3e-30), s(7e-31), s(2e-30));
    let coeff = Coeff { host: 1.3f32, num: [Some(&n0), Some(&n1)], den: [Some(&d0), Some(&d1)] };
    let mut out = s(f32::NAN);
    cpu.assign(None, coeff, &mut out).unwrap();
    let expected = (1.3f32 * (1e-30f32 / 3e-30f32)) * (7e-31f32 / 2e-30f32);
    assert_eq!(cpu.download_scalar(&out).unwrap().to_bits(), expected.to_bits());
    let inverse = Coeff { host: 1.0f32, num: [None, None], den: [Some(&d0), None] };
    cpu.assign(None, inverse, &mut out).unwrap();
    assert_eq!(cpu.download_scalar(&out).unwrap(), 1.0f32 / 3e-30f32);
    // A coefficient that comes out as 0 does not read y either.
    let zero = s(0.0);
    let mut y = cpu.upload(&[f32::NAN]).unwrap();
    cpu.axpby(None, Coeff::one(), &cpu.upload(&[2.0f32]).unwrap(), Coeff::scalar(&zero), &mut y).unwrap();
    assert_eq!(cpu.download(&y).unwrap(), [2.0]);
}

fn fused<T: Real>() {
    for cpu in devices() {
        for n in LENGTHS {
            let v: Vec<Vector<T>> = (0..6).map(|i| up(&cpu, &numbers::<T>(n, 10 + i))).collect();
            let scalar = |value: f64| cpu.scalar(T::from_f64(value)).unwrap();
            let nan = || scalar(f64::NAN);
            let (alpha_num, alpha_den, omega_num) = (scalar(0.37), scalar(1.9), scalar(-0.61));
            let (alpha, omega) = (Coeff::ratio(&alpha_num, &alpha_den), Coeff::scalar(&omega_num));
            let value = |s: &Scalar<T>| bits(&[cpu.download_scalar(s).unwrap()]);
            let same = |a: &Vector<T>, b: &Vector<T>, what: &str| {
                assert_eq!(bits(a.as_slice()), bits(b.as_slice()), "{what}, n = {n} on {}", cpu.describe());
            };

            let (mut x, mut r, mut rr) = (v[2].clone(), v[3].clone(), nan());
            let update = CgUpdate { alpha, p: &v[0], q: &v[1], x: &mut x, r: &mut r, rr: &mut rr };
            cpu.cg_update(None, update).unwrap();
            let (mut x1, mut r1, mut rr1) = (v[2].clone(), v[3].clone(), nan());
            cpu.axpby(None, alpha, &v[0], Coeff::one(), &mut x1).unwrap();
            cpu.axpby(None, alpha.negated(), &v[1], Coeff::one(), &mut r1).unwrap();
            cpu.dot(None, &r1, &r1, &mut rr1).unwrap();
            same(&x, &x1, "cg_update x");
            same(&r, &r1, "cg_update r");
            assert_eq!(value(&rr), value(&rr1));

            let (mut r, mut ss) = (v[3].clone(), nan());
            cpu.bicgstab_half(None, BicgstabHalf { alpha, v: &v[1], r: &mut r, ss: &mut ss }).unwrap();
            let (mut r1, mut ss1) = (v[3].clone(), nan());
            cpu.axpby(None, alpha.negated(), &v[1], Coeff::one(), &mut r1).unwrap();
            cpu.dot(None, &r1, &r1, &mut ss1).unwrap();
            same(&r, &r1, "bicgstab_half");
            assert_eq!(value(&ss), value(&ss1));

            for preconditioned in [false, true] {
                let s = preconditioned.then_some(&v[4]);
                let (mut x, mut r, mut rr, mut rho) = (v[2].clone(), v[3].clone(), nan(), nan());
                let update = BicgstabUpdate {
                    alpha,
                    p: &v[0],
                    omega,
                    s,
                    t: &v[1],
                    shadow: &v[5],
                    x: &mut x,
                    r: &mut r,
                    rr: &mut rr,
                    rho: &mut rho,
                };
                cpu.bicgstab_update(None, update).unwrap();
                let (mut x1, mut r1, mut rr1, mut rho1) = (v[2].clone(), v[3].clone(), nan(), nan());
                let s1 = if preconditioned { &v[4] } else { &v[3] };
                cpu.axpbypcz(None, alpha, &v[0], omega, s1, Coeff::one(), &mut x1).unwrap();
                cpu.axpby(None, omega.negated(), &v[1], Coeff::one(), &mut r1).unwrap();
                cpu.dot(None, &r1, &r1, &mut rr1).unwrap();
                cpu.dot(None, &v[5], &r1, &mut rho1).unwrap();
                same(&x, &x1, "bicgstab_update x");
                same(&r, &r1, "bicgstab_update r");
                assert_eq!((value(&rr), value(&rho)), (value(&rr1), value(&rho1)));
            }

            let (mut y, mut z, mut y1, mut z1) = (v[1].clone(), v[2].clone(), v[1].clone(), v[2].clone());
            cpu.axpby_chain(None, [alpha, omega], &v[0], &mut y, [omega, alpha], &mut z).unwrap();
            cpu.axpby(None, alpha, &v[0], omega, &mut y1).unwrap();
            cpu.axpby(None, omega, &y1, alpha, &mut z1).unwrap();
            same(&y, &y1, "axpby_chain y");
            same(&z, &z1, "axpby_chain z");

            let (mut z, mut rz) = (up(&cpu, &vec![T::nan(); n]), nan());
            cpu.hadamard_dot(None, &v[0], &v[1], &mut z, &mut rz).unwrap();
            let (mut z1, mut rz1) = (up(&cpu, &vec![T::nan(); n]), nan());
            cpu.hadamard(None, &v[0], &v[1], &mut z1).unwrap();
            cpu.dot(None, &v[1], &z1, &mut rz1).unwrap();
            same(&z, &z1, "hadamard_dot");
            assert_eq!(value(&rz), value(&rz1));
        }
    }
}

#[test]
fn fused_steps_have_the_bits_of_their_defaults() {
    fused::<f32>();
    fused::<f64>();
}

fn watch(threshold: f64, divergence: f64, max_iters: usize) -> Watch {
    Watch { threshold, divergence, max_iters }
}

/// The stop after these squared norms, with the iterations and the history at it.
fn observed(watch: &Watch, norms: &[(f64, Phase)]) -> (Option<Stop>, usize, Vec<f64>) {
    let cpu = Cpu::new();
    let mut monitor = cpu.monitor(watch).unwrap();
    for &(squared, phase) in norms {
        cpu.observe(&cpu.scalar(squared).unwrap(), phase, &mut monitor).unwrap();
    }
    let report = cpu.report(&monitor).unwrap();
    (report.stop, report.iterations, report.history)
}

#[test]
fn the_monitor_counts_and_decides() {
    use Phase::{Full, Half};
    let w = watch(0.5, 10.0, 3);
    assert_eq!(observed(&w, &[(4.0, Full)]), (None, 1, vec![2.0]));
    assert_eq!(observed(&w, &[(4.0, Full), (0.25, Full), (9.0, Full)]), (Some(Stop::Converged), 2, vec![2.0, 0.5]));
    assert_eq!(observed(&w, &[(4.0, Half), (4.0, Full)]), (None, 1, vec![2.0]));
    assert_eq!(observed(&w, &[(4.0, Full), (0.04, Half)]), (Some(Stop::ConvergedHalf), 1, vec![2.0, 0.2]));
    assert_eq!(observed(&w, &[(121.0, Full)]), (Some(Stop::Diverged), 1, vec![11.0]));
    assert_eq!(observed(&w, &[(100.0, Full)]), (None, 1, vec![10.0]));
    let three = [(4.0, Full), (4.0, Full), (4.0, Full), (0.0, Full)];
    assert_eq!(observed(&w, &three), (Some(Stop::MaxIterations), 3, vec![2.0; 3]));
    let (stop, iterations, history) = observed(&w, &[(f64::INFINITY, Half)]);
    assert_eq!((stop, iterations, history.len()), (Some(Stop::NotFinite(Quantity::Residual)), 0, 1));
    let (stop, iterations, _) = observed(&watch(0.5, f64::INFINITY, 3), &[(f64::NAN, Full)]);
    assert_eq!((stop, iterations), (Some(Stop::NotFinite(Quantity::Residual)), 1));
    // The norm is rounded in the element type before it is compared.
    let cpu = Cpu::new();
    let mut monitor = cpu.monitor(&watch(f64::from(2f32.sqrt()), 10.0, 3)).unwrap();
    cpu.observe(&cpu.scalar(2.0f32).unwrap(), Full, &mut monitor).unwrap();
    assert_eq!(cpu.report(&monitor).unwrap().stop, Some(Stop::Converged));
}

#[test]
fn requirements_stop_with_their_quantity_and_resume_clears_the_stop_alone() {
    let cpu = Cpu::new();
    let stop_of = |value: f64, positive: bool| {
        let mut monitor = cpu.monitor(&watch(0.0, 1.0, 9)).unwrap();
        let value = cpu.scalar(value).unwrap();
        if positive {
            cpu.require_positive(&value, Quantity::Curvature, &mut monitor).unwrap();
        } else {
            cpu.require_nonzero(&value, Quantity::Rho, &mut monitor).unwrap();
        }
        cpu.report(&monitor).unwrap().stop
    };
    assert_eq!(stop_of(1e-300, true), None);
    assert_eq!(stop_of(0.0, true), Some(Stop::NotPositive(Quantity::Curvature)));
    assert_eq!(stop_of(-1.0, true), Some(Stop::NotPositive(Quantity::Curvature)));
    assert_eq!(stop_of(f64::NAN, true), Some(Stop::NotFinite(Quantity::Curvature)));
    assert_eq!(stop_of(f64::NEG_INFINITY, true), Some(Stop::NotFinite(Quantity::Curvature)));
    assert_eq!(stop_of(-1.0, false), None);
    assert_eq!(stop_of(-0.0, false), Some(Stop::Zero(Quantity::Rho)));
    assert_eq!(stop_of(f64::INFINITY, false), Some(Stop::NotFinite(Quantity::Rho)));

    let mut monitor = cpu.monitor(&watch(1.0, 100.0, 9)).unwrap();
    cpu.observe(&cpu.scalar(4.0).unwrap(), Phase::Full, &mut monitor).unwrap();
    cpu.observe(&cpu.scalar(1.0).unwrap(), Phase::Full, &mut monitor).unwrap();
    cpu.require_positive(&cpu.scalar(-1.0).unwrap(), Quantity::Curvature, &mut monitor).unwrap();
    assert_eq!(cpu.report(&monitor).unwrap().stop, Some(Stop::Converged), "the first stop stands");
    cpu.resume(&mut monitor).unwrap();
    let report = cpu.report(&monitor).unwrap();
    assert_eq!((report.stop, report.iterations, report.history), (None, 2, vec![2.0, 1.0]));
}

#[test]
fn a_stopped_gate_lets_nothing_through() {
    let cpu = Cpu::new();
    let mut monitor = cpu.monitor(&watch(1.0, 100.0, 9)).unwrap();
    cpu.observe(&cpu.scalar(0.0).unwrap(), Phase::Full, &mut monitor).unwrap();
    let gate = Some(&monitor);
    let x = cpu.upload(&[1.0, 2.0]).unwrap();
    let mut y = cpu.upload(&[3.0, 4.0]).unwrap();
    let mut r = cpu.upload(&[5.0, 6.0]).unwrap();
    let (mut s, mut t) = (cpu.scalar(7.0).unwrap(), cpu.scalar(8.0).unwrap());
    let one = Coeff::one;
    cpu.fill(gate, 9.0, &mut y).unwrap();
    cpu.copy(gate, &x, &mut y).unwrap();
    cpu.axpby(gate, one(), &x, one(), &mut y).unwrap();
    cpu.axpbypcz(gate, one(), &x, one(), &x, one(), &mut y).unwrap();
    cpu.hadamard(gate, &x, &x, &mut y).unwrap();
    cpu.assign(gate, one(), &mut s).unwrap();
    cpu.dot(gate, &x, &x, &mut s).unwrap();
    cpu.norm2(gate, &x, &mut s).unwrap();
    cpu.cg_update(gate, CgUpdate { alpha: one(), p: &x, q: &x, x: &mut y, r: &mut r, rr: &mut s }).unwrap();
    cpu.bicgstab_half(gate, BicgstabHalf { alpha: one(), v: &x, r: &mut r, ss: &mut s }).unwrap();
    let update = BicgstabUpdate {
        alpha: one(),
        p: &x,
        omega: one(),
        s: None,
        t: &x,
        shadow: &x,
        x: &mut y,
        r: &mut r,
        rr: &mut s,
        rho: &mut t,
    };
    cpu.bicgstab_update(gate, update).unwrap();
    cpu.hadamard_dot(gate, &x, &x, &mut y, &mut s).unwrap();
    assert_eq!((y.as_slice(), r.as_slice()), (&[3.0, 4.0][..], &[5.0, 6.0][..]));
    assert_eq!((cpu.download_scalar(&s).unwrap(), cpu.download_scalar(&t).unwrap()), (7.0, 8.0));
}

#[test]
fn memory_that_cannot_be_had_is_an_error() {
    for len in [usize::MAX, usize::MAX / 8, 1 << 60] {
        let found = Backend::<f64>::zeros(&Cpu::new(), len);
        assert!(matches!(found, Err(Error::OutOfMemory { device: "cpu", .. })), "{len}");
    }
}
