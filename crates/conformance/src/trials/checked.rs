//! Trials of the fused steps that check, work and observe in one operation. Their bits and the monitor's report are
//! compared with plain loops and with the contract's default bodies, on every device and in every state of the monitor.
//!
//! A run has three stages: the step; the step again, which must change nothing after a stop; and the step with valid
//! scalars after a resume, which finds what a refused step has left half done.

use std::rc::Rc;

use spandrel_backend::{self as steps, Coeff, EveryMethod, Quantity, Report, Result, Stop, Watch};
use spandrel_formats::Real;

use crate::case::numbers;
use crate::plain::Plain;
use crate::reference::{difference, finish, tree_dot};
use crate::subject::Fleet;
use crate::trial::{Trial, Verdict, wrong};

/// A step on vectors 0 to 5 and scalars 0 to 5.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fused {
    /// p, q, x, r are v0, v1, v2, v3; rz, pq, rr are s0, s1, s2. The direction follows, after which x must have taken
    /// its step: z is v4, the next rz is s4, not checked.
    CgStep,
    /// z, p, x are v0, v2, v3; rz, next rz, pq are s0, s1, s3. Checked or not. No step comes before, so x stays.
    CgDirection(bool),
    /// v, r are v0, v3; rho, rv, ss are s0, s1, s2.
    BicgstabFirst,
    /// p, t, x, r, s, shadow are v0 to v5; rho, rv, rr, ts, tt, next rho are s0 to s5. With s or without.
    BicgstabSecond(bool),
    /// v, p, r are v1, v2, v3; rho, rv, ts, tt, next rho are s0, s1, s3, s4, s5.
    BicgstabDirection,
}

use Fused::*;

const ALL: [Fused; 7] = [
    CgStep,
    CgDirection(true),
    CgDirection(false),
    BicgstabFirst,
    BicgstabSecond(false),
    BicgstabSecond(true),
    BicgstabDirection,
];

impl Fused {
    fn name(self) -> &'static str {
        match self {
            CgStep => "cg_step",
            CgDirection(_) => "cg_direction",
            BicgstabFirst => "bicgstab_first",
            BicgstabSecond(_) => "bicgstab_second",
            BicgstabDirection => "bicgstab_direction",
        }
    }

    /// The part of the case's name beside the situation.
    fn variant(self) -> &'static str {
        match self {
            CgDirection(false) => "-unchecked",
            BicgstabSecond(true) => "-with-s",
            _ => "",
        }
    }

    /// The scalars that it checks before its work: which, their name, whether they must be positive.
    fn checks(self) -> &'static [(usize, &'static str, bool)] {
        match self {
            CgStep => &[(1, "curvature", true)],
            CgDirection(true) => &[(1, "preconditioned-residual", true)],
            CgDirection(false) | BicgstabDirection => &[],
            BicgstabFirst => &[(1, "shadow-direction", false)],
            BicgstabSecond(_) => &[(4, "stabilizer", false), (3, "omega", false)],
        }
    }

    fn observes(self) -> bool {
        matches!(self, CgStep | BicgstabFirst | BicgstabSecond(_))
    }
}

/// How a vector is changed before the step.
#[derive(Clone, Copy, Debug)]
enum Spoilt {
    Nothing,
    /// NaN at the end of r.
    ResidualNan,
    /// r so large that its squares leave the range.
    ResidualHuge,
    /// A zero shadow, so that the next rho is zero too.
    ShadowZero,
    /// NaN at the start of the shadow.
    ShadowNan,
}

/// The state that a step meets.
#[derive(Clone, Debug)]
struct Situation {
    name: String,
    watch: Watch,
    /// The monitor has stopped already.
    stopped: bool,
    /// Scalars that replace the valid ones.
    scalars: Vec<(usize, f64)>,
    spoilt: Spoilt,
    /// Also tried with the long vectors.
    long: bool,
}

/// rz or rho; p'q, the next rz or r0'v; a sum to come; t's; t't; the next rho.
const SOUND: [f64; 6] = [3.0, 7.0, 42.0, 0.3, 0.7, 2.5];

