//! The interface as programs in C use it: the example and a program of wrong calls, linked either way, and under
//! valgrind.

use anabranch::import::proto::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Libraries that a static library of this crate needs (`rustc --print native-static-libs`).
const STATIC_LIBRARIES: [&str; 6] = ["-lhwloc", "-lgcc_s", "-lpthread", "-lm", "-ldl", "-lc"];

#[derive(Clone, Copy)]
enum Linked {
    Dynamically,
    Statically,
}

/// Returns the path of a file of the repository.
fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Returns the directory of the libraries that were built with this test.
fn libraries() -> PathBuf {
    std::env::current_exe().expect("a test is a file").parent().expect("in a directory").to_path_buf()
}

/// Compiles a program against the committed header. There must be no warnings.
fn compiled(sources: &[&str], linked: Linked, directory: &TempDir) -> PathBuf {
    let (libraries, program) = (libraries(), directory.path().join("program"));
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-I"]);
    command.arg(file("include")).arg("-I").arg(file("tests/faults")).args(sources.iter().map(|source| file(source)));
    command.arg("-o").arg(&program);
    match linked {
        Linked::Dynamically => {
            command.arg("-L").arg(&libraries).arg("-lanabranch_c");
            command.arg(format!("-Wl,-rpath,{}", libraries.display())).args(["-lpthread", "-ldl"]);
        }
        Linked::Statically => _ = command.arg(libraries.join("libanabranch_c.a")).args(STATIC_LIBRARIES),
    }
    succeeded(&command.output().expect("a C compiler (Debian package gcc)"));
    program
}

/// Returns the output of a successful program.
fn succeeded(output: &Output) -> String {
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {told}{}", output.status, String::from_utf8_lossy(&output.stderr));
    told
}

fn run(program: &Path, arguments: &[&OsStr]) -> String {
    succeeded(&Command::new(program).args(arguments).output().expect("it starts"))
}

/// Runs a program under valgrind, which must find no invalid access, no use of undefined values, and no leaks. `None`
/// if there is no valgrind and tools are not required.
fn valgrind(program: &Path, arguments: &[&OsStr]) -> Option<String> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        let asked = std::env::var_os("ANABRANCH_REQUIRE_TOOLS").is_some();
        assert!(!asked, "`scripts/setup --tests` installs valgrind");
        return None;
    }
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
    command.args(["--show-leak-kinds=definite", "--fair-sched=yes"]);
    command.arg(format!("--suppressions={}", file("plugin/c/tests/valgrind.supp").display()));
    Some(succeeded(&command.arg(program).args(arguments).output().expect("it starts")))
}

/// Writes a model whose output is its input in another shape, which the plan passes on unchanged.
fn reshape(directory: &TempDir) -> PathBuf {
    let shape = TensorProto::raw("shape", 7, &[2], [2i64, -1].iter().flat_map(|size| size.to_le_bytes()).collect());
    let graph = GraphProto {
        node: vec![NodeProto::of("Reshape", &["x", "shape"], &["y"])],
        input: vec![ValueInfoProto::f32s("x", &[4096])],
        output: vec![ValueInfoProto::f32s("y", &[2, 2048])],
        initializer: vec![shape],
        ..GraphProto::default()
    };
    let path = directory.path().join("reshape.onnx");
    std::fs::write(&path, ModelProto::of(graph, 17).to_bytes()).expect("room on the disk");
    path
}

const ON_CPU: &str = r#"{"gpu": false, "cpu_devices": "machine", "threads": 1}"#;

#[test]
fn the_example_runs_a_model_linked_either_way() {
    let model = file("tests/data/convnet.onnx");
    let mut told = Vec::new();
    for linked in [Linked::Dynamically, Linked::Statically] {
        let directory = TempDir::new().expect("a directory");
        let program = compiled(&["examples/c/run_model.c"], linked, &directory);
        let text = run(&program, &[model.as_os_str(), ON_CPU.as_ref()]);
        assert!(
            text.contains("report: {") && text.ends_with(concat!("anabranch ", env!("CARGO_PKG_VERSION"), "\n")),
            "{text}"
        );
        let outputs: Vec<String> = text.lines().filter(|line| line.starts_with("output ")).map(str::to_owned).collect();
        assert!(!outputs.is_empty() && outputs.iter().all(|line| line.contains(", the first is ")), "{text}");
        told.push(outputs);
        let refused = Command::new(&program).arg("/nowhere.onnx").output().expect("it starts");
        assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("/nowhere.onnx"));
    }
    assert_eq!(told[0], told[1]);
}

#[test]
fn wrong_calls_end_in_words() {
    let directory = TempDir::new().expect("a directory");
    let program = compiled(&["plugin/c/tests/hostile.c"], Linked::Dynamically, &directory);
    let (model, reshape) = (file("tests/data/mlp.onnx"), reshape(&directory));
    let told = run(&program, &[model.as_os_str(), reshape.as_os_str(), "50".as_ref()]);
    assert_eq!(told, "as it should be\n");
}

#[test]
fn whatever_buffer_or_read_fails_is_a_status_and_the_next_run_is_right() {
    let directory = TempDir::new().expect("a directory");
    let program = compiled(&["plugin/c/tests/faults.c", "tests/faults/faults.c"], Linked::Dynamically, &directory);
    for (model, weights) in [("mlp_external.onnx", "mlp_external.data"), ("unet.onnx", "unet.onnx")] {
        let path = |name| file("tests/data").join(name).canonicalize().expect("it is bundled");
        let told = run(&program, &[path(model).as_os_str(), path(weights).as_os_str()]);
        assert!(told.ends_with("as it should be\n"), "{model}: {told}");
    }
}

#[test]
fn valgrind_finds_nothing() {
    let directory = TempDir::new().expect("a directory");
    let program = compiled(&["plugin/c/tests/hostile.c"], Linked::Dynamically, &directory);
    let (model, reshape) = (file("tests/data/mlp.onnx"), reshape(&directory));
    if let Some(told) = valgrind(&program, &[model.as_os_str(), reshape.as_os_str(), "2".as_ref()]) {
        assert_eq!(told, "as it should be\n");
    }
    let program = compiled(&["examples/c/run_model.c"], Linked::Dynamically, &directory);
    if let Some(told) = valgrind(&program, &[model.as_os_str(), ON_CPU.as_ref()]) {
        assert!(told.contains("report: {"), "{told}");
    }
}
