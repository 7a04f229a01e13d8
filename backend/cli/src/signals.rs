//! Turns a limit of file sizes (`ulimit -f`) into an error of the write, as for a full disk. By default a signal would
//! end the process, and leave a half-written file next to its target.

/// Ignores that signal, also in child processes.
pub(crate) fn without_file_size() {
    #[cfg(unix)]
    // SAFETY: the signal is ignored, so no handler runs.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}
