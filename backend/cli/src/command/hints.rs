//! Hints with flags, for errors of the library, which does not know the flags, and for notes of the inventory.

use anabranch::device::Inventory;
use anabranch::session::{ErrorKind, SessionError};
use std::fmt::Display;

/// Returns a hint for the command line after an error of the library.
pub(super) fn hint(error: &SessionError) -> Option<String> {
    if let Some(limit) = error.limit() {
        return Some(raised(limit));
    }
    Some(match error.kind() {
        ErrorKind::NoGpu => "`anabranch devices` shows why; --software-gpu uses a software adapter".to_owned(),
        ErrorKind::Memory => {
            let device = error.device().unwrap_or("DEVICE");
            let staged =
                if device.starts_with("gpu") { ", or --weights staged to send its weights in each run" } else { "" };
            format!("--memory {device}=BYTES{staged}")
        }
        ErrorKind::Infeasible => "check --memory DEVICE=BYTES, --pin and --colocate".to_owned(),
        ErrorKind::MissingInput => format!("--input {}=FILE.npy, or --random SEED", error.input().unwrap_or("NAME")),
        ErrorKind::Dimension => dimension(error.missing_size()?, "N"),
        ErrorKind::PlatformFile => "`anabranch platform -o FILE` writes one to start from".to_owned(),
        ErrorKind::Constraint => "`anabranch place` lists the nodes, `anabranch devices` the devices".to_owned(),
        _ => return None,
    })
}

/// Returns the flag that raises a limit of models.
pub(super) fn raised(limit: &str) -> String {
    format!("--limit {limit}=N")
}

/// Returns the flag that sets the size of a dimension, quoted for a shell.
pub(super) fn dimension(name: &str, size: impl Display) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-.:/,@%+".contains(c);
    match name.chars().all(plain) {
        true => format!("--dim {name}={size}"),
        false => format!("--dim '{}={size}'", name.replace('\'', r"'\''")),
    }
}

/// Returns the notes as the command prints them.
pub(super) fn notes(inventory: &Inventory) -> Vec<String> {
    inventory.notes.iter().map(|note| with_flag(note)).collect()
}

/// Whether a note gives the reason why there is no GPU.
pub(super) fn is_absence(note: &str) -> bool {
    note.starts_with("no GPU:")
}

fn with_flag(note: &str) -> String {
    let flag = match note {
        _ if note.contains("software adapter") => "--software-gpu",
        _ if note.contains("memory is not known") => "--memory DEVICE=BYTES",
        _ => return note.to_owned(),
    };
    format!("{note}: {flag}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_flags_that_a_shell_takes() {
        assert_eq!(dimension("batch", 4), "--dim batch=4");
        assert_eq!(dimension("x[1]", 576), "--dim 'x[1]=576'");
        assert_eq!(dimension("past + 1", "N"), "--dim 'past + 1=N'");
        assert_eq!(dimension("a'b", 1), r"--dim 'a'\''b=1'");
    }
}
