//! Folders that lie and prompts that do not fit end in one line.

use super::tiny::{TINY, Tiny};
use super::{answer, folder, open, open_in};
use anabranch_execute::RunOptions;
use anabranch_generate::{Choice, Ended, Sample, Settings, measure};
use std::fs;
use tempfile::TempDir;

/// The files of the genai export, one of them changed.
fn changed(name: &str, change: impl FnOnce(String) -> Option<String>) -> TempDir {
    let copy = tempfile::tempdir().expect("a temporary directory");
    for file in ["model.onnx", "genai_config.json", "tokenizer.json", "tokenizer_config.json"] {
        fs::copy(folder("llama").join(file), copy.path().join(file)).expect("copied");
    }
    let path = copy.path().join(name);
    let text = fs::read(&path).expect("there");
    match change(String::from_utf8_lossy(&text).into_owned()) {
        Some(text) => fs::write(path, text).expect("written"),
        None => fs::remove_file(path).expect("removed"),
    }
    copy
}

#[test]
fn folders_that_lie_are_refused_in_a_line_that_names_the_file() {
    let replaced = |from: &'static str, to: &'static str| move |text: String| Some(text.replacen(from, to, 1));
    let boxed = |change: Box<dyn FnOnce(String) -> Option<String>>| change;
    for (name, change, parts) in [
        (
            "genai_config.json",
            boxed(Box::new(replaced("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 4"))),
            &["heads"][..],
        ),
        ("genai_config.json", Box::new(replaced("\"head_size\": 16", "\"head_size\": 32")), &["elements a head"]),
        (
            "genai_config.json",
            Box::new(replaced("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3")),
            &["3 layers"],
        ),
        ("genai_config.json", Box::new(replaced("\"vocab_size\": 128", "\"vocab_size\": 129")), &["129"]),
        ("genai_config.json", Box::new(replaced("\"vocab_size\": 128", "\"vocab_size\": 0")), &["token 127"]),
        ("genai_config.json", Box::new(replaced("\"context_length\": 2048", "\"context_length\": 0")), &["0 tokens"]),
        ("genai_config.json", Box::new(replaced("model.onnx", "other.onnx")), &["other.onnx"]),
        ("genai_config.json", Box::new(|_| None), &["neither genai_config.json"]),
        ("genai_config.json", Box::new(|text: String| Some(text[..200].to_owned())), &["genai_config.json"]),
        ("tokenizer.json", Box::new(|_| None), &["tokenizer.json"]),
        ("tokenizer.json", Box::new(|text: String| Some(text[..2000].to_owned())), &["tokenizer.json"]),
        ("tokenizer.json", Box::new(replaced("\"BPE\"", "\"XYZ\"")), &["tokenizer.json"]),
        ("tokenizer.json", Box::new(replaced("\"!\": 0", "\"!\": 4000000000")), &["4000000001"]),
        ("tokenizer_config.json", Box::new(|_| Some("[]".to_owned())), &["tokenizer_config.json"]),
        ("model.onnx", Box::new(|_| None), &["model.onnx"]),
        ("model.onnx", Box::new(|_| Some("no model".to_owned())), &["model.onnx"]),
    ] {
        let copy = changed(name, change);
        let error = open_in(copy.path(), 1).err().unwrap_or_else(|| panic!("{name}: {parts:?}")).to_string();
        assert!(parts.iter().all(|part| error.contains(part)) && !error.contains('\n'), "{parts:?}: {error}");
    }
}

#[test]
fn a_model_that_is_no_decoder_is_refused() {
    let copy = changed("tokenizer.json", Some);
    for (model, part) in [("mlp.onnx", "present"), ("decoder.onnx", "present"), ("lstm.onnx", "present")] {
        fs::copy(folder("..").join(model), copy.path().join("model.onnx")).expect("copied");
        let error = open_in(copy.path(), 1).err().expect(model).to_string();
        assert!(error.contains(part) && error.contains("model.onnx") && !error.contains('\n'), "{model}: {error}");
    }
}

#[test]
fn what_a_fixed_cache_cannot_hold_is_refused_before_anything_runs() {
    let (mut generator, _directory) = Tiny { capacity: Some(32), ..TINY }.open();
    assert_eq!((generator.config().context, generator.config().settings.max_length), (32, 32));
    let longest = Settings { max_length: 33, ..Settings::default() };
    for (prompt, settings, parts) in [
        (vec![1; 32], Settings::default(), ["32 tokens", "shorter prompt"]),
        (vec![1; 500], Settings::default(), ["500 tokens", "answer is 32"]),
        (vec![1; 3], longest, ["33 tokens", "holds 32"]),
    ] {
        let error = generator.generate(&prompt, &settings).err().expect("too long").to_string();
        assert!(parts.iter().all(|part| error.contains(part)) && !error.contains('\n'), "{error}");
    }
    assert_eq!(generator.session().plans_made(), 0);
    let all = Settings { ignore_ends: true, ..Settings::default() };
    let (tokens, _) = answer(&mut generator, &[3, 60, 7], &all);
    assert_eq!((tokens.len(), generator.session().plans_made()), (29, 2), "a prompt and a step fill the cache");
    for (max_length, ended) in [(32, Ended::Context), (31, Ended::Length)] {
        let settings = Settings { max_length, ..all.clone() };
        let mut course = generator.start(&[3, 60, 7], &settings, false).expect("fits");
        while let Some(piece) = generator.advance(&mut course, &RunOptions::default()) {
            piece.expect("runs");
        }
        assert_eq!(course.ended(), Some(ended), "{max_length}");
    }
    let (mut unbounded, _directory) = TINY.open();
    let (same, _) = answer(&mut unbounded, &[3, 60, 7], &Settings { max_length: 32, ..all });
    assert_eq!(tokens, same);
    // A capacity beyond the context is no limit.
    let (mut wide, _directory) = Tiny { capacity: Some(400), ..TINY }.open();
    let beyond = Settings { max_length: 350, ..Settings::default() };
    assert!(wide.config().context < 350 && wide.generate(&[1], &beyond).is_ok());
}

#[test]
fn prompts_and_settings_that_do_not_fit_are_refused_in_a_line() {
    let mut generator = open("gpt2");
    let most = Settings::default();
    for (prompt, settings, part) in [
        (vec![], most.clone(), "no token"),
        (vec![1; 512], most.clone(), "512 tokens"),
        (vec![1; 5000], most.clone(), "5000 tokens"),
        (vec![1; 9], Settings { max_length: 9, ..most.clone() }, "answer is 9"),
        (vec![1; 9], Settings { max_length: 0, ..most.clone() }, "answer is 0"),
        (
            vec![1],
            Settings { choice: Choice::Sample { temperature: -1.0, top_k: None, top_p: 1.0 }, ..most.clone() },
            "temperature",
        ),
    ] {
        let error = generator.generate(&prompt, &settings).err().expect(part).to_string();
        assert!(error.contains(part) && !error.contains('\n'), "{error}");
    }
    let mut beyond = generator.generate(&[1, 128], &most).expect("seen when it runs");
    let error = beyond.next().expect("an error").expect_err("no such token").to_string();
    assert!(error.contains("token 128") && beyond.next().is_none(), "{error}");
    assert!(generator.encode_chat(&[]).expect_err("no template").to_string().contains("chat template"));
    for (prompt, tokens) in [(0, 5), (500, 13), (usize::MAX, 1)] {
        let sample = Sample { prompt, tokens };
        let error = measure(&mut generator, sample, 1, &RunOptions::default(), &mut || {}).expect_err("too long");
        assert!(error.to_string().contains("512"), "{error}");
    }
}
