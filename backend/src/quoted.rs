//! Names of files, tensors and nodes as errors show them.

use std::fmt;

/// A name from a file, quoted, with what a terminal might act on escaped, cut to a readable length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name<'a>(pub(crate) &'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 120;
        match self.0.char_indices().nth(SHOWN) {
            None => write!(f, "`{}`", self.0.escape_debug()),
            Some((end, _)) => write!(f, "`{}…`", self.0[..end].escape_debug()),
        }
    }
}
