//! For any content of a file, loading gives a model or an error: no panic, no abort, no memory beyond the limits.
//!
//! Each hostile file is loaded twice: here, and in a child process that may take 1 GiB of address space, where an
//! allocation that cannot be met would abort.

use crate::hostile::{self, Fate, GRAPH, NODE, field};
use anabranch::import::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, ValueInfoProto, data_type,
};
use anabranch::import::{ImportErrorKind, from_bytes, load};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A small model with most kinds of fields.
fn sound() -> Vec<u8> {
    let body = GraphProto { node: vec![NodeProto::of("Relu", &["x"], &["b"])], ..GraphProto::default() };
    let node = NodeProto::of("Conv", &["x", "w"], &["y"])
        .named("conv")
        .with(AttributeProto::ints("strides", &[1, 1]))
        .with(AttributeProto::string("auto_pad", "SAME_UPPER"))
        .with(AttributeProto::tensor("t", TensorProto::i64s("t", &[2], &[3, -4])))
        .with(AttributeProto::graph("g", &body));
    let typed = TensorProto { int32_data: vec![vec![1, 0x80, 1]], ..TensorProto::empty("i", data_type::INT32, &[2]) };
    let sparse = SparseTensorProto {
        values: Some(TensorProto::f32s("s", &[1], &[1.0])),
        indices: Some(TensorProto::i64s("", &[1], &[2])),
        dims: vec![4],
    };
    let graph = GraphProto {
        node: vec![node, NodeProto::of("Add", &["y", "s"], &["z"])],
        initializer: vec![TensorProto::f32s("w", &[1, 2], &[0.5, -0.5]), typed],
        sparse_initializer: vec![sparse],
        input: vec![ValueInfoProto::f32s("x", &[1, 2])],
        output: vec![ValueInfoProto::f32s("z", &[1, 2])],
        ..GraphProto::default()
    };
    ModelProto::of(graph, 17).to_bytes()
}

#[test]
fn every_truncation_is_refused() {
    let bytes = sound();
    assert!(from_bytes(&bytes, None).is_ok());
    // The last field states the operators, so that no prefix of the file is a model.
    for end in 0..bytes.len() {
        assert!(from_bytes(&bytes[..end], None).is_err(), "cut at {end}");
    }
}

#[test]
fn flipped_bits_and_random_bytes_are_answered() {
    let sound = sound();
    let (mut models, mut errors) = (0, 0);
    arbtest::arbtest(|u| {
        let mut bytes = sound.clone();
        for _ in 0..u.int_in_range(1..=3)? {
            let at = u.choose_index(bytes.len())?;
            bytes[at] ^= u.int_in_range(1..=255u8)?;
        }
        match from_bytes(&bytes, None) {
            Ok(_) => models += 1,
            Err(_) => errors += 1,
        }
        Ok(())
    })
    .budget_ms(1000);
    assert!(models > 0 && errors > 0, "{models} models and {errors} errors");
    arbtest::arbtest(|u| {
        let bytes: Vec<u8> = u.arbitrary()?;
        assert!(from_bytes(&bytes, None).is_err());
        Ok(())
    })
    .budget_ms(500);
}

#[test]
fn too_many_nodes_are_counted_before_they_are_decoded() {
    let nodes = field(GRAPH, &[NODE, 0].repeat(1_000_001));
    let error = from_bytes(&nodes, None).expect_err("one too many");
    assert_eq!(error.kind(), ImportErrorKind::Limit);
    assert!(error.to_string().contains("more than 1000000 nodes; raise the limit `nodes`"), "{error}");
}

#[test]
fn hostile_files_are_answered_here() {
    // Large files that load are left to the child, which loads them in less memory.
    for file in hostile::files().filter(|file| file.fate == Fate::Refused || file.bytes.len() < 1 << 20) {
        let result = from_bytes(&file.bytes, None);
        let answer = result.as_ref().map(|_| "loaded").map_err(ToString::to_string);
        assert_eq!(result.is_ok(), file.fate == Fate::Loaded, "{}: {answer:?}", file.name);
    }
}

const FILE: &str = "ANABRANCH_TEST_HOSTILE_FILE";

/// Peak of this process's resident memory so far, in MiB.
fn peak_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux counts it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number of KiB") / 1024
}

/// In the child: loads the file named by the environment in 1 GiB of address space and prints the outcome. Without that
/// name, as in an ordinary test run, does nothing.
#[test]
fn child() {
    let Some(file) = std::env::var_os(FILE) else { return };
    let limit = |resource, most| {
        let maximum = getrlimit(resource).maximum;
        setrlimit(resource, Rlimit { current: Some(most), maximum }).expect("a limit may be lowered");
    };
    limit(Resource::As, 1 << 30);
    limit(Resource::Cpu, 20);
    let before = peak_mib();
    let answer = match load(Path::new(&file)) {
        // Data that stays in files is read as in a run of the model.
        Ok(model) => match model.initializers.values().try_for_each(|constant| constant.load().map(drop)) {
            Ok(()) => "loaded".to_owned(),
            Err(error) => format!("refused: {error}"),
        },
        Err(error) => format!("refused: {error}"),
    };
    println!("\n{} MiB, {answer}", peak_mib() - before);
}

/// Runs [`child`] on `file`; returns its answer, and the memory that it took in MiB.
fn in_child(file: &Path) -> (String, u64) {
    let mut child = Command::new(std::env::current_exe().expect("this test has a file"))
        .args(["--exact", "import_hostile::child", "--nocapture", "--test-threads=1"])
        .env(FILE, file)
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test can run itself");
    let deadline = Instant::now() + Duration::from_secs(120);
    while child.try_wait().expect("it is our child").is_none() {
        assert!(Instant::now() < deadline, "{}: still loading", file.display());
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().expect("it has ended");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {:?}: {text}", file.display(), output.status);
    let (mib, answer) = text.lines().find_map(|line| line.split_once(" MiB, ")).expect("the child says so");
    (answer.to_owned(), mib.parse().expect("a number"))
}

#[test]
fn hostile_files_are_answered_in_a_small_address_space() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    for hostile in hostile::files() {
        let file = folder.path().join(&hostile.name);
        fs::write(&file, &hostile.bytes).expect("room for the file");
        let (answer, mib) = in_child(&file);
        fs::remove_file(&file).expect("it was just written");
        assert_eq!(answer == "loaded", hostile.fate == Fate::Loaded, "{}: {answer}", hostile.name);
        // A rejected file costs its own size and little more.
        let own = hostile.bytes.len() as u64 >> 20;
        let most = if hostile.fate == Fate::Loaded { 1024 } else { own + 64 };
        assert!(mib <= most, "{}: {mib} MiB for a file of {own} MiB", hostile.name);
    }
}

#[test]
fn external_data_beyond_the_address_space_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let weights = fs::File::create(folder.path().join("w.bin")).expect("a small file");
    weights.set_len(8 << 30).expect("a file of holes");
    let file = folder.path().join("model.onnx");
    fs::write(&file, hostile::external(1 << 31, "w.bin")).expect("a small file");
    let (answer, _) = in_child(&file);
    assert!(answer.contains("tensor `w` takes 8589934592 bytes, which exceeds the available memory"), "{answer}");
}