fn situations(step: Fused) -> Vec<Situation> {
    let quiet = Watch { threshold: 0.0, divergence: f64::INFINITY, max_iters: 9 };
    let situation = |name: &str| Situation {
        name: format!("{name}{}", step.variant()),
        watch: quiet.clone(),
        stopped: false,
        scalars: Vec::new(),
        spoilt: Spoilt::Nothing,
        long: false,
    };
    let mut all =
        vec![Situation { long: true, ..situation("running") }, Situation { stopped: true, ..situation("stopped") }];
    for &(at, name, positive) in step.checks() {
        for (word, value) in [
            ("zero", 0.0),
            ("minus-zero", -0.0),
            ("negative", -1.5),
            ("nan", f64::NAN),
            ("infinite", f64::INFINITY),
            ("minus-infinite", f64::NEG_INFINITY),
        ] {
            let fails = positive || word != "negative";
            let scalars = vec![(at, value)];
            all.push(Situation { scalars, long: fails && word == "zero", ..situation(&format!("{name}-{word}")) });
        }
    }
    if let CgDirection(false) = step {
        for (word, value) in [("zero", 0.0), ("negative", -2.0), ("nan", f64::NAN)] {
            all.push(Situation { scalars: vec![(1, value)], ..situation(word) });
        }
    }
    if step.observes() {
        let threshold = Watch { threshold: f64::MAX, ..quiet.clone() };
        let limit = Watch { max_iters: 1, ..quiet.clone() };
        all.extend([
            Situation { watch: threshold.clone(), ..situation("converged") },
            Situation { watch: Watch { max_iters: 1, ..threshold.clone() }, ..situation("converged-at-the-limit") },
            Situation { watch: limit.clone(), ..situation("limit") },
            Situation { watch: Watch { divergence: 1e-30, ..quiet.clone() }, ..situation("diverged") },
            Situation { spoilt: Spoilt::ResidualNan, ..situation("residual-nan") },
            Situation { spoilt: Spoilt::ResidualHuge, ..situation("residual-infinite") },
            // The check comes first, so a residual that would converge is not looked at.
            Situation {
                watch: threshold.clone(),
                scalars: vec![(step.checks()[0].0, 0.0)],
                ..situation("zero-before-converged")
            },
        ]);
        if let BicgstabSecond(_) = step {
            all.extend([
                Situation { scalars: vec![(3, 0.0), (4, f64::NAN)], ..situation("stabilizer-before-omega") },
                Situation { spoilt: Spoilt::ShadowZero, long: true, ..situation("next-rho-zero") },
                Situation { spoilt: Spoilt::ShadowNan, ..situation("next-rho-nan") },
                Situation { spoilt: Spoilt::ShadowZero, watch: threshold, ..situation("next-rho-zero-converged") },
                Situation { spoilt: Spoilt::ShadowZero, watch: limit, ..situation("next-rho-zero-at-the-limit") },
            ]);
        }
    }
    all
}

/// Everything that a step may change, and everything that it must not.
#[derive(Clone, Debug)]
struct Stage<T> {
    vectors: [Vec<T>; 6],
    scalars: [T; 6],
    report: Report,
}

/// The vectors and scalars at the start of a situation.
fn begin<T: Real>(step: Fused, situation: &Situation, len: usize) -> ([Vec<T>; 6], [T; 6]) {
    let mut vectors = [0u64, 1, 2, 3, 4, 5].map(|k| numbers::<T>(k * 1_000_003 + len as u64, len));
    let mut scalars = SOUND.map(T::from_f64);
    for &(at, value) in &situation.scalars {
        scalars[at] = T::from_f64(value);
    }
    // Sums are written and never read.
    if step.observes() {
        scalars[2] = T::nan();
    }
    if let BicgstabSecond(_) = step {
        scalars[5] = T::nan();
    }
    let huge = T::max_value().sqrt() * T::from_f64(4.0);
    match situation.spoilt {
        Spoilt::Nothing => {}
        Spoilt::ResidualNan => vectors[3].iter_mut().rev().take(1).for_each(|r| *r = T::nan()),
        Spoilt::ResidualHuge => vectors[3].iter_mut().for_each(|r| *r *= huge),
        Spoilt::ShadowZero => vectors[5].iter_mut().for_each(|s| *s = T::zero()),
        Spoilt::ShadowNan => vectors[5].iter_mut().take(1).for_each(|s| *s = T::nan()),
    }
    (vectors, scalars)
}

