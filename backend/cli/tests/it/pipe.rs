//! `anabranch pipe`, from the outside: sources and destinations of data sets, skipped data sets, and errors.

use crate::command::{Anabranch, bundled};
use anabranch::import::proto::{
    DimensionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, data_type,
};
use anabranch_kernels::{Shape, Tensor};
use anabranch_report::npy::{read_npz, write_npy, write_npz};
use std::collections::BTreeMap;

/// Returns the inputs of a bundled model from its reference.
fn reference(model: &str) -> BTreeMap<String, Tensor> {
    let all = read_npz(bundled(&format!("{model}.npz")).as_ref()).expect("bundled");
    all.into_iter().filter_map(|(name, tensor)| Some((name.strip_prefix("in__")?.to_owned(), tensor))).collect()
}

fn write(command: &Anabranch, file: &str, arrays: &BTreeMap<String, Tensor>) {
    let arrays = arrays.iter().map(|(name, tensor)| (name.as_str(), tensor));
    write_npz(&command.path(file), arrays).expect("writable");
}

/// Returns the array with each float multiplied by `factor`.
fn scaled(tensor: &Tensor, factor: f32) -> Tensor {
    let elements: Vec<f32> = tensor.elements::<f32>().expect("floats").iter().map(|x| x * factor).collect();
    Tensor::from_elements(tensor.shape().clone(), &elements).expect("as many")
}

fn assert_same(command: &Anabranch, one: &str, other: &str) {
    let [one, other] = [one, other].map(|file| read_npz(&command.path(file)).expect("written"));
    assert!(!one.is_empty() && one.keys().eq(other.keys()));
    assert!(one.values().zip(other.values()).all(|(a, b)| a.same_bits(b)));
}

#[test]
fn files_become_results_of_their_names_with_the_bits_of_runs() {
    let command = Anabranch::new();
    let (model, inputs) = (bundled("mlp.onnx"), reference("mlp"));
    for at in 0..5 {
        let set = inputs.iter().map(|(name, tensor)| (name.clone(), scaled(tensor, 1.0 + at as f32)));
        write(&command, &format!("set{at}.npz"), &set.collect());
    }
    let pipe = ["pipe", &model, "--no-gpu", "--inputs", "set?.npz", "-o", "results"];
    let charts = ["--gantt", "g.svg", "--report", "r.html", "--trace", "t.json", "--write-plan", "p.json"];
    let report = command.json(&[&pipe[..], &charts[..]].concat());
    assert_eq!((&report["done"], &report["skipped"], &report["wanted"]), (&5.into(), &0.into(), &5.into()));
    assert!(report["plan"]["period"].as_f64().is_some_and(|period| period > 0.0), "{report}");
    assert!(command.read("g.svg").contains("sample 4") && command.read("r.html").contains("Stages"));
    let titled = |file: &str| command.read(file).contains("mlp.onnx") && !command.read(file).contains(&model);
    assert!(titled("g.svg"), "a title is a name and no path");
    assert!(command.read("t.json").contains("sample 4") && command.read("p.json").contains("stages"));
    for at in 0..5 {
        let set = format!("set{at}.npz");
        command.text(&["run", &model, "--no-gpu", "--repeat", "1", "--input", &set, "--output", "run.npz"]);
        assert_same(&command, &format!("results/set{at}.npz"), "run.npz");
    }
    // Existing results are skipped, and missing results are made by the written plan.
    std::fs::remove_file(command.path("results/set3.npz")).expect("there");
    let report = command.json(&[&pipe[..], &["--resume", "--plan", "p.json", "--no-measure"]].concat());
    assert_eq!((&report["done"], &report["skipped"], &report["wanted"]), (&1.into(), &4.into(), &1.into()));
    assert!(command.path("results/set3.npz").is_file());
    let text = command.text(&[&pipe[..], &["--resume"]].concat());
    assert!(text.contains("all samples are done"), "{text}");
}

