//! A value under a shape, as lowered operators pass it to each other.

use crate::host_operators::Fault;
use anabranch_ir::program::ValueId;
use anabranch_kernels::{DType, Shape, TensorSpec};

/// A value read under some shape of equal size. Reshaping makes another view of the same value, not a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct View {
    pub(crate) value: ValueId,
    /// Type of the value, and the shape under which it is read.
    pub(crate) spec: TensorSpec,
}

impl View {
    /// Returns the dimensions, outermost first.
    pub(crate) fn dims(&self) -> &[usize] {
        self.spec.shape.dims()
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.spec.shape
    }

    pub(crate) fn rank(&self) -> usize {
        self.spec.shape.rank()
    }

    pub(crate) fn dtype(&self) -> DType {
        self.spec.dtype
    }

    pub(crate) fn elements(&self) -> usize {
        self.spec.shape.elements()
    }

    /// Returns a view of the same value under another shape of equal size.
    pub(crate) fn reshaped(&self, dims: impl Into<Vec<usize>>) -> Result<Self, Fault> {
        let shape = Shape::new(dims)?;
        if shape.elements() != self.elements() {
            let reason = format!("elements of shape {} cannot be read as {shape}", self.shape());
            return Err(Fault::invalid(reason));
        }
        Ok(Self { value: self.value, spec: TensorSpec::new(self.dtype(), shape) })
    }
}
