//! Tensors in NumPy's files: `.npy` (one array) and `.npz` (a zip of named arrays).
//!
//! A `.npy` file is a magic word, a version, the length of a header, the header (a Python dictionary with the keys
//! `descr`, `fortran_order` and `shape`), and the elements. The library for it (`npyz`) panics on headers that lie, so this is ours.

use anabranch_kernels::{Buffer, DType, Shape, Tensor, TensorSpec};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zip::{ZipArchive, ZipWriter, write::SimpleFileOptions};

/// Arrays of more bytes than this are refused before anything is allocated.
const MAX_BYTES: u64 = 1 << 36;

/// A NumPy file that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", file.display())]
pub struct NpyError {
    /// The file, with the array's name after a colon if it is a member of an archive.
    pub file: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// Reads one array from a `.npy` file.
///
/// # Errors
/// If the file cannot be read, is not an array of numbers or truth values, or its size is not what its header says.
pub fn read_npy(path: &Path) -> Result<Tensor, NpyError> {
    let read = || -> Result<Tensor, String> {
        let file = File::open(path).map_err(|e| e.to_string())?;
        let length = file.metadata().map_err(|e| e.to_string())?.len();
        parse(&read_all(file, length)?)
    };
    read().map_err(|reason| NpyError { file: path.to_owned(), reason })
}

/// Reads all arrays of an `.npz` archive by name.
///
/// # Errors
/// If the archive or one of its arrays cannot be read.
pub fn read_npz(path: &Path) -> Result<BTreeMap<String, Tensor>, NpyError> {
    let error = |reason: String| NpyError { file: path.to_owned(), reason };
    let file = File::open(path).map_err(|e| error(e.to_string()))?;
    let mut archive = ZipArchive::new(file).map_err(|e| error(e.to_string()))?;
    let mut arrays = BTreeMap::new();
    for index in 0..archive.len() {
        let member = archive.by_index(index).map_err(|e| error(e.to_string()))?;
        let file_name = member.name().map_err(|e| error(e.to_string()))?;
        let Some(name) = file_name.strip_suffix(".npy").map(str::to_owned) else { continue };
        let length = member.size();
        let tensor = read_all(member, length).and_then(|bytes| parse(&bytes));
        arrays.insert(name.clone(), tensor.map_err(|reason| error(format!("array {name}: {reason}")))?);
    }
    Ok(arrays)
}

/// Writes one array.
///
/// # Errors
/// If the file cannot be written.
pub fn write_npy(path: &Path, tensor: &Tensor) -> Result<(), NpyError> {
    let write = || -> io::Result<()> {
        let mut writer = BufWriter::new(File::create(path)?);
        emit(&mut writer, tensor)?;
        writer.flush()
    };
    write().map_err(|e| NpyError { file: path.to_owned(), reason: e.to_string() })
}

/// Writes named arrays into one uncompressed archive, as NumPy's `savez` does.
///
/// # Errors
/// If the file cannot be written.
pub fn write_npz<'a>(path: &Path, arrays: impl IntoIterator<Item = (&'a str, &'a Tensor)>) -> Result<(), NpyError> {
    let write = || -> io::Result<()> {
        let mut archive = ZipWriter::new(BufWriter::new(File::create(path)?));
        let stored = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored).large_file(true);
        for (name, tensor) in arrays {
            archive.start_file(format!("{name}.npy"), stored)?;
            emit(&mut archive, tensor)?;
        }
        archive.finish()?.flush()
    };
    write().map_err(|e| NpyError { file: path.to_owned(), reason: e.to_string() })
}

/// Reads `length` bytes and no more; a shorter or longer stream is an error.
fn read_all(reader: impl Read, length: u64) -> Result<Vec<u8>, String> {
    if length > MAX_BYTES {
        return Err(format!("{length} bytes are more than the {MAX_BYTES} that are read at most"));
    }
    let mut bytes = Vec::new();
    reader.take(length + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if bytes.len() as u64 != length {
        return Err(format!("has another size than the {length} bytes announced"));
    }
    Ok(bytes)
}

fn parse(bytes: &[u8]) -> Result<Tensor, String> {
    let (header, data) = split_header(bytes)?;
    let spec = TensorSpec::new(dtype_of(header)?, shape_of(header)?);
    if data.len() != spec.bytes() {
        return Err(format!("{spec} takes {} bytes, but {} follow the header", spec.bytes(), data.len()));
    }
    let mut buffer = match field(header, "fortran_order")? {
        value if value.starts_with("False") => Buffer::copied(data),
        value if value.starts_with("True") => row_major(data, &spec),
        _ => return Err("is not a NumPy array: fortran_order is neither True nor False".into()),
    };
    if spec.dtype == DType::Bool {
        buffer.bytes_mut().iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
    }
    Tensor::new(spec, Arc::new(buffer)).map_err(|e| e.to_string())
}

/// The header's text and the bytes after it.
fn split_header(bytes: &[u8]) -> Result<(&str, &[u8]), String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("is not a NumPy array: it does not begin with NumPy's magic word")?;
    let (length, rest) = match rest {
        [1, _, a, b, rest @ ..] => (usize::from(u16::from_le_bytes([*a, *b])), rest),
        [2 | 3, _, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
        _ => return Err("is not a NumPy array of format 1, 2 or 3".into()),
    };
    let (header, data) = rest.split_at_checked(length).ok_or("is cut off: its header is longer than the file")?;
    Ok((std::str::from_utf8(header).map_err(|_| "has a header that is not text")?, data))
}

/// The text after `'name':` in the header.
fn field<'a>(header: &'a str, name: &str) -> Result<&'a str, String> {
    let (_, after) = header.split_once(&format!("'{name}':")).ok_or(format!("has no {name} in its header"))?;
    Ok(after.trim_start())
}

