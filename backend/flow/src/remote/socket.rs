//! Sockets without names, which one process hands to another. Only Linux has been tried; elsewhere a run has one
//! process.

#[cfg(target_os = "linux")]
pub(crate) use std::os::unix::net::UnixStream;

#[cfg(not(target_os = "linux"))]
pub(crate) use none::UnixStream;

#[cfg(not(target_os = "linux"))]
mod none {
    use std::io::{self, Read, Write};
    use std::net::Shutdown;
    use std::time::Duration;

    /// A socket of a system that has none.
    #[derive(Debug)]
    pub(crate) enum UnixStream {}

    impl UnixStream {
        pub(crate) fn pair() -> io::Result<(Self, Self)> {
            Err(io::Error::new(io::ErrorKind::Unsupported, "processes can pass sockets only on Linux"))
        }

        pub(crate) fn set_read_timeout(&self, _: Option<Duration>) -> io::Result<()> {
            match *self {}
        }

        pub(crate) fn set_write_timeout(&self, _: Option<Duration>) -> io::Result<()> {
            match *self {}
        }

        pub(crate) fn shutdown(&self, _: Shutdown) -> io::Result<()> {
            match *self {}
        }
    }

    impl Read for &UnixStream {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            match **self {}
        }
    }

    impl Write for &UnixStream {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            match **self {}
        }

        fn flush(&mut self) -> io::Result<()> {
            match **self {}
        }
    }
}
