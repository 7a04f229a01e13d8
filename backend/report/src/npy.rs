//! Tensors in NumPy's files: `.npy` (one array) and `.npz` (a zip of named arrays).
//!
//! A `.npy` file is a magic word, a version, the length of a header, the header, and the elements. The header is a
//! Python dictionary with the keys `descr`, `fortran_order` and `shape`. This is our own reader, because the library
//! `npyz` panics on headers with false sizes.
//!
//! Headers are believed only as far as the length of the file, or the length given by an archive, confirms them. Memory
//! is allocated only for arrays that are wanted.

use anabranch::files;
use anabranch_kernels::{Buffer, DType, Shape, Tensor, TensorSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zip::{ZipArchive, ZipWriter, write::SimpleFileOptions};

/// Most bytes of a header; NumPy's have a few hundred.
const LONGEST_HEADER: usize = 64 << 10;

/// Bytes read at a time of an array in column-major order: a multiple of every element's size.
const PIECE: usize = 32 << 10;

/// Most members of an archive that are read.
const MOST_MEMBERS: usize = 100_000;

/// Error of a NumPy file that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", file.display())]
pub struct NpyError {
    /// The file, with the array's name after a colon if it is a member of an archive.
    pub file: PathBuf,
    /// Reason of the error.
    pub reason: String,
}

/// Reads one array from a `.npy` file, unless `wanted` rejects its type and shape.
///
/// # Errors
/// If the file cannot be read, is not an array of numbers or bools, or its size does not match its header. Also the
/// error of `wanted`.
pub fn read_npy_if(path: &Path, wanted: impl FnOnce(&TensorSpec) -> Result<(), String>) -> Result<Tensor, NpyError> {
    let read = || -> Result<Tensor, String> {
        let file = files::open(path).map_err(|e| e.to_string())?;
        let length = file.metadata().map_err(|e| e.to_string())?.len();
        let header = Header::read(&file, length)?;
        wanted(&header.spec)?;
        header.tensor(file)
    };
    read().map_err(|reason| NpyError { file: path.to_owned(), reason })
}

/// Reads the type and shape of the array in a `.npy` file.
///
/// # Errors
/// As [`read_npy_if`], of what the header and the file's length show.
pub fn npy_spec(path: &Path) -> Result<TensorSpec, NpyError> {
    let read = || -> Result<TensorSpec, String> {
        let file = files::open(path).map_err(|e| e.to_string())?;
        let length = file.metadata().map_err(|e| e.to_string())?.len();
        Ok(Header::read(&file, length)?.spec)
    };
    read().map_err(|reason| NpyError { file: path.to_owned(), reason })
}

/// Reads all arrays of an `.npz` archive by name.
///
/// # Errors
/// If the archive or one of its arrays cannot be read.
pub fn read_npz(path: &Path) -> Result<BTreeMap<String, Tensor>, NpyError> {
    read_npz_if(path, |_, _| Ok(true))
}

/// Reads the arrays of an `.npz` archive that `wanted` selects by name, type and shape.
///
/// # Errors
/// If the archive or one of these arrays cannot be read. Also the error of `wanted`.
pub fn read_npz_if(
    path: &Path,
    mut wanted: impl FnMut(&str, &TensorSpec) -> Result<bool, String>,
) -> Result<BTreeMap<String, Tensor>, NpyError> {
    let error = |reason: String| NpyError { file: path.to_owned(), reason };
    let file = files::open(path).map_err(|e| error(e.to_string()))?;
    let mut archive = ZipArchive::new(&file).map_err(|e| error(e.to_string()))?;
    if archive.len() > MOST_MEMBERS {
        return Err(error(format!("has {} members, but at most {MOST_MEMBERS} are supported", archive.len())));
    }
    refuse_twice(&file, archive.central_directory_start()).map_err(error)?;
    let mut arrays = BTreeMap::new();
    for index in 0..archive.len() {
        let mut member = archive.by_index(index).map_err(|e| error(e.to_string()))?;
        let file_name = member.name().map_err(|e| error(e.to_string()))?;
        let Some(name) = file_name.strip_suffix(".npy").map(str::to_owned) else { continue };
        let length = member.size();
        let mut read = || -> Result<Option<Tensor>, String> {
            let header = Header::read(&mut member, length)?;
            if wanted(&name, &header.spec)? { header.tensor(&mut member).map(Some) } else { Ok(None) }
        };
        if let Some(tensor) = read().map_err(|reason| error(format!("array {name}: {reason}")))? {
            arrays.insert(name, tensor);
        }
    }
    Ok(arrays)
}

/// Signature of a member's entry in an archive's directory.
const ENTRY: [u8; 4] = *b"PK\x01\x02";

/// Rejects an archive with two members of one name: the library that reads archives shows only the last of them.
/// `start` is the start of the directory. Its entries have 46 bytes, followed by a name, extra data and a comment.
fn refuse_twice(file: &File, start: u64) -> Result<(), String> {
    let mut directory = BufReader::new(file);
    let told = |error: io::Error| error.to_string();
    directory.seek(SeekFrom::Start(start)).map_err(told)?;
    let mut names = BTreeSet::new();
    loop {
        let mut entry = [0; 46];
        let is_entry = directory.read_exact(&mut entry).is_ok() && entry.starts_with(&ENTRY);
        if !is_entry || names.len() > MOST_MEMBERS {
            return Ok(());
        }
        let length = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        let mut name = vec![0; usize::from(length(28))];
        directory.read_exact(&mut name).map_err(told)?;
        directory.seek_relative(i64::from(length(30)) + i64::from(length(32))).map_err(told)?;
        if let Some(twice) = names.replace(name) {
            let name = String::from_utf8_lossy(&twice).into_owned();
            return Err(format!("has two members {name:?}; leave out one of them"));
        }
    }
}

/// An array to be written.
#[derive(Clone, Debug)]
pub enum Array<'a> {
    /// Numbers.
    Tensor(&'a Tensor),
    /// Strings in row-major order.
    Texts(Vec<usize>, Vec<&'a str>),
}

impl<'a> From<&'a Tensor> for Array<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Self::Tensor(tensor)
    }
}

