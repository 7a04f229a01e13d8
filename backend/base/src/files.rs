//! Files of users: reads regular files within bounds, and writes files whole or not at all.
//!
//! Content is written to a temporary file in the target's directory, which then replaces the target in one step.
//! Readers see the old content or the new one, even after a crash or on a full disk. A killed process may leave its
//! temporary file behind; the next writer of the same target removes it. A process that is asked to end calls
//! [`abandon`]. The writer holds a lock on its temporary file, so that other processes do not remove a file in use.

pub mod private;
mod resolved_path;

use crate::bytes::format_bytes;
use resolved_path::ResolvedPath;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Largest size of a file that people write and edit, in bytes; real files are far smaller.
pub const MOST_BYTES: u64 = 1 << 30;

/// Processes that can write to one path at the same time.
const WRITERS: u32 = 64;

/// Longest time to wait for another process that holds a directory.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
/// If the file cannot be read, is not a regular file (a pipe could block the reader, a device never ends) or is larger.
/// Memory is allocated only for a file that is small enough.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let length = file.metadata()?.len();
    let too_large =
        || io::Error::new(ErrorKind::FileTooLarge, format!("is larger than the {} that are read", format_bytes(most)));
    if length > most {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length as usize + 1)?;
    // The file may grow meanwhile.
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(too_large()) } else { Ok(bytes) }
}

/// Describes an error in JSON text with its line and column, in words that need no knowledge of the parser.
pub fn json_problem(error: &serde_json::Error) -> String {
    use serde_json::error::Category;
    let place = format!("line {}, column {}", error.line(), error.column());
    let text = error.to_string();
    let cause = text.rsplit_once(" at line ").map_or(&*text, |(cause, _)| cause);
    match error.classify() {
        Category::Eof => format!("its JSON is cut off at {place}"),
        Category::Syntax | Category::Io => format!("it is not JSON: {cause} at {place}"),
        Category::Data => match cause.split_once(", expected struct ") {
            Some((found, _)) => format!("{found} at {place}, but an object is expected"),
            None => format!("{cause} at {place}"),
        },
    }
}

/// Returns a text without the numbers that errors of the system end with (` (os error 2)`): the words say the same.
pub fn without_os_errors(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') => plain += rest,
            _ => plain.extend([" (os error ", part]),
        }
    }
    plain
}

/// Reads a file as [`read`] does, as text.
///
/// # Errors
/// As [`read`]; also if the file is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?).map_err(|_| io::Error::new(ErrorKind::InvalidData, "is not UTF-8 text"))
}

/// Opens a regular file to read.
///
/// # Errors
/// If the file cannot be opened or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let file = open_without_waiting(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(ErrorKind::InvalidInput, "is not a regular file")),
    }
}

/// Opens `path` for reading without waiting for a writer if it turns out to be a pipe.
fn open_without_waiting(path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    {
        use rustix::fs::{Mode, OFlags};
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
    }
    #[cfg(not(unix))]
    File::open(path)
}

/// Writes a file whole or not at all.
///
/// An existing file keeps its mode. Pipes and devices (`/dev/stdout`) are written to directly.
///
/// A link is followed if it belongs to this user or to root, and its target does not exist or was written by this
/// module. The link itself stays.
///
/// # Errors
/// If `emit` fails, a link must not be followed, the file is marked as read-only, or its directory or the disk is full
/// or not writable. An existing file is then unchanged.
pub fn write(path: &Path, emit: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let resolved = ResolvedPath::of(path)?;
    resolved.accept()?;
    write_at(&resolved, |out| emit(out).map(|()| None))
}

/// Writes a file as [`write()`] does, and follows links even if this module did not write the target.
///
/// The caller has read the file and knows its content.
pub fn write_known(path: &Path, emit: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    write_at(&ResolvedPath::of(path)?, |out| emit(out).map(|()| None))
}

/// Writes a file as [`write()`] does, with a modification time whose nanoseconds `emit` returns.
///
/// A later change moves that time. If the file system counts in larger steps, the nanoseconds are lost.
pub fn write_sealed(path: &Path, emit: impl FnOnce(&mut dyn Write) -> io::Result<u32>) -> io::Result<()> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let at = |nanoseconds| SystemTime::UNIX_EPOCH + Duration::new(since.as_secs(), nanoseconds);
    let resolved = ResolvedPath::of(path)?;
    resolved.accept()?;
    write_at(&resolved, |out| Ok(Some(at(emit(out)?))))
}

