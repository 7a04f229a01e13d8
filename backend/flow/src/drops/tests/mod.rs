//! Runs of drops: a run leaves the same files as a run from nothing, regardless of earlier files.

use super::{DropState, Naming, Outcome, PreparedRecipe, Reason, Recipe};
use crate::{FlowOptions, WorkerConfig};
use anabranch_base::cancel::CancelToken;
use anabranch_placement::logical::parse_template;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

fn recipe(drops: &[Value]) -> Recipe {
    let graph = parse_template(Value::from(drops).to_string().as_bytes()).unwrap();
    Recipe::new(&graph, &Naming::of("test")).unwrap()
}

fn file(id: &str) -> Value {
    json!({"oid": id, "categoryType": "Data", "category": "File", "filepath": id})
}

fn memory(id: &str) -> Value {
    json!({"oid": id, "categoryType": "Data", "category": "Memory"})
}

fn shell(id: &str, command: &str, inputs: &[&str], outputs: &[&str]) -> Value {
    json!({"oid": id, "categoryType": "Application", "category": "BashShellApp", "command": command, "inputs": inputs, "outputs": outputs})
}

fn copy(id: &str, inputs: &[String], outputs: &[String]) -> Value {
    let class = "dlg.apps.simple.CopyApp";
    json!({"oid": id, "categoryType": "Application", "category": "PythonApp", "dropclass": class, "inputs": inputs, "outputs": outputs})
}

fn run(drops: &[Value], directory: &Path) -> Outcome {
    let (recipe, token) = (recipe(drops), CancelToken::new());
    let prepared = PreparedRecipe::new(&recipe, directory, false, &token).unwrap();
    let options = FlowOptions::default().with_workers(WorkerConfig::of(2).unwrap());
    prepared.run(&token, &|_| (), |_| Ok::<_, super::DropsError>(options)).unwrap()
}

fn due(drops: &[Value], directory: &Path) -> Vec<Reason> {
    let recipe = recipe(drops);
    let prepared = PreparedRecipe::new(&recipe, directory, false, &CancelToken::new()).unwrap();
    prepared.due().map(|(_, reason)| reason.clone()).collect()
}

fn state(outcome: &Outcome, id: &str) -> DropState {
    outcome.drops.iter().find(|drop| drop.id == id).expect("a drop").state
}

fn text(directory: &Path, file: &str) -> String {
    fs::read_to_string(directory.join(file)).unwrap()
}

/// Returns `a` → `first` → memory `m` → `second` → `b`.
fn through_memory() -> [Value; 5] {
    [
        file("a"),
        shell("first", "tr a-z A-Z < %i0 > %o0; echo x >> ran", &["a"], &["m"]),
        memory("m"),
        shell("second", "cat %i0 > %o0; test -s %i0", &["m"], &["b"]),
        file("b"),
    ]
}

#[test]
fn memory_that_is_needed_is_made_again_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (path, drops) = (folder.path(), through_memory());
    fs::write(path.join("a"), "words").unwrap();
    let outcome = run(&drops, path);
    assert_eq!((outcome.ran(), outcome.kept(), text(path, "b")), (2, 0, "WORDS".to_owned()));
    assert_eq!(run(&drops, path).kept(), 2);
    fs::remove_file(path.join("b")).unwrap();
    assert_eq!(due(&drops, path), [Reason::Needed("second second".to_owned()), Reason::Missing("b b".to_owned())]);
    assert_eq!((run(&drops, path).ran(), text(path, "b")), (2, "WORDS".to_owned()));
    assert_eq!(text(path, "ran").lines().count(), 2);
    // Nothing is left but the files that the graph names.
    let mut left: Vec<_> =
        fs::read_dir(path).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, ["a", "b", "ran", "test.drops.json"]);
}

