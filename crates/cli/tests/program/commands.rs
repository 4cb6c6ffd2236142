//! The other commands: info, spmv, convert, generate, devices.

use super::*;

#[test]
fn info_names_structure_grid_and_format() {
    let (code, object) = run_json(&["info", "poisson2d:7x5"]);
    assert_eq!(code, 0);
    assert_eq!(object["matrix"]["nrows"], 35);
    assert_eq!(object["matrix"]["symmetric"], true);
    assert_eq!(object["band"]["diagonals"], 5);
    assert_eq!(object["grid"]["size"], serde_json::json!([7, 5, 1]));
    assert_eq!(object["rows"]["min"], 3);
    // Antidiagonals of the grid depend on one another: 7 + 5 - 1.
    assert_eq!(object["levels"][0]["levels"], 11);
    assert_eq!(object["formats"].as_array().unwrap().len(), FORMATS.len());
    assert!(!object["why"].as_str().unwrap().is_empty());
}

#[test]
fn info_takes_matrices_of_any_shape() {
    let folder = Folder::new();
    for (name, nrows, ncols) in [("empty.mtx", 0, 0), ("flat.mtx", 1, 50), ("tall.mtx", 50, 1), ("void.mtx", 4, 4)] {
        let matrix = folder.matrix(name, nrows, ncols, &[]);
        let spy = folder.name("spy.png");
        let (code, object) = run_json(&["info", &matrix, "--spy", &spy]);
        assert_eq!(code, 0, "{object}");
        assert_eq!(run(&["info", &matrix]).status.code(), Some(0));
        assert_eq!(object["levels"].is_null(), nrows != ncols);
        assert_eq!(&std::fs::read(&spy).unwrap()[1..4], b"PNG");
    }
    let nan = folder.matrix("nan.mtx", 1, 1, &[(1, 1, "nan")]);
    assert_eq!(run_json(&["info", &nan]).1["non_finite"], 1);
}

#[test]
fn spmv_checks_and_times_every_format() {
    for precision in ["f64", "f32"] {
        let (code, object) = run_json(&["spmv", "powerlaw:n=500", "--precision", precision]);
        assert_eq!(code, 0, "{object}");
        let formats = object["formats"].as_array().unwrap();
        assert_eq!(formats.len(), FORMATS.len());
        let timed = formats.iter().filter(|line| line["correct"] == true).count();
        assert!(timed >= 8, "{object}");
        assert!(object["copy_gbs"].as_f64().unwrap() > 0.0);
        for line in formats {
            assert!(line["skipped"].is_string() || line["error_of_bound"].as_f64().unwrap() <= 1.0, "{line}");
        }
    }
}

#[test]
fn spmv_of_chosen_formats_and_odd_shapes() {
    let folder = Folder::new();
    let tall = folder.matrix("tall.mtx", 5, 2, &[(1, 1, "1"), (5, 2, "-2")]);
    let (code, object) = run_json(&["spmv", &tall, "--format", "csr,ell", "--format", "dense", "--threads", "1"]);
    assert_eq!((code, object["formats"].as_array().unwrap().len()), (0, 3), "{object}");
    let empty = folder.matrix("empty.mtx", 0, 0, &[]);
    assert_eq!(run_json(&["spmv", &empty]).0, 0);
    let nan = folder.matrix("nan.mtx", 1, 1, &[(1, 1, "nan")]);
    assert_eq!(run_json(&["spmv", &nan]).1["error"]["kind"], "not_finite");
}

#[test]
fn matrices_go_through_files_unchanged() {
    let folder = Folder::new();
    let (packed, plain, again) = (folder.name("a.mtx.gz"), folder.name("b.mtx"), folder.name("c.mtx"));
    let direct = folder.name("d.mtx");
    assert_eq!(run(&["generate", "electrostatic:n=60", &packed, "--symmetric"]).status.code(), Some(0));
    assert_eq!(&std::fs::read(&packed).unwrap()[..2], [0x1f, 0x8b]);
    assert_eq!(run(&["convert", &packed, &plain]).status.code(), Some(0));
    assert_eq!(run(&["convert", &plain, &again, "--symmetric"]).status.code(), Some(0));
    assert_eq!(run(&["generate", "electrostatic:n=60", &direct]).status.code(), Some(0));
    assert_eq!(std::fs::read(&plain).unwrap(), std::fs::read(&direct).unwrap());
    assert!(std::fs::read_to_string(&again).unwrap().starts_with("%%MatrixMarket matrix coordinate real symmetric"));
}

#[test]
fn compression_drops_small_entries() {
    let folder = Folder::new();
    let a = folder.matrix("a.mtx", 2, 2, &[(1, 1, "1"), (1, 2, "1e-9"), (2, 1, "0"), (2, 2, "-2")]);
    let out = folder.name("b.mtx");
    let (code, object) = run_json(&["convert", &a, &out, "--compress", "1e-8"]);
    assert_eq!((code, &object["dropped"], &object["matrix"]["nnz"]), (0, &2.into(), &2.into()));
}

