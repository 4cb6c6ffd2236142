//! The program on the GPU of the machine, where it has one; without one, what it says instead.

use super::*;

/// The program as it is called by hand, with the GPUs that the driver shows.
fn run_with_gpu(args: &[&str]) -> (i32, Value) {
    let output = spandrel().env_remove(HIDES_GPUS).args(args).arg("--json").output().expect("the program starts");
    (output.status.code().expect("not killed"), json(&output))
}

/// What `devices` says of CUDA.
fn cuda() -> Value {
    run_with_gpu(&["devices"]).1["cuda"].clone()
}

/// Whether there is a GPU; a note where there is none, as the test then shows little.
fn usable() -> bool {
    let cuda = cuda();
    if cuda["usable"] != true {
        eprintln!("not tried on a GPU: {}", cuda["why"]);
    }
    cuda["usable"] == true
}

#[test]
fn auto_is_the_gpu_where_one_is_found() {
    let cuda = cuda();
    assert!(!cuda["why"].as_str().unwrap().is_empty());
    let expected = if cuda["usable"] == true { "cuda" } else { "cpu" };
    for args in
        [&["solve", "poisson2d:20"][..], &["spmv", "poisson2d:20", "--format", "dia"], &["info", "poisson2d:20"]]
    {
        let (code, object) = run_with_gpu(args);
        assert_eq!((code, &object["backend"]), (0, &expected.into()), "{object}");
    }
    let (_, solve) = run_with_gpu(&["solve", "poisson2d:4"]);
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
