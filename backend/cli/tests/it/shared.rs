//! Directories that other users can write to: their links are not followed and their files are not trusted.

use crate::command::{Anabranch, bundled};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// User id of another user than the caller.
const OTHER: u32 = 65534;

/// Runs a program as the other user, if this user may. Otherwise prints a note.
fn as_other(program: &str, arguments: &[&str], directory: &Path) -> bool {
    if fs::metadata("/proc/self").is_ok_and(|own| own.uid() != 0) {
        eprintln!("not tried: only root can act as another user");
        return false;
    }
    let mut command = Command::new(program);
    let status = command.args(arguments).current_dir(directory).uid(OTHER).gid(OTHER).status();
    assert!(status.expect("it starts").success(), "{program} {arguments:?}");
    true
}

/// Makes a directory that everyone can write to, next to a model of this user.
fn shared() -> (Anabranch, String) {
    let command = Anabranch::new();
    fs::set_permissions(command.directory.path(), fs::Permissions::from_mode(0o755)).expect("its own");
    fs::create_dir(command.path("shared")).expect("writable");
    fs::set_permissions(command.path("shared"), fs::Permissions::from_mode(0o777)).expect("its own");
    fs::write(command.path("mine.onnx"), "my model").expect("writable");
    (command, bundled("mlp.onnx"))
}

/// Returns commands that each write another kind of file, with the name of the file.
fn writers(model: &str) -> Vec<(Vec<&str>, &'static str)> {
    let run = ["run", model, "--dim", "batch=1", "--no-gpu", "--random", "1", "--repeat", "1", "--no-learn"];
    let with = |option| [&run[..], &[option]].concat();
    let compile = vec!["compile", model, "--dim", "batch=1", "--no-gpu", "--random", "1", "-o"];
    let place = vec!["place", model, "--dim", "batch=1", "--no-gpu", "--random", "1", "-o"];
    vec![
        (with("--report"), "report.html"),
        (with("--trace"), "trace.json"),
        (with("--output"), "out.npz"),
        (compile, "model.anabranch"),
        (place, "plan.json"),
    ]
}

#[test]
fn no_link_leads_a_writer_onto_a_file_of_others_making() {
    let (command, model) = shared();
    let mine = || assert_eq!(command.read("mine.onnx"), "my model");
    for (arguments, name) in writers(&model) {
        let link = format!("shared/{name}");
        let write = [&arguments[..], &[&link]].concat();
        // The user's own link, as an unpacked archive may hold it.
        symlink("../mine.onnx", command.path(&link)).expect("a link");
        command.refuses(&write, &["mine.onnx", "did not write", "name that file itself"]);
        mine();
        fs::remove_file(command.path(&link)).expect("its own");
        if as_other("ln", &["-s", "../mine.onnx", name], &command.path("shared")) {
            command.refuses(&write, &[name, "another user", "65534"]);
            mine();
            fs::remove_file(command.path(&link)).expect("its own directory");
        }
    }
    symlink("../mine.onnx", command.path("shared/sweep.csv")).expect("a link");
    command.refuses(&["sweep", "graph.csv", "-o", "shared/sweep.csv"], &["mine.onnx", "did not write"]);
    mine();
}

#[test]
fn ones_own_link_leads_to_a_new_file_and_to_an_earlier_one() {
    let (command, model) = shared();
    let (arguments, _) = &writers(&model)[0];
    symlink("kept.html", command.path("report.html")).expect("a link");
    for _ in 0..2 {
        command.text(&[&arguments[..], &["report.html"]].concat());
    }
    assert!(fs::symlink_metadata(command.path("report.html")).expect("there").is_symlink());
    assert!(command.read("kept.html").contains("<html"));
    // A stream is written directly, also by the user's own link.
    symlink("/dev/stdout", command.path("out.json")).expect("a link");
    let trace = [&writers(&model)[1].0[..], &["out.json"]].concat();
    assert!(command.text(&trace).contains("traceEvents"));
    // Another user's link to a directory may only lead to new files.
    if as_other("ln", &["-s", "..", "up"], &command.path("shared")) {
        command.text(&[&arguments[..], &["shared/up/new.html"]].concat());
        fs::write(command.path("old.html"), "mine").expect("writable");
        command.refuses(&[&arguments[..], &["shared/up/old.html"]].concat(), &["old.html", "did not write"]);
        assert_eq!(command.read("old.html"), "mine");
    }
}

#[test]
fn another_users_file_does_not_say_who_may_write_the_new_one() {
    let (command, model) = shared();
    if !as_other("sh", &["-c", "echo planted > report.html && chmod 666 report.html"], &command.path("shared")) {
        return;
    }
    let (arguments, _) = &writers(&model)[0];
    command.text(&[&arguments[..], &["shared/report.html"]].concat());
    let facts = fs::metadata(command.path("shared/report.html")).expect("written");
    assert_eq!((facts.uid(), facts.mode() & 0o022), (0, 0));
}

#[test]
fn another_users_pipe_is_not_written_to() {
    let (command, model) = shared();
    if as_other("mkfifo", &["-m", "666", "report.html"], &command.path("shared")) {
        let write = [&writers(&model)[0].0[..], &["shared/report.html"]].concat();
        command.refuses(&write, &["report.html", "a pipe of another user", "65534"]);
    }
}

#[test]
fn a_cache_is_private_and_believes_nothing_that_another_wrote() {
    let (command, model) = shared();
    let once =
        ["run", &model, "--dim", "batch=1", "--no-gpu", "--random", "1", "--repeat", "1", "--no-learn", "--cache"];
    let refused = |cache: &str, part: &str| command.refuses(&[&once[..], &[cache]].concat(), &["--cache", part]);
    let run = |cache: &str| {
        let output = command.run(&[&once[..], &[cache]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        said
    };
    assert!(run("kept").contains("wrote") && run("kept").contains("opened from"));
    let folder = command.path("kept");
    assert_eq!(fs::metadata(&folder).expect("made").mode() & 0o777, 0o700);
    let kept: Vec<_> = fs::read_dir(&folder).expect("there").flatten().map(|entry| entry.path()).collect();
    // A file that fits by its name, but was compiled from another model.
    let other = ["compile", &bundled("fire.onnx"), "--no-gpu", "--random", "1", "-o", "other.anabranch"];
    command.text(&other);
    fs::copy(command.path("other.anabranch"), &kept[0]).expect("its own");
    let said = run("kept");
    assert!(said.contains("another model") && said.contains("wrote"), "{said}");
    // A link in the cache is replaced, and its target stays.
    fs::remove_file(&kept[0]).and_then(|()| symlink(command.path("mine.onnx"), &kept[0])).expect("its own");
    assert!(run("kept").contains("wrote"));
    assert_eq!(command.read("mine.onnx"), "my model");
    symlink("kept", command.path("link")).expect("a link");
    refused("link", "is a link");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).expect("its own");
    refused("kept", "mode 700");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("its own");
    // A directory of one's own that others can exchange.
    refused("shared/kept", "which others may write to (mode 777)");
    assert!(!command.path("shared/kept").exists());
    // Another user's directory, with this user's cached model in it, or a planted one.
    if as_other("sh", &["-c", "mkdir -m 700 theirs"], &command.path("shared")) {
        fs::copy(&kept[0], command.path("shared/theirs").join(kept[0].file_name().expect("a name"))).expect("root may");
        refused("shared/theirs", "another user (uid 65534)");
        std::os::unix::fs::lchown(&kept[0], Some(OTHER), Some(OTHER)).expect("root may");
        assert!(run("kept").contains("wrote"), "another user's file is not believed");
    }
}
