//! The program on the GPU of the machine, or its messages if there is none.

use super::*;

/// The program as it is called by hand, with the GPUs that the driver shows.
fn run_with_gpu(args: &[&str]) -> (i32, Value) {
    let output = spandrel().env_remove(HIDES_GPUS).args(args).arg("--json").output().expect("the program starts");
    (output.status.code().expect("not killed"), json(&output))
}

/// The entry of `devices` about CUDA.
fn cuda() -> Value {
    run_with_gpu(&["devices"]).1["cuda"].clone()
}

/// Whether there is a GPU. Without one a test is skipped and says so, or fails where `SPANDREL_REQUIRE` is `cuda`.
fn usable() -> bool {
    let cuda = cuda();
    let required = std::env::var_os("SPANDREL_REQUIRE").is_some_and(|name| name == "cuda");
    if cuda["usable"] != true {
        assert!(!required, "cuda is required and cannot be tried: {}", cuda["why"]);
        eprintln!("skipped: {}", cuda["why"]);
    }
    cuda["usable"] == true
}

#[test]
fn auto_is_the_gpu_where_one_is_found() {
    let cuda = cuda();
    assert!(!cuda["why"].as_str().unwrap().is_empty());
    let expected = if cuda["usable"] == true { "cuda" } else { "cpu" };
    for args in [
        &["solve", "poisson2d:20", "--solver", "cg"][..],
        &["spmv", "poisson2d:20", "--format", "dia"],
        &["info", "poisson2d:20"],
    ] {
        let (code, object) = run_with_gpu(args);
        assert_eq!((code, &object["backend"]), (0, &expected.into()), "{object}");
    }
    let (_, solve) = run_with_gpu(&["solve", "poisson2d:4", "--solver", "cg"]);
    let why = solve["why"]["backend"].as_str().unwrap();
    assert!(!why.is_empty());
    if cfg!(feature = "cuda") && cuda["usable"] != true {
        assert!(why.contains(cuda["why"].as_str().unwrap()), "{why}");
    }
}

#[test]
fn cuda_is_the_gpu_or_an_error_with_the_reason() {
    let cuda = cuda();
    for command in ["solve", "spmv"] {
        let (code, object) = run_with_gpu(&[command, "poisson2d:4", "--backend", "cuda"]);
        if cuda["usable"] == true {
            assert_eq!((code, &object["backend"]), (0, &"cuda".into()), "{object}");
            continue;
        }
        let expected = match cuda["devices"].as_array().unwrap().len() {
            _ if !cfg!(feature = "cuda") => "unsupported",
            0 => "no_gpu",
            _ => "device",
        };
        assert_eq!((code, &object["error"]["kind"]), (1, &expected.into()), "{object}");
        assert!(object["error"]["message"].as_str().unwrap().contains(cuda["why"].as_str().unwrap()), "{object}");
    }
}

/// The numbers are those that `devices` lists. The one after the last is bad usage.
#[test]
fn a_number_takes_that_gpu() {
    if !usable() {
        return;
    }
    let devices = cuda()["devices"].as_array().unwrap().clone();
    for (number, device) in devices.iter().enumerate() {
        assert_eq!(device["ordinal"], number, "{device}");
        for args in [["solve", "poisson2d:20", "--device"], ["spmv", "poisson2d:20", "--device"]] {
            let (code, object) = run_with_gpu(&[&args[..], &[&number.to_string()]].concat());
            assert_eq!((code, &object["backend"]), (0, &"cuda".into()), "{object}");
            let described = object["device"].as_str().unwrap_or_default();
            assert!(described.is_empty() || described.starts_with(&format!("{number}: ")), "{object}");
        }
    }
    for number in [devices.len(), 1000] {
        let (code, object) = run_with_gpu(&["solve", "poisson2d:4", "--device", &number.to_string()]);
        assert_eq!((code, &object["error"]["kind"]), (2, &"usage".into()), "{object}");
        assert!(object["error"]["message"].as_str().unwrap().contains(&number.to_string()), "{object}");
    }
}

