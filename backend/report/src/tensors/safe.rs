//! Safetensors: the length of a header, the header (JSON: types, shapes, positions), and the elements. The whole header
//! is checked, also against the file's length, before any element is read. Only wanted tensors are read.

use super::{Label, Named, Wanted};
use anabranch::files;
use anabranch_kernels::{Buffer, DType, Shape, Tensor, TensorSpec};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

/// Most bytes of a header: one of thousands of tensors has some hundred thousand.
const LONGEST_HEADER: u64 = 16 << 20;

/// Bytes of the header's length.
const LENGTH: u64 = 8;

const TYPES: [(Dtype, DType); 15] = [
    (Dtype::BOOL, DType::Bool),
    (Dtype::U8, DType::U8),
    (Dtype::I8, DType::I8),
    (Dtype::F8_E5M2, DType::F8E5M2),
    (Dtype::F8_E4M3, DType::F8E4M3Fn),
    (Dtype::I16, DType::I16),
    (Dtype::U16, DType::U16),
    (Dtype::F16, DType::F16),
    (Dtype::BF16, DType::BF16),
    (Dtype::I32, DType::I32),
    (Dtype::U32, DType::U32),
    (Dtype::F32, DType::F32),
    (Dtype::F64, DType::F64),
    (Dtype::I64, DType::I64),
    (Dtype::U64, DType::U64),
];

/// Reads the wanted tensors of a file, in its order.
pub(super) fn read(path: &Path, wanted: &mut Wanted<'_>) -> Result<Named, String> {
    let mut file = files::open(path).map_err(|error| error.to_string())?;
    let (header, begin) = header(&mut file)?;
    let mut named = Vec::new();
    for member in header.offset_keys() {
        let Some(info) = header.info(&member) else { continue };
        let mut read = || -> Result<Option<(String, Tensor)>, String> {
            let spec = spec(info)?;
            let Some(name) = wanted(Label::Named(&member), &spec)? else { return Ok(None) };
            Ok(Some((name, elements(&mut file, begin + info.data_offsets.0 as u64, spec)?)))
        };
        named.extend(read().map_err(|reason| format!("tensor {member}: {reason}"))?);
    }
    Ok(named)
}

/// Reads the header, and returns the start of the elements.
fn header(file: &mut File) -> Result<(Metadata, u64), String> {
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    let mut size = [0; LENGTH as usize];
    file.read_exact(&mut size).map_err(|_| "is cut off: it has no header")?;
    let size = u64::from_le_bytes(size);
    if size > LONGEST_HEADER || size > length.saturating_sub(LENGTH) {
        return Err(format!(
            "has a header of {size} bytes, but the file has {length} bytes, and the limit is {LONGEST_HEADER} bytes"
        ));
    }
    let mut text = vec![0; size as usize];
    file.read_exact(&mut text).map_err(|error| error.to_string())?;
    let header: Metadata = serde_json::from_slice(&text).map_err(|error| format!("has a wrong header: {error}"))?;
    let begin = LENGTH + size;
    match begin.checked_add(header.data_len() as u64) {
        Some(end) if end == length => Ok((header, begin)),
        _ => Err(format!("states {} bytes of elements, but {} follow", header.data_len(), length - begin)),
    }
}

fn spec(info: &TensorInfo) -> Result<TensorSpec, String> {
    let known = TYPES.iter().find(|(known, _)| *known == info.dtype);
    let (_, dtype) = known.ok_or_else(|| format!("elements of type {} are not supported", info.dtype))?;
    Ok(TensorSpec::new(*dtype, Shape::new(info.shape.clone()).map_err(|error| error.to_string())?))
}

fn elements(file: &mut File, at: u64, spec: TensorSpec) -> Result<Tensor, String> {
    let buffer = Buffer::try_zeroed(spec.bytes());
    let mut buffer = buffer.ok_or_else(|| format!("{spec} exceeds the available memory"))?;
    file.seek(SeekFrom::Start(at)).map_err(|error| error.to_string())?;
    file.read_exact(buffer.bytes_mut()).map_err(|error| error.to_string())?;
    if spec.dtype == DType::Bool {
        buffer.bytes_mut().iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
    }
    Tensor::new(spec, Arc::new(buffer)).map_err(|error| error.to_string())
}

/// Writes named tensors, atomically. Wide elements come first, which readers that map the file require.
pub(super) fn write(path: &Path, tensors: &[(&str, &Tensor)]) -> Result<(), String> {
    let mut typed = Vec::with_capacity(tensors.len());
    for (name, tensor) in tensors {
        let known = TYPES.iter().find(|(_, dtype)| *dtype == tensor.dtype());
        let (dtype, _) = known.ok_or_else(|| format!("cannot hold {name}, which is {}", tensor.spec()))?;
        typed.push((*dtype, *name, *tensor));
    }
    typed.sort_by_key(|(dtype, ..)| std::cmp::Reverse(*dtype));
    let mut end = 0;
    let info = |(dtype, name, tensor): &(Dtype, &str, &Tensor)| {
        let begin = end;
        end += tensor.bytes().len();
        let shape = tensor.shape().dims().to_vec();
        (name.to_string(), TensorInfo { dtype: *dtype, shape, data_offsets: (begin, end) })
    };
    let header = Metadata::new(None, typed.iter().map(info).collect()).map_err(|error| error.to_string())?;
    let mut header = serde_json::to_vec(&header).map_err(|error| error.to_string())?;
    header.resize(header.len().next_multiple_of(LENGTH as usize), b' ');
    let emit = |file: &mut dyn Write| {
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        typed.iter().try_for_each(|(_, _, tensor)| file.write_all(tensor.bytes()))
    };
    files::write(path, emit).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_files_are_refused_before_memory_is_taken() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("x.safetensors");
        let file = |header: &str, data: &[u8]| [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat();
        let good = r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
        let huge = r#"{"x":{"dtype":"U8","shape":[1099511627776],"data_offsets":[0,1099511627776]}}"#;
        let overflow = r#"{"x":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}"#;
        let other = r#"{"x":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}}"#;
        let cases: [(Vec<u8>, &str); 9] = [
            (vec![1, 2], "cut off"),
            (u64::MAX.to_le_bytes().to_vec(), "has a header of 18446744073709551615 bytes"),
            (file(good, &[0; 8])[..20].to_vec(), "has a header"),
            (file("{", &[]), "has a wrong header"),
            (file(good, &[0; 7]), "states 8 bytes of elements, but 7 follow"),
            (file(huge, &[]), "states 1099511627776 bytes of elements, but 0 follow"),
            (file(overflow, &[]), "has a wrong header"),
            (file(&good.replace("8]", "4]"), &[0; 4]), "has a wrong header"),
            (file(other, &[0; 8]), "tensor x: elements of type C64"),
        ];
        for (bytes, want) in cases {
            std::fs::write(&path, bytes).expect("writable");
            let error = read(&path, &mut |_, _| Ok(Some("x".into()))).expect_err(want);
            assert!(error.contains(want), "{error} should contain: {want}");
        }
        std::fs::write(&path, file(good, &[0; 8])).expect("writable");
        assert_eq!(read(&path, &mut |_, _| Ok(None)).expect("sound").len(), 0);
    }
}
