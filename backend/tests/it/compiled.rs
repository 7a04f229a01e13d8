//! Compiled models: equal bits as from the model, rejected or rebuilt elsewhere, and never trusted.

use anabranch::compiled::{Cache, CacheOutcome, CachedSession, is_compiled};
use anabranch::device::CpuGranularity;
use anabranch::import::proto::{DimensionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto, data_type};
use anabranch::plan::StreamMode;
use anabranch::session::ErrorKind;
use anabranch::{
    DetectOptions, Dim, Inputs, Outputs, PlanOptions, Session, SessionConfig, SessionError, Strategy, Tensor,
};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const MODELS: [&str; 9] = ["mlp", "mlp_external", "convnet", "fire", "mobile", "unet", "vit", "encoder", "decoder"];

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(name)
}

fn options() -> SessionConfig {
    let devices = DetectOptions::default().without_gpu().with_cpu_granularity(CpuGranularity::Core);
    SessionConfig::default().with_devices(devices)
}

/// A session of a model with all required sizes, and its inputs.
fn opened(path: &Path, mut options: SessionConfig) -> (Session, Inputs) {
    let declared = Session::open(path, options.clone()).expect("a sound model");
    for dim in declared.inputs().iter().flat_map(|input| input.dims().unwrap_or_default()) {
        if let Dim::Symbol(symbol) = dim {
            options.dims.get_or_insert_default().entry(symbol.clone()).or_insert(3);
        }
    }
    let session = Session::open(path, options).expect("a sound model");
    let inputs = session.fill_random(Inputs::new(), 7).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    (session, inputs)
}

