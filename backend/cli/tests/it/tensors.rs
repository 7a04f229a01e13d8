//! Models are shown, and tensors are read and written, in common file formats.

use crate::command::{Anabranch, bundled};
use anabranch::import::proto::{
    GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto, data_type,
};
use anabranch_kernels::{Shape, Tensor};
use anabranch_report::npy::{read_npz, write_npy, write_npz};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Returns the path of an ONNX test next to the repository's tests.
fn standard(name: &str) -> String {
    bundled("../onnx/selection").to_owned() + "/" + name
}

fn node(operator: &str, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto::of(operator, inputs, &[output]).named(&format!("n_{output}"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

#[test]
fn a_model_that_runs_is_shown_with_what_it_takes() {
    let command = Anabranch::new();
    let shown = command.json(&["inspect", &bundled("convnet.onnx"), "--no-gpu"]);
    assert_eq!((&shown["runs"], shown["obstacles"].as_array().map(Vec::len)), (&true.into(), Some(0)));
    assert!(shown["opsets"]["ai.onnx"].is_u64() && shown["inputs"][0]["dims"].is_array(), "{shown}");
    let (work, parameters) = (&shown["work"], &shown["parameters"]["f32"]);
    assert_eq!(parameters["bytes"].as_u64(), parameters["elements"].as_u64().map(|elements| 4 * elements));
    for key in ["flops", "bytes_read", "bytes_written"] {
        assert!(work[key].as_f64() > Some(0.0), "{key}: {work}");
    }
    let memory = &work["memory"][0];
    assert!(memory["peak_bytes"].as_u64() > memory["resident_bytes"].as_u64(), "{memory}");
    let counts = shown["operators"].as_array().expect("operators").iter().map(|operator| operator["count"].as_u64());
    assert!(counts.flatten().is_sorted_by(|a, b| a >= b));
    // Twice the batch is twice the work, but not twice the parameters.
    let of = |batch: &str| command.json(&["inspect", &bundled("mlp.onnx"), "--no-gpu", "--dim", batch]);
    let (one, two) = (of("batch=1"), of("batch=2"));
    assert_eq!(two["work"]["flops"].as_f64(), one["work"]["flops"].as_f64().map(|flops| 2.0 * flops));
    assert_eq!(two["parameters"], one["parameters"]);
    let assumed = command.json(&["inspect", &bundled("mlp.onnx"), "--no-gpu"]);
    assert_eq!((text(&assumed["assumed"][0]), &assumed["work"]["flops"]), ("batch", &one["work"]["flops"]));
    let text = command.text(&["inspect", &bundled("mlp.onnx"), "--no-gpu"]);
    assert!(text.contains("x: f32[batch×16]") && text.contains("It runs on this machine"), "{text}");
}

/// Returns the output of a command that ends with status 3.
fn stopped(command: &Anabranch, arguments: &[&str]) -> String {
    let output = command.run(arguments);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn all_that_stops_a_model_is_told_at_once() {
    let command = Anabranch::new();
    let graph = GraphProto {
        node: vec![
            node("Relu", &["x"], "a"),
            node("Frobnicate", &["a"], "b"),
            NodeProto { domain: "mine".into(), ..node("Unheard", &["a"], "c") },
            node("MatMul", &["a", "w"], "d"),
            node("Neg", &["b"], "e"),
        ],
        input: vec![ValueInfoProto::f32s("x", &[2, 4]), ValueInfoProto::tensor("s", data_type::STRING, vec![])],
        output: ["c", "d", "e"].map(|name| ValueInfoProto::f32s(name, &[2, 4])).into(),
        initializer: vec![TensorProto::f32s("w", &[5, 3], &[0.0; 15])],
        ..GraphProto::default()
    };
    let mut model = ModelProto::of(graph, 99);
    model.opset_import.push(OperatorSetIdProto { domain: "mine".into(), version: 1 });
    fs::write(command.path("wrong.onnx"), model.to_bytes()).expect("writable");
    let shown = stopped(&command, &["inspect", "wrong.onnx", "--no-gpu", "--json"]);
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let obstacles = shown["obstacles"].as_array().expect("obstacles");
    let wants = [
        ("", "opset 99"),
        ("", "elements of type string"),
        ("n_b", "the operator Frobnicate is not implemented"),
        ("n_c", "domain mine"),
        ("n_d", "5×3"),
    ];
    assert_eq!(obstacles.len(), wants.len(), "{obstacles:#?}");
    for (obstacle, (node, problem)) in obstacles.iter().zip(wants) {
        assert_eq!(obstacle["node"].as_str().unwrap_or_default(), node);
        assert!(text(&obstacle["problem"]).contains(problem) && !text(&obstacle["next"]).is_empty(), "{obstacle}");
        assert_eq!(obstacle["operator"].is_string(), !node.is_empty());
    }
    assert_eq!((&shown["runs"], &shown["work"]), (&false.into(), &Value::Null));
    let operators = shown["operators"].as_array().expect("operators").len();
    assert_eq!((operators, &shown["parameters"]["f32"]["elements"]), (5, &15.into()));
    let text = stopped(&command, &["inspect", "wrong.onnx", "--no-gpu"]);
    assert!(text.contains("It does not run: 5 obstacles") && text.contains("→"), "{text}");
    command.refuses(&["run", "wrong.onnx", "--no-gpu"], &["opset 99"]);
    fs::write(command.path("no.onnx"), "no model").expect("writable");
    command.refuses(&["inspect", "no.onnx"], &["no.onnx"]);
}

#[test]
fn a_test_of_the_standard_is_one_short_command() {
    let command = Anabranch::new();
    for name in ["node/test_abs", "node/test_layer_normalization_2d_axis1", "contributed/test_rotary_start"] {
        let folder = standard(name);
        let report = command.json(&["run", &folder, "--no-gpu", "--repeat", "1"]);
        let outputs = report["expected"]["outputs"].as_array().expect("compared");
        assert!(
            !outputs.is_empty() && outputs.iter().all(|output| output["difference"].is_null()),
            "{name}: {outputs:?}"
        );
        let set = format!("{folder}/test_data_set_0");
        let same = command.json(&["run", &set, "--no-gpu", "--repeat", "1"]);
        assert_eq!(same["expected"]["outputs"].as_array().map(Vec::len), Some(outputs.len()));
    }
    let folder = standard("node/test_abs");
    let text = command.text(&["run", &folder, "--no-gpu", "--repeat", "1"]);
    assert!(text.contains("output `y` agrees with"), "{text}");
    command.refuses(&["run", ".", "--no-gpu"], &["without an ONNX file", "name an ONNX file"]);
    let input = format!("x={folder}/test_data_set_0");
    command.refuses(&["run", &folder, "--no-gpu", "--input", &input], &["names its inputs itself"]);
}

#[test]
fn a_path_of_an_input_may_hold_the_sign_that_names_end_with() {
    let command = Anabranch::new();
    std::fs::create_dir(command.path("a=b")).expect("writable");
    std::fs::copy(bundled("mlp.npz"), command.path("a=b/x.npz")).expect("copied");
    let report = command.json(&["run", &bundled("mlp.onnx"), "--no-gpu", "--repeat", "1", "--input", "a=b/x.npz"]);
    assert!(report["latency_ms"]["median"].is_number(), "{report}");
}

#[cfg(unix)]
#[test]
fn a_path_of_an_input_need_not_be_utf8() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let (command, folder) = (Anabranch::new(), standard("node/test_abs"));
    let file = command.path(".").join(OsStr::from_bytes(b"\xff.pb"));
    std::fs::copy(format!("{folder}/test_data_set_0/input_0.pb"), file).expect("copied");
    let model = format!("{folder}/model.onnx");
    for input in [&b"x=\xff.pb"[..], b"\xff.pb"] {
        let mut run = std::process::Command::new(env!("CARGO_BIN_EXE_anabranch"));
        run.args(["run", &model, "--no-gpu", "--no-learn", "--repeat", "1", "--input"]).arg(OsStr::from_bytes(input));
        let ended = run.current_dir(command.path(".")).output().expect("runs");
        assert!(ended.status.success(), "{ended:?}");
    }
}

#[test]
fn an_input_that_is_given_twice_is_refused() {
    let command = Anabranch::new();
    let (model, reference) = (bundled("mlp.onnx"), bundled("mlp.npz"));
    let x = read_npz(Path::new(&reference)).expect("bundled")["in__x"].clone();
    write_npy(&command.path("x.npy"), &x).expect("writable");
    let run = ["run", &model, "--no-gpu", "--repeat", "1", "--input"];
    command.refuses(
        &[&run[..], &["x=x.npy", "--input", "x.npy"]].concat(),
        &["input `x` is given twice, by x.npy and by x.npy"],
    );
    command.refuses(&[&run[..], &[&reference, "--input", "x.npy"]].concat(), &["input `x`", "`in__x` of", "x.npy"]);
    anabranch_report::npy::write_npz(&command.path("two.npz"), [("x", &x), ("in__x", &x)]).expect("writable");
    command.refuses(&[&run[..], &["two.npz"]].concat(), &["`in__x` of two.npz", "`x` of two.npz"]);
    command.refuses(&["inspect", &model, "--no-gpu", "--input", "x.npy", "--input", "x=x.npy"], &["given twice"]);
}

#[test]
fn outputs_that_are_not_as_expected_end_with_a_status_of_their_own() {
    let command = Anabranch::new();
    let (model, reference) = (bundled("mlp.onnx"), bundled("mlp.npz"));
    let run = ["run", &model, "--no-gpu", "--repeat", "1", "--input", &reference];
    command.text(&[&run[..], &["--expect", &reference]].concat());
    for (file, output) in [("o.npz", "o.npz"), ("o.safetensors", "o.safetensors"), ("o.pb", "o.pb"), ("o.npy", "o.npy")]
    {
        let written = command.run(&[&run[..], &["--output", output]].concat());
        let told = String::from_utf8_lossy(&written.stderr).into_owned();
        assert!(written.status.success() && told.contains(&format!("wrote {file}")), "{told}");
        command.text(&[&run[..], &["--expect", file, "--rtol", "0", "--atol", "0"]].concat());
    }
    let mut other = read_npz(Path::new(&reference)).expect("bundled")["out__logits"].clone();
    other.elements_mut::<f32>().expect("f32")[3] += 1.0;
    write_npy(&command.path("other.npy"), &other).expect("writable");
    let differs = command.run(&[&run[..], &["--expect", "other.npy"]].concat());
    let message = String::from_utf8_lossy(&differs.stderr).into_owned();
    assert_eq!(differs.status.code(), Some(3), "{message}");
    assert!(
        message.contains("`logits`")
            && message.contains("1 of ")
            && message.contains("at [0, 3]")
            && message.contains("other.npy"),
        "{message}"
    );
    let near = [&run[..], &["--expect", "other.npy", "--atol", "1.1"]].concat();
    let text = command.text(&near);
    assert!(text.contains("greatest error 1.0") && text.contains("top-1 of") && text.contains("cosine 0."), "{text}");
    let figures = &command.json(&near)["expected"]["outputs"][0]["figures"];
    assert!(figures["greatest_error"].as_f64().is_some_and(|error| (error - 1.0).abs() < 1e-3), "{figures}");
    assert_eq!((&figures["worst"]["index"], &figures["beyond"]), (&serde_json::json!([0, 3]), &0.into()));
    for key in ["greatest_relative_error", "rms_error", "cosine"] {
        assert!(figures[key].as_f64().is_some_and(|figure| figure > 0.0), "{key}: {figures}");
    }
    command.refuses(&[&run[..], &["--output", "o.txt"]].concat(), &["o.txt", ".safetensors"]);
    command.refuses(&[&run[..], &["--expect", "none.npz"]].concat(), &["none.npz"]);
    let lstm = bundled("lstm.onnx");
    let several = ["run", &lstm, "--no-gpu", "--dim", "batch=1", "--dim", "time=3", "--output", "o.npy"];
    command.refuses(&several, &["o.npy", "outputs"]);
}

#[test]
fn inputs_are_read_from_the_files_that_people_have() {
    let command = Anabranch::new();
    let (model, reference) = (bundled("mlp.onnx"), bundled("mlp.npz"));
    let x = &read_npz(Path::new(&reference)).expect("bundled")["in__x"];
    write_npy(&command.path("x.npy"), x).expect("writable");
    fs::write(command.path("x.pb"), anabranch::import::tensor_to_bytes("x", x).expect("f32")).expect("writable");
    let header =
        format!(r#"{{"x":{{"dtype":"F32","shape":{:?},"data_offsets":[0,{}]}}}}"#, x.shape().dims(), x.bytes().len());
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), x.bytes()].concat();
    fs::write(command.path("x.safetensors"), &bytes).expect("writable");
    for input in ["x=x.npy", "x.npy", "x=x.pb", "x.pb", "x.safetensors"] {
        let run = ["run", &model, "--no-gpu", "--repeat", "1", "--input", input, "--expect", &reference];
        command.text(&run);
    }
    let run = |input| ["run", &model, "--no-gpu", "--input", input];
    command.refuses(&run("y=x.pb"), &["x.pb", "has no input"]);
    command.refuses(&run("x=x.safetensors"), &["names its inputs itself"]);
    command.refuses(&run("x.bin"), &["x.bin"]);
    fs::write(command.path("cut.safetensors"), &bytes[..bytes.len() - 1]).expect("writable");
    command.refuses(&run("cut.safetensors"), &["cut.safetensors", "states"]);
    // A tensor's file that is cut short or holds other data is not a model, and not called a model.
    let whole = fs::read(command.path("x.pb")).expect("written above");
    for (damaged, why) in [(&whole[..whole.len() - 1], "claims"), (b"garbage\xff\xff", "wire type 7")] {
        fs::write(command.path("cut.pb"), damaged).expect("writable");
        command
            .refuses(&run("x=cut.pb"), &["cut.pb", "is not an ONNX tensor: ", why, "check that the file is complete"]);
    }
    fs::write(command.path("x.txt"), "1 2 3").expect("writable");
    command.refuses(&run("x=x.txt"), &["x.txt", ".safetensors"]);
    // If there are several inputs, a file has to name its input.
    command.refuses(&["run", &bundled("encoder.onnx"), "--no-gpu", "--input", "x.npy"], &["write NAME=x.npy"]);
}

/// Writes a model of one operator from `image`.
fn write_unary(path: &Path, operator: &str, read: [i64; 4], output: &str, made: [i64; 4]) {
    let graph = GraphProto {
        node: vec![NodeProto::of(operator, &["image"], &[output])],
        input: vec![ValueInfoProto::f32s("image", &read)],
        output: vec![ValueInfoProto::f32s(output, &made)],
        ..GraphProto::default()
    };
    fs::write(path, ModelProto::of(graph, 17).to_bytes()).expect("writable");
}

/// Writes a PNG file of this width and height.
fn write_rgb(path: &Path, [width, height]: [u32; 2], pixels: &[u8]) {
    let mut encoder = png::Encoder::new(fs::File::create(path).expect("writable"), width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().expect("a header").write_image_data(pixels).expect("as many");
}

#[test]
fn an_image_is_an_input() {
    let command = Anabranch::new();
    write_unary(&command.path("m.onnx"), "Identity", [1, 3, 2, 2], "y", [1, 3, 2, 2]);
    let pixels: Vec<u8> = (0..8).flat_map(|at| [at * 10, 255, 0]).collect();
    write_rgb(&command.path("x.png"), [4, 2], &pixels);
    // The middle columns; red, then green, then blue.
    let want: [f32; 12] = [10.0, 20.0, 50.0, 60.0, 255.0, 255.0, 255.0, 255.0, 0.0, 0.0, 0.0, 0.0];
    let shape = || Shape::new([1, 3, 2, 2]).expect("small");
    write_npy(&command.path("raw.npy"), &Tensor::from_elements(shape(), &want).expect("twelve")).expect("writable");
    let unit = want.map(|value| value / 255.0);
    write_npy(&command.path("unit.npy"), &Tensor::from_elements(shape(), &unit).expect("twelve")).expect("writable");
    for (norm, file) in [("none", "raw.npy"), ("unit", "unit.npy")] {
        let run =
            ["run", "m.onnx", "--no-gpu", "--repeat", "1", "--input", "x.png", "--image-norm", norm, "--expect", file];
        command.text(&run);
    }
    let run = ["run", "m.onnx", "--no-gpu", "--repeat", "1", "--input", "image=x.png", "--expect", "unit.npy"];
    assert_eq!(command.run(&run).status.code(), Some(3), "ImageNet's means are the default");
    fs::write(command.path("x.jpg"), "no image").expect("writable");
    command.refuses(&["run", "m.onnx", "--no-gpu", "--input", "x.jpg"], &["x.jpg", "not a readable JPEG image"]);
    let mlp = bundled("mlp.onnx");
    command.refuses(&["run", &mlp, "--no-gpu", "--input", "x.png"], &["x.png", "four dimensions"]);
}

#[test]
fn what_a_vision_model_sees_is_shown_and_drawn() {
    let command = Anabranch::new();
    // The mean of each colour of two images.
    write_unary(&command.path("m.onnx"), "GlobalAveragePool", [2, 3, 2, 4], "colours", [2, 3, 1, 1]);
    for (name, pixel) in [("a.png", [9u8, 255, 0]), ("b.png", [0, 9, 255])] {
        write_rgb(&command.path(name), [8, 8], &pixel.repeat(64));
    }
    fs::write(command.path("labels.txt"), "red\ngreen\nblue\n").expect("writable");
    let run = ["run", "m.onnx", "--no-gpu", "--repeat", "1", "--input", "a.png", "--input", "b.png"];
    let options = ["--image-norm", "unit", "--image-colors", "bgr", "--show", "top1", "--labels", "labels.txt"];
    let output = command.run(&[&run[..], &options, &["--picture", "seen.svg", "--json"]].concat());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let shown = report["shown"]["top"].as_array().expect("a list");
    let found: Vec<_> = shown.iter().map(|one| (&one["image"], one["label"].as_str())).collect();
    assert_eq!(found, [(&0.into(), Some("green")), (&1.into(), Some("red"))], "blue comes first");
    assert!(told.contains("a.png: 8 × 8 → 4 × 2 pixels, scaled to cover, and cropped around the centre; x / 255"));
    let svg = command.read("seen.svg");
    assert!(svg.matches("<image ").count() == 2 && svg.contains(">green "), "{svg}");
    assert!(command.text(&[&run[..], &options].concat()).contains("green"));
    // Results are there although the outputs are no boxes.
    let output = command.run(&[&run[..], &["--show", "boxes"]].concat());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && told.contains("--show: boxes need") && told.contains("colours [2, 3"));
    assert!(String::from_utf8_lossy(&output.stdout).contains("colours"));
    command.refuses(&run[..7], &["2 images at once, but 1 is given", "repeat --input"]);
    for (options, said) in [
        (&["--show", "faces"][..], "top5"),
        (&["--show", "boxes", "--threshold", "2"], "from 0 to 1"),
        (&["--labels", "labels.txt"], "--show"),
        (&["--show", "top5", "--labels", "none.txt"], "none.txt"),
        (&["--image-mean", "1", "--image-norm", "unit"], "--image-norm cannot be used"),
        (&["--image-scale", "0"], "neither 0 nor infinite"),
        (&["--image-size", "4"], "HEIGHTxWIDTH"),
        (&["--image-mean", "nan"], "not a number"),
        (&["--show", "top5", "--threshold", "0.5"], "--threshold cannot be used"),
        (&["--image-size", "4x4"], "differs from the model's size"),
    ] {
        command.refuses(&[&run[..], options].concat(), &[said]);
    }
    let drawn = ["run", "m.onnx", "--no-gpu", "--random", "1", "--show", "top5", "--picture", "seen.svg"];
    command.refuses(&drawn, &["--picture cannot be used", "--input"]);
    let random = ["run", "m.onnx", "--no-gpu", "--random", "1", "--image-fit", "stretch"];
    command.refuses(&random, &["--image-fit cannot be used", "no --input is an image"]);
    // In a pipeline each image is a sample.
    write_unary(&command.path("one.onnx"), "GlobalAveragePool", [1, 3, 2, 2], "colours", [1, 3, 1, 1]);
    let pipe = ["pipe", "one.onnx", "--no-gpu", "--image-norm", "none", "--inputs", "a.png", "b.png", "-o", "results"];
    command.text(&pipe);
    let red =
        |name: &str| read_npz(&command.path(name)).expect("readable")["colours"].elements::<f32>().expect("f32")[0];
    assert_eq!((red("results/a.npz"), red("results/b.npz")), (9.0, 0.0));
    let again = [&["pipe", "one.onnx", "--no-gpu", "--image-norm", "unit"], &pipe[5..], &["--resume"]].concat();
    command.refuses(&again, &["another --input, --dim, --image-"]);
    command.refuses(
        &["pipe", "one.onnx", "--no-gpu", "--image-norm", "unit", "--random", "2"],
        &["--image-norm cannot be used"],
    );
}

#[test]
fn each_rewrite_can_be_left_out_by_name() {
    let command = Anabranch::new();
    let nodes = |fuse: &str| {
        // Blocks would be nodes, and depend on measured costs.
        let run =
            ["run", &bundled("convnet.onnx"), "--no-gpu", "--random", "1", "--repeat", "1", "--stream", "off", fuse];
        let run: Vec<_> = run.into_iter().filter(|argument| !argument.is_empty()).collect();
        command.json(&run)["nodes"].as_u64().expect("nodes")
    };
    let (all, without, none) = (nodes(""), nodes("--no-fuse=epilogues"), nodes("--no-fuse"));
    assert!(all < without && all < none, "{all} {without} {none}");
    assert!(nodes("--no-fuse=maps,epilogues") >= without);
    command.refuses(&["run", "--no-gpu", "--no-fuse=epilogue"], &["no rewrite `epilogue`", "epilogues", "pads"]);
    let help = command.text(&["help", "run"]);
    assert!(help.contains("epilogues   moves expressions into the node"), "{help}");
    // A plan belongs to the nodes that existed when it was made.
    let model = bundled("convnet.onnx");
    command.text(&["place", &model, "--random", "1", "--no-gpu", "-o", "plan.json"]);
    let other = ["run", &model, "--random", "1", "--no-gpu", "--place", "plan.json", "--no-fuse=epilogues"];
    command.refuses(&other, &["plan.json"]);
}

#[test]
fn sequences_and_optionals_are_files_in_parts() {
    let command = Anabranch::new();
    let folder = standard("node/test_identity_opt");
    let model = folder.clone() + "/model.onnx";
    let run = |model: &str, more: &[&str]| {
        command.json(&[&["run", model, "--no-gpu", "--repeat", "1", "--warmup", "0"], more].concat())
    };
    let report = run(&folder, &["--output", "whole.npz"]);
    let compared = report["expected"]["outputs"].as_array().expect("compared with the folder's");
    assert!(!compared.is_empty() && compared.iter().all(|output| output["difference"].is_null()), "{report}");
    let whole = read_npz(&command.path("whole.npz")).expect("written");
    assert!(whole.contains_key("opt_out[0]") && whole.len() == compared.len(), "{:?}", whole.keys());
    let given = whole.iter().map(|(name, tensor)| (name.replace("opt_out", "opt_in"), tensor)).collect::<Vec<_>>();
    let written = write_npz(&command.path("in.npz"), given.iter().map(|(name, tensor)| (name.as_str(), *tensor)));
    written.expect("writable");
    run(&model, &["--input", "in.npz", "--expect", "whole.npz"]);

    let empty = Tensor::from_i64s(&[]);
    for (name, made) in [("opt_in[absent]", "opt_out[absent]"), ("opt_in[]", "opt_out[]")] {
        write_npz(&command.path("none.npz"), [(name, &empty)]).expect("writable");
        run(&model, &["--input", "none.npz", "--output", "made.npz"]);
        assert_eq!(read_npz(&command.path("made.npz")).expect("written").keys().collect::<Vec<_>>(), [made]);
        let other = command.run(&["run", &model, "--no-gpu", "--input", "none.npz", "--expect", "whole.npz"]);
        let told = String::from_utf8_lossy(&other.stderr).into_owned();
        assert!(other.status.code() == Some(3) && told.contains("did not produce it"), "{told}");
    }
    write_npy(&command.path("one.npy"), &whole["opt_out[0]"]).expect("writable");
    let refused =
        |more: &[&str], parts: &[&str]| command.refuses(&[&["run", &model, "--no-gpu"], more].concat(), parts);
    refused(&["--input", "opt_in=one.npy"], &["optional sequence of f32[5]", "`opt_in[0]`", "`opt_in[absent]`"]);
    refused(&["--input", "opt_in[1]=one.npy"], &["is given as `opt_in[1]`"]);
    refused(&["--input", "in.npz", "--output", "out.npy"], &["has several parts"]);
    let shown = command.text(&["inspect", &model, "--no-gpu"]);
    assert!(shown.contains("opt_in: optional sequence of f32[5]"), "{shown}");
}
