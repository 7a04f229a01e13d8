//! A model's declarations of its inputs and outputs: names, element types, shapes with symbols.

use anabranch_kernels::DType;
use anabranch_onnx::import::{Dim, Input, Kind, Labels, Model, Output};
use std::fmt;

/// An input or output of a model as the model declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueInfo {
    name: String,
    kind: Kind,
    dtype: Option<DType>,
    dims: Option<Vec<Dim>>,
    optional: bool,
    labels: Option<Labels>,
}

impl ValueInfo {
    /// Returns a model's declarations of its inputs.
    pub(super) fn inputs(model: &Model) -> Vec<Self> {
        let info = |input: &Input| Self {
            name: input.name.clone(),
            kind: input.kind,
            dtype: Some(input.dtype),
            dims: input.dims.clone(),
            optional: input.optional,
            labels: None,
        };
        model.inputs.iter().map(info).collect()
    }

    /// Returns a model's declarations of its outputs.
    pub(super) fn outputs(model: &Model) -> Vec<Self> {
        let info = |output: &Output| Self {
            name: output.name.clone(),
            kind: output.kind,
            dtype: output.dtype,
            dims: output.dims.clone(),
            optional: false,
            labels: output.labels.clone(),
        };
        model.outputs.iter().map(info).collect()
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the kind: a tensor, a sequence or an optional. Type and dimensions are those of its tensors.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the type of the elements; inputs always have one, outputs if the model declares it.
    pub fn dtype(&self) -> Option<DType> {
        self.dtype
    }

    /// Returns the dimensions, outermost first: numbers, symbols, or unknown; `None` if even their number is
    /// undeclared.
    pub fn dims(&self) -> Option<&[Dim]> {
        self.dims.as_deref()
    }

    /// Returns the meaning of an output's numbers, if they are labels or columns of maps.
    pub fn labels(&self) -> Option<&Labels> {
        self.labels.as_ref()
    }

    /// Whether it may be left out, because the model holds a default. An empty optional is given as such
    /// ([`Inputs::absent`]).
    ///
    /// [`Inputs::absent`]: super::Inputs::absent
    pub fn is_optional(&self) -> bool {
        self.optional
    }
}

impl fmt::Display for ValueInfo {
    /// Formats as `x: f32[batch×3×224×224]`, or `s: sequence of f32[n]`, with `?` for undeclared parts. Labels follow.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dtype = self.dtype.map_or("?".to_owned(), |dtype| dtype.to_string());
        write!(f, "{}: {}{dtype}[{}]", self.name, self.kind, dims_text(self.dims()))?;
        self.labels.as_ref().map_or(Ok(()), |labels| write!(f, ", {labels}"))
    }
}

/// Formats dimensions for people; `?` if their number is unknown.
pub(super) fn dims_text(dims: Option<&[Dim]>) -> String {
    dims.map_or("?".into(), |dims| dims.iter().map(ToString::to_string).collect::<Vec<_>>().join("×"))
}