fn same(session: &Session, one: &Outputs, other: &Outputs) -> bool {
    let names: Vec<_> = session.outputs().iter().map(|output| output.name().to_owned()).collect();
    let tensor = |outputs: &Outputs, name: &str| outputs.tensor(name).expect("made").clone();
    names.iter().all(|name| tensor(one, name).same_bits(&tensor(other, name)))
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Compiles `mlp` into a folder; returns the path and the bytes.
fn compiled(folder: &TempDir) -> (PathBuf, Vec<u8>) {
    let (model, file) = (folder.path().join("m.onnx"), folder.path().join("m.anabranch"));
    fs::copy(data("mlp.onnx"), &model).expect("there");
    let (session, inputs) = opened(&model, options());
    session.compile(&inputs, &file, "a test").expect("one phase");
    let bytes = fs::read(&file).expect("written");
    (file, bytes)
}

#[test]
fn compiled_models_make_the_same_bits_by_the_same_plan_and_equal_files() {
    let folder = folder();
    for name in MODELS {
        let model = data(&format!("{name}.onnx"));
        for (way, options) in [
            ("heft", options()),
            ("auto", options().with_strategy(Strategy::AUTO)),
            ("always", options().with_plan(PlanOptions::default().with_streaming(StreamMode::Always))),
        ] {
            let file = folder.path().join(format!("{name}-{way}.anabranch"));
            let (session, inputs) = opened(&model, options.clone());
            let about =
                session.compile(&inputs, &file, "a test").unwrap_or_else(|error| panic!("{name} {way}: {error}"));
            assert!(is_compiled(&file) && !is_compiled(&model) && session.compiled().is_none());
            let again =
                Session::open(&file, SessionConfig::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(again.compiled(), Some(&about));
            assert_eq!((again.outputs().len(), again.inputs().len()), (session.outputs().len(), inputs.len()));
            let filled = again.fill_random(Inputs::new(), 7).expect("sizes are known");
            let (source, kept) = (session.prepare(&inputs).expect("a plan"), again.prepare(&filled).expect("a plan"));
            assert!(kept.is_same_plan(&source) && kept.plan().memory() == source.plan().memory(), "{name} {way}");
            assert_eq!(kept.plan().predicted().makespan, source.plan().predicted().makespan, "{name} {way}");
            // Its own random inputs equal the model's: integers that index rows stay within the table.
            let (one, other) = (session.run(&inputs).expect("runs"), again.run(&filled).expect("runs"));
            assert!(same(&session, &one, &other), "{name} {way}");
            again.verify_weights().expect("as written");
            let twice = folder.path().join("twice.anabranch");
            opened(&model, options).0.compile(&inputs, &twice, "a test").expect("again");
            assert!(fs::read(&file).expect("written") == fs::read(&twice).expect("written"), "{name} {way}");
        }
    }
}

#[test]
fn other_plans_are_made_of_the_compiled_program() {
    let folder = folder();
    let (file, _) = compiled(&folder);
    let (session, inputs) = opened(&data("mlp.onnx"), options());
    let expected = session.run(&inputs).expect("runs");
    let machine = DetectOptions::default().without_gpu().with_cpu_granularity(CpuGranularity::Machine);
    for other in [
        SessionConfig::default().with_strategy(Strategy::CPU),
        SessionConfig::default().with_devices(machine).with_dim("batch", 3),
    ] {
        let other = Session::open(&file, other).expect("the program is the same");
        assert!(other.compiled().is_some() && other.inventory().notes.iter().all(|note| !note.contains("compile")));
        assert!(same(&session, &expected, &other.run(&inputs).expect("runs")));
    }
    let refused = Session::open(&file, SessionConfig::default().with_dim("batch", 4)).err().expect("another program");
    assert!(refused.to_string().contains("was compiled with batch=3, not with batch=4"), "{refused}");
    assert_eq!(refused.file(), Some(&*file));
    let wide = opened(&data("mlp.onnx"), options().with_dim("batch", 8)).1;
    let wrong = Session::open(&file, SessionConfig::default()).expect("sound").run(&wide).expect_err("another shape");
    assert!(wrong.kind() == ErrorKind::Input && wrong.to_string().contains("compile it again"), "{wrong}");
    let none =
        Session::open(&file, SessionConfig::default()).expect("sound").run(&Inputs::new()).expect_err("no input");
    assert_eq!(none.kind(), ErrorKind::MissingInput, "{none}");
}

#[test]
fn elements_that_decide_shapes_are_part_of_what_was_compiled() {
    let folder = folder();
    let shape = ValueInfoProto::tensor("shape", data_type::INT64, vec![DimensionProto::known(2)]);
    let graph = GraphProto {
        node: vec![NodeProto::of("Reshape", &["x", "shape"], &["r"]), NodeProto::of("Add", &["r", "r"], &["y"])],
        input: vec![ValueInfoProto::f32s("x", &[6]), shape],
        output: vec![ValueInfoProto { name: "y".into(), r#type: None }],
        ..GraphProto::default()
    };
    let bytes = ModelProto::of(graph, 17).to_bytes();
    let session = Session::from_bytes(&bytes, options()).expect("a sound model");
    let x =
        Tensor::zeroed(anabranch::TensorSpec::new(anabranch::DType::F32, anabranch::Shape::new([6]).expect("small")));
    let given = |dims: [i64; 2]| Inputs::new().tensor("x", x.clone()).tensor("shape", Tensor::from_i64s(&dims));
    let file = folder.path().join("m.anabranch");
    let about = session.compile(&given([2, 3]), &file, "").expect("one phase");
    assert_eq!((about.source, about.fixed), (None, vec!["shape".to_owned()]));
    let again = Session::open(&file, SessionConfig::default()).expect("sound");
    assert_eq!(again.run(&given([2, 3])).expect("as compiled").tensor("y").expect("made").shape().dims(), [2, 3]);
    let filled = again.fill_random(Inputs::new(), 1).expect("known");
    assert!(filled.find("shape").is_some_and(|shape| shape.same_bits(&Tensor::from_i64s(&[2, 3]))));
    let error = again.run(&given([3, 2])).expect_err("other elements");
    assert_eq!((error.kind(), error.input()), (ErrorKind::Input, Some("shape")), "{error}");
    // A cache keeps a file for each.
    let (model, cache) = (folder.path().join("m.onnx"), Cache::new(folder.path().join("kept")));
    fs::write(&model, bytes).expect("writable");
    for (dims, is_found) in [([2, 3], false), ([3, 2], false), ([2, 3], true), ([3, 2], true)] {
        let kept = cache.open::<SessionError>(&model, &options(), "", |_| Ok(given(dims))).expect("sound");
        assert_eq!(matches!(kept.outcome, CacheOutcome::Found(_)), is_found, "{:?}", kept.outcome);
        let found = kept.session.run(&kept.inputs).expect("runs");
        assert_eq!(found.tensor("y").expect("made").shape().dims(), dims.map(|dim| dim as usize));
    }
}

#[test]
fn damaged_files_are_refused_and_never_open_to_something_else() {
    let folder = folder();
    let (file, sound) = compiled(&folder);
    // Checksums are tested byte by byte with containers; here is the session's reaction.
    let front = u64::from_le_bytes(sound[40..48].try_into().expect("eight bytes")) as usize;
    let step = (front / 200).max(1);
    for at in (0..96).chain((96..front).step_by(step)) {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x41;
        fs::write(&file, &bytes).expect("writable");
        let error = Session::open(&file, SessionConfig::default()).err().unwrap_or_else(|| panic!("byte {at}"));
        assert_eq!(error.file(), Some(&*file), "byte {at}: {error}");
    }
    for length in (0..sound.len()).step_by((sound.len() / 300).max(1)) {
        fs::write(&file, &sound[..length]).expect("writable");
        assert!(Session::open(&file, SessionConfig::default()).is_err(), "{length} bytes");
    }
}

#[test]
fn elsewhere_the_unchanged_source_is_opened_and_else_nothing() {
    let folder = folder();
    let (file, sound) = compiled(&folder);
    // As if another version of Anabranch had written it: the text is replaced by one of equal length.
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    let at = sound.windows(version.len()).position(|found| found == version).expect("the version is in it");
    let mut bytes = sound.clone();
    bytes[at] = b'9';
    let front = u64::from_le_bytes(bytes[40..48].try_into().expect("eight bytes")) as usize;
    let checksum = blake3::Hasher::new().update(&bytes[..64]).update(&bytes[96..front]).finalize();
    bytes[64..96].copy_from_slice(checksum.as_bytes());
    fs::write(&file, &bytes).expect("writable");
    let session = Session::open(&file, SessionConfig::default()).expect("the source is there");
    assert!(session.compiled().is_none());
    let told = session
        .inventory()
        .notes
        .iter()
        .any(|note| note.contains("by version 9") && note.contains("`anabranch compile`"));
    assert!(told, "{:?}", session.inventory().notes);
    let inputs = session.fill_random(Inputs::new(), 7).expect("sizes are those that were compiled with");
    let (source, expected) = opened(&data("mlp.onnx"), options());
    assert!(same(&source, &source.run(&expected).expect("runs"), &session.run(&inputs).expect("runs")));
    let model = folder.path().join("m.onnx");
    let mut changed = fs::read(&model).expect("there");
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    fs::write(&model, changed).expect("writable");
    for _ in 0..2 {
        let error = Session::open(&file, SessionConfig::default()).err().expect("no source").to_string();
        assert!(
            error.contains("by version 9") && error.contains("gone or has changed") && error.contains("compile`"),
            "{error}"
        );
        let _ = fs::remove_file(&model);
    }
    fs::write(&file, &sound).expect("writable");
    assert!(Session::open(&file, SessionConfig::default()).is_ok(), "the source is not needed here");
}

#[test]
fn a_cache_finds_what_was_compiled_forgets_what_changed_and_is_bounded() {
    let folder = folder();
    let (model, kept) = (folder.path().join("m.onnx"), folder.path().join("kept"));
    fs::copy(data("mlp.onnx"), &model).expect("there");
    let files = || {
        let entries =
            fs::read_dir(&kept).map(|entries| entries.flatten().map(|entry| entry.path()).collect::<Vec<_>>());
        entries.unwrap_or_default().into_iter().filter(|path| path.extension().is_some()).collect::<Vec<_>>()
    };
    let open = |cache: &Cache, batch: usize| {
        let inputs = |session: &Session| session.fill_random(Inputs::new(), 7);
        let options = options().with_dim("batch", batch);
        let kept = cache.open::<SessionError>(&model, &options, "", inputs).expect("sound");
        let CachedSession { session, inputs, outcome, .. } = kept;
        assert!(session.compiled().is_some(), "{batch}");
        let (source, expected) = opened(&model, options);
        assert!(same(&source, &source.run(&expected).expect("runs"), &session.run(&inputs).expect("runs")), "{batch}");
        outcome
    };
    let cache = Cache::new(&kept);
    for (batch, count, is_found) in [(3, 1, false), (3, 1, true), (4, 2, false), (3, 2, true)] {
        let outcome = open(&cache, batch);
        assert_eq!((files().len(), matches!(outcome, CacheOutcome::Found(_))), (count, is_found), "{outcome:?}");
    }
    for file in files() {
        fs::write(file, b"\x89anabranch\r\n\x1a\n\0\0 and then something else").expect("writable");
    }
    let outcome = open(&cache, 3);
    assert!(
        matches!(&outcome, CacheOutcome::Made { damaged: Some(why), .. } if why.contains("compiled model")),
        "{outcome:?}"
    );
    assert_eq!(files().len(), 2, "one is made again");
    let (before, time) = (files(), std::time::SystemTime::UNIX_EPOCH);
    fs::File::options().append(true).open(&model).and_then(|file| file.set_modified(time)).expect("its own");
    open(&cache, 3);
    assert_eq!(files().len(), before.len() + 1, "another model by its time of modification");
    fs::write(kept.join("mine.anabranch"), "not of the cache").expect("writable");
    open(&cache.with_most(1), 5);
    assert_eq!(files().len(), 2, "what was written last, and what is nobody's");
    assert!(kept.join("mine.anabranch").exists());
}
