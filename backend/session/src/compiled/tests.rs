//! Compiled models as files: damaged, copied, rewritten.

use super::*;
use crate::{Inputs, Session};
use anabranch_device::{CpuGranularity, DetectOptions};
use anabranch_onnx::import::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use ciborium::Value;
use std::fs;

/// Compiles a model in phases, with a branch, a sequence and attributes of all kinds.
fn compiled_in_phases(path: &Path) {
    let value = |name: &str| ValueInfoProto { name: name.into(), r#type: None };
    let branch = |node: NodeProto, made: &str| GraphProto {
        node: vec![node],
        output: vec![value(made)],
        initializer: vec![TensorProto::f32s(&format!("{made}_half"), &[], &[0.5])],
        ..GraphProto::default()
    };
    let graph = GraphProto {
        node: vec![
            NodeProto::of("Exp", &["x"], &["e"]),
            NodeProto::of("Greater", &["e", "one"], &["is"]),
            NodeProto::of("Compress", &["e", "is"], &["found"]).with(AttributeProto::int("axis", 0)),
            NodeProto::of("ReduceSum", &["found"], &["sum"]).with(AttributeProto::int("keepdims", 0)),
            NodeProto::of("Less", &["sum", "one"], &["small"]),
            NodeProto::of("If", &["small"], &["some"])
                .with(AttributeProto::graph(
                    "then_branch",
                    &branch(NodeProto::of("Mul", &["found", "t_half"], &["t"]), "t"),
                ))
                .with(AttributeProto::graph(
                    "else_branch",
                    &branch(NodeProto::of("Compress", &["e", "is"], &["f"]), "f"),
                )),
            NodeProto::of("SequenceConstruct", &["some", "found"], &["list"]),
            NodeProto::of("ConcatFromSequence", &["list"], &["all"]).with(AttributeProto::int("axis", 0)),
            NodeProto::of("LeakyRelu", &["all"], &["y"]).with(AttributeProto::float("alpha", 0.25)),
        ],
        initializer: vec![TensorProto::f32s("one", &[], &[1.0])],
        // More elements than the limit for a plan.
        input: vec![ValueInfoProto::f32s("x", &[18])],
        output: vec![value("y"), value("e")],
        ..GraphProto::default()
    };
    let devices = DetectOptions::default().without_gpu().with_cpu_granularity(CpuGranularity::Core);
    let model = ModelProto::of(graph, 17).to_bytes();
    let session = Session::from_bytes(&model, SessionConfig::default().with_devices(devices)).expect("sound");
    let inputs = session.fill_random(Inputs::new(), 0).expect("known shapes");
    session.compile(&inputs, path, "").expect("a plan of the first phase");
}

/// Compiles a convolution, a pool, a product and element-wise nodes.
fn compiled(path: &Path) -> Vec<u8> {
    let weights =
        |name: &str, dims: &[i64]| TensorProto::f32s(name, dims, &vec![0.5; dims.iter().product::<i64>() as usize]);
    let window = |node: NodeProto| node.with(AttributeProto::ints("kernel_shape", &[2, 2]));
    let graph = GraphProto {
        node: vec![
            NodeProto::of("Conv", &["x", "w"], &["a"]),
            window(NodeProto::of("MaxPool", &["a"], &["b"])),
            NodeProto::of("Flatten", &["b"], &["c"]),
            NodeProto::of("MatMul", &["c", "m"], &["d"]),
            NodeProto::of("Softmax", &["d"], &["e"]),
            NodeProto::of("Clip", &["e", "least"], &["y"]),
        ],
        initializer: vec![
            weights("w", &[2, 1, 2, 2]),
            weights("m", &[8, 3000]),
            TensorProto::f32s("least", &[], &[f32::NEG_INFINITY]),
        ],
        input: vec![ValueInfoProto::f32s("x", &[1, 1, 4, 4])],
        output: vec![ValueInfoProto::f32s("y", &[1, 3000])],
        ..GraphProto::default()
    };
    let devices = DetectOptions::default().without_gpu().with_cpu_granularity(CpuGranularity::Core);
    let model = ModelProto::of(graph, 17).to_bytes();
    let session = Session::from_bytes(&model, SessionConfig::default().with_devices(devices)).expect("sound");
    let inputs = session.fill_random(Inputs::new(), 0).expect("known shapes");
    session.compile(&inputs, path, "").expect("one phase");
    fs::read(path).expect("written")
}

/// Whether the file opens and plans; any model that opens is also run.
fn opens(path: &Path) -> bool {
    let Ok(session) = Session::open(path, SessionConfig::default()) else { return false };
    let Ok(inputs) = session.fill_random(Inputs::new(), 0) else { return false };
    session.run(&inputs).is_ok()
}

/// All numbers of a value, in some order.
fn numbers<'v>(value: &'v mut Value, found: &mut Vec<&'v mut Value>) {
    match value {
        Value::Integer(_) | Value::Float(_) => found.push(value),
        Value::Array(items) => items.iter_mut().for_each(|item| numbers(item, found)),
        Value::Map(entries) => entries.iter_mut().for_each(|(_, item)| numbers(item, found)),
        _ => {}
    }
}

