//! Tests in which each read of a model and of its data fails once.

use crate::{Inputs, Outputs, Session, SessionConfig};
use anabranch_ir::constant::faults::failing;
use std::path::Path;

/// A product with a weight that stays in its file.
fn model() -> Vec<u8> {
    use anabranch_onnx::import::proto::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
    let graph = GraphProto {
        node: vec![NodeProto::of("MatMul", &["x", "w"], &["y"])],
        initializer: vec![TensorProto::f32s("w", &[8, 3000], &vec![0.5; 8 * 3000])],
        input: vec![ValueInfoProto::f32s("x", &[2, 8])],
        output: vec![ValueInfoProto::f32s("y", &[2, 3000])],
        ..GraphProto::default()
    };
    ModelProto::of(graph, 17).to_bytes()
}

#[test]
fn whatever_read_fails_the_file_is_named_and_the_next_run_is_right() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (source, compiled) = (folder.path().join("model.onnx"), folder.path().join("compiled"));
    std::fs::write(&source, model()).expect("writable");
    let options = || SessionConfig::default().without_gpu();
    let open = |file: &Path| Session::open(file, options());
    let session = open(&source).expect("sound");
    let inputs = session.fill_random(Inputs::new(), 3).expect("its sizes are known");
    let expected = session.run(&inputs).expect("sound");
    let right = |made: &Outputs| made.iter().zip(expected.iter()).all(|((_, a), (_, b))| a.same_bits(b));
    session.compile(&inputs, &compiled, "").expect("it has one phase");
    let told = |error: &dyn std::fmt::Display| {
        let told = error.to_string();
        assert!(told.contains("made to fail") && told.contains(&*folder.path().display().to_string()), "{told}");
    };
    for file in [&source, &compiled] {
        let opening = (0..).take_while(|n| {
            let (opened, met) = failing(folder.path(), *n, || open(file));
            match opened {
                Err(error) => told(&error),
                Ok(session) => assert!(right(&session.run(&inputs).expect("the disk is well again"))),
            }
            met
        });
        let opening = opening.count();
        let running = (0..).take_while(|n| {
            let session = open(file).expect("sound");
            let (ran, met) = failing(folder.path(), *n, || session.run(&inputs));
            match ran {
                Err(error) => told(&error),
                Ok(outputs) => assert!(right(&outputs)),
            }
            assert!(right(&session.run(&inputs).expect("the disk is well again")));
            met
        });
        let running = running.count();
        // A compiled model is mapped, not read, once it is open.
        let reads = opening > 0 && (running > 0 || file == &compiled);
        assert!(reads, "{}: {opening} and {running} reads", file.display());
    }
}
