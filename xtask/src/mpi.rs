//! `cargo xtask verify --mpi`: builds the program with MPI, runs it under mpirun on 1 to 4 processes, and compares x
//! with that of one device, bit for bit. A killed process must end all others. Where MPI or libclang is missing, it
//! says so and skips.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::{ci, verify};

/// What to install where it is missing, on Debian and Ubuntu.
const INSTALL: &str = "apt-get install libopenmpi-dev openmpi-bin libclang-dev";
/// Numbers of processes.
const PROCESSES: [usize; 4] = [1, 2, 3, 4];
/// A run that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// Matrices with method and preconditioner. A name that begins with a dot is a file made of the generator behind it.
const CASES: [(&str, &[&str]); 9] = [
    ("poisson3d:17", &["--solver", "cg", "--precond", "jacobi"]),
    ("poisson3d:17", &["--solver", "cg", "--precond", "none", "--rhs", "random"]),
    ("electrostatic:n=4000", &["--solver", "cg", "--precond", "chebyshev=3", "--rhs", "from-solution"]),
    ("poisson3d:30x31x36", &["--solver", "cg", "--precond", "mg=chebyshev"]),
    ("poisson3d:28", &["--solver", "cg", "--precond", "amg"]),
    ("convdiff3d:16,peclet=3", &["--solver", "bicgstab", "--precond", "jacobi"]),
    ("convdiff3d:16,peclet=3", &["--solver", "gmres", "--precond", "jacobi", "--precision", "f32"]),
    (".convdiff2d:60x50,peclet=3", &["--solver", "bicgstab", "--precond", "none"]),
    // Fewer rows than a block: only one rank has any.
    ("poisson2d:9", &["--solver", "cg", "--precond", "jacobi"]),
];

/// What keeps a plain solve comparable.
const AS_IT_IS: [&str; 6] = ["--reorder", "none", "--scale", "none", "--format", "csr"];

/// Why a build with MPI is not possible here, if it is not.
pub(crate) fn missing() -> Option<String> {
    let on_path = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    };
    for program in ["mpicc", "mpirun"] {
        if !on_path(program) {
            return Some(format!("there is no {program}; {INSTALL}"));
        }
    }
    if libclang().is_none() {
        return Some(format!("there is no libclang, which reads MPI's header file; {INSTALL}"));
    }
    None
}

/// A libclang where the build looks for one.
fn libclang() -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os("LIBCLANG_PATH").map(PathBuf::from).into_iter().collect();
    for base in ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt/homebrew/opt/llvm"] {
        folders.push(base.into());
        for inner in fs::read_dir(base).into_iter().flatten().flatten() {
            folders.push(inner.path());
            folders.push(inner.path().join("lib"));
        }
    }
    let is_it = |name: &str| {
        let library = name.strip_prefix("libclang").is_some_and(|rest| rest.starts_with(['.', '-']));
        library && !name.contains("cpp") && (name.contains(".so") || name.ends_with(".dylib"))
    };
    let mut files = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    files.find(|file| file.file_name().to_str().is_some_and(is_it)).map(|file| file.path())
}

/// The program with MPI, built now as for the tests of CI.
pub(crate) fn build(root: &Path) -> Result<PathBuf> {
    let ask = ci::program_with_mpi();
    let ask: Vec<&str> = ask.iter().map(String::as_str).collect();
    let mut found = verify::made(root, &ask, &["spandrel"])?;
    let built = found.pop().context("the program was not built")?;
    // The next build of the program without MPI takes its place.
    let folder = built.parent().context("a program lies in a folder")?;
    let kept = folder.join("spandrel-mpi");
    fs::copy(&built, &kept).with_context(|| format!("cannot write {}", kept.display()))?;
    Ok(kept)
}

/// mpirun for so many processes, more than there are cores if need be.
pub(crate) fn mpirun(processes: usize) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["-n", &processes.to_string(), "--oversubscribe", "--bind-to", "none"]);
    // Open MPI refuses root unless it is told twice. Containers and CI run as root.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("CUDA_VISIBLE_DEVICES", "").env("SPANDREL_CALIBRATION", "");
    command
}

/// Waits for a process, at most so long. Kills it after that.
///
/// # Errors
/// A process that hangs.
pub(crate) fn within(mut child: Child, limit: Duration) -> Result<Output> {
    let began = Instant::now();
    // A short text fits into the pipes, so that nobody waits for it to be read.
    while child.try_wait()?.is_none() {
        if began.elapsed() >= limit {
            child.kill()?;
            child.wait()?;
            bail!("it hangs: no end within {} s", limit.as_secs());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(child.wait_with_output()?)
}

/// Starts a command with its output in pipes.
pub(crate) fn spawn(command: &mut Command) -> Result<Child> {
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    piped.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))
}

