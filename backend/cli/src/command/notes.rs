//! Notes of the inventory, each with the flag that helps.

use anabranch::device::Inventory;

/// The notes as the command prints them.
pub(super) fn notes(inventory: &Inventory) -> Vec<String> {
    inventory.notes.iter().map(|note| with_flag(note)).collect()
}

fn with_flag(note: &str) -> String {
    let flag = match note {
        _ if note.contains("--") => return note.to_owned(),
        _ if note.contains("software adapter") => "--software-gpu",
        _ if note.contains("memory is not known") => "--memory DEVICE=BYTES",
        _ => return note.to_owned(),
    };
    format!("{note}: {flag}")
}
