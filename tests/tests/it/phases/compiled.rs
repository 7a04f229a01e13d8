//! Compiled models that run in phases give the bits of their sources, and are rejected like other compiled models.

use super::*;
use anabranch::Strategy;
use anabranch::compiled::{Cache, CacheOutcome};
use anabranch::session::SessionError;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Returns a model whose positive elements choose rows of a table. The rows are multiplied by a large weight of the
/// last phase and a folded weight, and by a constant with many bit patterns.
fn weighing() -> Vec<u8> {
    let large =
        |name: &str| TensorProto::f32s(name, &[32, 1024], &(0..32768).map(|at| at as f32 / 1e4).collect::<Vec<_>>());
    let odd = [f32::from_bits(0x7FC0_1234), f32::NEG_INFINITY, -0.0, f32::from_bits(1)];
    let nodes = vec![
        NodeProto::of("Greater", &["x", "zero"], &["is"]),
        NodeProto::of("NonZero", &["is"], &["at"]),
        NodeProto::of("Reshape", &["at", "flat"], &["places"]),
        NodeProto::of("Gather", &["table", "places"], &["found"]),
        NodeProto::of("MatMul", &["found", "w"], &["a"]),
        NodeProto::of("Transpose", &["v"], &["turned"]).with(AttributeProto::ints("perm", &[1, 0])),
        NodeProto::of("MatMul", &["a", "turned"], &["b"]),
        NodeProto::of("Softmax", &["b"], &["y"]),
        NodeProto::of("Shape", &["places"], &["count"]),
        NodeProto::of("Expand", &["odd", "count"], &["bits"]),
    ];
    let table = TensorProto::f32s("table", &[17, 32], &(0..17 * 32).map(|at| (at % 7) as f32).collect::<Vec<_>>());
    let odd = TensorProto::f32s("odd", &[4, 1], &odd);
    let constants = vec![large("w"), large("v"), table, odd, float("zero", 0.0), number("flat", -1)];
    model(nodes, constants, &["y", "bits", "is"])
}

/// Returns a model that computes nothing before the first host operator.
fn stepping() -> Vec<u8> {
    let nodes = vec![NodeProto::of("NonZero", &["x"], &["at"]), NodeProto::of("Neg", &["at"], &["y"])];
    model(nodes, vec![], &["y", "x"])
}

fn cores() -> SessionConfig {
    let devices = DetectOptions::default().with_cpu_granularity(CpuGranularity::Core).without_gpu();
    SessionConfig::default().with_devices(devices).with_strategy(Strategy::AUTO)
}

/// Returns the outputs of a session, or its error.
fn made(session: &Session, x: &[f32]) -> Result<Vec<(String, Tensor)>, String> {
    let outputs = session.run(&inputs(x)).map_err(|error| error.to_string())?;
    Ok(outputs.iter().map(|(name, tensor)| (name.to_owned(), tensor.clone())).collect())
}

/// Compiles a model for inputs like these.
fn compiled(model: &[u8], x: &[f32], file: &Path) {
    let about = session(model).compile(&inputs(x), file, "a test").expect("it can be compiled");
    assert!(about.later > 0 && about.source.is_none());
}

fn in_folder(folder: &TempDir) -> PathBuf {
    folder.path().join("m.anabranch")
}

