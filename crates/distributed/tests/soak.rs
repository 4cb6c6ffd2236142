//! Faults at random: a rank panics, fails, leaves or hangs somewhere in a solve. Every other rank must end with a typed
//! error, within its time limit, and whatever converges must have the bits of one device.
//!
//! `ranks_fail_at_random` is short. `cargo xtask soak --ranks` runs `for_minutes`, which is ignored otherwise; the
//! variables `SPANDREL_SOAK_SECONDS` and `SPANDREL_SOAK_SEED` say how long and with which seed.

mod problems;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use problems::{Preconditioner, Solve, System, on_one_device, partition, rank, system};
use spandrel_backend::{Error as Fault, Result};
use spandrel_backend_cpu::Cpu;
use spandrel_distributed::{Communicator, Distributed, Failure, Threads, rows_of};
use spandrel_formats::generate;
use spandrel_formats::hash::{STEP, splitmix64};
use spandrel_solvers::{Error, Method, Options, Outcome};

/// What a rank says that fails on purpose.
const WHY: &str = "a fault of the soak";
/// How long a rank waits in a round without a rank that hangs. No round needs as long.
const LIMIT: Duration = Duration::from_secs(60);
/// The same with one.
const SHORT: Duration = Duration::from_millis(300);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    None,
    Panic,
    Error,
    Leave,
    Hang,
}

/// A communicator that does something wrong after so many messages.
#[derive(Debug)]
struct Faulty {
    within: Threads,
    kind: Kind,
    left: AtomicI64,
    /// Whether ranks read each other's memory.
    direct: bool,
}

impl Faulty {
    fn count(&self) -> Result<()> {
        if self.left.fetch_sub(1, Ordering::Relaxed) != 0 {
            return Ok(());
        }
        match self.kind {
            Kind::Panic => panic!("{WHY}"),
            Kind::Error => return Err(Fault::Device { device: "cpu", why: WHY.to_owned() }),
            Kind::Hang => std::thread::sleep(4 * SHORT),
            Kind::None | Kind::Leave => {}
        }
        Ok(())
    }
}

impl Communicator for Faulty {
    fn rank(&self) -> usize {
        self.within.rank()
    }
    fn size(&self) -> usize {
        self.within.size()
    }
    fn send(&self, to: usize, message: &[u8]) -> Result<()> {
        self.count()?;
        self.within.send(to, message)
    }
    fn receive(&self, from: usize, message: &mut Vec<u8>) -> Result<()> {
        self.count()?;
        self.within.receive(from, message)
    }
    fn fail(&self, culprit: usize, why: &str) {
        self.within.fail(culprit, why);
    }
    fn show(&self, value: Arc<dyn Any + Send + Sync>) -> bool {
        self.direct && self.within.show(value)
    }
    fn shown(&self, by: usize) -> Option<Arc<dyn Any + Send + Sync>> {
        self.within.shown(by)
    }
}

/// Numbers from SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        let drawn = splitmix64(self.0);
        self.0 = self.0.wrapping_add(STEP);
        drawn % bound
    }
}

/// A system, and how one device solves it.
struct Case {
    system: System,
    solve: Solve,
    x: Vec<f64>,
    outcome: Outcome,
}

fn cases() -> Vec<Case> {
    let options = Options { max_iters: Some(300), check_every: 4, ..Options::default() };
    let of = |spec: &str, method, precond| {
        let system = system(generate::csr::<f64>(spec).unwrap());
        let solve = Solve { method, precond, options, restart: 10 };
        let (x, outcome) = on_one_device(&system, &solve);
        Case { system, solve, x, outcome }
    };
    vec![
        of("poisson3d:18", Method::Cg, Preconditioner::Jacobi),
        of("poisson2d:70", Method::Cg, Preconditioner::Chebyshev(3)),
        of("convdiff3d:17,peclet=3", Method::BiCgStab, Preconditioner::Jacobi),
        of("convdiff3d:17,peclet=3", Method::Gmres, Preconditioner::None),
    ]
}

/// What one round did.
#[derive(Debug, Default)]
struct Count {
    rounds: u64,
    failed: u64,
}