/// The three stages on a device.
fn run<T: Real, D: EveryMethod<T>>(be: &D, step: Fused, situation: &Situation, len: usize) -> Result<Vec<Stage<T>>> {
    let (vectors, scalars) = begin::<T>(step, situation, len);
    let mut v = Vec::new();
    for vector in &vectors {
        v.push(be.upload(vector)?);
    }
    let mut s = Vec::new();
    for &scalar in &scalars {
        s.push(be.scalar(scalar)?);
    }
    let mut monitor = be.monitor(&situation.watch)?;
    if situation.stopped {
        be.require_nonzero(&be.scalar(T::zero())?, Quantity::Omega, &mut monitor)?;
    }
    let mut stages = Vec::new();
    for stage in 0..3 {
        if stage == 2 {
            be.resume(&mut monitor)?;
            for (scalar, sound) in s.iter_mut().zip(SOUND) {
                be.assign(None, Coeff::host(T::from_f64(sound)), scalar)?;
            }
        }
        let ([v0, v1, v2, v3, v4, v5], [s0, s1, s2, s3, s4, s5]) = (&mut v[..], &mut s[..]) else {
            return Err(spandrel_backend::Error::Shape { op: "trial", what: "operands", found: v.len(), expected: 6 });
        };
        let m = &mut monitor;
        match step {
            CgStep => {
                be.cg_step(steps::CgStep { rz: s0, pq: s1, p: v0, q: v1, x: v2, r: v3, rr: s2 }, m)?;
                let (z, rz_next, rz, pq, p, x) = (v4, s4, s0, s1, v0, v2);
                be.cg_direction(steps::CgDirection { z, rz_next, checked: false, rz, pq, p, x }, m)?;
            }
            CgDirection(checked) => {
                let (z, rz_next, rz, pq, p, x) = (v0, s1, s0, s3, v2, v3);
                be.cg_direction(steps::CgDirection { z, rz_next, checked, rz, pq, p, x }, m)?;
            }
            BicgstabFirst => be.bicgstab_first(steps::BicgstabFirst { rho: s0, rv: s1, v: v0, r: v3, ss: s2 }, m)?,
            BicgstabSecond(with_s) => {
                let (rho, rv, ts, tt, rr, rho_next) = (s0, s1, s3, s4, s2, s5);
                let (p, s, t, shadow, x, r) = (v0, with_s.then_some(&*v4), v1, v5, v2, v3);
                let on = steps::BicgstabSecond { rho, rv, ts, tt, p, s, t, shadow, x, r, rr, rho_next };
                be.bicgstab_second(on, m)?;
            }
            BicgstabDirection => {
                let (r, v, rho_next, rv, tt, ts, rho, p) = (v3, v1, s5, s1, s4, s3, s0, v2);
                be.bicgstab_direction(steps::BicgstabDirection { r, v, rho_next, rv, tt, ts, rho, p }, m)?;
            }
        }
        let mut after = Stage { vectors: Default::default(), scalars: [T::zero(); 6], report: be.report(&monitor)? };
        for (after, v) in after.vectors.iter_mut().zip(&v) {
            *after = be.download(v)?;
        }
        for (after, s) in after.scalars.iter_mut().zip(&s) {
            *after = be.download_scalar(s)?;
        }
        stages.push(after);
    }
    Ok(stages)
}

/// The monitor's rules, written again in plain code.
struct Rules {
    watch: Watch,
    report: Report,
}