#[test]
fn what_was_made_of_other_files_is_not_taken_for_done() {
    let command = Anabranch::new();
    let inputs = reference("mlp");
    std::fs::copy(bundled("mlp.onnx"), command.path("own.onnx")).expect("writable");
    for at in 0..4 {
        write(&command, &format!("set{at}.npz"), &inputs);
    }
    let pipe = ["pipe", "own.onnx", "--no-gpu", "--no-measure", "--inputs", "set*.npz", "-o", "results"];
    command.json(&pipe);
    // A data set that is newer than its results.
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    let touch = |file: &str| {
        let file = std::fs::File::options().write(true).open(command.path(file)).expect("there");
        file.set_modified(later).expect("it is ours");
    };
    touch("set2.npz");
    let report = command.json(&[&pipe[..], &["--resume"]].concat());
    assert_eq!((&report["done"], &report["skipped"]), (&1.into(), &3.into()));
    // A data set that was replaced by an older file.
    write(&command, "older", &inputs);
    let old = std::fs::File::options().write(true).open(command.path("older")).expect("there");
    old.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("it is ours");
    std::fs::rename(command.path("older"), command.path("set1.npz")).expect("writable");
    let report = command.json(&[&pipe[..], &["--resume"]].concat());
    assert_eq!((&report["done"], &report["skipped"]), (&2.into(), &2.into()), "set2 is of later, still");
    // Another model under the same name.
    touch("own.onnx");
    let output = command.run(&[&pipe[..], &["--resume"]].concat());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("another model") && message.contains("--resume"), "{message}");
}

#[test]
fn a_sample_that_fails_is_named_and_the_results_before_it_are_kept() {
    let command = Anabranch::new();
    let node = vec![NodeProto::of("Gather", &["table", "at"], &["row"]), NodeProto::of("Neg", &["row"], &["y"])];
    let vector = |name: &str, of| ValueInfoProto::tensor(name, of, vec![DimensionProto::known(2)]);
    let graph = GraphProto {
        node,
        initializer: vec![TensorProto::f32s("table", &[4], &[0.0, 1.0, 2.0, 3.0])],
        input: vec![vector("at", data_type::INT64)],
        output: vec![vector("y", data_type::FLOAT)],
        ..GraphProto::default()
    };
    std::fs::write(command.path("rows.onnx"), ModelProto::of(graph, 17).to_bytes()).expect("writable");
    for at in 0..9 {
        let index = if at == 5 { 4 } else { at % 4 };
        write_npy(&command.path(&format!("at{at}.npy")), &Tensor::from_i64s(&[index, 3])).expect("writable");
    }
    for mapping in [&["--together"][..], &["--replicate", "2"], &["--replicate", "off"]] {
        let pipe = ["pipe", "rows.onnx", "--no-gpu", "--no-measure", "--inputs", "at*.npy", "-o", "results"];
        let output = command.run(&[&pipe[..], mapping].concat());
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && message.contains("sample 5, stage"), "{mapping:?}: {message}");
        let made = |at: &usize| command.path(&format!("results/at{at}.npz")).is_file();
        assert_eq!((0..9).filter(made).collect::<Vec<_>>(), [0, 1, 2, 3, 4], "{mapping:?}");
        std::fs::remove_dir_all(command.path("results")).expect("there");
    }
}

#[test]
fn a_file_that_cannot_be_read_ends_the_stream_with_a_report_and_the_next_step() {
    let command = Anabranch::new();
    let (model, inputs) = (bundled("mlp.onnx"), reference("mlp"));
    (0..6).for_each(|at| write(&command, &format!("set{at}.npz"), &inputs));
    // Its headers are sound.
    let mut bytes = std::fs::read(command.path("set4.npz")).expect("written");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(command.path("set4.npz"), bytes).expect("writable");
    let pipe = ["pipe", &model, "--no-gpu", "--no-measure", "--together", "--inputs", "set*.npz", "-o", "results"];
    let output = command.run(&pipe);
    let (text, message) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("set4.npz") && message.contains("--resume"), "{message}");
    assert!(text.contains("of 6 samples"), "{text}");
    write(&command, "set4.npz", &inputs);
    let report = command.json(&[&pipe[..], &["--resume"]].concat());
    assert!(report["skipped"].as_u64() > Some(0), "{report}");
    assert!((0..6).all(|at| command.path(&format!("results/set{at}.npz")).is_file()));
}

