//! ONNX Runtime without Python, for questions in which Python would dominate the measurement. It uses the C API (the
//! `ort` crate) of the library in the Python package.
//!
//! `bench/peers/run` builds and calls it: `peers-c-api LIBRARY chain|one DIRECTORY SECONDS`. It prints all samples as
//! one line of JSON.

#[path = "../../../src/turns.rs"]
mod turns;

use ort::environment::Environment;
use ort::memory::Allocator;
use ort::session::{IoBinding, Session};
use ort::value::Tensor;
use std::path::Path;
use turns::{Call, Failure, in_turn};

type Samples = Vec<(&'static str, Vec<f64>)>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [library, question, directory, seconds] = &arguments[..] else {
        return Err("usage: peers-c-api LIBRARY chain|one DIRECTORY SECONDS".into());
    };
    let environment = ort::init_from(library)?.build()?;
    let (directory, seconds) = (Path::new(directory), seconds.parse()?);
    let samples = match question.as_str() {
        "chain" => chain(&environment, directory, seconds)?,
        "one" => one(&environment, directory, seconds)?,
        _ => return Err(format!("{question} is no question; chain and one are").into()),
    };
    let samples: Vec<String> = samples.iter().map(|(name, values)| format!("\"{name}\": {values:?}")).collect();
    println!("{{\"facts\": {{}}, \"samples\": {{{}}}}}", samples.join(", "));
    Ok(())
}

/// Measures a node of a chain: the difference of two lengths.
fn chain(environment: &Environment, directory: &Path, seconds: f64) -> Result<Samples, Failure> {
    let mut calls: Vec<Call<'_>> = Vec::new();
    for length in [1000, 100] {
        let (mut session, bound) = open(environment, directory, length)?;
        calls.push(Box::new(move || {
            session.run_binding(&bound)?;
            Ok(())
        }));
    }
    let [long, short] = <[_; 2]>::try_from(in_turn(&mut calls, seconds)?).map_err(|_| "not two chains")?;
    let node = long.iter().zip(&short).map(|(long, short)| (long - short) / 900.0).collect();
    Ok(vec![("node", node), ("chain1000", long), ("chain100", short)])
}

/// Measures a run of one node, with a new output each time and with bound tensors.
fn one(environment: &Environment, directory: &Path, seconds: f64) -> Result<Samples, Failure> {
    let (mut plain, _) = open(environment, directory, 1)?;
    let (mut session, bound) = open(environment, directory, 1)?;
    let input = zeros()?;
    let mut calls: [Call<'_>; 2] = [
        Box::new(|| {
            plain.run([(&input).into()])?;
            Ok(())
        }),
        Box::new(|| {
            session.run_binding(&bound)?;
            Ok(())
        }),
    ];
    let times = in_turn(&mut calls, seconds)?;
    Ok(["new outputs", "bound tensors"].into_iter().zip(times).collect())
}

fn zeros() -> Result<Tensor<f32>, Failure> {
    Ok(Tensor::from_array(([16], vec![0.0; 16]))?)
}

/// Opens a chain on one thread, and binds tensors to it.
fn open(environment: &Environment, directory: &Path, length: u32) -> Result<(Session, IoBinding), Failure> {
    let file = directory.join(format!("chain{length}.onnx"));
    let builder = Session::builder(environment)?.with_intra_threads(1).map_err(|error| error.to_string())?;
    let session = builder.with_inter_threads(1).map_err(|error| error.to_string())?.commit_from_file(file)?;
    let mut bound = session.create_binding()?;
    bound.bind_input("v0", &zeros()?)?;
    bound.bind_output(format!("v{length}"), Tensor::<f32>::new(&Allocator::default(), [16usize])?)?;
    Ok((session, bound))
}