/// Writes the file with another description, these weights, and correct checksums.
fn rewritten(container: &Container, description: &Value, weights: &[Vec<u8>], path: &Path) {
    let mut bytes = Vec::new();
    ciborium::into_writer(description, &mut bytes).expect("memory takes it");
    let sizes = (weights.len(), size(&weights.iter().map(Vec::as_slice).collect::<Vec<_>>()));
    let write = |out: &mut dyn std::io::Write| {
        container::write(out, &bytes, container.held(), sizes, |put| weights.iter().try_for_each(|weight| put(weight)))
    };
    files::write_sealed(path, write).expect("writable");
}

/// Position and bytes of the weight `m`, unpacked and in its kernel's form.
fn places(container: &Container) -> [(u64, u64); 2] {
    let description: Value = ciborium::from_reader(container.description()).expect("sound");
    let mut packed = Vec::new();
    named(&description, "packed", &mut packed);
    let packed: Vec<&Value> = packed.into_iter().filter_map(Value::as_array).flatten().collect();
    let [form] = packed[..] else { panic!("one weight, for one kernel: {packed:?}") };
    let number = |name: &str| {
        let mut found = Vec::new();
        named(form, name, &mut found);
        u64::try_from(found[0].as_integer().expect("a number")).expect("not negative")
    };
    assert_eq!(number("number"), 1);
    [(0, 0, 4 * 8 * 3000), (1, number("at"), number("bytes"))]
        .map(|(weight, at, bytes)| (container.weight(weight, at, bytes).expect("within").0, bytes))
}

/// Bytes of both forms.
fn forms(container: &Container) -> [Vec<u8>; 2] {
    places(container).map(|(at, bytes)| {
        let mut form = vec![0; bytes as usize];
        container.file.read_exact(at, &mut form).expect("there");
        form
    })
}

/// Bytes of weights, including the gaps between them.
fn size(weights: &[&[u8]]) -> u64 {
    weights.iter().map(|weight| (weight.len() as u64).next_multiple_of(container::ALIGNMENT)).sum()
}

/// All values with this name within a value.
fn named<'v>(value: &'v Value, name: &str, found: &mut Vec<&'v Value>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| named(item, name, found)),
        Value::Map(entries) => entries.iter().for_each(|(key, item)| {
            found.extend((key.as_text() == Some(name)).then_some(item));
            named(item, name, found);
        }),
        _ => {}
    }
}

#[test]
fn a_damaged_weight_is_refused_before_it_is_computed_with() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("m");
    let sound = compiled(&file);
    let places = places(&Container::open(&file).expect("sound"));
    for (form, (at, bytes)) in places.into_iter().enumerate() {
        let mut damaged = sound.clone();
        damaged[(at + bytes - 1) as usize] ^= 1;
        fs::write(&file, damaged).expect("writable");
        let session = Session::open(&file, SessionConfig::default()).expect("all but a weight is as it was");
        let inputs = session.fill_random(Inputs::new(), 0).expect("known shapes");
        // The kernel reads only the second form.
        if form == 1 {
            let error = session.run(&inputs).expect_err("damaged").to_string();
            assert!(error.contains("is damaged: tensor `m`") && error.contains("`anabranch compile`"), "{error}");
        }
        assert!(session.verify_weights().expect_err("damaged").to_string().contains("is damaged"));
    }
}

#[test]
fn what_kernels_pack_is_read_and_not_made_again() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (file, other) = (folder.path().join("m"), folder.path().join("other"));
    compiled(&file);
    let container = Container::open(&file).expect("sound");
    let [raw, mut packed] = forms(&container);
    let half = packed.len() / 2;
    packed[..half].fill(0);
    let sizes = (2, size(&[&raw, &packed]));
    let write = |out: &mut dyn std::io::Write| {
        let weights = |put: &mut dyn FnMut(&[u8]) -> std::io::Result<()>| put(&raw).and_then(|()| put(&packed));
        container::write(out, container.description(), container.held(), sizes, weights)
    };
    files::write_sealed(&other, write).expect("writable");
    let run = |file: &Path| {
        let session = Session::open(file, SessionConfig::default()).expect("sound");
        let inputs = session.fill_random(Inputs::new(), 0).expect("known shapes");
        session.run(&inputs).expect("runs").tensor("y").expect("made").bytes().to_vec()
    };
    assert!(run(&other) != run(&file));
}

