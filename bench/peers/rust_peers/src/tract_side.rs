//! tract, optimised for the shapes of the inputs.

use crate::turns::Failure;
use crate::{Elements, Input, Opened};
use std::path::Path;
use std::sync::Arc;
use tract_onnx::prelude::*;
use tract_onnx::tract_core::tract_linalg::multithread::{Executor, set_default_executor};

/// Open model with its inputs.
pub struct Tract {
    plan: Arc<TypedRunnableModel>,
    inputs: TVec<TValue>,
}

impl Tract {
    /// Opens a model for `threads` threads.
    pub fn open(file: &Path, threads: usize, inputs: Vec<Input>) -> Result<Self, Failure> {
        if threads > 1 {
            set_default_executor(Executor::multithread(threads));
        }
        // Shapes are inferred from those of the inputs: the symbolic shapes in the file would contradict them.
        let reader = tract_onnx::onnx().with_ignore_value_info(true).with_ignore_output_shapes(true);
        let mut model = reader.model_for_path(file)?;
        let mut values = tvec!();
        for (at, outlet) in model.input_outlets()?.to_vec().into_iter().enumerate() {
            let name = model.node(outlet.node).name.clone();
            let input = inputs.iter().find(|input| input.name == name).ok_or_else(|| format!("no input {name}"))?;
            let value = match &input.elements {
                Elements::F32(elements) => Tensor::from_shape(&input.sizes, elements)?,
                Elements::I64(elements) => Tensor::from_shape(&input.sizes, elements)?,
            };
            model.set_input_fact(at, InferenceFact::dt_shape(value.datum_type(), &input.sizes))?;
            values.push(value.into_tvalue());
        }
        Ok(Self { plan: model.into_optimized()?.into_runnable()?, inputs: values })
    }
}

impl Opened for Tract {
    fn run(&mut self) -> Result<(), Failure> {
        self.plan.run(self.inputs.clone())?;
        Ok(())
    }

    fn outputs(&mut self) -> Result<Vec<Vec<f32>>, Failure> {
        let outputs = self.plan.run(self.inputs.clone())?;
        let elements = |value: &TValue| -> Result<Vec<f32>, Failure> {
            Ok(value.cast_to::<f32>()?.to_plain_array_view::<f32>()?.iter().copied().collect())
        };
        outputs.iter().map(elements).collect()
    }
}