#[test]
fn a_matrix_that_is_not_symmetric_is_not_stored_as_one() {
    let folder = Folder::new();
    let out = folder.name("a.mtx");
    let (code, object) = run_json(&["generate", "convdiff2d:4", &out, "--symmetric"]);
    assert_eq!(code, 1, "{object}");
    assert!(object["error"]["message"].as_str().unwrap().contains("symmetric"));
}

#[test]
fn every_listed_generator_is_described() {
    let (code, object) = run_json(&["generate", "--list"]);
    assert_eq!(code, 0);
    let text = stdout(&run(&["generate", "--list"]));
    for generator in object["generators"].as_array().unwrap() {
        assert!(text.contains(generator["syntax"].as_str().unwrap()));
        assert!(text.contains(generator["about"].as_str().unwrap()));
    }
}

#[test]
fn a_file_given_to_generate_is_sent_to_convert() {
    let folder = Folder::new();
    let a = folder.matrix("a.mtx", 1, 1, &[(1, 1, "1")]);
    let (code, object) = run_json(&["generate", &a, &folder.name("b.mtx")]);
    assert_eq!((code, object["error"]["kind"].as_str()), (1, Some("spec")), "{object}");
    assert!(object["error"]["message"].as_str().unwrap().contains("spandrel convert"), "{object}");
    let (code, object) = run_json(&["generate", "poisson2d:4,size=3", &folder.name("b.mtx")]);
    assert_eq!(code, 1);
    assert!(object["error"]["message"].as_str().unwrap().contains("generate --list"), "{object}");
}

#[test]
fn devices_says_why_there_is_no_gpu() {
    let (code, object) = run_json(&["devices"]);
    assert_eq!((code, &object["cpu"]["usable"], &object["cuda"]["usable"]), (0, &true.into(), &false.into()));
    let why = object["cuda"]["why"].as_str().unwrap();
    assert!(!why.is_empty());
    assert!(stdout(&run(&["devices"])).contains(&format!("cuda  none: {why}")));
    let machine = stdout(&run(&["solve", "poisson2d:4", "--solver", "cg"]));
    let said = if cfg!(feature = "cuda") { "(no GPU to be used" } else { "(this build has no CUDA)" };
    assert!(machine.contains(said), "{machine}");
}

#[test]
fn devices_shows_the_profile_and_a_calibration_is_kept_read_and_ignored_if_damaged() {
    let folder = Folder::new();
    let file = folder.name("deep/calibration.json");
    let with = |args: &[&str]| {
        let output = spandrel().env("SPANDREL_CALIBRATION", &file).args(args).output().expect("the program starts");
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{args:?}");
        output
    };
    let cpu = || json(&with(&["devices", "--json"]))["profiles"][0].clone();
    let before = cpu();
    assert!(["measured", "scaled"].contains(&before["origin"].as_str().unwrap()), "{before}");
    assert!(stdout(&with(&["devices"])).contains(&format!("profile {}: ", before["origin"].as_str().unwrap())));
    let text = stdout(&with(&["devices", "--calibrate"]));
    assert!(text.contains("profile calibrated: ") && text.contains(&file), "{text}");
    let calibrated = cpu();
    assert_eq!(calibrated["origin"], "calibrated");
    assert_ne!(calibrated["numbers"], before["numbers"]);
    // A solve uses the calibration. One that promises bits does not.
    with(&["solve", "poisson2d:8"]);
    for damaged in ["{", r#"{"version": 0}"#] {
        std::fs::write(&file, damaged).expect("the folder can be written");
        let object = json(&with(&["devices", "--json"]));
        assert_eq!(object["profiles"][0], before, "{object}");
        assert!(object["calibration"]["note"].as_str().unwrap().contains("ignored"), "{object}");
        assert!(stdout(&with(&["devices"])).contains("note  "), "{damaged}");
        with(&["solve", "poisson2d:8"]);
    }
    // If there is no place to store it, the error comes before any measurement.
    let refused = run(&["devices", "--calibrate"]);
    assert!(refused.status.code() == Some(1) && stderr(&refused).contains("SPANDREL_CALIBRATION is empty"));
}

#[test]
fn a_direct_solve_is_the_hosts() {
    for args in [["solve", "poisson2d:4", "--solver", "direct"], ["solve", "poisson2d:4", "--backend", "cpu"]] {
        let (code, object) = run_json(&args);
        assert_eq!((code, &object["backend"]), (0, &"cpu".into()), "{object}");
        assert!(object["seconds"]["open"].as_f64().unwrap() <= object["seconds"]["total"].as_f64().unwrap());
    }
    let (code, object) = run_json(&["solve", "poisson2d:4", "--solver", "direct", "--backend", "cuda"]);
    assert_eq!((code, &object["error"]["kind"]), (1, &"unsupported".into()), "{object}");
}
