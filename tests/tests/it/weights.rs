//! The weights of a model are in memory once, also while it is opened, in the plan and in the process.

use anabranch::execute::RunOptions;
use anabranch::import::proto::{
    DimensionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, data_type,
};
use anabranch::session::{Inputs, Session};
use anabranch_kernels::{Shape, Tensor};
use anabranch_tests::options;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Environment variable that passes the model's file to the child process.
const CHILD: &str = "ANABRANCH_TEST_WEIGHTS";

/// Bytes that the process may take besides the model: threads, their stacks, the plan.
const PROCESS: u64 = 8 << 20;

const WIDE: usize = 512;
const LAYERS: usize = 24;
const WORDS: usize = 8192;

/// Bytes of all weights: 64 MiB.
const WEIGHTS: u64 = ((WORDS * WIDE + LAYERS * 2 * WIDE * WIDE) * 4) as u64;

/// Returns a model of an embedding and layers of two products, with `words` words and `layers` layers.
fn model(words: usize, layers: usize) -> Vec<u8> {
    let weights = |name: &str, rows: usize, columns: usize| {
        let elements: Vec<f32> = (0..rows * columns).map(|at| ((at * 7919) % 1001) as f32 * 1e-4 - 0.05).collect();
        TensorProto::f32s(name, &[rows as i64, columns as i64], &elements)
    };
    let mut initializer = vec![weights("table", words, WIDE)];
    let mut node = vec![NodeProto::of("Gather", &["table", "ids"], &["h0"])];
    for layer in 0..layers {
        let name = |what: &str| format!("{what}{layer}");
        initializer.push(weights(&name("in"), WIDE, WIDE));
        initializer.push(weights(&name("out"), WIDE, WIDE));
        node.push(NodeProto::of("MatMul", &[&name("h"), &name("in")], &[&name("a")]));
        node.push(NodeProto::of("Relu", &[&name("a")], &[&name("b")]));
        node.push(NodeProto::of("MatMul", &[&name("b"), &name("out")], &[&format!("h{}", layer + 1)]));
    }
    let symbol = || DimensionProto::symbol("n");
    let output = vec![symbol(), DimensionProto::known(WIDE as i64)];
    let graph = GraphProto {
        node,
        initializer,
        input: vec![ValueInfoProto::tensor("ids", data_type::INT64, vec![symbol()])],
        output: vec![ValueInfoProto::tensor(&format!("h{layers}"), data_type::FLOAT, output)],
        ..GraphProto::default()
    };
    ModelProto::of(graph, 17).to_bytes()
}

fn inputs(rows: usize) -> Inputs {
    let ids: Vec<i64> = (0..rows as i64).map(|at| at * 31 % 64).collect();
    Inputs::new().tensor("ids", Tensor::from_elements(Shape::new([rows]).expect("small"), &ids).expect("as many"))
}

/// Returns a line of `/proc/self/status`, in bytes.
fn status(key: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = text.lines().find_map(|line| line.strip_prefix(key)).expect("Linux has it");
    let digits: String = line.chars().filter(char::is_ascii_digit).collect();
    digits.parse::<u64>().expect("a number of KiB") << 10
}

/// Opens the model and runs it. Prints the planned peak and the process's memory, at most and in the end, minus that of
/// a process that has run a small model.
fn child(path: &Path) {
    let options = options("cpu").with_software_gpu(false);
    let small = Session::from_bytes(&model(64, 1), options.clone()).expect("sound");
    small.run(&inputs(3)).expect("runs");
    drop(small);
    fs::write("/proc/self/clear_refs", "5").expect("a process may forget its own peak");
    let before = status("VmRSS:");
    let session = Session::open(path, options).expect("sound");
    let run = session.run_with(&inputs(8), &RunOptions::default()).expect("runs");
    let (most, after) = (status("VmHWM:"), status("VmRSS:"));
    let planned: u64 = run.prepared.plan().memory().devices().iter().map(|memory| memory.peak()).sum();
    println!("memory {planned} {} {}", most - before, after - before);
}

#[test]
fn weights_take_their_own_size_once() {
    if let Some(path) = env::var_os(CHILD) {
        return child(Path::new(&path));
    }
    let file = env::temp_dir().join(format!("anabranch-weights-{}.onnx", std::process::id()));
    fs::write(&file, model(WORDS, LAYERS)).expect("64 MiB of disk");
    let test = env::current_exe().expect("it runs");
    let output = Command::new(test)
        .args(["--exact", "weights::weights_take_their_own_size_once", "--nocapture"])
        .env(CHILD, &file)
        .output()
        .expect("it runs once more");
    fs::remove_file(&file).expect("it is there");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.split_once("memory ")).map(|(_, figures)| figures);
    let line = line.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    let figures: Vec<u64> = line.split(' ').map(|figure| figure.parse().expect("a number")).collect();
    // The working set, two activations of 8 rows, is negligible.
    let most = WEIGHTS + WEIGHTS / 10;
    assert!(figures[0] >= WEIGHTS && figures[0] <= most, "a planned peak of {} for {WEIGHTS}", figures[0]);
    assert!(figures[1] <= most + PROCESS, "{} bytes while opening and running {WEIGHTS}", figures[1]);
    assert!(figures[2] <= most + PROCESS, "{} bytes after running {WEIGHTS}", figures[2]);
}

#[test]
fn a_model_in_memory_gives_the_bits_of_its_file() {
    let bytes = model(64, 2);
    let file = env::temp_dir().join(format!("anabranch-bits-{}.onnx", std::process::id()));
    fs::write(&file, &bytes).expect("some MiB of disk");
    for place in ["cpu", "gpu"] {
        let from_file = Session::open(&file, options(place)).expect("sound");
        let from_bytes = Session::from_bytes(&bytes, options(place)).expect("sound");
        for rows in [1, 7] {
            let run =
                |session: &Session| session.run(&inputs(rows)).expect("runs").tensor("h2").expect("an output").clone();
            assert!(run(&from_file).same_bits(&run(&from_bytes)), "{rows} rows by {place}");
        }
    }
    fs::remove_file(&file).expect("it is there");
}
