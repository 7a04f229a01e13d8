use super::*;
use std::fs;
use tempfile::TempDir;

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary directory");
    for (name, content) in files {
        fs::write(folder.path().join(name), content).expect("written");
    }
    folder
}

const GENAI: &str = r#"{"model": {"bos_token_id": 1, "context_length": 64, "decoder": {"filename": "m.onnx", "head_size": 16,
    "num_hidden_layers": 2, "num_key_value_heads": 2}, "eos_token_id": [3, 5], "vocab_size": 8},
    "search": {"do_sample": true, "temperature": 0.5, "top_k": 4, "top_p": 0.9, "max_length": 4096, "repetition_penalty": 1.1}}"#;

#[test]
fn both_exporters_say_the_same_in_their_ways() {
    let genai = Config::read(folder(&[("genai_config.json", GENAI)]).path(), None).expect("a configuration");
    assert_eq!((genai.context, genai.vocabulary, genai.layers, genai.heads), (64, Some(8), Some(2), Some(2)));
    assert_eq!((genai.begin, &genai.ends[..], genai.head_size), (Some(1), &[3, 5][..], Some(16)));
    assert_eq!(genai.settings.choice, Choice::Sample { temperature: 0.5, top_k: Some(4), top_p: 0.9 });
    assert_eq!((genai.settings.repetition_penalty, genai.settings.max_length), (1.1, 64));
    let optimum = folder(&[
        ("model.onnx", ""),
        (
            "config.json",
            r#"{"n_positions": 64, "vocab_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 32, "bos_token_id": 1}"#,
        ),
        ("generation_config.json", r#"{"eos_token_id": [3, 5], "max_length": 20}"#),
    ]);
    let optimum = Config::read(optimum.path(), None).expect("a configuration");
    assert_eq!((optimum.context, optimum.vocabulary, optimum.layers, optimum.heads), (64, Some(8), Some(2), Some(2)));
    assert_eq!((optimum.begin, &optimum.ends[..], optimum.head_size), (Some(1), &[3, 5][..], Some(16)));
    assert_eq!((optimum.settings.choice, optimum.settings.max_length), (Choice::Greedy, 20));
}

#[test]
fn configurations_that_lie_are_refused_in_a_line_that_names_the_file() {
    for (from, to, parts) in [
        ("\"context_length\": 64", "\"context_length\": 0", &["0 tokens"][..]),
        ("\"context_length\": 64", "\"context_length\": -3", &["context_length", "-3", "whole number"]),
        ("\"context_length\": 64", "\"context_length\": 1e99", &["context_length"]),
        ("\"vocab_size\": 8", "\"vocab_size\": 4", &["token 5", "4"]),
        ("[3, 5]", "[3, \"x\"]", &["eos_token_id", "list"]),
        ("\"m.onnx\"", "\"../m.onnx\"", &["../m.onnx", "beneath"]),
        ("\"m.onnx\"", "\"/etc/passwd\"", &["/etc/passwd", "beneath"]),
        ("\"filename\"", "\"file\"", &["filename"]),
        ("0.5", "0", &["temperature"]),
        ("0.5", "\"hot\"", &["temperature", "number"]),
        ("0.9", "1.5", &["top_p"]),
        ("1.1", "0", &["repetition_penalty"]),
        ("\"search\": {", "\"search\": {\"num_beams\": 4,", &["num_beams", "not supported"]),
        ("\"model\": {", "\"model\": {\"encoder\": {},", &["encoders"]),
        ("{\"model\"", "[{\"model\"", &["genai_config.json"]),
    ] {
        let folder = folder(&[("genai_config.json", &GENAI.replacen(from, to, 1))]);
        let error = Config::read(folder.path(), None).expect_err(to).to_string();
        assert!(error.contains("genai_config.json") && !error.contains('\n'), "{to}: {error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{to}: no {parts:?} in {error}");
    }
    for (files, part) in [
        (&[][..], "neither genai_config.json nor config.json"),
        (&[("config.json", "{\"n_positions\": 8}")], "none of model.onnx"),
        (&[("config.json", "{}"), ("model.onnx", "")], "max_position_embeddings"),
        (&[("config.json", "{\"is_encoder_decoder\": true}")], "encoders"),
        (&[("config.json", "7")], "no JSON object"),
    ] {
        let error = Config::read(folder(files).path(), None).expect_err(part).to_string();
        assert!(error.contains(part) && !error.contains('\n'), "{error}");
    }
    let error = Config::read(&folder(&[]).path().join("none"), None).expect_err("no folder").to_string();
    assert!(error.ends_with("there is no such folder"), "{error}");
}