/// Model with its name, and the elements of its input in each run.
type Case = (&'static str, Vec<u8>, Vec<Vec<f32>>);

#[test]
fn compiled_phases_make_the_bits_of_their_source() {
    let folder = folder();
    let mut large = some(3);
    large[7] = 6.0;
    let cases: [Case; 8] = [
        ("picked", positives(), vec![some(3), some(0), some(17), some(3)]),
        ("rows", rows(), vec![vec![3.0; 18], vec![6.0; 18], vec![7.0; 18]]),
        ("loop", doubling(1e6), vec![vec![1.0; 17], vec![1e5; 17], vec![1000.0; 17]]),
        ("branches", branching(), vec![vec![-1.0; 17], some(5), vec![2.0; 17]]),
        ("sequences", growing(), vec![vec![2.0; 2], vec![-0.0; 2]]),
        ("attention", attending(), vec![some(3), vec![0.5; 17]]),
        ("weights", weighing(), vec![large, some(1), some(0), some(9)]),
        ("steps", stepping(), vec![some(3), vec![0.0; 17]]),
    ];
    for (name, model, inputs) in cases {
        for (way, options) in [("one", one_cpu()), ("cores", cores())] {
            let file = folder.path().join(format!("{name}-{way}.anabranch"));
            let source = Session::from_bytes(&model, options).expect("a sound model");
            source.compile(&super::inputs(&inputs[0]), &file, "a test").expect("it can be compiled");
            let kept = Session::open(&file, SessionConfig::default()).expect("sound");
            assert!(kept.compiled().is_some_and(|about| about.later > 0), "{name} {way}");
            kept.verify_weights().expect("as written");
            for x in &inputs {
                let (one, other) = (made(&source, x), made(&kept, x));
                let same = match (&one, &other) {
                    (Ok(one), Ok(other)) => {
                        one.len() == other.len()
                            && one.iter().zip(other).all(|(a, b)| a.0 == b.0 && a.1.same_bits(&b.1))
                    }
                    (one, other) => one.is_err() && one.as_ref().err() == other.as_ref().err(),
                };
                assert!(same, "{name} {way} {x:?}: {one:?} {other:?}");
            }
            assert_eq!((kept.ready_plans(), kept.ready_phases()), (source.ready_plans(), source.ready_phases()));
        }
    }
}

#[test]
fn equal_compilations_of_phases_are_equal_files_and_a_cache_finds_them() {
    let folder = folder();
    let (one, other, source) = (in_folder(&folder), folder.path().join("again"), folder.path().join("m.onnx"));
    for file in [&one, &other] {
        compiled(&weighing(), &some(3), file);
    }
    let read = |file: &Path| fs::read(file).expect("written");
    assert!(read(&one) == read(&other));
    fs::write(&source, weighing()).expect("writable");
    let cache = Cache::new(folder.path().join("kept"));
    let expected = made(&session(&weighing()), &some(4)).expect("it runs");
    for is_found in [false, true] {
        let kept = cache.open::<SessionError>(&source, &one_cpu(), "", |_| Ok(inputs(&some(4)))).expect("sound");
        assert_eq!(matches!(kept.outcome, CacheOutcome::Found(_)), is_found, "{:?}", kept.outcome);
        assert!(kept.session.compiled().is_some());
        let found = made(&kept.session, &some(4)).expect("it runs");
        assert!(expected.iter().zip(&found).all(|(a, b)| a.1.same_bits(&b.1)), "{is_found}");
    }
}

#[test]
fn the_settings_and_bounds_of_other_compiled_models_hold_for_phases() {
    let folder = folder();
    let file = in_folder(&folder);
    compiled(&weighing(), &some(3), &file);
    let open = |options: SessionConfig| Session::open(&file, options).expect("sound");
    let expected = made(&open(SessionConfig::default()), &some(3)).expect("it runs");
    let replaced = open(SessionConfig::default().with_strategy(Strategy::AUTO));
    let found = made(&replaced, &some(3)).expect("it runs by another plan");
    assert!(expected.iter().zip(&found).all(|(a, b)| a.1.same_bits(&b.1)));
    let resident = open(SessionConfig::default().with_resident("y", "cpu0"));
    let error = resident.run(&inputs(&some(3))).expect_err("phases leave nothing on a device");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let devices = DetectOptions::default().with_cpu_granularity(CpuGranularity::Machine).without_gpu();
    let little = open(SessionConfig::default().with_devices(devices.with_memory("cpu0", 1 << 12)));
    assert_eq!(little.run(&inputs(&some(3))).expect_err("little memory").kind(), ErrorKind::Memory);
    let error = open(SessionConfig::default()).run(&inputs(&some(3)[..5])).expect_err("another shape");
    assert_eq!((error.kind(), error.input()), (ErrorKind::Input, Some("x")), "{error}");
    let error = open(SessionConfig::default()).compile(&inputs(&some(3)), &in_folder(&folder), "").expect_err("again");
    assert!(error.to_string().contains("compiled already"), "{error}");
    compiled(&doubling(f32::INFINITY), &[0.0; 17], &file);
    let endless = open(SessionConfig::default());
    let late = endless.run_with(&inputs(&[0.0; 17]), &RunOptions::default().with_timeout(Duration::from_millis(100)));
    assert_eq!(late.err().map(|error| error.kind()), Some(ErrorKind::Timeout));
}

#[test]
fn a_damaged_weight_of_a_later_phase_is_refused_when_it_is_read() {
    let folder = folder();
    let file = in_folder(&folder);
    compiled(&weighing(), &some(3), &file);
    let mut bytes = fs::read(&file).expect("written");
    let weight: Vec<u8> = (0..32768).flat_map(|at| (at as f32 / 1e4).to_le_bytes()).collect();
    let at = bytes.windows(weight.len()).position(|found| found == weight).expect("it is there as it is");
    bytes[at + 17] ^= 1;
    fs::write(&file, bytes).expect("writable");
    let session = Session::open(&file, SessionConfig::default()).expect("all but a weight is as it was");
    let error = session.run(&inputs(&some(3))).expect_err("damaged").to_string();
    assert!(error.contains("is damaged: tensor `") && error.contains("`anabranch compile`"), "{error}");
    assert!(session.verify_weights().is_err());
}