#[test]
fn a_copy_is_verified_and_what_is_sealed_is_not_read() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (file, copy) = (folder.path().join("m"), folder.path().join("copy"));
    let mut bytes = compiled(&file);
    let sealed = fs::metadata(&file).and_then(|facts| facts.modified()).expect("there");
    let container = Container::open(&file).expect("sound");
    assert!(container.is_sealed, "it is as it was written");
    for (at, _) in places(&container) {
        bytes[at as usize] ^= 1;
    }
    fs::write(&copy, &bytes).expect("writable");
    let open = || Session::open(&copy, SessionConfig::default()).expect("all but weights is sound");
    let session = open();
    let inputs = session.fill_random(Inputs::new(), 0).expect("known shapes");
    assert!(!Container::open(&copy).expect("all but weights is sound").is_sealed);
    assert!(session.run(&inputs).expect_err("damaged").to_string().contains("is damaged: tensor `m`"));
    assert!(session.verify_doubtful_weights().is_err());
    // As if a disk had lost the data: the modification time does not show that.
    fs::File::options().append(true).open(&copy).and_then(|file| file.set_modified(sealed)).expect("its own");
    let session = open();
    assert!(Container::open(&copy).expect("sound").is_sealed && session.verify_doubtful_weights().is_ok());
    assert!(session.verify_weights().expect_err("damaged").to_string().contains("is damaged"));
    assert!(session.run(&inputs).is_err(), "once it is known, it is refused");
}

/// Array of a value that comes after `before` other arrays.
fn array<'v>(value: &'v mut Value, before: &mut usize) -> Option<&'v mut Vec<Value>> {
    match value {
        Value::Array(items) => {
            if *before == 0 {
                return Some(items);
            }
            *before -= 1;
            items.iter_mut().find_map(|item| array(item, before))
        }
        Value::Map(entries) => entries.iter_mut().find_map(|(_, item)| array(item, before)),
        _ => None,
    }
}

#[test]
fn no_number_of_a_description_is_trusted() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (sound, other) = (folder.path().join("sound"), folder.path().join("other"));
    for in_phases in [false, true] {
        if in_phases {
            compiled_in_phases(&sound)
        } else {
            drop(compiled(&sound))
        }
        let container = Container::open(&sound).expect("sound");
        let weights = if in_phases { Vec::new() } else { forms(&container).to_vec() };
        let whole: Value = ciborium::from_reader(container.description()).expect("sound");
        rewritten(&container, &whole, &weights, &other);
        assert!(opens(&sound) && opens(&other));
        let count = {
            let (mut copy, mut found) = (whole.clone(), Vec::new());
            numbers(&mut copy, &mut found);
            found.len()
        };
        // Each value is changed in one way, all ways in turn.
        let ways = [
            Value::from(0),
            Value::from(u32::MAX),
            Value::from(u64::MAX),
            Value::from(-1),
            Value::from(f64::NAN),
            Value::from(7),
        ];
        let mut refused = 0;
        for at in 0..count {
            let (mut copy, mut found) = (whole.clone(), Vec::new());
            numbers(&mut copy, &mut found);
            *found[at] = ways[at % ways.len()].clone();
            rewritten(&container, &copy, &weights, &other);
            refused += usize::from(!opens(&other));
        }
        assert!(refused > count / 3, "{refused} of {count}");
    }
}

#[test]
fn no_list_of_a_rest_is_trusted() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (sound, other) = (folder.path().join("sound"), folder.path().join("other"));
    compiled_in_phases(&sound);
    let container = Container::open(&sound).expect("sound");
    let whole: Value = ciborium::from_reader(container.description()).expect("sound");
    // Whether the file with another list of this number opens; `None` if there is no such list.
    let changed = |at: usize, change: &dyn Fn(&mut Vec<Value>)| {
        let mut copy = whole.clone();
        let entries = copy.as_map_mut().expect("a description");
        let rest = entries.iter_mut().find(|(key, _)| key.as_text() == Some("rest")).expect("it runs in phases");
        change(array(&mut rest.1, &mut { at })?);
        rewritten(&container, &copy, &[], &other);
        Some(opens(&other))
    };
    let twice = |list: &mut Vec<Value>| {
        if let Some(first) = list.first().cloned() {
            list.push(first);
        }
    };
    assert_eq!(changed(0, &|_| {}), Some(true));
    let (mut count, mut refused) = (0, 0);
    while let Some(cut) = changed(count, &|list| drop(list.pop())) {
        changed(count, &|list| list.reverse());
        refused += usize::from(!cut) + usize::from(changed(count, &twice) == Some(false));
        count += 1;
    }
    assert!(count > 40 && refused > count, "{refused} of {count} lists in two ways");
}