impl Rules {
    fn runs(&self) -> bool {
        self.report.stop.is_none()
    }

    /// Whether the work after the check runs.
    fn require<T: Real>(&mut self, value: T, positive: bool, what: Quantity) -> bool {
        if self.runs() {
            self.report.stop = if !value.is_finite() {
                Some(Stop::NotFinite(what))
            } else if positive && value <= T::zero() {
                Some(Stop::NotPositive(what))
            } else if !positive && value == T::zero() {
                Some(Stop::Zero(what))
            } else {
                None
            };
        }
        self.runs()
    }

    fn observe<T: Real>(&mut self, squared: T, full: bool) {
        let norm = squared.sqrt().as_f64();
        self.report.iterations += usize::from(full);
        self.report.stop = if !norm.is_finite() {
            Some(Stop::NotFinite(Quantity::Residual))
        } else if norm <= self.watch.threshold {
            Some(if full { Stop::Converged } else { Stop::ConvergedHalf })
        } else if full && norm > self.watch.divergence {
            Some(Stop::Diverged)
        } else if full && self.report.iterations >= self.watch.max_iters {
            Some(Stop::MaxIterations)
        } else {
            None
        };
        if full || !self.runs() {
            self.report.history.push(norm);
        }
    }
}

/// The three stages by plain loops.
fn expected<T: Real>(step: Fused, situation: &Situation, len: usize) -> Vec<Stage<T>> {
    let (mut v, mut s) = begin::<T>(step, situation, len);
    let report = Report { stop: None, iterations: 0, history: Vec::new() };
    let mut rules = Rules { watch: situation.watch.clone(), report };
    if situation.stopped {
        rules.require(T::zero(), false, Quantity::Omega);
    }
    let mut stages = Vec::new();
    for stage in 0..3 {
        if stage == 2 {
            rules.report.stop = None;
            s = SOUND.map(T::from_f64);
        }
        once(step, &mut v, &mut s, &mut rules);
        stages.push(Stage { vectors: v.clone(), scalars: s, report: rules.report.clone() });
    }
    stages
}

fn once<T: Real>(step: Fused, v: &mut [Vec<T>; 6], s: &mut [T; 6], rules: &mut Rules) {
    let axpby = |a: T, x: &[T], b: T, y: &mut [T]| y.iter_mut().zip(x).for_each(|(y, &x)| *y = finish(a, x, b, *y));
    let [v0, v1, v2, v3, v4, v5] = v;
    match step {
        CgStep => {
            if rules.require(s[1], true, Quantity::Curvature) {
                let alpha = s[0] / s[1];
                axpby(alpha, v0, T::one(), v2);
                axpby(-alpha, v1, T::one(), v3);
                s[2] = tree_dot(v3, v3);
                rules.observe(s[2], true);
            }
            if rules.runs() {
                axpby(T::one(), v4, s[4] / s[0], v0);
                s[0] = s[4];
            }
        }
        CgDirection(checked) => {
            let goes = if checked { rules.require(s[1], true, Quantity::PreconditionedResidual) } else { rules.runs() };
            if goes {
                axpby(T::one(), v0, s[1] / s[0], v2);
                s[0] = s[1];
            }
        }
        BicgstabFirst => {
            if rules.require(s[1], false, Quantity::ShadowDirection) {
                axpby(-(s[0] / s[1]), v0, T::one(), v3);
                s[2] = tree_dot(v3, v3);
                rules.observe(s[2], false);
            }
        }
        BicgstabSecond(with_s) => {
            if rules.require(s[4], false, Quantity::Stabilizer) && rules.require(s[3], false, Quantity::Omega) {
                let (alpha, omega) = (s[0] / s[1], s[3] / s[4]);
                let half = if with_s { v4 } else { &*v3 };
                for ((x, &p), &half) in v2.iter_mut().zip(&*v0).zip(half) {
                    *x = alpha.mul_add(p, finish(omega, half, T::one(), *x));
                }
                axpby(-omega, v1, T::one(), v3);
                (s[2], s[5]) = (tree_dot(v3, v3), tree_dot(v5, v3));
                rules.observe(s[2], true);
                rules.require(s[5], false, Quantity::Rho);
            }
        }
        BicgstabDirection => {
            if rules.runs() {
                let (step, ratio) = (s[5] / s[1], s[4] / s[3]);
                for ((p, &r), &v) in v2.iter_mut().zip(&*v3).zip(&*v1) {
                    *p = T::one().mul_add(r, finish(-step, v, step * ratio, *p));
                }
                s[0] = s[5];
            }
        }
    }
}