/// Writes one array, atomically.
///
/// # Errors
/// If the file cannot be written.
pub fn write_npy<'a>(path: &Path, array: impl Into<Array<'a>>) -> Result<(), NpyError> {
    let array = array.into();
    files::write(path, |mut file| emit(&mut file, &array))
        .map_err(|e| NpyError { file: path.to_owned(), reason: e.to_string() })
}

/// Writes named arrays into one uncompressed archive, atomically, as NumPy's `savez` does. No two may have the same
/// name.
///
/// # Errors
/// If the file cannot be written.
pub fn write_npz<'a, A: Into<Array<'a>>>(
    path: &Path,
    arrays: impl IntoIterator<Item = (&'a str, A)>,
) -> Result<(), NpyError> {
    let stored = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored).large_file(true);
    let write = |file: &mut dyn Write| -> io::Result<()> {
        let mut archive = ZipWriter::new_stream(file);
        for (name, array) in arrays {
            archive.start_file(format!("{name}.npy"), stored)?;
            emit(&mut archive, &array.into())?;
        }
        archive.finish()?;
        Ok(())
    };
    files::write(path, write).map_err(|e| NpyError { file: path.to_owned(), reason: e.to_string() })
}

/// Header of an array.
struct Header {
    spec: TensorSpec,
    column_major: bool,
}

impl Header {
    /// Reads the header of a file of `length` bytes, which must match the header.
    fn read(mut file: impl Read, length: u64) -> Result<Self, String> {
        let cut_off = || "is cut off: its header is longer than the file".to_owned();
        let mut exact = |bytes: &mut [u8], cut_off: String| file.read_exact(bytes).map_err(|_| cut_off);
        let mut start = [0; 8];
        exact(&mut start, NO_MAGIC.into())?;
        let fixed = match start.strip_prefix(MAGIC).ok_or(NO_MAGIC)? {
            [1, _] => 2,
            [2 | 3, _] => 4,
            _ => return Err("is not a NumPy array of format 1, 2 or 3".into()),
        };
        let mut size = [0; 4];
        exact(&mut size[..fixed], cut_off())?;
        let size = u32::from_le_bytes(size) as usize;
        let before = (start.len() + fixed + size) as u64;
        if before > length {
            return Err(cut_off());
        }
        if size > LONGEST_HEADER {
            return Err(format!("has a header of {size} bytes, but at most {LONGEST_HEADER} are supported"));
        }
        let mut header = vec![0; size];
        exact(&mut header, cut_off())?;
        let header = std::str::from_utf8(&header).map_err(|_| "has a header that is not text")?;
        let spec = TensorSpec::new(dtype_of(header)?, shape_of(header)?);
        if length - before != spec.bytes() as u64 {
            return Err(format!("{spec} takes {} bytes, but {} follow the header", spec.bytes(), length - before));
        }
        let column_major = match field(header, "fortran_order")? {
            value if value.starts_with("False") => false,
            value if value.starts_with("True") => true,
            _ => return Err("is not a NumPy array: fortran_order is neither True nor False".into()),
        };
        Ok(Self { spec, column_major })
    }

