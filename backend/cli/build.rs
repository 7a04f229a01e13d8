//! Sets the commit and the versions of device libraries, which the command prints with its version.

use std::fs;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-env=ANABRANCH_COMMIT={}", commit());
    let lock = Path::new("../../Cargo.lock");
    if lock.exists() {
        println!("cargo:rerun-if-changed={}", lock.display());
    }
    let locked = fs::read_to_string(lock).unwrap_or_default();
    for (crate_name, variable) in [("wgpu", "ANABRANCH_WGPU"), ("hwloc2", "ANABRANCH_HWLOC")] {
        println!("cargo:rustc-env={variable}={}", locked_version(&locked, crate_name).unwrap_or("of unknown version"));
    }
}

/// Returns the commit of a release. Other builds do not look, so that they need not be linked again after each commit.
fn commit() -> String {
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        return "development build".into();
    }
    let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) else { return "not from a repository".into() };
    println!("cargo:rerun-if-changed={log}");
    git(&["describe", "--always", "--dirty"]).unwrap_or_else(|| "unknown commit".into())
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn locked_version<'a>(lock: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    Some(after.split_once('"')?.0)
}