/// The first difference between two runs, in words.
fn differing<T: Real>(what: &str, len: usize, found: &[Stage<T>], wanted: &[Stage<T>]) -> Verdict {
    let stages = ["the step", "the step once more", "the step with sound scalars after a resume"];
    for ((found, wanted), stage) in found.iter().zip(wanted).zip(stages) {
        let context =
            |part: String, detail: String| wrong(format!("{what}, {len} elements, after {stage}: {part}: {detail}"));
        // Through text, where NaN equals NaN; `{:?}` of f64 is exact.
        let (report, expected) = (format!("{:?}", found.report), format!("{:?}", wanted.report));
        if report != expected {
            return Err(context("the report".into(), format!("expected {expected}, found {report}")));
        }
        for (number, (found, wanted)) in found.vectors.iter().zip(&wanted.vectors).enumerate() {
            if let Some(detail) = difference(found, wanted) {
                return Err(context(format!("vector {number}"), detail));
            }
        }
        if let Some(detail) = difference(&found.scalars, &wanted.scalars) {
            return Err(context("scalars".into(), detail));
        }
    }
    Ok(())
}

fn lengths(situation: &Situation) -> impl Iterator<Item = usize> {
    [0, 1, 33, 2049, 70_001].into_iter().filter(|&len| len < 10_000 || situation.long)
}

fn check<T: Real, D: EveryMethod<T>>(fleet: &Fleet<D>, step: Fused, situation: &Situation) -> Verdict {
    let be = fleet.first();
    for len in lengths(situation) {
        let found = run::<T, D>(be, step, situation, len)?;
        differing("against plain loops", len, &found, &expected(step, situation, len))?;
        differing("fused against default", len, &found, &run(&Plain(be), step, situation, len)?)?;
        differing("run 2 against run 1", len, &run(be, step, situation, len)?, &found)?;
        for (label, other) in &fleet.devices[1..] {
            differing(label, len, &run(other, step, situation, len)?, &found)?;
        }
    }
    Ok(())
}

/// The trials of one backend and element type.
pub(crate) fn trials<T: Real, D: EveryMethod<T> + 'static>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>) {
    for step in ALL {
        for situation in situations(step) {
            let fleet = fleet.clone();
            let name = format!("{}/vector/{}/{}/{}", step.name(), T::NAME, fleet.name, situation.name);
            out.push(Trial::new(name, move || check::<T, D>(&fleet, step, &situation)));
        }
    }
}

/// Two backends that promise the same bits and the same reports.
pub(crate) fn pair<T: Real, D: EveryMethod<T> + 'static, E: EveryMethod<T> + 'static>(
    left: &Rc<Fleet<D>>,
    right: &Rc<Fleet<E>>,
    out: &mut Vec<Trial>,
) {
    for step in ALL {
        for situation in situations(step) {
            let (left, right) = (left.clone(), right.clone());
            let backends = format!("{}+{}", left.name, right.name);
            let name = format!("{}/vector/{}/{backends}/{}", step.name(), T::NAME, situation.name);
            out.push(Trial::new(name, move || {
                for len in lengths(&situation) {
                    let here = run::<T, D>(left.first(), step, &situation, len)?;
                    let there = run::<T, E>(right.first(), step, &situation, len)?;
                    differing("one backend against the other", len, &there, &here)?;
                }
                Ok(())
            }));
        }
    }
}
