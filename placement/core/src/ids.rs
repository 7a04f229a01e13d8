//! Methods that all ids share.

macro_rules! id {
    ($type:ident, $word:literal) => {
        impl $type {
            /// Returns the position as an index.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(formatter, concat!($word, " {}"), self.0)
            }
        }
    };
}

pub(crate) use id;
