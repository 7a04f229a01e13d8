//! Runs in borrowed memory of a caller: nothing of a run stays there, and nothing accesses it after the run.

use anabranch::session::Outputs;
use anabranch::{DType, Inputs, Shape, Tensor, TensorSpec};
use anabranch_kernels::Buffer;
use anabranch_tests::{model, one_cpu, reference, same};
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory of a caller, aligned for any element.
struct Caller(Vec<f64>);

impl Caller {
    fn of(bytes: &[u8]) -> Self {
        let mut own = Self(vec![-1.0; bytes.len().div_ceil(8)]);
        bytemuck::cast_slice_mut(&mut own.0)[..bytes.len()].copy_from_slice(bytes);
        own
    }

    fn start(&mut self) -> NonNull<u8> {
        NonNull::from(self.0.as_mut_slice()).cast()
    }

    fn bytes(&self, count: usize) -> &[u8] {
        &bytemuck::cast_slice(&self.0)[..count]
    }
}

/// Returns a tensor over a caller's memory.
///
/// # Safety
/// The demands of [`Buffer::borrowed`].
unsafe fn over(caller: &mut Caller, spec: &TensorSpec) -> Tensor {
    // SAFETY: this function makes the same demands; there are at least as many bytes.
    let buffer = unsafe { Buffer::borrowed(caller.start(), spec.bytes()) }.expect("aligned");
    Tensor::new(spec.clone(), Arc::new(buffer)).expect("of that size")
}

#[test]
fn inputs_and_outputs_stay_a_callers_from_run_to_run() {
    for name in ["encoder", "vit", "lstm"] {
        let session = anabranch::Session::open(model(name), one_cpu()).expect("a bundled model opens");
        let (given, _) = reference(name);
        let expected = session.run(&given).expect("runs");
        for _ in 0..3 {
            let mut borrowed: Vec<(String, TensorSpec, Caller)> = given
                .iter()
                .map(|(name, tensor)| (name.to_owned(), tensor.spec().clone(), Caller::of(tensor.bytes())))
                .collect();
            let mut rooms: Vec<(TensorSpec, Caller)> = expected
                .iter()
                .map(|(_, tensor)| (tensor.spec().clone(), Caller::of(&vec![7; tensor.bytes().len()])))
                .collect();
            let mut inputs = Inputs::new();
            for (name, spec, caller) in &mut borrowed {
                // SAFETY: `borrowed` outlives `inputs` and is not touched before `inputs` is gone.
                inputs = inputs.tensor(name, unsafe { over(caller, spec) });
            }
            // SAFETY: `rooms` outlives `outputs` and is not touched before `outputs` is gone.
            let room = rooms.iter_mut().map(|(spec, caller)| unsafe { over(caller, spec) }).collect();
            let mut outputs = Outputs::over(room);
            session.run_into(&inputs, &mut outputs).expect("runs");
            assert!(same(&outputs, &expected), "{name}");
            assert!(outputs.tensors().iter().all(|tensor| Arc::strong_count(tensor.buffer()) == 1), "{name}: kept");
            assert!(inputs.iter().all(|(_, tensor)| Arc::strong_count(tensor.buffer()) == 1), "{name}: kept");
            drop((inputs, outputs));
            for ((spec, caller), (_, tensor)) in rooms.iter_mut().zip(expected.iter()) {
                assert_eq!(caller.bytes(spec.bytes()), tensor.bytes(), "{name}: written where the caller wanted it");
                caller.0.fill(-1.0);
            }
            // A run without such memory uses its own memory.
            assert!(same(&session.run(&given).expect("runs"), &expected), "{name}");
            assert!(
                rooms.iter().all(|(_, caller)| caller.0.iter().all(|element| *element == -1.0)),
                "{name}: written later"
            );
        }
    }
}

#[test]
fn memory_of_another_size_is_left_alone() {
    let session = anabranch::Session::open(model("mlp"), one_cpu()).expect("a bundled model opens");
    let (given, _) = reference("mlp");
    let expected = session.run(&given).expect("runs");
    let mut caller = Caller::of(&[7; 8]);
    let spec = TensorSpec::new(DType::F64, Shape::new([1]).expect("small"));
    // SAFETY: `caller` outlives `outputs` and is not touched before `outputs` is gone.
    let mut outputs = Outputs::over(vec![unsafe { over(&mut caller, &spec) }]);
    session.run_into(&given, &mut outputs).expect("runs");
    assert!(same(&outputs, &expected));
    drop(outputs);
    assert_eq!(caller.bytes(8), [7; 8]);
}