/// Writes to the end of a resolved path. `emit` may return the file's modification time.
fn write_at(
    resolved: &ResolvedPath,
    emit: impl FnOnce(&mut dyn Write) -> io::Result<Option<SystemTime>>,
) -> io::Result<()> {
    if resolved.is_stream() {
        return stream(resolved, |out| emit(out).map(drop));
    }
    let place = &resolved.end;
    let permissions = permissions(place)?;
    let part = Part::beside(place)?;
    if let Some(permissions) = permissions {
        part.file.set_permissions(permissions)?;
    }
    let mut writer = BufWriter::new(&part.file);
    let time = emit(&mut writer)?;
    writer.flush()?;
    drop(writer);
    resolved_path::mark(&part.file);
    if let Some(time) = time {
        part.file.set_modified(time)?;
    }
    part.file.sync_all()?;
    part.put(place)
}

/// Opens a file whose content the caller has read, or a new file, to append lines to it.
///
/// # Errors
/// If the file cannot be opened, or a link must not be followed ([`write()`]).
pub fn append(path: &Path) -> io::Result<File> {
    let resolved = ResolvedPath::of(path)?;
    let file = resolved.open()?;
    resolved_path::mark(&file);
    Ok(file)
}

/// Checks whether [`write()`] can begin: links, mode, and a new file in the directory, which is removed again.
///
/// # Errors
/// If a link must not be followed, the file is read-only, or its directory takes no new file.
pub fn may_write(path: &Path) -> io::Result<()> {
    let resolved = ResolvedPath::of(path)?;
    resolved.accept()?;
    if resolved.is_stream() {
        return Ok(());
    }
    permissions(&resolved.end)?;
    let refused =
        |error: io::Error| io::Error::new(error.kind(), format!("no file can be created in its directory: {error}"));
    Part::beside(&resolved.end).map(drop).map_err(refused)
}

