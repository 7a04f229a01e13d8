//! ONNX Runtime's tensors and their types.

use super::api::Api;
use super::status::{Failure, Result};
use anabranch::constant::Constant;
use anabranch::{DType, Shape, Tensor, TensorSpec, borrowed};
use ort_sys::{ONNXTensorElementDataType as Element, OrtTensorTypeAndShapeInfo, OrtValue, OrtValueInfo};
use std::ptr;

/// Element types of tensors that parts can exchange, as ONNX Runtime and this library name them.
const TYPES: [(Element, DType); 13] = [
    (Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, DType::F32),
    (Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE, DType::F64),
    (Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16, DType::F16),
    (Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16, DType::BF16),
    (Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8, DType::I8),
    (Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16, DType::I16),
    (Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, DType::I32),
    (Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, DType::I64),
    (Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, DType::U8),
    (Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16, DType::U16),
    (Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32, DType::U32),
    (Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64, DType::U64),
    (Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL, DType::Bool),
];

fn dtype(element: Element) -> Option<DType> {
    TYPES.iter().find(|(theirs, _)| *theirs == element).map(|(_, ours)| *ours)
}

/// Returns the number of a type in ONNX files, which is also ONNX Runtime's for these types.
pub(crate) fn code(dtype: DType) -> i64 {
    let element = TYPES.iter().find(|(_, ours)| *ours == dtype).map(|(theirs, _)| *theirs);
    element.unwrap_or(Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED) as i64
}

/// Type and dimensions of a value, as far as they are known before the run.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    pub(crate) dtype: DType,
    /// Dimensions; `None` if they are known only in a run. A tensor of unknown rank looks like a scalar.
    pub(crate) dims: Vec<Option<usize>>,
}

/// Returns the declared type of a value; `None` if it is not a tensor that parts can exchange.
pub(crate) fn declared(api: Api, info: *const OrtValueInfo) -> Result<Option<Declared>> {
    // SAFETY: `info` is of the call that is being answered, and so are the objects obtained from it.
    let tensor = unsafe {
        let whole = api.get(ptr::null(), |out| (api.ort.GetValueInfoTypeInfo)(info, out))?;
        if whole.is_null() {
            return Ok(None);
        }
        api.get(ptr::null(), |out| (api.ort.CastTypeInfoToTensorInfo)(whole, out))?
    };
    if tensor.is_null() {
        return Ok(None);
    }
    let (element, dims) = described(api, tensor)?;
    let dims = dims.into_iter().map(|dim| usize::try_from(dim).ok()).collect();
    Ok(dtype(element).map(|dtype| Declared { dtype, dims }))
}

/// Returns element type and dimensions; unknown dimensions are negative.
fn described(api: Api, info: *const OrtTensorTypeAndShapeInfo) -> Result<(Element, Vec<i64>)> {
    let undefined = Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    // SAFETY: `info` is of the call that is being answered; there is room for as many dimensions as there are.
    unsafe {
        let element = api.get(undefined, |out| (api.ort.GetTensorElementType)(info, out))?;
        let rank = api.get(0, |out| (api.ort.GetDimensionsCount)(info, out))?;
        let mut dims = vec![0; rank];
        api.done((api.ort.GetDimensions)(info, dims.as_mut_ptr(), rank))?;
        Ok((element, dims))
    }
}

/// Returns type and shape of a tensor. `name` is its name in errors.
pub(crate) fn spec(api: Api, value: *const OrtValue, name: &str) -> Result<TensorSpec> {
    // SAFETY: `value` is of the call that is being answered; its description is released once.
    let (element, dims) = unsafe {
        let info = api.get(ptr::null_mut(), |out| (api.ort.GetTensorTypeAndShape)(value, out))?;
        let described = described(api, info);
        (api.ort.ReleaseTensorTypeAndShapeInfo)(info);
        described?
    };
    let unknown = || Failure::new(format_args!("`{name}` has elements of type {element:?}, which is not supported"));
    let dtype = dtype(element).ok_or_else(unknown)?;
    let dims: std::result::Result<Vec<usize>, _> = dims.into_iter().map(usize::try_from).collect();
    let dims = dims.map_err(|_| Failure::new(format_args!("`{name}` has a negative dimension")))?;
    let shape = Shape::new(dims).map_err(|error| Failure::new(format_args!("`{name}`: {error}")))?;
    Ok(TensorSpec::new(dtype, shape))
}

/// Returns a value as a tensor, which stays in place if it is large.
///
/// # Safety
/// The value's data must stay in place, and must not be written, as long as the tensor is read.
pub(crate) unsafe fn tensor(api: Api, value: *const OrtValue, name: &str) -> Result<Tensor> {
    let spec = spec(api, value, name)?;
    let bytes = spec.bytes();
    // SAFETY: `value` is a tensor of this type and shape, so that it has as many bytes.
    unsafe {
        let data = api.get(ptr::null(), |out| (api.ort.GetTensorData)(value, out))?;
        let tensor = borrowed::input(data.cast(), spec);
        tensor.ok_or_else(|| Failure::new(format_args!("out of memory for `{name}`, {bytes} bytes")))
    }
}

/// Returns an initialiser as a constant, whose elements stay in place if they are many.
///
/// # Safety
/// As [`tensor`], as long as the constant is read.
pub(crate) unsafe fn constant(api: Api, value: *const OrtValue, name: &str) -> Result<Constant> {
    // SAFETY: by this function's contract.
    let tensor = unsafe { tensor(api, value, name) }?;
    Ok(match tensor.buffer().is_borrowed() {
        true => Constant::read_by(tensor.spec().clone(), move || Ok(tensor.clone())),
        false => Constant::from(tensor),
    })
}