#[test]
fn every_change_has_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let chain = |command: &str| {
        let second = shell("second", "cat %i0 > %o0", &["b"], &["c"]);
        [file("a"), shell("first", command, &["a"], &["b"]), file("b"), second, file("c")]
    };
    let drops = chain("cat %i0 > %o0");
    let after = || Reason::After("first first".to_owned());
    assert_eq!(due(&drops, path), [Reason::New, Reason::New]);
    let outcome = run(&drops, path);
    assert_eq!((outcome.ran(), outcome.failures()[0].dependent_count), (0, 4));
    assert!(outcome.failures()[0].why.contains("there is no file `a`"), "{:?}", outcome.failures());
    assert_eq!((state(&outcome, "a"), state(&outcome, "c")), (DropState::Error, DropState::Skipped));
    fs::write(path.join("a"), "1").unwrap();
    assert_eq!(run(&drops, path).ran(), 2);
    assert_eq!(due(&drops, path), []);
    fs::write(path.join("b"), "other").unwrap();
    assert_eq!(due(&drops, path), [Reason::Changed("b b".to_owned()), Reason::Inputs]);
    // The output is unchanged, so its reader is skipped.
    let outcome = run(&drops, path);
    assert_eq!((outcome.ran(), outcome.kept()), (1, 1));
    fs::write(path.join("a"), "2").unwrap();
    assert_eq!(due(&drops, path), [Reason::Inputs, after()]);
    assert_eq!((run(&drops, path).ran(), text(path, "c")), (2, "2".to_owned()));
    assert_eq!(due(&chain("cat < %i0 > %o0"), path), [Reason::Command, after()]);
    fs::remove_file(path.join("a")).unwrap();
    assert_eq!(due(&drops, path), [Reason::Missing("a a".to_owned()), after()]);
}

#[test]
fn what_another_command_made_is_not_kept_though_a_run_between_did_not_reach_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let drops = |command: &str| [file("a"), shell("first", command, &["a"], &["b"]), file("b")];
    let (one, other) = (drops("cat %i0 > %o0"), drops("cat < %i0 > %o0"));
    fs::write(path.join("a"), "1").unwrap();
    assert_eq!((run(&one, path).ran(), due(&one, path)), (1, vec![]));
    fs::remove_file(path.join("a")).unwrap();
    assert_eq!(run(&other, path).ran(), 0);
    fs::write(path.join("a"), "1").unwrap();
    assert_eq!(due(&one, path), [Reason::New]);
}

#[test]
fn no_link_leads_an_output_out_of_the_directory() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = folder.path().canonicalize().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), path.join("sub")).unwrap();
    fs::write(elsewhere.path().join("x"), "precious").unwrap();
    let at = |file: &str| json!({"oid": "x", "categoryType": "Data", "category": "File", "filepath": file});
    for file in ["sub/x", "sub/new/x"] {
        let outcome = run(&[shell("a", "echo made > %o0", &[], &["x"]), at(file)], &path);
        let why = &outcome.failures()[0].why;
        assert!(why.contains("symbolic link") && why.contains("--outside"), "{why}");
    }
    assert_eq!(
        (text(elsewhere.path(), "x").as_str(), fs::read_dir(elsewhere.path()).unwrap().count()),
        ("precious", 1)
    );
    let naming = Naming::of("test").with_outside(true);
    assert!(naming.refuse_outside(&path, &path.join("sub/x")).is_ok());
    // Inputs may be links. An absolute path must not be another name of a file in the directory.
    assert_eq!(run(&[at("sub/x"), shell("a", "grep -q precious %i0", &["x"], &[])], &path).ran(), 1);
    let inside = path.join("new/x").display().to_string();
    let graph = parse_template(json!([at(&inside)]).to_string().as_bytes()).unwrap();
    let recipe = Recipe::new(&graph, &naming).unwrap();
    let error = PreparedRecipe::new(&recipe, &path, false, &CancelToken::new()).unwrap_err().to_string();
    assert!(error.contains("write it relative to the directory"), "{error}");
}

#[test]
fn commands_that_do_not_write_or_write_too_little_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let drops = [
        shell("forgets", "true", &[], &["x"]),
        file("x"),
        shell("breaks", "echo half > %o0; exit 4", &[], &["y"]),
        file("y"),
        shell("orders", "true", &[], &["m"]),
        memory("m"),
        shell("reads", "wc -c < %i0 > %o0", &["m"], &["z"]),
        file("z"),
        shell("folds", "mkdir %o0", &[], &["folder"]),
        file("folder"),
    ];
    let outcome = run(&drops, path);
    let why: Vec<&str> = outcome.failures().iter().map(|failed| failed.why.as_str()).collect();
    assert!(why[0].contains("did not write") && why[1].contains("exit status: 4"), "{why:?}");
    assert!(why[2].contains("which is not a regular file") && path.join("folder").is_dir(), "{why:?}");
    assert!(!path.join("y").exists(), "what is left of a failure is removed");
    assert_eq!((state(&outcome, "y"), text(path, "z").trim()), (DropState::Error, "0"));
    fs::create_dir(path.join("x")).unwrap();
    let outcome = run(&drops, path);
    assert!(outcome.failures()[0].why.contains("not a regular file; remove it"), "{:?}", outcome.failures());
}

