//! GPUs through the graphics interface that a user chooses.

use crate::command::{Anabranch, bundled};
use anabranch_kernels::Tensor;
use anabranch_report::npy::read_npz;
use std::path::Path;

#[test]
fn models_compute_the_same_through_opengl() {
    let command = Anabranch::new();
    let devices = command.json(&["devices", "--software-gpu", "--gpu-backend", "gl"]);
    let Some(gpu) = devices["gpus"].get(0) else {
        assert!(devices["notes"].to_string().contains("no OpenGL driver"), "{devices}");
        assert!(std::env::var_os("ANABRANCH_REQUIRE_TOOLS").is_none(), "scripts/setup --tests installs a driver");
        eprintln!("skipped: no OpenGL driver was found; install the packages libegl1 and libgl1-mesa-dri");
        return;
    };
    assert_eq!((&gpu["name"], &gpu["backend"]), (&"gpu0".into(), &"gl".into()));
    for model in ["convnet", "lstm", "vit"] {
        let (file, inputs) = (bundled(&format!("{model}.onnx")), bundled(&format!("{model}.npz")));
        let run = ["run", &file, "--input", &inputs, "--output", "made.npz"];
        let place = ["--software-gpu", "--gpu-backend", "gl", "--place", "gpu", "--repeat", "2"];
        let report = command.json(&[&run[..], &place[..]].concat());
        let on_gpu = report["devices"].as_array().expect("devices").iter().find(|device| device["name"] == "gpu0");
        assert_eq!(on_gpu.expect("gpu0")["nodes"], report["nodes"], "{model}");
        let made = read_npz(&command.path("made.npz")).expect("just written");
        let expected = read_npz(Path::new(&inputs)).expect("bundled");
        for (name, made) in &made {
            let expected = &expected[&format!("out__{name}")];
            let values = |of: &Tensor| of.elements::<f32>().expect("f32").to_vec();
            assert_eq!(made.spec(), expected.spec(), "{model}: {name}");
            let mut pairs = values(made).into_iter().zip(values(expected));
            assert!(pairs.all(|(a, b)| (a - b).abs() <= 1e-3 + 1e-4 * b.abs()), "{model}: {name}");
        }
    }
}

#[test]
fn an_interface_that_is_not_here_has_no_gpu_and_a_wrong_one_is_refused() {
    let command = Anabranch::new();
    let foreign = if cfg!(target_vendor = "apple") { ("dx12", "Direct3D 12") } else { ("metal", "Metal") };
    let devices = command.json(&["devices", "--software-gpu", "--gpu-backend", foreign.0]);
    assert_eq!(devices["gpus"].as_array().map(Vec::len), Some(0));
    assert!(devices["notes"].to_string().contains(&format!("this system has no {}", foreign.1)), "{devices}");
    command.refuses(&["devices", "--gpu-backend", "opencl"], &["--gpu-backend", "`opencl`", "vulkan, metal, dx12, gl"]);
    command.refuses(&["demo", "--gpu-backend", "gl", "--no-gpu"], &["--no-gpu", "--gpu-backend"]);
    command.refuses(&["devices", "--gpu-backend", "gl", "--no-gpu"], &["--no-gpu", "--gpu-backend"]);
}
