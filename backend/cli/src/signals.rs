//! A limit of file sizes (`ulimit -f`) is told by the write that fails, as a full disk is: by default a signal would end the process, with a
//! file half written beside the one it was for.

/// Ignores that signal, also in what this process starts.
pub(crate) fn without_file_size() {
    #[cfg(unix)]
    // SAFETY: the signal is ignored, so no handler runs.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}
