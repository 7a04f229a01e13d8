//! How much a model file may ask for before it is refused.

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Budgets that are checked before memory is spent on a file. The defaults admit every model that we know of;
/// raise one if a file that you trust exceeds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the model file itself. Default 2 GiB, the most that protobuf's own writers can make; larger models
    /// keep their weights in files beside it.
    pub file_bytes: u64,
    /// Bytes of memory that the decoded structure (everything but tensor data) may take. Default 256 MiB, which is
    /// more than 200 000 nodes with names and attributes. As much again may calls of the model's own functions add.
    pub structure_bytes: u64,
    /// Fields of the file, whether used or not: bounds the time to read it. Default 16 Mi.
    pub fields: u64,
    /// Nodes, those of subgraphs included; as many again may calls of the model's own functions add. Default 1 000 000.
    pub nodes: u64,
    /// Messages within messages, 512 at most; a subgraph within a subgraph takes three. Default 64.
    pub depth: usize,
    /// Bytes of one name. Default 64 KiB.
    pub name_bytes: u64,
    /// Bytes of all tensors together as the files hold them. Default 64 GiB.
    pub tensor_bytes: u64,
    /// Bytes of all sparse tensors once they are dense, which a file of a few bytes can ask for. Default 256 MiB.
    pub sparse_bytes: u64,
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
        }
    }
}