#[test]
fn graphs_that_cannot_be_run_are_refused_by_name() {
    let app = |class: &str| json!({"oid": "a", "name": "work", "categoryType": "Application", "category": "PythonApp", "dropclass": class});
    let at = |id: &str, path: &str| json!({"oid": id, "categoryType": "Data", "category": "File", "filepath": path});
    for (drops, part) in [
        (vec![app("dlg.apps.simple.RandomArrayApp")], "`work` is `RandomArrayApp`"),
        (vec![json!({"oid": "a", "categoryType": "Application", "category": "BashShellApp"})], "has no command"),
        (vec![json!({"oid": "a", "categoryType": "Data", "category": "NGAS"})], "holds `NGAS`"),
        (vec![shell("a", "cat %i0", &[], &[])], "refers to an input that does not exist (inputs: 0)"),
        (vec![shell("a", "x", &[], &["d"]), shell("b", "x", &[], &["d"]), file("d")], "written by 2 applications"),
        (vec![shell("a", "x", &[], &["d"]), at("d", "f"), at("e", "./f")], "have the same file, `f`"),
        (vec![at("d", "../../f")], "leaves the directory"),
    ] {
        let graph = parse_template(Value::from(drops).to_string().as_bytes()).unwrap();
        let error = Recipe::new(&graph, &Naming::of("test")).unwrap_err().to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
}

/// Random layers of copies. Files are changed, damaged and removed between runs; in the end every file has the content
/// of its definition.
#[test]
fn whatever_was_changed_a_run_leaves_what_one_from_nothing_would() {
    arbtest::arbtest(|u| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let mut drops: Vec<Value> = (0..2).map(|root| file(&format!("f{root}"))).collect();
        // By datum: the inputs of the copy.
        let mut made: Vec<(String, Vec<usize>)> = vec![("f0".to_owned(), vec![]), ("f1".to_owned(), vec![])];
        for number in 0..u.int_in_range(1..=6)? {
            let reads: std::collections::BTreeSet<usize> =
                (0..2).map(|_| u.choose_index(made.len())).collect::<Result<_, _>>()?;
            let inputs: Vec<String> = reads.iter().map(|&read| made[read].0.clone()).collect();
            let is_file: bool = u.arbitrary()?;
            let id = if is_file { format!("f{}", number + 2) } else { format!("m{number}") };
            drops.push(if is_file { file(&id) } else { memory(&id) });
            drops.push(copy(&format!("a{number}"), &inputs, std::slice::from_ref(&id)));
            made.push((id, reads.into_iter().collect()));
        }
        let mut roots = ["0".to_owned(), "1".to_owned()];
        for round in 0..3 {
            for (root, content) in roots.iter().enumerate() {
                fs::write(path.join(format!("f{root}")), content).unwrap();
            }
            let outcome = run(&drops, path);
            assert!(outcome.failures().is_empty(), "{:?}", outcome.failures());
            let mut contents: Vec<String> = Vec::new();
            for (id, reads) in &made {
                let copied = reads.iter().map(|&read| contents[read].clone()).collect();
                contents.push(if reads.is_empty() { roots[contents.len()].clone() } else { copied });
                if id.starts_with('f') {
                    assert_eq!(text(path, id), contents[contents.len() - 1], "{id} in round {round} of {drops:?}");
                }
            }
            assert_eq!(run(&drops, path).ran(), 0, "{drops:?}");
            match u.int_in_range(0..=2)? {
                0 => roots[u.choose_index(2)?] = format!("{round}"),
                harm => {
                    let harmed = &made[u.choose_index(made.len())?].0;
                    match harm {
                        1 if path.join(harmed).exists() => fs::remove_file(path.join(harmed)).unwrap(),
                        _ => fs::write(path.join(harmed), "damaged").unwrap(),
                    }
                }
            }
        }
        Ok(())
    })
    .budget_ms(1000);
}
