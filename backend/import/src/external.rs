//! Tensor data in files next to the model, and nowhere else.

use super::beneath::{Directory, FileId, file_id};
use super::error::{ImportError, Name, Result};
use super::proto::StringStringEntryProto;
use anabranch_ir::constant::{Constant, ConstantFile};
use anabranch_kernels::TensorSpec;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// A range of bytes of a file in the model's directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Region {
    /// Relative path of ordinary names, without `.` and `..`.
    path: PathBuf,
    offset: u64,
    length: u64,
}

impl Region {
    /// Parses a message's entries into a region and its length. Without a stated length it is `expected` bytes long.
    pub(super) fn parse(entries: &[StringStringEntryProto], expected: u64) -> Result<(Self, u64)> {
        let location = entry(entries, "location")?.ok_or_else(|| wrong_entry("location"))?;
        let path = contained(location).ok_or_else(|| {
            let location = Name(location);
            ImportError::malformed(format!(
                "its data is in {location}, outside the model's directory; move the file there"
            ))
        })?;
        let offset = number(entries, "offset")?.unwrap_or(0);
        let length = number(entries, "length")?.unwrap_or(expected);
        Ok((Self { path, offset, length }, length))
    }

    /// Returns the file, relative to the model's directory.
    pub(super) fn into_path(self) -> PathBuf {
        self.path
    }

    /// Returns the position of its first byte.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    fn location(&self) -> String {
        self.path.display().to_string()
    }

    fn check(&self, size: u64) -> Result<()> {
        match size.checked_sub(self.offset) {
            Some(left) if self.length <= left => Ok(()),
            _ => Err(ImportError::malformed(format!(
                "its data is at byte {} of {} and {} bytes long, but the file has only {size} bytes",
                self.offset,
                Name(&self.location()),
                self.length
            ))),
        }
    }
}

fn entry<'a>(entries: &'a [StringStringEntryProto], key: &str) -> Result<Option<&'a str>> {
    let mut values = entries.iter().filter(|entry| entry.key == key).map(|entry| entry.value.as_str());
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        _ => Err(wrong_entry(key)),
    }
}

fn wrong_entry(key: &str) -> ImportError {
    let key = Name(key);
    ImportError::malformed(format!(
        "its entry {key} for data in another file is missing or given twice; export the model again"
    ))
}

fn number(entries: &[StringStringEntryProto], key: &str) -> Result<Option<u64>> {
    let digits = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parse = |text: &str| {
        let value = Some(text).filter(digits).and_then(|text| text.parse().ok());
        value.ok_or_else(|| {
            let text = Name(text);
            ImportError::malformed(format!("its data's {key} is {text}, which is not a number; export the model again"))
        })
    };
    entry(entries, key)?.map(parse).transpose()
}

/// Returns the path that `location` names if it consists of ordinary names.
fn contained(location: &str) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for component in Path::new(location).components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    (!path.as_os_str().is_empty() && !location.contains('\0')).then_some(path)
}

/// Files in a model's directory that hold its tensors.
pub(super) struct ExternalFiles {
    directory: Directory,
    /// Constants of each region, of different types or sizes.
    regions: BTreeMap<Region, Vec<Constant>>,
    /// Opened files: several names may belong to one file.
    files: Vec<Opened>,
    /// Index in `files` of each name.
    names: BTreeMap<PathBuf, usize>,
    /// Index in `files` of each file.
    ids: BTreeMap<FileId, usize>,
    /// Bytes by which the regions of all files exceed twice the size of their files.
    excess: u64,
}

/// An opened file, and the sum of its regions' sizes.
struct Opened {
    file: Arc<ConstantFile>,
    taken: u64,
}

impl Opened {
    /// Bytes beyond twice the file's size if its regions take `taken` bytes.
    fn excess(&self, taken: u64) -> u64 {
        taken.saturating_sub(self.file.size().saturating_mul(2))
    }
}

impl ExternalFiles {
    pub(super) fn new(directory: Directory) -> Self {
        let (names, ids) = (BTreeMap::new(), BTreeMap::new());
        Self { directory, regions: BTreeMap::new(), files: Vec::new(), names, ids, excess: 0 }
    }

    /// Returns the constant of a region that was seen before: tied weights are kept once.
    pub(super) fn known(&self, region: &Region, spec: &TensorSpec) -> Option<Constant> {
        let mut same = self.regions.get(region)?.iter().filter(|known| known.dtype() == spec.dtype);
        same.find_map(|known| known.reshaped(spec.shape.clone()).ok())
    }

    /// Stores a region's constant for [`known`](Self::known).
    pub(super) fn keep(&mut self, region: Region, constant: Constant) {
        self.regions.entry(region).or_default().push(constant);
    }

    /// Returns the region's file, if the region lies within it.
    ///
    /// Regions may overlap, because several layers may share parts of weights. All regions of a file may take twice its
    /// size, and those of all files together `spare` bytes more.
    ///
    /// The size is that of the opened file: the same file is read even if its name changes afterwards.
    pub(super) fn open(&mut self, region: &Region, spare: u64) -> Result<Arc<ConstantFile>> {
        let place = self.place(region)?;
        let opened = &mut self.files[place];
        region.check(opened.file.size())?;
        let taken = opened.taken.saturating_add(region.length);
        let excess = self.excess.saturating_add(opened.excess(taken) - opened.excess(opened.taken));
        if excess > spare {
            return Err(ImportError::over(
                "sparse_bytes",
                format_args!(
                    "the tensors in {} overlap: they take {taken} bytes of a file of {}; the tensors of all files \
                     take {excess} bytes beyond twice the files' sizes, but only {spare} are allowed",
                    Name(&region.location()),
                    opened.file.size()
                ),
            ));
        }
        (opened.taken, self.excess) = (taken, excess);
        Ok(Arc::clone(&opened.file))
    }