fn shape_of(header: &str) -> Result<Shape, String> {
    let malformed = || "has a shape that is not a tuple of sizes".to_owned();
    let (dims, _) = field(header, "shape")?.strip_prefix('(').and_then(|s| s.split_once(')')).ok_or_else(malformed)?;
    let dims = dims.split(',').map(str::trim).filter(|dim| !dim.is_empty());
    let dims: Vec<usize> = dims.map(|dim| dim.parse().map_err(|_| malformed())).collect::<Result<_, _>>()?;
    Shape::new(dims).map_err(|e| e.to_string())
}

fn dtype_of(header: &str) -> Result<DType, String> {
    let descr = field(header, "descr")?;
    let Some((code, _)) = descr.strip_prefix('\'').and_then(|d| d.split_once('\'')) else {
        return Err("holds records; only arrays of one number type are read".into());
    };
    let known = TYPES.iter().find(|(known, _)| code.strip_prefix(['<', '|']).is_some_and(|k| k == *known));
    known.map(|(_, dtype)| *dtype).ok_or_else(|| {
        format!("has elements of type {code}; convert it, for example with NumPy's astype('<f4'), and save it again")
    })
}

const MAGIC: &[u8] = b"\x93NUMPY";

const TYPES: [(&str, DType); 12] = [
    ("f4", DType::F32),
    ("f8", DType::F64),
    ("f2", DType::F16),
    ("i1", DType::I8),
    ("i2", DType::I16),
    ("i4", DType::I32),
    ("i8", DType::I64),
    ("u1", DType::U8),
    ("u2", DType::U16),
    ("u4", DType::U32),
    ("u8", DType::U64),
    ("b1", DType::Bool),
];

/// Reorders elements from column-major to row-major.
fn row_major(source: &[u8], spec: &TensorSpec) -> Buffer {
    let size = spec.dtype.size();
    let mut buffer = Buffer::zeroed(source.len());
    let dims = spec.shape.dims();
    let mut index = vec![0; dims.len()];
    for target in buffer.bytes_mut().chunks_exact_mut(size) {
        let from = dims.iter().zip(&index).rev().fold(0, |offset, (dim, i)| offset * dim + i);
        target.copy_from_slice(&source[from * size..][..size]);
        for axis in (0..dims.len()).rev() {
            index[axis] += 1;
            if index[axis] < dims[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    buffer
}

/// Writes header and data. NumPy has no bfloat16 and no narrower floats: such a tensor is written as its bits, type `u2` or `u1`.
fn emit(writer: &mut impl Write, tensor: &Tensor) -> io::Result<()> {
    let dtype = tensor.dtype();
    let bits = if dtype.size() == 1 { "u1" } else { "u2" };
    let code = TYPES.iter().find(|(_, known)| *known == dtype).map_or(bits, |(code, _)| code);
    let order = if dtype.size() == 1 { '|' } else { '<' };
    let dims: String = tensor.shape().dims().iter().map(|dim| format!("{dim}, ")).collect();
    let mut header = format!("{{'descr': '{order}{code}', 'fortran_order': False, 'shape': ({}), }}", dims.trim_end());
    // The data begins at a multiple of 64 bytes; at most 16 dimensions keep the header below 65,536.
    let unpadded = MAGIC.len() + 4 + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(64) - unpadded));
    header.push('\n');
    writer.write_all(MAGIC)?;
    writer.write_all(&[1, 0])?;
    writer.write_all(&(header.len() as u16).to_le_bytes())?;
    writer.write_all(header.as_bytes())?;
    writer.write_all(tensor.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dims: &[usize], values: &[f32]) -> Tensor {
        Tensor::from_elements(Shape::new(dims).expect("small"), values).expect("as many values as the shape has")
    }

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let text = format!("{header}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn arrays_come_back_as_written() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (one, all) = (directory.path().join("a.npy"), directory.path().join("all.npz"));
        let (a, b) = (tensor(&[2, 3], &[1.0, -2.0, f32::NAN, 4.0, 5.0, 6.0]), Tensor::from_i64s(&[7, -8]));
        write_npy(&one, &a).expect("writable");
        assert!(read_npy(&one).expect("readable").same_bits(&a));
        write_npz(&all, [("a", &a), ("b", &b)]).expect("writable");
        let arrays = read_npz(&all).expect("readable");
        assert_eq!(arrays.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert!(arrays["a"].same_bits(&a) && arrays["b"].same_bits(&b));
    }

    #[test]
    fn column_major_arrays_are_reordered() {
        let header = "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }";
        let read = parse(&file(header, &[1, 4, 2, 5, 3, 6])).expect("readable");
        assert_eq!(read.elements::<u8>(), Some(&[1, 2, 3, 4, 5, 6][..]));
    }

    #[test]
    fn malformed_files_are_refused_with_a_reason() {
        let good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
        let huge = "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }";
        let big_endian = "{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }";
        for (bytes, want) in [
            (Vec::new(), "magic word"),
            (file(good, &[0; 7]), "8 bytes, but 7"),
            (file(huge, &[]), "address space"),
            (file("{'shape': (-1,), 'descr': '<f4'}", &[]), "tuple of sizes"),
            (file("{}", &[]), "no descr"),
            (file(big_endian, &[0; 4]), "astype"),
            (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{".to_vec(), "longer than the file"),
        ] {
            let reason = parse(&bytes).expect_err("malformed");
            assert!(reason.contains(want), "{reason}");
        }
    }
}
