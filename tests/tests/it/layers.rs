//! What Cargo does not keep by itself: which crates are beneath others.

use std::process::Command;

#[test]
fn models_are_imported_and_lowered_without_gpus_and_schedulers() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--package", "anabranch-onnx", "--edges", "normal", "--prefix", "none", "--locked", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).expect("UTF-8");
    let names: Vec<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains(&"anabranch-ir"), "{tree}");
    for above in ["wgpu", "anabranch-placement", "anabranch-plan", "anabranch-device", "anabranch-execute"] {
        assert!(!names.contains(&above), "{above} is beneath anabranch-onnx:\n{tree}");
    }
}
