//! Constants: from data of a message or of another file to tensors whose size is checked.

use super::beneath::Directory;
use super::error::{ImportError, ImportErrorKind, Result, element_type_name};
use super::external::{ExternalFiles, Region};
use super::limits::Limits;
use super::packed::{Encoding, cut, no_element, packed_bytes, spread};
use super::proto::{PayloadSource, SparseTensorProto, TensorProto, data_type};
use anabranch_ir::constant::{Constant, ConstantError, ConstantFile, LARGE};
use anabranch_kernels::{Buffer, DType, Shape, Tensor, TensorSpec};
use std::sync::Arc;

#[cfg(target_endian = "big")]
compile_error!("tensor data is kept as the little-endian bytes that ONNX files hold");

/// Makes tensors from a model's messages and counts their bytes.
pub(super) struct TensorReader<'a> {
    /// File of the model, if it was read from a file.
    file: Option<Arc<ConstantFile>>,
    external: Option<ExternalFiles>,
    limits: &'a Limits,
    /// Bytes of all tensors in the files.
    used: u64,
    /// Bytes of all dense tensors made from sparse tensors.
    sparse: u64,
}

impl<'a> TensorReader<'a> {
    /// Creates a reader that takes external data from `directory`, and data that stayed in the model's file from
    /// `file`.
    pub(super) fn new(file: Option<Arc<ConstantFile>>, directory: Option<Directory>, limits: &'a Limits) -> Self {
        Self { file, external: directory.map(ExternalFiles::new), limits, used: 0, sparse: 0 }
    }

    /// Returns the limits of the model.
    pub(super) fn limits(&self) -> &'a Limits {
        self.limits
    }

    /// Reads the tensor that `proto` describes, now.
    pub(super) fn read(&mut self, proto: &TensorProto) -> Result<Tensor> {
        self.read_constant(proto)?.load().map_err(unread)
    }

    /// Returns the constant that `proto` describes; a large constant may stay in its file.
    pub(super) fn read_constant(&mut self, proto: &TensorProto) -> Result<Constant> {
        let dtype = dtype(proto.data_type).ok_or_else(|| {
            let name = element_type_name(proto.data_type);
            ImportError::unsupported(format!(
                "elements of type {name} are not supported; cast it to a type of at least 8 bits before exporting"
            ))
        })?;
        let spec = TensorSpec::new(dtype, shape(&proto.dims)?);
        if proto.data_location == 1 {
            return self.external(proto, spec);
        }
        // The data is measured first, so that a claim without data costs no memory.
        let data = Data::of(proto, &spec)?;
        self.count(&spec)?;
        if let (Data::Left(offset), Some(file)) = (&data, &self.file) {
            return stored(spec, Arc::clone(file), *offset, &proto.name);
        }
        let mut buffer = allocate(spec.bytes())?;
        data.copy_to(buffer.bytes_mut(), spec.dtype)?;
        check_bools(&spec, &buffer)?;
        Ok(tensor(spec, Arc::new(buffer)).into())
    }

    /// Counts a tensor against the limit.
    fn count(&mut self, spec: &TensorSpec) -> Result<()> {
        count(&mut self.used, ("tensor_bytes", self.limits.tensor_bytes), spec.bytes())
    }

    /// Reads the dense tensor of a sparse tensor.
    pub(super) fn read_sparse(&mut self, proto: &SparseTensorProto) -> Result<Tensor> {
        let missing = sparse("its values or indices are missing");
        let (Some(values), Some(indices)) = (&proto.values, &proto.indices) else { return Err(missing) };
        let (values, indices) = (self.read(values)?, self.read(indices)?);
        let spec = TensorSpec::new(values.dtype(), shape(&proto.dims)?);
        count(&mut self.sparse, ("sparse_bytes", self.limits.sparse_bytes), spec.bytes())?;
        let mut buffer = allocate(spec.bytes())?;
        scatter(&indices, &values, &spec, buffer.bytes_mut())?;
        Ok(tensor(spec, Arc::new(buffer)))
    }

    fn external(&mut self, proto: &TensorProto, spec: TensorSpec) -> Result<Constant> {
        if has_data(proto) {
            return Err(misplaced(spec.dtype));
        }
        let bytes = packed_bytes(&spec) as u64;
        let (region, length) = Region::parse(&proto.external_data, bytes)?;
        check_size(&spec, "bytes", bytes, length)?;
        let files = self.external.as_mut().ok_or_else(|| {
            ImportError::new(
                ImportErrorKind::Io,
                "its data is in another file, but the model was given without a directory; load it from its file",
            )
        })?;
        if let Some(known) = files.known(&region, &spec) {
            return Ok(known);
        }
        let file = files.open(&region, self.limits.sparse_bytes)?;
        count(&mut self.used, ("tensor_bytes", self.limits.tensor_bytes), spec.bytes())?;
        let large = spec.bytes() >= LARGE;
        let stored = stored(spec, file, region.offset(), &proto.name)?;
        let constant = if large { stored } else { stored.load().map_err(unread)?.into() };
        files.keep(region, constant.clone());
        Ok(constant)
    }
}