    /// Reads the elements. The file must end after them.
    fn tensor(self, mut file: impl Read) -> Result<Tensor, String> {
        let Self { spec, column_major } = self;
        let buffer = Buffer::try_zeroed(spec.bytes());
        let mut buffer = buffer.ok_or(format!("{spec} exceeds the available memory"))?;
        match column_major {
            true => read_columns(&mut file, &spec, buffer.bytes_mut()),
            false => file.read_exact(buffer.bytes_mut()),
        }
        .map_err(|e| e.to_string())?;
        // An archive's checksum is verified when its member is read to the end.
        if file.read(&mut [0]).map_err(|e| e.to_string())? > 0 {
            return Err("is longer than its header states".into());
        }
        if spec.dtype == DType::Bool {
            buffer.bytes_mut().iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
        Tensor::new(spec, Arc::new(buffer)).map_err(|e| e.to_string())
    }
}

/// Returns the text after `'name':` in the header.
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
        return Err("holds records, but only arrays of one number type are supported".into());
    };
    let known = TYPES.iter().find(|(known, _)| code.strip_prefix(['<', '|']).is_some_and(|k| k == *known));
    known.map(|(_, dtype)| *dtype).ok_or_else(|| {
        format!("has elements of type {code}; convert it, for example with NumPy's astype('<f4'), and save it again")
    })
}

const MAGIC: &[u8] = b"\x93NUMPY";
const NO_MAGIC: &str = "is not a NumPy array: it does not begin with NumPy's magic word";

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

/// Reads elements that are in column-major order, piece by piece, into row-major order.
fn read_columns(file: &mut impl Read, spec: &TensorSpec, ordered: &mut [u8]) -> io::Result<()> {
    let (size, dims, strides) = (spec.dtype.size(), spec.shape.dims(), spec.shape.strides());
    let mut index = vec![0; dims.len()];
    let mut pieces = [0; PIECE];
    for start in (0..ordered.len()).step_by(PIECE) {
        let piece = &mut pieces[..PIECE.min(ordered.len() - start)];
        file.read_exact(piece)?;
        for element in piece.chunks_exact(size) {
            let at: usize = index.iter().zip(&strides).map(|(index, stride)| index * stride).sum();
            ordered[at * size..][..size].copy_from_slice(element);
            for (index, dim) in index.iter_mut().zip(dims) {
                *index += 1;
                if *index < *dim {
                    break;
                }
                *index = 0;
            }
        }
    }
    Ok(())
}

/// Most bytes of an array of strings, all as long as the longest.
const MOST_TEXT_BYTES: usize = 1 << 30;

/// Writes header and data. NumPy has no bfloat16 and no narrower floats: such a tensor is written as its bits, type
/// `u2` or `u1`.
fn emit(writer: &mut impl Write, array: &Array<'_>) -> io::Result<()> {
    match array {
        Array::Tensor(tensor) => {
            let dtype = tensor.dtype();
            let bits = if dtype.size() == 1 { "u1" } else { "u2" };
            let code = TYPES.iter().find(|(_, known)| *known == dtype).map_or(bits, |(code, _)| code);
            let order = if dtype.size() == 1 { '|' } else { '<' };
            begin(writer, &format!("{order}{code}"), tensor.shape().dims())?;
            writer.write_all(tensor.bytes())
        }
        Array::Texts(dims, texts) => {
            // NumPy's strings all have one length, with four bytes per character.
            let longest = texts.iter().map(|text| text.chars().count()).max().unwrap_or(0).max(1);
            if longest.saturating_mul(4).saturating_mul(texts.len()) > MOST_TEXT_BYTES {
                let reason = "the labels are too long for NumPy, which stores each with the length of the \
                     longest; give fewer rows";
                return Err(io::Error::other(reason));
            }
            begin(writer, &format!("<U{longest}"), dims)?;
            let padded =
                |text: &&str| text.chars().map(u32::from).chain(std::iter::repeat(0)).take(longest).collect::<Vec<_>>();
            let mut characters = texts.iter().flat_map(padded);
            characters.try_for_each(|character| writer.write_all(&character.to_le_bytes()))
        }
    }
}