    /// Returns the index of the region's file, and opens it if necessary.
    fn place(&mut self, region: &Region) -> Result<usize> {
        if let Some(place) = self.names.get(&region.path) {
            return Ok(*place);
        }
        let unreadable = |error| ImportError::io(error).of("its data's file", &region.location());
        let file = self.directory.open(&region.path)?;
        let id = file_id(&file.metadata().map_err(unreadable)?);
        let place = match id.and_then(|id| self.ids.get(&id)) {
            Some(place) => *place,
            None => {
                let file = Arc::new(ConstantFile::new(file, region.location()).map_err(unreadable)?);
                self.files.push(Opened { file, taken: 0 });
                self.files.len() - 1
            }
        };
        if let Some(id) = id {
            self.ids.insert(id, place);
        }
        self.names.insert(region.path.clone(), place);
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_kernels::{DType, Shape};

    fn parse(entries: &[(&str, &str)]) -> std::result::Result<Region, String> {
        let proto =
            |(key, value): &(&str, &str)| StringStringEntryProto { key: key.to_string(), value: value.to_string() };
        let entries: Vec<_> = entries.iter().map(proto).collect();
        Region::parse(&entries, 8).map(|(region, _)| region).map_err(|error| error.to_string())
    }

    #[test]
    fn only_plain_paths_within_the_directory_are_locations() {
        for location in
            ["../x", "a/../../x", "a/..", "..", "/etc/passwd", "/dev/zero", "/proc/self/environ", "", ".", "./", "a\0b"]
        {
            let error = parse(&[("location", location)]).expect_err(location);
            assert!(error.contains("outside the model's directory"), "{error}");
        }
        for (location, path) in [("w.bin", "w.bin"), ("./w.bin", "w.bin"), ("sub//w.bin", "sub/w.bin")] {
            assert_eq!(parse(&[("location", location)]).map(|region| region.path), Ok(PathBuf::from(path)));
        }
    }

    #[test]
    fn offsets_and_lengths_are_plain_numbers_given_once() {
        for (key, value) in
            [("offset", "-1"), ("offset", "+1"), ("offset", ""), ("length", "1e3"), ("length", "18446744073709551616")]
        {
            let error = parse(&[("location", "w"), (key, value)]).expect_err(value);
            assert!(error.contains(&format!("its data's {key} is")), "{error}");
        }
        assert!(parse(&[("location", "w"), ("location", "v")]).expect_err("twice").contains("`location`"));
        assert!(parse(&[("offset", "1")]).expect_err("none").contains("`location`"));
        let region = parse(&[("location", "w"), ("offset", "4"), ("checksum", "x")]).expect("plain");
        assert_eq!((region.offset, region.length), (4, 8));
    }

    #[test]
    fn regions_do_not_wrap() {
        let check = |offset, length, size| Region { path: "w".into(), offset, length }.check(size).is_ok();
        assert!(check(0, 10, 10) && check(10, 0, 10) && check(3, 7, 10));
        assert!(!check(0, 11, 10) && !check(11, 0, 10) && !check(4, 7, 10));
        assert!(!check(u64::MAX, 1, 10) && !check(1, u64::MAX, 10) && !check(u64::MAX, u64::MAX, u64::MAX));
    }

    #[test]
    fn equal_regions_are_kept_once_and_overlapping_ones_are_bounded() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(folder.path().join("w"), [1u8; 16]).expect("a small file");
        let mut files = ExternalFiles::new(Directory::new(folder.path()));
        let region = |offset| Region { path: "w".into(), offset, length: 12 };
        let file = files.open(&region(0), 8).expect("within the file");
        let spec = TensorSpec::new(DType::U8, Shape::new([12]).expect("small"));
        let kept = Constant::in_file(spec.clone(), file, 0, "w".into());
        files.keep(region(0), kept.clone());
        assert!(files.known(&region(0), &spec).is_some_and(|known| known.is_same(&kept)));
        let flat = TensorSpec::new(DType::U8, Shape::new([3, 4]).expect("small"));
        assert!(files.known(&region(0), &flat).is_some_and(|known| known.identity() == kept.identity()));
        assert!(files.known(&region(0), &TensorSpec { dtype: DType::I8, ..spec }).is_none(), "of another type");
        // The regions take 36 of 2 · 16 + 8 bytes.
        assert!(files.open(&region(4), 8).is_ok() && files.open(&region(3), 8).is_ok());
        let error = files.open(&region(2), 8).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("take 48 bytes of a file of 16"), "{error}");
    }

    #[test]
    fn overlaps_of_all_files_share_one_allowance_and_links_are_no_files_of_their_own() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        for name in ["v", "w"] {
            std::fs::write(folder.path().join(name), [1u8; 16]).expect("a small file");
        }
        std::fs::hard_link(folder.path().join("w"), folder.path().join("x")).expect("a link");
        let whole = |name: &str| Region { path: name.into(), offset: 0, length: 16 };
        let opened = |names: &[&str], spare| {
            let mut files = ExternalFiles::new(Directory::new(folder.path()));
            names.iter().all(|name| files.open(&whole(name), spare).is_ok())
        };
        assert!(opened(&["v", "v", "w", "w"], 0));
        assert!(opened(&["v", "v", "v", "w", "w"], 16) && !opened(&["v", "v", "v", "w", "w", "w"], 16));
        #[cfg(unix)]
        assert!(opened(&["w", "x"], 0) && !opened(&["w", "x", "w"], 0));
    }
}