/// After SIGKILL in the middle of a solve, the GPU works on, with as much free memory as before.
#[test]
#[cfg(all(unix, feature = "cuda"))]
fn a_killed_solve_leaves_nothing_on_the_gpu() {
    use spandrel::backend_cuda::{Cuda, cudarc::driver::result};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    if !usable() {
        return;
    }
    let be = Cuda::new().expect("it is usable");
    let free = || {
        be.stream().context().bind_to_thread().expect("a context");
        result::mem_get_info().expect("a context is bound").0
    };
    let before = free();
    // 400 MB of matrix and vectors, and more iterations than there is time for.
    let mut child = Command::new(program())
        .args(["solve", "anisotropic2d:2000,eps=0.0001", "--precond", "none", "--rtol", "1e-13"])
        .args(["--max-iters", "100000000", "--backend", "cuda"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let begin = Instant::now();
    while free() + (100 << 20) > before {
        assert!(child.try_wait().expect("a child").is_none(), "the solve is over too soon for this test");
        assert!(begin.elapsed().as_secs() < 60, "the solve holds no memory: {before} bytes free before");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().expect("a child");
    assert!(!child.wait().expect("a child").success());
    let (code, object) = run_with_gpu(&["solve", "poisson2d:100", "--backend", "cuda"]);
    assert_eq!((code, &object["status"]), (0, &"converged".into()), "{object}");
    // Other tests hold some memory for a while, but a leak would stay.
    let begin = Instant::now();
    while free() + (16 << 20) < before {
        assert!(begin.elapsed().as_secs() < 60, "{} bytes are missing", before.saturating_sub(free()));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn reproducible_is_the_same_x_on_cpu_and_gpu() {
    if !usable() {
        return;
    }
    let folder = Folder::new();
    for matrix in ["d3n7:16", "convdiff2d:30", "electrostatic:n=2000", "powerlaw:n=3000", "banded:n=2000,d=9"] {
        for precision in ["f64", "f32", "mixed", "refined"] {
            // Without a preconditioner there is nothing to mix.
            if precision == "mixed" && !["d3n7:16", "convdiff2d:30"].contains(&matrix) {
                continue;
            }
            let mut results = Vec::new();
            for backend in ["cpu", "cuda"] {
                let out = folder.name(&format!("{backend}.mtx"));
                let args = ["--reproducible", "--max-iters", "60", "--precision", precision, "--backend", backend];
                let (code, object) = run_with_gpu(&[&["solve", matrix, "--out", &out][..], &args].concat());
                assert!([0, 3].contains(&code) && object["backend"] == backend, "{object}");
                let chosen =
                    ["format", "solver", "precond", "status", "iterations", "history"].map(|f| object[f].clone());
                results.push((chosen, std::fs::read(&out).unwrap()));
            }
            assert!(results[0] == results[1], "{matrix} {precision}: {:?} {:?}", results[0].0, results[1].0);
        }
    }
}

/// One GPU is enough: ranks share it.
#[test]
fn gpus_have_the_bits_of_ranks_on_the_cpu() {
    if !usable() {
        return;
    }
    let folder = Folder::new();
    let file = folder.name("a.mtx");
    assert!(run(&["generate", "convdiff2d:60x50,peclet=3", &file]).status.success());
    let cases: [(&str, &[&str]); 14] = [
        ("poisson3d:30", &["--solver", "cg", "--precond", "jacobi"]),
        ("poisson3d:30", &["--solver", "cg", "--precond", "none", "--rhs", "random", "--seed", "7"]),
        ("poisson3d:30", &["--solver", "cg", "--precond", "jacobi", "--precision", "f32"]),
        ("electrostatic:n=4000", &["--solver", "cg", "--precond", "chebyshev=3", "--rhs", "from-solution"]),
        ("poisson3d:30", &["--solver", "cg", "--precond", "amg"]),
        ("electrostatic:n=40000", &["--solver", "cg", "--precond", "amg=coarsest=100", "--precision", "f32"]),
        ("poisson2d:9", &["--solver", "cg", "--precond", "jacobi"]),
        ("convdiff3d:24,peclet=3", &["--solver", "bicgstab", "--precond", "jacobi"]),
        (&file, &["--solver", "bicgstab", "--precond", "none", "--rhs", "from-solution", "--precision", "f32"]),
        ("powerlaw:n=5000", &["--solver", "bicgstab", "--precond", "jacobi", "--max-iters", "40"]),
        (&file, &["--solver", "gmres", "--precond", "jacobi", "--restart", "20"]),
        ("convdiff3d:24,peclet=3", &["--solver", "gmres", "--precond", "jacobi"]),
        ("poisson3d:30", &["--solver", "gmres", "--precond", "none", "--max-iters", "40"]),
        // More than 1024 blocks, so that the tree has three levels.
        ("poisson2d:1100", &["--solver", "cg", "--precond", "jacobi", "--max-iters", "20"]),
    ];
    for (matrix, options) in cases {
        let solved = |on: &[&str]| {
            let out = folder.name("x.mtx");
            let (code, object) = run_with_gpu(&[&["solve", matrix, "--out", &out], options, on].concat());
            assert!([0, 3].contains(&code), "{matrix} {options:?} {on:?}: {object}");
            let fields = ["status", "iterations", "history", "true_residual", "solver", "precond"];
            (fields.map(|field| object[field].clone()), std::fs::read(&out).unwrap(), object)
        };
        let (fields, x, _) = solved(&["--ranks", "2"]);
        for gpus in ["1", "2", "3"] {
            let (found, other, object) = solved(&["--gpus", gpus]);
            assert!(x == other, "{matrix} {options:?}: x differs on {gpus} GPUs");
            assert_eq!(found, fields, "{matrix} {options:?} on {gpus} GPUs");
            assert_eq!(
                (&object["backend"], object["ranks"].as_array().map(Vec::len)),
                (&"cuda".into(), gpus.parse().ok())
            );
            let messages = if gpus == "1" { Value::Null } else { "from device to device".into() };
            assert_eq!(object["messages"], messages, "{matrix} {options:?} on {gpus} GPUs");
        }
        // Behind a closed gate nothing is sent through the host, on either device.
        let [cpus, gpus] = ["--ranks", "--gpus"].map(|on| solved(&[on, "2", "--messages", "host"]));
        assert!((&cpus.0, &cpus.1) == (&fields, &x), "{matrix} {options:?} through the host of CPUs");
        assert!((&gpus.0, &gpus.1) == (&fields, &x), "{matrix} {options:?} through the host of GPUs");
        assert_eq!(gpus.2["ranks"][0]["messages"], cpus.2["ranks"][0]["messages"], "{matrix} {options:?}");
    }
}

/// Preconditioners of the rows of one rank, which the GPU of that rank makes and applies.
#[test]
fn gpus_precondition_by_blocks() {
    if !usable() {
        return;
    }
    for (matrix, precond) in [
        ("poisson2d:60", "blockwise=ic0"),
        ("poisson2d:60", "schwarz=ic0,overlap=2"),
        ("poisson2d:60", "blockwise=amg"),
        ("convdiff2d:60,peclet=3", "schwarz=ilu0,overlap=1"),
    ] {
        for gpus in ["1", "2"] {
            let (code, object) = run_with_gpu(&["solve", matrix, "--precond", precond, "--gpus", gpus]);
            assert_eq!((code, &object["status"]), (0, &"converged".into()), "{precond} on {gpus}: {object}");
            assert!(object["true_residual"].as_f64().unwrap() <= 1e-8, "{object}");
        }
    }
}

#[test]
fn every_format_is_right_on_the_gpu() {
    if !usable() {
        return;
    }
    for format in FORMATS {
        let args = ["solve", "poisson2d:24", "--backend", "cuda", "--rhs", "from-solution", "--format", format];
        let (code, object) = run_with_gpu(&args);
        assert_eq!((code, &object["format"]), (0, &(*format).into()), "{object}");
        assert!(object["forward_error"].as_f64().unwrap() < 1e-5, "{object}");
    }
    for matrix in ["powerlaw:n=5000", "d3n27:12", "gfem:n=300,p=3"] {
        let (code, object) = run_with_gpu(&["spmv", matrix, "--backend", "cuda"]);
        assert_eq!(code, 0, "{object}");
        assert!(object["copy_gbs"].as_f64().unwrap() > 0.0);
    }
}