fn hash(file: &Path) -> Result<String> {
    let bytes = fs::read(file).with_context(|| format!("{} was not written", file.display()))?;
    Ok(Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Solves with this command, which is given the output's name, and returns the hash of x.
fn solved(mut command: Command, options: &[&str], out: &Path) -> Result<String> {
    let _ = fs::remove_file(out);
    command.args(options).arg("--out").arg(out);
    let output = within(spawn(&mut command)?, LIMIT)?;
    if !output.status.success() {
        bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    hash(out)
}

/// Whether the program compiles with MPI and without CUDA, which no other build of CI has.
fn compiles_without_cuda(root: &Path) -> Result<bool> {
    let line = ["check", "-p", "spandrel-cli", "--no-default-features", "--features", "mpi"];
    Ok(verify::cargo(root).args(line).status().context("cannot start cargo")?.success())
}

pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    if let Some(why) = missing() {
        println!("skipped: {why}");
        println!("0 passed, 0 failed, 1 skipped");
        return Ok(ExitCode::SUCCESS);
    }
    if !compiles_without_cuda(root)? {
        println!("the program does not compile with MPI and without CUDA");
        return Ok(ExitCode::FAILURE);
    }
    let program = build(root)?;
    let folder = std::env::temp_dir().join(format!("spandrel-mpi-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let (mut passed, mut failed) = (0, 0);
    for (at, (matrix, options)) in CASES.iter().enumerate() {
        let mut matrix = (*matrix).to_owned();
        if let Some(spec) = matrix.strip_prefix('.') {
            let file = folder.join(format!("{at}.mtx"));
            let made = Command::new(&program).args(["generate", spec]).arg(&file).arg("--quiet").output()?;
            if !made.status.success() {
                bail!("{spec}: {}", String::from_utf8_lossy(&made.stderr));
            }
            matrix = file.display().to_string();
        }
        let name = format!("{} {}", CASES[at].0.trim_start_matches('.'), options.join(" "));
        let out = folder.join("x.mtx");
        let mut plain = Command::new(&program);
        plain.args(["solve", &matrix]).args(AS_IT_IS);
        let one = solved(plain, options, &out)?;
        for processes in PROCESSES {
            let mut command = mpirun(processes);
            command.arg(&program).args(["solve", &matrix]);
            match solved(command, options, &out) {
                Ok(other) if other == one => passed += 1,
                Ok(other) => {
                    println!("FAILED {name} on {processes}: x has the hash {other}, on one device {one}");
                    failed += 1;
                }
                Err(error) => {
                    println!("FAILED {name} on {processes}: {error:#}");
                    failed += 1;
                }
            }
        }
        println!("{name}: {}", &one[..16]);
    }
    let killed = |program: &Path, _: &Path| kill_at_random(program, SHORT, 7).map(|said| println!("{said}"));
    let checks: [(&str, &dyn Fn(&Path, &Path) -> Result<()>); 2] =
        [("a fault is told once", &refused), ("killed processes end the others", &killed)];
    for (name, check) in checks {
        match check(&program, &folder) {
            Ok(()) => passed += 1,
            Err(error) => {
                println!("FAILED {name}: {error:#}");
                failed += 1;
            }
        }
    }
    fs::remove_dir_all(&folder)?;
    println!("{passed} passed, {failed} failed, 0 skipped");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How long `verify` kills processes.
const SHORT: Duration = Duration::from_secs(10);
/// What the processes solve that are killed, and how long it may take them to notice.
const VICTIM: &[&str] = &["poisson3d:40", "--solver", "cg", "--precond", "none", "--json", "--rank-wait", "4"];
const NOTICED: Duration = Duration::from_secs(60);

/// Starts solves and kills a process of each at a random time, until the time is over. Whatever is killed, all
/// processes must end, and `--out` is whole or not there.
///
/// # Errors
/// A process that is left over or hangs, a half-written file, or a solve that claims what it has not done.
pub(crate) fn kill_at_random(program: &Path, time: Duration, seed: u64) -> Result<String> {
    let folder = std::env::temp_dir().join(format!("spandrel-soak-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let out = folder.join("x.mtx");
    let one = {
        let mut plain = Command::new(program);
        plain.arg("solve").args(AS_IT_IS);
        let options: Vec<&str> = VICTIM.iter().copied().take_while(|word| *word != "--json").collect();
        solved(plain, &options, &out)?
    };
    let (began, mut state, mut rounds, mut killed) = (Instant::now(), seed, 0u64, 0u64);
    // Knuth's linear congruential generator: nothing depends on its quality.
    let mut below = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let mut usual = Duration::from_millis(1500);
    while began.elapsed() < time {
        let _ = fs::remove_file(&out);
        let processes = 2 + below(3) as usize;
        let start = Instant::now();
        let mut command = mpirun(processes);
        // Half of the time mpirun leaves the others alone, so that they have to notice by themselves.
        let alone = below(2) == 0;
        if alone {
            command.arg("--enable-recovery");
        }
        command.arg(program).arg("solve").args(VICTIM).arg("--out").arg(&out);
        let child = spawn(&mut command)?;
        let mpirun = child.id();
        std::thread::sleep(usual.mul_f64(below(1000) as f64 / 1000.0));
        let all = children(mpirun, program);
        let victim = all.get(below(processes as u64) as usize).copied();
        if let Some(victim) = victim {
            // It may have ended by itself.
            let _ = Command::new("kill").args(["-KILL", &victim.to_string()]).stderr(Stdio::null()).status();
            killed += 1;
        }
        let child = if alone { outlived(child, program, NOTICED)? } else { child };
        let output = within(child, NOTICED).with_context(|| {
            format!("round {rounds} of seed {seed}: {processes} processes, {victim:?} killed, recovery {alone}")
        })?;
        if victim.is_none() {
            usual = usual.max(start.elapsed()).min(Duration::from_secs(10));
        }
        let said = String::from_utf8_lossy(&output.stdout);
        let claims = said.contains("\"status\":\"converged\"");
        let told = String::from_utf8_lossy(&output.stderr);
        let round = format!("round {rounds} of seed {seed}: {}, stdout {said:?}, stderr {told:?}", output.status);
        if out.exists() && hash(&out)? != one {
            bail!("{round}: x is half-written");
        }
        if claims && !out.exists() {
            bail!("{round}: it claims an x that is not there");
        }
        // A mpirun that leaves the others alone does not tell how they ended.
        if output.status.success() && !claims && !alone {
            bail!("{round}: it ends well without an answer");
        }
        let waits = Instant::now();
        while let Some(left) = all.iter().find(|&&pid| is_running(pid, program)) {
            if waits.elapsed() >= Duration::from_secs(10) {
                bail!("{round}: process {left} is left over");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        rounds += 1;
    }
    fs::remove_dir_all(&folder)?;
    Ok(format!("{rounds} solves on 2 to 4 processes, one killed in {killed} of them: no hang, no half-written file"))
}

/// Waits until mpirun or all of its processes have ended. With `--enable-recovery` mpirun may stay when they are gone;
/// it is then ended here.
///
/// # Errors
/// Processes that hang.
fn outlived(mut mpirun: Child, program: &Path, limit: Duration) -> Result<Child> {
    const GONE: Duration = Duration::from_secs(3);
    let (began, mut last, mut seen) = (Instant::now(), Instant::now(), false);
    while mpirun.try_wait()?.is_none() {
        let running = !children(mpirun.id(), program).is_empty();
        seen |= running;
        if running || !seen {
            last = Instant::now();
        }
        if last.elapsed() >= GONE {
            mpirun.kill()?;
            break;
        }
        if began.elapsed() >= limit {
            let left = children(mpirun.id(), program);
            mpirun.kill()?;
            bail!("processes {left:?} of mpirun hang: no end within {} s", limit.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(mpirun)
}

/// Whether a process runs this program.
fn is_running(pid: u32, program: &Path) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|path| path == program)
}

/// The processes of mpirun that run the program, on Linux.
fn children(mpirun: u32, program: &Path) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{mpirun}/task/{mpirun}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(|&pid| is_running(pid, program)).collect()
}

/// A fault of the input ends all processes with one message, and nothing is written.
fn refused(program: &Path, folder: &Path) -> Result<()> {
    let (bad, out) = (folder.join("bad.mtx"), folder.join("none.mtx"));
    fs::write(&bad, "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n1 0 1\n")?;
    let mut command = mpirun(3);
    command.arg(program).arg("solve").arg(&bad).arg("--json").arg("--out").arg(&out);
    let output = within(spawn(&mut command)?, LIMIT)?;
    let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() || said.matches("\"error\"").count() != 1 {
        bail!("{}, stdout {said:?}", output.status);
    }
    if !told.contains("bad.mtx:4:3: column index 0") {
        bail!("stderr {told:?}");
    }
    if out.exists() {
        bail!("{} was written", out.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_hangs_is_ended() {
        let sleeper = spawn(Command::new("sleep").arg("60")).expect("sleep");
        let error = within(sleeper, Duration::from_millis(50)).expect_err("it sleeps");
        assert!(error.to_string().contains("it hangs"), "{error}");
    }
}
