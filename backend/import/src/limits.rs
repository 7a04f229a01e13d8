//! Limits on the resources that a model file may require before it is rejected.

use anabranch_base::bytes::parse_bytes;
use std::str::FromStr;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Limits that are checked before memory is allocated for a file. The defaults admit every known model; raise a limit
/// if a file that you trust exceeds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the model file itself. Default 2 GiB, the most that protobuf's own writers can make; larger models keep
    /// their weights in further files.
    pub file_bytes: u64,
    /// Bytes of memory for the decoded structure (everything except tensor data). Default 256 MiB, which is enough for
    /// more than 200 000 nodes with names and attributes. Calls of the model's own functions may add as much again.
    pub structure_bytes: u64,
    /// Number of fields of the file, used or not: bounds the time to read it. Default 16 Mi.
    pub fields: u64,
    /// Number of nodes, including those of subgraphs; calls of the model's own functions may add as many again. Default
    /// 1 000 000.
    pub nodes: u64,
    /// Nesting depth of messages, at most 512; a subgraph within a subgraph takes three levels. Default 64.
    pub depth: usize,
    /// Bytes of one name. Default 64 KiB.
    pub name_bytes: u64,
    /// Bytes of all tensors together, as stored in the files. Default 64 GiB.
    pub tensor_bytes: u64,
    /// Bytes of all sparse tensors once they are dense, which a file of a few bytes can require.
    ///
    /// An equal number of bytes limits overlapping tensors in further files: the sum over these files of the bytes by
    /// which a file's tensors exceed twice its size. Default 256 MiB.
    pub sparse_bytes: u64,
    /// Bytes that computing constants ahead of a run may add, beyond the bytes of the model's own constants. Default
    /// 256 MiB.
    pub folded_bytes: u64,
}

/// Error of an unknown limit, or of an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("limit `{name}` = `{value}`: {why}")]
pub struct LimitError {
    name: String,
    value: String,
    why: String,
}

impl Limits {
    /// Names of the limits that [`Self::set`] accepts: the fields of this type.
    pub const NAMES: [&str; 9] = [
        "file_bytes",
        "structure_bytes",
        "fields",
        "nodes",
        "depth",
        "name_bytes",
        "tensor_bytes",
        "sparse_bytes",
        "folded_bytes",
    ];

    /// Sets the limit of this name: a count, or bytes with an optional unit.
    ///
    /// ```
    /// # mod anabranch { pub mod import { pub use anabranch_import::*; } }
    /// use anabranch::import::Limits;
    /// let mut limits = Limits::default();
    /// limits.set("nodes", "2000000")?;
    /// limits.set("tensor_bytes", "128GiB")?;
    /// assert_eq!((limits.nodes, limits.tensor_bytes), (2_000_000, 128 << 30));
    /// # Ok::<(), anabranch::import::LimitError>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such limit, or the value is invalid.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), LimitError> {
        self.apply(name, value).map_err(|why| LimitError { name: name.to_owned(), value: value.to_owned(), why })
    }

    fn apply(&mut self, name: &str, value: &str) -> Result<(), String> {
        let bytes = || parse_bytes(value).map_err(|error| error.to_string());
        match name {
            "file_bytes" => self.file_bytes = bytes()?,
            "structure_bytes" => self.structure_bytes = bytes()?,
            "fields" => self.fields = count(value)?,
            "nodes" => self.nodes = count(value)?,
            "depth" => self.depth = count(value)?,
            "name_bytes" => self.name_bytes = bytes()?,
            "tensor_bytes" => self.tensor_bytes = bytes()?,
            "sparse_bytes" => self.sparse_bytes = bytes()?,
            "folded_bytes" => self.folded_bytes = bytes()?,
            _ => return Err(format!("there is no such limit; the limits are {}", Self::NAMES.join(", "))),
        }
        Ok(())
    }
}

fn count<T: FromStr>(value: &str) -> Result<T, String> {
    value.trim().parse().map_err(|_| "write a number, such as 2000000".to_owned())
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes: 2 * GIB,
            structure_bytes: 256 * MIB,
            fields: 16 * MIB,
            nodes: 1_000_000,
            depth: 64,
            name_bytes: 64 << 10,
            tensor_bytes: 64 * GIB,
            sparse_bytes: 256 * MIB,
            folded_bytes: 256 * MIB,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_set_by_its_name() {
        let mut limits = Limits::default();
        for name in Limits::NAMES {
            let before = limits;
            limits.set(name, "123").expect(name);
            assert_ne!(limits, before, "{name}");
            limits.set(name, "-1").expect_err(name);
        }
        assert_eq!((limits.depth, limits.fields, limits.folded_bytes), (123, 123, 123));
        let error = limits.set("field", "1").expect_err("none").to_string();
        assert!(
            error.starts_with("limit `field` = `1`: there is no such limit; the limits are file_bytes, "),
            "{error}"
        );
    }
}
