//! rten, with weights packed when the model is opened, which is fastest for many runs.

use crate::turns::Failure;
use crate::{Elements, Input, Opened};
use rten::{Model, ModelOptions, NodeId, RunOptions, ThreadPool, Value};
use rten_tensor::Tensor;
use rten_tensor::prelude::*;
use std::path::Path;
use std::sync::Arc;

/// Open model with its inputs.
pub struct Rten {
    model: Model,
    inputs: Vec<(NodeId, Value)>,
    threads: Arc<ThreadPool>,
}

impl Rten {
    /// Opens a model for `threads` threads.
    pub fn open(file: &Path, threads: usize, inputs: Vec<Input>) -> Result<Self, Failure> {
        let model = ModelOptions::with_all_ops().prepack_weights(true).load_file(file)?;
        let value = |input: Input| -> Result<(NodeId, Value), Failure> {
            Ok((model.node_id(&input.name)?, tensor(&input.sizes, input.elements)?))
        };
        let inputs = inputs.into_iter().map(value).collect::<Result<_, _>>()?;
        Ok(Self { model, inputs, threads: Arc::new(ThreadPool::with_num_threads(threads)) })
    }

    fn values(&self) -> Result<Vec<Value>, Failure> {
        let inputs = self.inputs.iter().map(|(id, value)| (*id, value.into())).collect();
        let options = RunOptions::default().with_thread_pool(Some(self.threads.clone()));
        Ok(self.model.run(inputs, self.model.output_ids(), Some(options))?)
    }
}

impl Opened for Rten {
    fn run(&mut self) -> Result<(), Failure> {
        self.values().map(drop)
    }

    fn outputs(&mut self) -> Result<Vec<Vec<f32>>, Failure> {
        let elements = |value: Value| {
            let tensor: Option<Tensor<f32>> = value.into_tensor();
            Ok(tensor.ok_or("an output is not of type f32")?.to_vec())
        };
        self.values()?.into_iter().map(elements).collect()
    }
}

/// Converts elements to a tensor. rten has no 64-bit integers: it takes 32-bit ones if a model has 64-bit ones.
fn tensor(sizes: &[usize], elements: Elements) -> Result<Value, Failure> {
    Ok(match elements {
        Elements::F32(elements) => Tensor::from_data(sizes, elements).into(),
        Elements::I64(elements) => {
            let narrow = elements.into_iter().map(i32::try_from).collect::<Result<Vec<_>, _>>()?;
            Tensor::from_data(sizes, narrow).into()
        }
    })
}