#[test]
fn files_that_cannot_be_data_sets_are_refused_before_any_is_run() {
    let command = Anabranch::new();
    let (model, inputs) = (bundled("mlp.onnx"), reference("mlp"));
    let (name, tensor) = inputs.iter().next().expect("an input");
    write(&command, "a.npz", &inputs);
    let doubles = Tensor::from_elements(tensor.shape().clone(), &vec![0f64; tensor.shape().elements()]);
    let doubles = doubles.expect("as many");
    anabranch_report::npy::write_npy(&command.path("double.npy"), &doubles).expect("writable");
    write(&command, "double.npz", &BTreeMap::from([(name.clone(), doubles)]));
    std::fs::write(command.path("junk.npz"), "junk").expect("writable");
    std::fs::write(command.path("junk.npy"), "junk").expect("writable");
    std::fs::create_dir(command.path("folder.npz")).expect("writable");
    for (file, part) in [
        ("none.npz", "No such file"),
        ("junk.npz", "Zip"),
        ("junk.npy", "npy"),
        ("folder.npz", "folder.npz"),
        ("double.npz", "f64"),
        ("double.npy", "f64"),
    ] {
        let pipe = ["pipe", &model, "--no-gpu", "--no-measure", "--inputs", "a.npz", file, "-o", "results"];
        command.refuses(&pipe, &[file, part]);
        assert!(!command.path("results").exists(), "{file}");
    }
}

#[test]
fn rows_of_an_archive_are_cut_into_data_sets() {
    let command = Anabranch::new();
    let (model, inputs) = (bundled("mlp.onnx"), reference("mlp"));
    let (name, one) = inputs.iter().next().expect("an input");
    let width = one.shape().dims()[1];
    let elements: Vec<f32> = (0..6 * width).map(|at| (at % 17) as f32 - 8.0).collect();
    let tensor = |dims: [usize; 2], elements: &[f32]| {
        Tensor::from_elements(Shape::new(dims).expect("small"), elements).expect("as many")
    };
    write(&command, "rows.npz", &BTreeMap::from([(name.clone(), tensor([6, width], &elements))]));
    let pipe = ["pipe", &model, "--no-gpu", "--no-measure", "--inputs", "rows.npz", "-o", "results"];
    let report = command.json(&[&pipe[..], &["--batch", "2"]].concat());
    assert_eq!(report["done"], 3);
    for at in 0..3 {
        let part = &elements[2 * width * at..][..2 * width];
        write(&command, "part.npz", &BTreeMap::from([(name.clone(), tensor([2, width], part))]));
        command.text(&["run", &model, "--no-gpu", "--repeat", "1", "--input", "part.npz", "--output", "run.npz"]);
        assert_same(&command, &format!("results/{at:08}.npz"), "run.npz");
    }
    command.refuses(&[&pipe[..], &["--batch", "4"]].concat(), &["rows.npz", "6 rows", "--batch"]);
}