/// Returns the permissions of the file that is to be replaced, if it exists and is this user's own.
///
/// A writable directory does not make its files one's own. Another user's file does not say who may write the new file.
fn permissions(place: &Path) -> io::Result<Option<fs::Permissions>> {
    match fs::symlink_metadata(place).map(|metadata| own_permissions(&metadata)) {
        Ok(permissions) if permissions.readonly() => {
            Err(io::Error::new(ErrorKind::PermissionDenied, "is marked as read-only"))
        }
        #[cfg(unix)]
        Ok(_) if rustix::fs::access(place, rustix::fs::Access::WRITE_OK).is_err() => {
            Err(io::Error::new(ErrorKind::PermissionDenied, "this user has no permission to write it"))
        }
        Ok(permissions) => Ok(Some(permissions)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn own_permissions(metadata: &fs::Metadata) -> fs::Permissions {
    let permissions = metadata.permissions();
    #[cfg(unix)]
    if !private::is_own(metadata) {
        use std::os::unix::fs::PermissionsExt;
        return fs::Permissions::from_mode(permissions.mode() & 0o755);
    }
    permissions
}

/// Writes to a pipe or device, without waiting for a reader.
fn stream(resolved: &ResolvedPath, emit: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut writer = BufWriter::new(resolved.open()?);
    emit(&mut writer)?;
    writer.flush()
}

/// Directory of a file.
fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Temporary files that this process is writing.
static PARTS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Removes the temporary files of unfinished writes, for a process that ends without waiting for them.
pub fn abandon() {
    parts().iter().for_each(|path| drop(fs::remove_file(path)));
}

/// Locks the set of temporary files. A thread holds it while it creates, moves or removes one of the files.
fn parts() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    PARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A temporary file, removed when dropped unless it has replaced its target.
struct Part {
    path: PathBuf,
    file: File,
    is_placed: bool,
}

impl Part {
    /// Creates a file next to `place`, under a name that says what the file is and which file it is for.
    fn beside(place: &Path) -> io::Result<Self> {
        let mut hasher = DefaultHasher::new();
        place.file_name().hash(&mut hasher);
        let name = hasher.finish();
        let named = |number: u32| directory(place).join(format!(".anabranch-{name:016x}-{number}.part"));
        (0..WRITERS).map(named).for_each(|path| remove_if_abandoned(&path));
        for path in (0..WRITERS).map(named) {
            let mut parts = parts();
            match new_file(place.exists()).open(&path) {
                Ok(file) if keeps(&file, &path) => {
                    parts.insert(path.clone());
                    return Ok(Self { path, file, is_placed: false });
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("too many processes write this file at the same time"))
    }

    fn put(mut self, place: &Path) -> io::Result<()> {
        let mut parts = parts();
        fs::rename(&self.path, place)?;
        parts.remove(&self.path);
        self.is_placed = true;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_placed {
            let mut parts = parts();
            let _ = fs::remove_file(&self.path);
            parts.remove(&self.path);
        }
    }
}

/// Options for opening a new file. If the file replaces another, only its owner can read it until it gets the other's
/// permissions.
fn new_file(replaces: bool) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if replaces {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    #[cfg(not(unix))]
    let _ = replaces;
    options
}

/// Locks a file that was just created; `false` if another process has meanwhile removed it as abandoned.
fn keeps(file: &File, path: &Path) -> bool {
    match file.try_lock() {
        Ok(()) => is_at(file, path),
        Err(TryLockError::WouldBlock) => false,
        // If there are no locks, other processes cannot remove the file either.
        Err(TryLockError::Error(_)) => true,
    }
}

/// Removes the file of a process that has ended, which shows in its free lock.
fn remove_if_abandoned(path: &Path) {
    let Ok(file) = open(path) else { return };
    if file.try_lock().is_ok() && is_at(&file, path) {
        let _ = fs::remove_file(path);
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let both = file.metadata().ok().zip(fs::symlink_metadata(path).ok());
    both.is_some_and(|(file, there)| resolved_path::is_same(&file, &there))
}

/// A lock on a directory, held by one process at a time, for changes that depend on the directory's content.
///
/// If the file system has no locks, nothing is held.
pub struct DirectoryLock {
    /// Locked until the file is closed.
    _directory: Option<File>,
}

impl DirectoryLock {
    /// Locks the directory of the file that `path` leads to.
    ///
    /// # Errors
    /// If the directory cannot be opened, or another process does not release it.
    pub fn beside(path: &Path) -> io::Result<Self> {
        let directory = File::open(directory(&ResolvedPath::of(path)?.end))?;
        let since = Instant::now();
        loop {
            match directory.try_lock() {
                Ok(()) => return Ok(Self { _directory: Some(directory) }),
                Err(TryLockError::Error(_)) => return Ok(Self { _directory: None }),
                Err(TryLockError::WouldBlock) if since.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(2)),
                Err(TryLockError::WouldBlock) => {
                    return Err(io::Error::new(ErrorKind::TimedOut, "another process keeps its directory locked"));
                }
            }
        }
    }
}

/// Creates the directory of a file, if it does not exist.
///
/// # Errors
/// If the directory cannot be created.
pub fn make_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(directory(&ResolvedPath::of(path)?.end))
}

/// Creates the directory of a file whose content the caller has read, and checks that the file can be written there.
///
/// # Errors
/// If the directory cannot be created or the file cannot be written.
pub fn ready(path: &Path) -> io::Result<()> {
    make_directory(path)?;
    let place = ResolvedPath::of(path)?.end;
    permissions(&place)?;
    Part::beside(&place).map(drop)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("file");
        (folder, path)
    }

    fn write_text(path: &Path, text: &str) -> io::Result<()> {
        write(path, |file| file.write_all(text.as_bytes()))
    }

    fn names(folder: &tempfile::TempDir) -> Vec<String> {
        let entries = fs::read_dir(folder.path()).expect("a directory").flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_written_whole_or_not_at_all() {
        let (folder, path) = folder();
        write_text(&path, "first").expect("writable");
        let failed = write(&path, |file| {
            file.write_all(&[b'x'; 1 << 17])?;
            Err(io::Error::other("the disk is full"))
        });
        assert!(failed.is_err());
        assert_eq!(read_text(&path, 9).expect("there"), "first");
        write_text(&path, "second").expect("writable");
        assert_eq!(read_text(&path, 9).expect("there"), "second");
        assert_eq!(names(&folder), ["file"], "nothing is left beside it");
    }

    #[test]
    fn modes_and_links_stay() {
        let (folder, path) = folder();
        let (link, to_nowhere) = (folder.path().join("link"), folder.path().join("to_nowhere"));
        write_text(&path, "first").expect("writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its owner may");
        symlink("file", &link).expect("a link");
        write_text(&link, "second").expect("its own link to its own file");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(read_text(&path, 9).expect("there"), "second");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        symlink("new", &to_nowhere).expect("a link");
        write_text(&to_nowhere, "third").expect("writable");
        assert_eq!(read_text(&folder.path().join("new"), 9).expect("made"), "third");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).expect("its owner may");
        assert_eq!(write_text(&path, "fourth").expect_err("read-only").kind(), ErrorKind::PermissionDenied);
        assert_eq!(read_text(&path, 9).expect("there"), "second");
    }

    #[test]
    fn files_in_memory_are_files_and_what_a_shell_opened_is_added_to() {
        if !Path::new("/dev/shm").is_dir() {
            return;
        }
        let folder = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
        let path = folder.path().join("file");
        for text in ["a longer text", "short"] {
            write_text(&path, text).expect("writable");
            assert_eq!(read_text(&path, 99).expect("there"), text);
        }
        let opened = File::options().append(true).open(&path).expect("writable");
        let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&opened));
        write_text(Path::new(&own), " and more").expect("writable");
        assert_eq!(read_text(&path, 99).expect("there"), "short and more");
    }

    #[test]
    fn only_files_within_the_bound_are_read_and_nothing_is_waited_for() {
        let (folder, path) = folder();
        write_text(&path, "123456789").expect("writable");
        assert_eq!(read(&path, 9).expect("small enough"), b"123456789");
        assert_eq!(read(&path, 8).expect_err("too large").kind(), ErrorKind::FileTooLarge);
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        for path in [&pipe, Path::new("/dev/zero"), folder.path()] {
            let error = read(path, 9).expect_err("no file");
            assert_eq!(error.to_string(), "is not a regular file", "{}", path.display());
        }
        assert!(write_text(&pipe, "nobody reads").is_err());
        write_text(Path::new("/dev/null"), "gone").expect("a device takes it");
        assert!(write_text(folder.path(), "a directory").is_err());
        assert!(write_text(Path::new("/dev/full"), "no room").is_err());
    }

    #[test]
    fn what_killed_processes_left_is_removed_and_what_is_in_use_stays() {
        let (folder, path) = folder();
        let in_use = Part::beside(&path).expect("makeable");
        let left = Part::beside(&path).expect("makeable");
        let left_path = left.path.clone();
        drop(left);
        fs::write(&left_path, "half").expect("as a killed process leaves it");
        write_text(&path, "whole").expect("writable");
        assert!(in_use.path.exists() && !left_path.exists());
        drop(in_use);
        // The number before it is free again.
        fs::write(&left_path, "half").expect("as a killed process leaves it");
        write_text(&path, "whole").expect("writable");
        assert_eq!(names(&folder), ["file"]);
    }

    #[test]
    fn numbers_of_system_errors_are_left_out_and_nothing_else() {
        let missing = io::Error::from_raw_os_error(2).to_string();
        assert!(missing.contains("(os error 2)"));
        assert_eq!(without_os_errors(&format!("a: {missing}; b")), "a: No such file or directory; b");
        for text in ["", "a (b)", "a (os error two)", "a (os error 2"] {
            assert_eq!(without_os_errors(text), text);
        }
    }

    #[test]
    fn a_directory_is_held_by_one_at_a_time() {
        let (_folder, path) = folder();
        let count = std::sync::atomic::AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let _held = DirectoryLock::beside(&path).expect("a directory");
                    let before = fs::read_to_string(&path).map_or(0, |text| text.parse::<u32>().expect("a number"));
                    write_text(&path, &(before + 1).to_string()).expect("writable");
                    count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                });
            }
        });
        assert_eq!((count.into_inner(), read_text(&path, 9).expect("there").as_str()), (8, "8"));
    }
}