/// Writes the header.
fn begin(writer: &mut impl Write, descr: &str, dims: &[usize]) -> io::Result<()> {
    let dims: String = dims.iter().map(|dim| format!("{dim}, ")).collect();
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}", dims.trim_end());
    // The data begins at a multiple of 64 bytes. At most 16 dimensions keep the header below 65,536 bytes.
    let unpadded = MAGIC.len() + 4 + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(64) - unpadded));
    header.push('\n');
    writer.write_all(MAGIC)?;
    writer.write_all(&[1, 0])?;
    writer.write_all(&(header.len() as u16).to_le_bytes())?;
    writer.write_all(header.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dims: &[usize], values: &[f32]) -> Tensor {
        Tensor::from_elements(Shape::new(dims).expect("small"), values).expect("as many values as the shape has")
    }

    fn parse(bytes: &[u8]) -> Result<Tensor, String> {
        let mut file = bytes;
        Header::read(&mut file, bytes.len() as u64)?.tensor(file)
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
    fn labels_that_would_fill_a_disk_are_refused() {
        let long = "x".repeat(1 << 20);
        let mut texts = vec![""; 1000];
        texts[7] = &long;
        let refused = emit(&mut Vec::new(), &Array::Texts(vec![1000], texts)).expect_err("4 GB");
        assert!(refused.to_string().contains("fewer rows"), "{refused}");
    }

    #[test]
    fn arrays_come_back_as_written() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (one, all) = (directory.path().join("a.npy"), directory.path().join("all.npz"));
        let (a, b) = (tensor(&[2, 3], &[1.0, -2.0, f32::NAN, 4.0, 5.0, 6.0]), Tensor::from_i64s(&[7, -8]));
        write_npy(&one, &a).expect("writable");
        assert!(read_npy_if(&one, |_| Ok(())).expect("readable").same_bits(&a));
        write_npz(&all, [("a", &a), ("b", &b)]).expect("writable");
        let arrays = read_npz(&all).expect("readable");
        assert_eq!(arrays.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert!(arrays["a"].same_bits(&a) && arrays["b"].same_bits(&b));
    }

    #[test]
    fn arrays_that_nobody_wants_take_no_memory() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("large.npz");
        // 64 GiB of zeros in a few bytes of the archive's directory: reading them would fail.
        let header = file("{'descr': '|u1', 'fortran_order': False, 'shape': (68719476736,), }", &[]);
        let mut archive = ZipWriter::new(std::fs::File::create(&path).expect("writable"));
        archive.start_file("lies.npy", SimpleFileOptions::default()).expect("writable");
        archive.write_all(&header).expect("writable");
        archive.start_file("x.npy", SimpleFileOptions::default()).expect("writable");
        emit(&mut archive, &Array::Tensor(&tensor(&[2], &[1.0, 2.0]))).expect("writable");
        archive.finish().expect("writable");
        let error = read_npz(&path).expect_err("the header lies").to_string();
        assert!(error.contains("68719476736 bytes, but 0 follow"), "{error}");

        let two = directory.path().join("two.npz");
        write_npz(&two, [("a", &tensor(&[1 << 20], &vec![0.0; 1 << 20])), ("b", &tensor(&[1], &[5.0]))]).expect("two");
        let mut seen = Vec::new();
        let only = read_npz_if(&two, |name, spec| {
            seen.push((name.to_owned(), spec.to_string()));
            Ok(name == "b")
        });
        assert_eq!(only.expect("readable").keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(seen, [("a".into(), "f32[1048576]".into()), ("b".to_owned(), "f32[1]".to_owned())]);
        let refused = read_npz_if(&two, |_, spec| Err(format!("{spec} is too much"))).expect_err("refused");
        assert!(refused.to_string().ends_with("array a: f32[1048576] is too much"), "{refused}");
    }

    #[test]
    fn an_archive_with_one_name_twice_is_refused() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("twice.npz");
        let (one, other) = (tensor(&[1], &[1.0]), tensor(&[1], &[2.0]));
        write_npz(&path, [("a", &one), ("b", &other)]).expect("writable");
        assert_eq!(read_npz(&path).expect("two names").len(), 2);
        // The writer rejects a repeated name, so the second name is changed in the file's bytes.
        let bytes: Vec<u8> = std::fs::read(&path).expect("readable");
        let mut twice = bytes.clone();
        for at in 0..bytes.len() - 4 {
            if bytes[at..].starts_with(b"b.npy") {
                twice[at] = b'a';
            }
        }
        std::fs::write(&path, twice).expect("writable");
        let error = read_npz(&path).expect_err("which of them?").to_string();
        assert!(error.ends_with("twice.npz: has two members \"a.npy\"; leave out one of them"), "{error}");
    }

    #[test]
    fn column_major_arrays_are_reordered() {
        let header = "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }";
        let read = parse(&file(header, &[1, 4, 2, 5, 3, 6])).expect("readable");
        assert_eq!(read.elements::<u8>(), Some(&[1, 2, 3, 4, 5, 6][..]));
        // More elements than fit into one piece.
        let header = "{'descr': '<i4', 'fortran_order': True, 'shape': (101, 103, 3), }";
        let columns = (0..3).flat_map(|k| (0..103).flat_map(move |j| (0..101).map(move |i| [i, j, k])));
        let data: Vec<u8> = columns.flat_map(|[i, j, k]: [i32; 3]| (i * 309 + j * 3 + k).to_le_bytes()).collect();
        let read = parse(&file(header, &data)).expect("readable");
        let read = read.elements::<i32>().expect("as said");
        assert!(read.iter().enumerate().all(|(at, element)| *element == at as i32));
        assert!(parse(&file(header, &data[4..])).is_err());
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