/// Each file is one row, with an axis for it or without. The files of a batch are rows of one run.
#[test]
fn files_are_stacked_to_batches_and_have_results_of_their_own() {
    let command = Anabranch::new();
    let (model, inputs) = (bundled("mlp.onnx"), reference("mlp"));
    let (name, one) = inputs.iter().next().expect("an input");
    let width = one.shape().dims()[1];
    let tensor = |dims: &[usize], first: usize| {
        let elements: Vec<f32> = (0..dims.iter().product()).map(|at| ((first + at) % 23) as f32 - 9.0).collect();
        Tensor::from_elements(Shape::new(dims).expect("small"), &elements).expect("as many")
    };
    for at in 0..4 {
        write(&command, &format!("set{at}.npz"), &BTreeMap::from([(name.clone(), tensor(&[1, width], at * width))]));
        let dims: &[usize] = if at < 2 { &[width] } else { &[1, width] };
        let file = command.path(&format!("row{at}.npy"));
        anabranch_report::npy::write_npy(&file, &tensor(dims, at * width)).expect("writable");
    }
    write(&command, "all.npz", &BTreeMap::from([(name.clone(), tensor(&[4, width], 0))]));
    let base = ["pipe", &model, "--no-gpu", "--no-measure", "--cpu-devices", "core"];
    let with = |more: &[&'static str]| [&base[..], more].concat();
    let whole = ["--inputs", "all.npz", "--batch", "2", "--together", "--place", "cpu0", "-o", "whole"];
    command.text(&with(&whole));
    let runs = [0, 1].map(|at| read_npz(&command.path(&format!("whole/{at:08}.npz"))).expect("written"));
    for (files, folder) in [("set?.npz", "archives"), ("row?.npy", "arrays")] {
        let split = ["--inputs", files, "--batch", "2", "--split", "batch=cpu0:1,cpu1:1", "-o", folder];
        assert_eq!(command.json(&with(&split))["done"], 2);
        for at in 0..4 {
            let file = files.replace('?', &at.to_string()).replace(".npy", ".npz");
            let made = read_npz(&command.path(&format!("{folder}/{file}"))).expect("a result for each file");
            for (name, output) in &runs[at / 2] {
                let bytes = output.bytes().len() / 2;
                assert_eq!(made[name].shape().dims()[0], 1);
                assert_eq!(made[name].bytes(), &output.bytes()[at % 2 * bytes..][..bytes], "{file}");
            }
        }
        // A batch is done if all of its results are.
        std::fs::remove_file(command.path(&format!("{folder}/{}", files.replace('?', "3").replace(".npy", ".npz"))))
            .expect("there");
        let report = command.json(&with(&[&split[..], &["--resume"]].concat()));
        assert_eq!((&report["done"], &report["skipped"]), (&1.into(), &1.into()));
    }
    let refused = |more: &[&'static str], parts: &[&str]| {
        command.refuses(&with(&[more, &["-o", "refused"]].concat()), parts);
        assert!(!command.path("refused").exists(), "{more:?}");
    };
    refused(&["--inputs", "row?.npy", "--batch", "3"], &["4 files", "--batch"]);
    refused(&["--inputs", "all.npz", "set0.npz", "--batch", "2"], &["all.npz", "one row"]);
    refused(&["--inputs", "row?.npy", "--batch", "2", "--split", "batch=cpu0:1"], &["1 row together"]);
}

/// Rows of the right matrix of a product are added up: stacked files would change each other's results.
#[test]
fn files_whose_results_depend_on_each_other_are_not_stacked() {
    let command = Anabranch::new();
    let array = |name: &str, dims: &[usize]| {
        let elements = vec![1u8; dims.iter().product()];
        let tensor = Tensor::from_elements(Shape::new(dims).expect("small"), &elements).expect("as many");
        anabranch_report::npy::write_npy(&command.path(name), &tensor).expect("writable");
    };
    array("a.npy", &[4, 3]);
    array("zero.npy", &[1]);
    (0..3).for_each(|row| array(&format!("row{row}.npy"), &[1, 2]));
    let model = bundled("../onnx/selection/node/test_matmulinteger/model.onnx");
    let given = ["--input", "A=a.npy", "--input", "a_zero_point=zero.npy", "--input", "b_zero_point=zero.npy"];
    let pipe = ["pipe", &model, "--no-gpu", "--no-measure", "--inputs", "row?.npy", "--batch", "3", "-o", "results"];
    command.refuses(&[&pipe[..], &given].concat(), &["node `", "does not compute each row by itself"]);
    assert!(!command.path("results").exists());
}

#[test]
fn the_rows_of_each_data_set_are_divided_among_devices() {
    let command = Anabranch::new();
    let encoder = bundled("encoder.onnx");
    let pipe = ["pipe", &encoder, "--no-gpu", "--no-measure", "--cpu-devices", "core", "--dim", "seq=5"];
    let with = |more: &[&'static str]| [&pipe[..], &["--random", "3", "--batch", "4"], more].concat();
    command.text(&with(&["--together", "--place", "cpu0", "-o", "whole"]));
    for (split, folder) in [("batch=cpu0:1,cpu1:3", "given"), ("batch=auto", "chosen")] {
        let report = command.json(&with(&["--split", split, "-o", folder]));
        assert_eq!(
            (&report["done"], &report["plan"]["candidates"][0]["how"]),
            (&3.into(), &"all devices together".into()),
            "{report}"
        );
        for at in 0..3 {
            assert_same(&command, &format!("whole/{at:08}.npz"), &format!("{folder}/{at:08}.npz"));
        }
    }
    command.refuses(&with(&["--split", "batch=cpu0:1,cpu1:2"]), &["3 rows together, but the batch has 4"]);
    command.refuses(&with(&["--split", "seq=auto"]), &["node `", "does not compute each row by itself"]);
    command.refuses(&with(&["--split", "batch=auto", "--place", "cp"]), &["`cp` has nothing to place"]);
    command.refuses(&with(&["--split", "batch=some"]), &["--split", "write DIM=auto or DIM=DEVICE:ROWS"]);
}

#[test]
fn a_data_set_that_fails_is_named_and_those_before_are_there() {
    let command = Anabranch::new();
    let (model, inputs) = (bundled("decoder.onnx"), reference("decoder"));
    for at in 0..6 {
        let mut set = inputs.clone();
        if at == 3 {
            let ids = set.get_mut("ids").expect("token ids");
            let far = vec![1_000_000i64; ids.shape().elements()];
            *ids = Tensor::from_elements(ids.shape().clone(), &far).expect("as many");
        }
        write(&command, &format!("set{at}.npz"), &set);
    }
    let output = command.run(&["pipe", &model, "--no-gpu", "--inputs", "set*.npz", "-o", "results"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("sample 3, stage 0 on cpu0") && message.contains("node"), "{message}");
    let done = (0..6).filter(|at| command.path(&format!("results/set{at}.npz")).is_file()).collect::<Vec<_>>();
    assert_eq!(done, [0, 1, 2]);
}

#[test]
fn what_cannot_be_is_refused_with_the_next_step() {
    let command = Anabranch::new();
    let pipe = ["pipe", "--no-gpu", "--no-measure"];
    let with = |more: &[&'static str]| [&pipe[..], more].concat();
    command.refuses(&with(&[]), &["--inputs"]);
    command.refuses(&with(&["--random", "0"]), &["--random"]);
    command.refuses(&with(&["--inputs", "none*.npy"]), &["none*.npy"]);
    command.refuses(&with(&["--random", "2", "--replicate", "99999"]), &["copies: 99999", "cores"]);
    command.refuses(&with(&["--random", "2", "--split", "99999"]), &["99999 cores", "no CPU device has the"]);
    command.refuses(&with(&["--random", "2", "--split", "half"]), &["--split", "auto, off or a number"]);
    command.refuses(&with(&["--random", "2", "--split", "2", "--replicate", "2"]), &["--split", "--replicate"]);
    command.refuses(&with(&["--random", "2", "--latency", "1e-9"]), &["the nearest has", "raise the limit"]);
    command.refuses(&with(&["--random", "2", "--latency", "0"]), &["--latency", "above 0"]);
    command.refuses(&with(&["--random", "2", "--plan", "none.json"]), &["none.json"]);
    command.refuses(&with(&["--random", "2", "--together", "--memory", "cpu0=1KiB"]), &["cpu0"]);
}

#[test]
fn a_data_set_is_shared_among_cores_as_said_and_as_written() {
    let command = Anabranch::new();
    let pipe = ["pipe", "--no-gpu", "--no-measure", "--cpu-devices", "machine", "--random", "8"];
    let with = |more: &[&'static str]| [&pipe[..], more].concat();
    let all = command.json(&with(&["--replicate", "auto"]));
    let cores = all["plan"]["candidates"].as_array().expect("some").iter();
    let copies =
        cores.filter(|tried| tried["how"] == "a copy on each core").map(|tried| tried["devices"][0].as_array());
    if copies.flatten().next().is_none_or(|devices| devices.len() < 2) {
        return;
    }
    let group = "cpu0.0+cpu0.1";
    let report = command.json(&with(&["--split", "2", "--write-plan", "p.json", "--gantt", "g.svg"]));
    assert_eq!((&report["done"], &report["plan"]["stages"][0]["devices"]), (&8.into(), &[group].into()));
    assert_eq!(report["measured"]["stages"][0]["devices"][0]["device"], group);
    assert!(report["plan"]["handover"].as_f64().is_some_and(|seconds| seconds > 0.0), "{report}");
    assert!(command.read("g.svg").contains(group) && command.read("p.json").contains(group));
    let text = command.text(&with(&["--plan", "p.json"]));
    assert!(text.contains(group) && text.contains("* given") && text.contains("Handing over"), "{text}");
    let without = command.json(&with(&["--split", "off"]));
    let tried = without["plan"]["candidates"].as_array().expect("some");
    assert!(!tried.is_empty() && !tried.iter().any(|tried| tried["devices"].to_string().contains('+')), "{without}");
}

#[test]
fn what_runs_is_shown_meanwhile() {
    let command = Anabranch::new();
    let watch = ["watch", "--no-gpu", "--cpu-devices", "machine", "--duration", "0.5", "--every", "0.1"];
    let text = command.text(&watch);
    let lines: Vec<&str> = text.lines().collect();
    assert!(!lines.is_empty() && lines.iter().all(|line| line.contains("runs/s") && line.contains("p99")), "{text}");
    assert!(lines.last().is_some_and(|line| line.contains("cpu0")), "{text}");
    let seen = command.json(&watch);
    let runs = seen["runs"].as_u64().expect("runs");
    assert!(runs > 0 && seen["profiled_run"].as_u64() <= Some(runs), "{seen}");
    let device = &seen["devices"][0];
    assert!(
        device["busy"].as_f64() > Some(0.0) && device["peak"].as_u64() <= device["planned_peak"].as_u64(),
        "{seen}"
    );
    command.refuses(&["watch", "--no-gpu", "--every", "0"], &["--every", "more than 0"]);
    let pipe = ["pipe", "--no-gpu", "--no-measure", "--random", "40", "--live"];
    assert!(command.text(&pipe).contains("40 of 40 samples"));
}

#[test]
fn a_state_passes_from_file_to_file_and_is_not_written() {
    let command = Anabranch::new();
    let value = |name: &str| ValueInfoProto::f32s(name, &[2]);
    let nodes = vec![NodeProto::of("Add", &["sum_in", "x"], &["sum_out"]), NodeProto::of("Neg", &["sum_out"], &["y"])];
    let (input, output) = (vec![value("x"), value("sum_in")], vec![value("y"), value("sum_out")]);
    let graph = GraphProto { node: nodes, input, output, ..GraphProto::default() };
    std::fs::write(command.path("sum.onnx"), ModelProto::of(graph, 17).to_bytes()).expect("writable");
    let array = |of: f32| Tensor::from_elements(Shape::new([2]).expect("small"), &[of, -of]).expect("two");
    for at in 0..6 {
        write_npy(&command.path(&format!("x{at}.npy")), &array(at as f32)).expect("writable");
    }
    write_npy(&command.path("begin.npy"), &array(100.0)).expect("writable");
    let pipe = ["pipe", "sum.onnx", "--no-gpu", "--inputs", "x?.npy", "--no-measure", "-o", "out"];
    let feed = ["--feed", "*_out=*_in", "--sequences", "2", "--input", "sum_in=begin.npy"];
    let report = command.json(&[&pipe[..], &feed].concat());
    assert_eq!(report["done"], 6);
    // Two sequences, the first state and a spare, of two floats each.
    let kept: u64 =
        report["plan"]["stages"].as_array().expect("stages").iter().filter_map(|s| s["state"].as_u64()).sum();
    assert_eq!(kept, 4 * 8);
    for (at, sum) in [100.0, 101.0, 102.0, 104.0, 106.0, 109.0].into_iter().enumerate() {
        let made = read_npz(&command.path(&format!("out/x{at}.npz"))).expect("written");
        assert_eq!(made.keys().collect::<Vec<_>>(), ["y"]);
        assert!(made["y"].same_bits(&array(-sum)), "{at}: {:?}", made["y"]);
    }
    assert!(command.text(&[&pipe[..], &feed].concat()).contains("State stays in its stage"));
    for (options, parts) in [
        (&["--feed", "sum_out=z"][..], &["no input `z`"][..]),
        (&["--sequences", "2"], &["--feed"]),
        (&["--feed", "*_out=*_in", "--resume"], &["--resume", "--feed"]),
        (&["--feed", "*_out=*_in", "--replicate", "2"], &["one device per stage"]),
        (&["--feed", "*_out=*_in", "--batch", "2"], &["x0.npy"]),
    ] {
        command.refuses(&[&pipe[..], options].concat(), parts);
    }
}