/// One round: a case, a number of ranks, and a fault of one of them.
fn round(cases: &[Case], dice: &mut Dice, count: &mut Count) {
    let case = &cases[dice.below(cases.len() as u64) as usize];
    let ranks = 2 + dice.below(4) as usize;
    let culprit = dice.below(ranks as u64) as usize;
    let kind = [Kind::None, Kind::Panic, Kind::Error, Kind::Leave, Kind::Hang][dice.below(5) as usize];
    // Most faults early, where set-up phases are.
    let most = 1 << dice.below(12);
    let after = dice.below(most) as i64;
    let direct = dice.below(2) == 0;
    let what = format!("{:?} on {ranks} ranks: {kind:?} of rank {culprit} after {after}", case.solve.method);
    let limit = if kind == Kind::Hang { SHORT } else { LIMIT };
    let ends = partition(&case.system.a, ranks);
    let began = Instant::now();
    let ended = Threads::run_within(ranks, limit, |within| {
        let me = within.rank();
        if me == culprit && kind == Kind::Leave {
            return Ok(None);
        }
        let kind = if me == culprit { kind } else { Kind::None };
        let range = ends.rows(me);
        let b = &case.system.b[range.start as usize..range.end as usize];
        let comm = Faulty { within, kind, left: AtomicI64::new(after), direct };
        rank(&Distributed::new(Cpu::with_threads(1)?, comm), rows_of(&case.system.a, range), b, &case.solve).map(Some)
    });
    assert!(began.elapsed() < LIMIT, "{what}: took {:?}", began.elapsed());
    count.rounds += 1;
    count.failed += u64::from(ended.iter().any(|rank| !matches!(rank, Ok(Some(_)))));
    for (me, ended) in ended.into_iter().enumerate() {
        match ended {
            Ok(None) => assert_eq!((me, kind), (culprit, Kind::Leave), "{what}"),
            Ok(Some((x, outcome))) => {
                assert_eq!(
                    (outcome.status, outcome.iterations),
                    (case.outcome.status, case.outcome.iterations),
                    "{what}"
                );
                if let Some(x) = x {
                    assert!(x.iter().zip(&case.x).all(|(x, y)| x.to_bits() == y.to_bits()), "{what}: other bits");
                }
            }
            Err(Failure::Panic { rank, message }) => {
                assert_eq!((rank, kind, &message[..]), (culprit, Kind::Panic, WHY), "{what}");
            }
            Err(Failure::Error(Error::Backend(Fault::Rank { rank, why }))) => {
                assert_ne!(kind, Kind::None, "{what}: rank {rank}: {why}");
                // Of ranks that wait for each other because a third hangs, any may be named.
                assert!(rank == culprit || kind == Kind::Hang, "{what}: rank {me} names rank {rank}: {why}");
            }
            Err(Failure::Error(error)) => {
                assert_eq!((me, kind), (culprit, Kind::Error), "{what}: {error}");
                assert!(error.to_string().contains(WHY), "{what}: {error}");
            }
        }
    }
}

/// Plays rounds until `is_over`. A round that hangs ends the process.
fn play(seed: u64, mut is_over: impl FnMut(&Count) -> bool) -> Count {
    static ROUNDS: AtomicU64 = AtomicU64::new(0);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.to_string().contains(WHY) {
            usual(info);
        }
    }));
    std::thread::spawn(|| {
        loop {
            let before = ROUNDS.load(Ordering::Relaxed);
            std::thread::sleep(2 * LIMIT);
            if ROUNDS.load(Ordering::Relaxed) == before {
                eprintln!("round {before} of the soak hangs");
                std::process::abort();
            }
        }
    });
    println!("seed {seed}");
    let (cases, mut dice, mut count) = (cases(), Dice(seed), Count::default());
    while !is_over(&count) {
        round(&cases, &mut dice, &mut count);
        ROUNDS.fetch_add(1, Ordering::Relaxed);
    }
    ROUNDS.store(u64::MAX, Ordering::Relaxed);
    println!("{} rounds, {} with a rank that failed", count.rounds, count.failed);
    count
}

#[test]
fn ranks_fail_at_random() {
    let count = play(7, |count| count.rounds == 40);
    assert!(count.failed > 10, "{count:?}");
}

#[test]
#[ignore = "runs for minutes: cargo xtask soak --ranks"]
fn for_minutes() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = number("SPANDREL_SOAK_SECONDS").unwrap_or(300);
    let clock = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let (began, seed) = (Instant::now(), number("SPANDREL_SOAK_SEED").unwrap_or_else(clock));
    play(seed, |_| began.elapsed() >= Duration::from_secs(seconds));
}