/// Counts `bytes` in `used` against the limit.
fn count(used: &mut u64, (name, limit): (&'static str, u64), bytes: usize) -> Result<()> {
    *used = used.saturating_add(bytes as u64);
    match *used <= limit {
        true => Ok(()),
        false => {
            let text = format_args!("its {bytes} B bring the tensors above the limit of {limit} B");
            Err(ImportError::over(name, text))
        }
    }
}

/// Creates the error of a constant that cannot be read now.
fn unread(error: ConstantError) -> ImportError {
    match error {
        ConstantError::OutOfMemory { .. } => ImportError::limit(error.to_string()),
        ConstantError::Io { .. } | ConstantError::Changed { .. } => {
            ImportError::new(ImportErrorKind::Io, error.to_string())
        }
        _ => ImportError::malformed(error.to_string()),
    }
}

/// Creates a constant at a position of a file. It stays there, unless several elements share a byte: then it is read
/// and unpacked now.
fn stored(spec: TensorSpec, file: Arc<ConstantFile>, offset: u64, name: &str) -> Result<Constant> {
    if spec.dtype.bits() >= 8 {
        return Ok(Constant::in_file(spec, file, offset, name.to_owned()));
    }
    let shape = Shape::new([packed_bytes(&spec)]).map_err(|error| ImportError::malformed(error.to_string()))?;
    let packed = Constant::in_file(TensorSpec::new(DType::U8, shape), file, offset, name.to_owned());
    let packed = packed.load().map_err(unread)?;
    let mut buffer = allocate(spec.bytes())?;
    spread(packed.bytes(), spec.dtype, buffer.bytes_mut());
    Ok(tensor(spec, Arc::new(buffer)).into())
}

/// Creates the error of data in a field for another element type, or in two fields.
fn misplaced(dtype: DType) -> ImportError {
    ImportError::malformed(format!(
        "{dtype} data must be only in `raw_data`, or only in the field that ONNX defines for the type"
    ))
}

/// Creates the error of a sparse tensor whose indices do not fit it.
fn sparse(problem: &str) -> ImportError {
    ImportError::malformed(format!("is sparse, but {problem}"))
}

/// Allocates zeroed memory.
fn allocate(bytes: usize) -> Result<Buffer> {
    let short = || ImportError::limit(format!("takes {bytes} bytes, which exceeds the available memory"));
    Buffer::try_zeroed(bytes).ok_or_else(short)
}

/// Returns the type for ONNX's `code`, if it is supported.
pub fn dtype(code: i64) -> Option<DType> {
    Some(match code {
        data_type::FLOAT => DType::F32,
        data_type::DOUBLE => DType::F64,
        data_type::FLOAT16 => DType::F16,
        data_type::BFLOAT16 => DType::BF16,
        data_type::INT8 => DType::I8,
        data_type::INT16 => DType::I16,
        data_type::INT32 => DType::I32,
        data_type::INT64 => DType::I64,
        data_type::UINT8 => DType::U8,
        data_type::UINT16 => DType::U16,
        data_type::UINT32 => DType::U32,
        data_type::UINT64 => DType::U64,
        data_type::BOOL => DType::Bool,
        data_type::FLOAT8E4M3FN => DType::F8E4M3Fn,
        data_type::FLOAT8E4M3FNUZ => DType::F8E4M3Fnuz,
        data_type::FLOAT8E5M2 => DType::F8E5M2,
        data_type::FLOAT8E5M2FNUZ => DType::F8E5M2Fnuz,
        data_type::UINT4 => DType::U4,
        data_type::INT4 => DType::I4,
        data_type::FLOAT4E2M1 => DType::F4E2M1,
        data_type::UINT2 => DType::U2,
        data_type::INT2 => DType::I2,
        _ => return None,
    })
}

fn shape(dims: &[i64]) -> Result<Shape> {
    let wrong = |dim: &i64| ImportError::malformed(format!("dimension {dim} is negative or exceeds the address space"));
    let dim = |dim: &i64| usize::try_from(*dim).map_err(|_| wrong(dim));
    let dims = dims.iter().map(dim).collect::<Result<Vec<_>>>()?;
    Shape::new(dims).map_err(|error| ImportError::malformed(error.to_string()))
}

fn tensor(spec: TensorSpec, buffer: Arc<Buffer>) -> Tensor {
    Tensor::new(spec, buffer).expect("the buffer was allocated with the spec's size")
}

fn check_size(spec: &TensorSpec, unit: &str, expected: u64, found: u64) -> Result<()> {
    match expected == found {
        true => Ok(()),
        false => Err(ImportError::malformed(format!("{spec} takes {expected} {unit}, but has {found}"))),
    }
}

fn check_bools(spec: &TensorSpec, buffer: &Buffer) -> Result<()> {
    let wrong = match spec.dtype {
        DType::Bool => buffer.bytes().iter().position(|byte| *byte > 1),
        _ => None,
    };
    match wrong {
        Some(index) => Err(no_element(index, i128::from(buffer.bytes()[index]), DType::Bool)),
        None => Ok(()),
    }
}

fn has_data(proto: &TensorProto) -> bool {
    proto.raw_data.bytes() > 0 || typed_data(proto).iter().any(|(_, chunks)| !chunks.is_empty())
}

fn typed_data(proto: &TensorProto) -> [(Encoding, &[Vec<u8>]); 5] {
    [
        (Encoding::Float, &proto.float_data),
        (Encoding::Double, &proto.double_data),
        (Encoding::Int32, &proto.int32_data),
        (Encoding::Int64, &proto.int64_data),
        (Encoding::Uint64, &proto.uint64_data),
    ]
}

/// A message's own data, of the right size.
enum Data<'p> {
    Raw(&'p [u8]),
    /// Data at this position of the model's file.
    Left(u64),
    Typed(Encoding, &'p [Vec<u8>]),
}

impl<'p> Data<'p> {
    fn of(proto: &'p TensorProto, spec: &TensorSpec) -> Result<Self> {
        let raw = &proto.raw_data;
        let mut typed = typed_data(proto).into_iter().filter(|(_, chunks)| !chunks.is_empty());
        match (typed.next(), typed.next()) {
            (None, _) => {
                check_size(spec, "bytes", packed_bytes(spec) as u64, raw.bytes())?;
                Ok(match &raw.0 {
                    PayloadSource::Memory(bytes) => Self::Raw(bytes),
                    PayloadSource::File { offset, .. } => Self::Left(*offset),
                })
            }
            (Some((encoding, chunks)), None) if raw.bytes() == 0 && encoding == Encoding::of(spec.dtype) => {
                let elements = encoding.count(chunks).ok_or_else(cut)?;
                let shared = spec.dtype.bits() < 8;
                let expected = if shared { packed_bytes(spec) } else { spec.shape.elements() };
                check_size(spec, "elements", expected as u64, elements)?;
                Ok(Self::Typed(encoding, chunks))
            }
            _ => Err(misplaced(spec.dtype)),
        }
    }

    /// Writes the data to `bytes`, which have the spec's size.
    fn copy_to(self, bytes: &mut [u8], dtype: DType) -> Result<()> {
        match self {
            Self::Raw(raw) if dtype.bits() < 8 => spread(raw, dtype, bytes),
            Self::Typed(encoding, chunks) if dtype.bits() < 8 => {
                let mut packed = vec![0; bytes.len().div_ceil(8 / dtype.bits())];
                encoding.unpack(chunks, DType::U8, &mut packed)?;
                spread(&packed, dtype, bytes);
            }
            Self::Raw(raw) => bytes.copy_from_slice(raw),
            // Without a file, no data stays in one.
            Self::Left(_) => {}
            Self::Typed(encoding, chunks) => encoding.unpack(chunks, dtype, bytes)?,
        }
        Ok(())
    }
}

/// Writes a sparse tensor's elements to their positions in the dense tensor. The positions must ascend, as ONNX
/// requires.
fn scatter(indices: &Tensor, values: &Tensor, spec: &TensorSpec, dense: &mut [u8]) -> Result<()> {
    let count = values.shape().elements();
    let (coordinates, flat) = match (indices.elements::<i64>(), indices.shape().dims()) {
        (Some(coordinates), [rows]) if *rows == count => (coordinates, true),
        (Some(coordinates), [rows, rank]) if (*rows, *rank) == (count, spec.shape.rank()) => (coordinates, false),
        _ => return Err(sparse("its indices are not one row of 64-bit integers per value")),
    };
    let (width, row) = (spec.dtype.size(), if flat { 1 } else { spec.shape.rank() });
    let mut last = None;
    for (index, element) in values.bytes().chunks_exact(width).enumerate() {
        let position = position(&coordinates[index * row..][..row], flat, &spec.shape);
        let position = position.ok_or_else(|| sparse("an index is out of range"))?;
        if last >= Some(position) {
            return Err(sparse("its indices do not ascend"));
        }
        last = Some(position);
        dense[position * width..][..width].copy_from_slice(element);
    }
    Ok(())
}

/// Returns the flat position of one row of indices, if it is within the shape.
fn position(row: &[i64], flat: bool, shape: &Shape) -> Option<usize> {
    let mut position = 0;
    let elements = [shape.elements()];
    let dims = if flat { &elements[..] } else { shape.dims() };
    for (coordinate, dim) in row.iter().zip(dims) {
        let coordinate = usize::try_from(*coordinate).ok().filter(|coordinate| coordinate < dim)?;
        position = position * dim + coordinate;
    }
    Some(position)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::put_varint;

    fn read(proto: &TensorProto) -> std::result::Result<Tensor, String> {
        TensorReader::new(None, None, &Limits::default()).read(proto).map_err(|error| error.to_string())
    }

    fn varints(values: &[u64]) -> Vec<Vec<u8>> {
        let mut packed = Vec::new();
        values.iter().for_each(|value| put_varint(*value, &mut packed));
        // In two chunks, as the wire allows.
        let first = packed.iter().position(|byte| *byte < 0x80).map_or(0, |last| last + 1);
        let rest = packed.split_off(first);
        vec![packed, rest]
    }

    #[test]
    fn every_type_reads_the_same_from_its_two_encodings() {
        let minus_one = u64::MAX;
        let int32 = |values: &[u64]| TensorProto { int32_data: varints(values), ..TensorProto::default() };
        let int64 = |values: &[u64]| TensorProto { int64_data: varints(values), ..TensorProto::default() };
        let uint64 = |values: &[u64]| TensorProto { uint64_data: varints(values), ..TensorProto::default() };
        let floats = vec![0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0];
        let doubles = vec![0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0xc0];
        let cases: [(i64, TensorProto, &[u8]); 13] = [
            (data_type::FLOAT, TensorProto { float_data: vec![floats.clone()], ..TensorProto::default() }, &floats),
            (data_type::DOUBLE, TensorProto { double_data: vec![doubles.clone()], ..TensorProto::default() }, &doubles),
            (data_type::FLOAT16, int32(&[0x3c00, 0xc000]), &[0x00, 0x3c, 0x00, 0xc0]),
            (data_type::BFLOAT16, int32(&[0x3f80, 0xc000]), &[0x80, 0x3f, 0x00, 0xc0]),
            (data_type::INT8, int32(&[minus_one, 127]), &[0xff, 0x7f]),
            (data_type::UINT8, int32(&[255, 0]), &[0xff, 0]),
            (data_type::INT16, int32(&[minus_one, 0x7fff]), &[0xff, 0xff, 0xff, 0x7f]),
            (data_type::UINT16, int32(&[0xffff, 1]), &[0xff, 0xff, 1, 0]),
            (data_type::INT32, int32(&[minus_one, 1]), &[0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0]),
            (data_type::UINT32, uint64(&[0xffff_ffff, 1]), &[0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0]),
            (
                data_type::INT64,
                int64(&[minus_one, 1]),
                &[255, 255, 255, 255, 255, 255, 255, 255, 1, 0, 0, 0, 0, 0, 0, 0],
            ),
            (
                data_type::UINT64,
                uint64(&[u64::MAX, 1]),
                &[255, 255, 255, 255, 255, 255, 255, 255, 1, 0, 0, 0, 0, 0, 0, 0],
            ),
            (data_type::BOOL, int32(&[1, 0]), &[1, 0]),
        ];
        for (code, typed, raw) in cases {
            let typed = TensorProto { data_type: code, dims: vec![2], ..typed };
            let typed = read(&typed).unwrap_or_else(|error| panic!("{code}: {error}"));
            let raw = read(&TensorProto::raw("", code, &[2], raw.to_vec())).expect("two elements");
            assert!(typed.same_bits(&raw), "{code}: {:?} and {:?}", typed.bytes(), raw.bytes());
        }
    }

    #[test]
    fn wrong_data_is_refused_with_both_numbers() {
        let int32 =
            |code, values: &[u64]| TensorProto { int32_data: varints(values), ..TensorProto::empty("t", code, &[2]) };
        let cut = TensorProto { int32_data: vec![vec![0x80]], ..TensorProto::empty("t", data_type::INT32, &[1]) };
        let both = TensorProto { raw_data: vec![0; 8].into(), ..int32(data_type::INT32, &[1, 2]) };
        let cases = [
            (TensorProto::raw("t", data_type::FLOAT, &[2], vec![0; 7]), "f32[2] takes 8 bytes, but has 7"),
            (TensorProto::raw("t", data_type::FLOAT, &[], vec![0; 8]), "f32[scalar] takes 4 bytes, but has 8"),
            (TensorProto::empty("t", data_type::FLOAT, &[2]), "f32[2] takes 8 bytes, but has 0"),
            (int32(data_type::INT32, &[1]), "i32[2] takes 2 elements, but has 1"),
            (int32(data_type::INT8, &[0, 128]), "element 1 is 128, which is not a valid i8"),
            (int32(data_type::FLOAT16, &[0x1_0000, 0]), "element 0 is 65536, which is not a valid f16"),
            (int32(data_type::BOOL, &[2, 0]), "element 0 is 2, which is not a valid bool"),
            (TensorProto::raw("t", data_type::BOOL, &[2], vec![1, 3]), "element 1 is 3, which is not a valid bool"),
            (int32(data_type::FLOAT, &[0, 0]), "f32 data must be only in `raw_data`, or only in the field"),
            (both, "i32 data must be only in `raw_data`"),
            (cut, "the data ends within an element"),
            (TensorProto::raw("t", 8, &[1], vec![]), "elements of type string are not supported"),
            (TensorProto::raw("t", 14, &[1], vec![]), "elements of type complex64 are not supported"),
            (TensorProto::raw("t", 22, &[3], vec![0]), "i4[3] takes 2 bytes, but has 1"),
            (TensorProto::raw("t", 24, &[1], vec![]), "elements of type float8e8m0 are not supported"),
            (TensorProto::raw("t", 0, &[1], vec![]), "elements of type undefined are not supported"),
            (TensorProto::raw("t", 999, &[1], vec![]), "elements of type number 999 are not supported"),
        ];
        for (proto, text) in cases {
            let error = read(&proto).expect_err(text);
            assert!(error.contains(text), "{error} should contain: {text}");
        }
    }

    #[test]
    fn dimensions_cannot_overflow() {
        for (dims, text) in [
            (&[1i64 << 32, 1 << 32][..], "too large"),
            (&[i64::MAX], "too large"),
            (&[0, i64::MAX, i64::MAX], "too large"),
            (&[-1], "dimension -1 is negative"),
            (&[1; 1000], "1000 dimensions"),
            (&[1 << 40], "f32[1099511627776] takes 4398046511104 bytes, but has 0"),
        ] {
            let error = read(&TensorProto::raw("t", data_type::FLOAT, dims, vec![])).expect_err(text);
            assert!(error.contains(text), "{error} should contain: {text}");
        }
        let empty = read(&TensorProto::raw("t", data_type::FLOAT, &[0, 1 << 20], vec![])).expect("no elements");
        assert_eq!(empty.bytes().len(), 0);
    }

    #[test]
    fn the_budget_holds_for_all_tensors_together() {
        let limits = Limits { tensor_bytes: 20, ..Limits::default() };
        let mut reader = TensorReader::new(None, None, &limits);
        let tensor = TensorProto::f32s("t", &[3], &[0.0; 3]);
        assert!(reader.read(&tensor).is_ok());
        let error = reader.read(&tensor).expect_err("24 bytes").to_string();
        assert!(error.contains("its 12 B bring the tensors above the limit of 20"), "{error}");
    }

    #[test]
    fn sparse_tensors_become_dense_ones() {
        let read = |dims: &[i64], values: &[f32], index_dims: &[i64], indices: &[i64]| {
            let proto = SparseTensorProto {
                values: Some(TensorProto::f32s("s", &[values.len() as i64], values)),
                indices: Some(TensorProto::i64s("", index_dims, indices)),
                dims: dims.to_vec(),
            };
            TensorReader::new(None, None, &Limits::default()).read_sparse(&proto).map_err(|error| error.to_string())
        };
        for (index_dims, indices) in [(&[2][..], &[1, 5][..]), (&[2, 2], &[0, 1, 1, 2])] {
            let dense = read(&[2, 3], &[7.0, 8.0], index_dims, indices).expect("sound");
            assert_eq!(dense.elements::<f32>(), Some(&[0.0, 7.0, 0.0, 0.0, 0.0, 8.0][..]));
        }
        for (index_dims, indices, text) in [
            (&[2][..], &[1, 6][..], "out of range"),
            (&[2], &[-1, 1], "out of range"),
            (&[2], &[1, 1], "do not ascend"),
            (&[2, 2], &[0, 0, 2, 0], "out of range"),
            (&[1], &[1], "not one row"),
            (&[2, 3], &[0; 6], "not one row"),
        ] {
            let error = read(&[2, 3], &[7.0, 8.0], index_dims, indices).expect_err(text);
            assert!(error.contains(text), "{error} should contain: {text}");
        }
        assert!(read(&[1 << 40], &[1.0], &[1], &[0]).expect_err("huge").contains("above the limit of 268435456"));
        assert!(read(&[0], &[1.0], &[1], &[0]).expect_err("no place").contains("out of range"));
        assert!(TensorReader::new(None, None, &Limits::default()).read_sparse(&SparseTensorProto::default()).is_err());
    }
}
