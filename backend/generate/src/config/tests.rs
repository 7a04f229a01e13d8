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
        ("\"m.onnx\"", "\"../m.onnx\"", &["../m.onnx", "outside"]),
        ("\"m.onnx\"", "\"/etc/passwd\"", &["/etc/passwd", "outside"]),
        ("\"filename\"", "\"file\"", &["filename"]),
        ("0.5", "0", &["temperature"]),
        ("0.5", "\"hot\"", &["temperature", "number"]),
        ("0.9", "1.5", &["top_p"]),
        ("1.1", "0", &["repetition_penalty"]),
        ("\"search\": {", "\"search\": {\"num_beams\": 4,", &["num_beams", "not supported"]),
        (
            "\"search\": {",
            "\"search\": {\"encoder_repetition_penalty\": 1.5,",
            &["encoder_repetition_penalty", "1: anything else"],
        ),
        ("\"search\": {", "\"search\": {\"min_p\": 0.1,", &["min_p", "0: anything else"]),
        ("\"search\": {", "\"search\": {\"sequence_bias\": [[[3], 2.0]],", &["sequence_bias", "null"]),
        ("\"search\": {", "\"search\": {\"token_healing\": true,", &["token_healing", "null"]),
        ("\"model\": {", "\"model\": {\"encoder\": {},", &["encoders", "optimum"]),
        ("\"model\": {", "\"model\": {\"vision\": {},", &["images"]),
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
        (&[("config.json", "{\"is_encoder_decoder\": true}")], "none of decoder_model_merged.onnx"),
        (&[("config.json", "7")], "not a JSON object"),
    ] {
        let error = Config::read(folder(files).path(), None).expect_err(part).to_string();
        assert!(error.contains(part) && !error.contains('\n'), "{error}");
    }
    let error = Config::read(&folder(&[]).path().join("none"), None).expect_err("no folder").to_string();
    assert!(error.ends_with("the folder does not exist; name another"), "{error}");
}

const WHISPER: &str = r#"{"is_encoder_decoder": true, "d_model": 24, "decoder_attention_heads": 3, "encoder_layers": 4,
    "decoder_layers": 2, "num_mel_bins": 8, "max_source_positions": 40, "max_target_positions": 256, "vocab_size": 128}"#;

const SPEECH: &str = r#"{"decoder_start_token_id": 7, "forced_decoder_ids": [[1, null], [2, 5]], "lang_to_id": {"<|en|>": 3, "<|de|>": 4},
    "task_to_id": {"transcribe": 5, "translate": 9}, "no_timestamps_token_id": 6, "suppress_tokens": [1, 2], "bad_words_ids": [[8]]}"#;

const MERGED: [(&str, &str); 2] = [("decoder_model_merged.onnx", ""), ("encoder_model.onnx", "")];

/// The configuration of these files beside a merged decoder.
fn merged(config: &str, generation: &str) -> Result<Config, GenerateError> {
    let files = [&MERGED[..], &[("config.json", config), ("generation_config.json", generation)]].concat();
    Config::read(folder(&files).path(), None)
}

#[test]
fn encoders_and_forced_tokens_are_read_from_old_and_new_configurations() {
    let config = merged(WHISPER, SPEECH).expect("a configuration");
    let encoder = config.encoder.expect("an encoder");
    assert_eq!((config.context, config.layers, config.heads, config.head_size), (256, Some(2), Some(3), Some(8)));
    assert_eq!((encoder.start, encoder.mels, encoder.frames, encoder.length), (7, Some(8), Some(80), None));
    assert!(encoder.model.ends_with("encoder_model.onnx") && encoder.first.is_none());
    assert_eq!(config.rules.forced, [None, Some(5), Some(6)]);
    assert_eq!((&config.rules.languages[..], &config.rules.suppressed[..]), (&[4, 3][..], &[1, 2, 8][..]));
    let newer =
        SPEECH.replace("\"forced_decoder_ids\": [[1, null], [2, 5]]", "\"language\": \"de\", \"task\": \"translate\"");
    assert_eq!(merged(WHISPER, &newer).expect("newer").rules.forced, [Some(4), Some(9), Some(6)]);
    // A language and a task that are named count more than a list of an earlier version.
    let both = SPEECH.replacen('{', "{\"language\": \"de\", \"task\": \"translate\", ", 1);
    assert_eq!(merged(WHISPER, &both).expect("both").rules.forced, [Some(4), Some(9), Some(6)]);
    let wrong = newer.replace("\"task\": \"translate\"", "\"task\": \"translat\"");
    let error = merged(WHISPER, &wrong).expect_err("no such task").to_string();
    assert!(error.contains("task") && error.contains("task_to_id"), "{error}");
    let t5 = r#"{"is_encoder_decoder": true, "d_model": 24, "num_heads": 3, "d_kv": 4, "decoder_start_token_id": 0}"#;
    let t5 = merged(t5, "{\"forced_eos_token_id\": 1, \"forced_bos_token_id\": 3}").expect("without positions");
    assert_eq!((t5.context, t5.head_size, t5.rules.last), (512, Some(4), Some(1)));
    assert_eq!(t5.rules.begin(0), [0, 3]);
}

#[test]
fn files_of_an_encoder_and_a_first_step_are_found_by_the_decoders_name() {
    let named = |decoder: &str, files: &[&str]| {
        let files: Vec<_> = files.iter().chain([&decoder]).map(|file| (*file, "")).collect();
        let folder = folder(&[&files[..], &[("config.json", WHISPER), ("generation_config.json", SPEECH)]].concat());
        let encoder = Config::read(folder.path(), Some(decoder.as_ref())).map(|config| config.encoder.expect("one"));
        let name = |path: &Path| path.file_name().expect("a file").to_string_lossy().into_owned();
        encoder
            .map(|encoder| (name(&encoder.model), encoder.first.as_deref().map(name)))
            .map_err(|error| error.to_string())
    };
    let both = ["encoder_model.onnx", "encoder_model_q4.onnx"];
    let of = |encoder: &str, first: Option<&str>| Ok((encoder.to_owned(), first.map(str::to_owned)));
    assert_eq!(named("decoder_model_merged_q4.onnx", &both), of("encoder_model_q4.onnx", None));
    assert_eq!(named("decoder_model_merged_q4.onnx", &both[..1]), of("encoder_model.onnx", None));
    let first = [both[0], "decoder_model.onnx"];
    assert_eq!(named("decoder_with_past_model.onnx", &first), of("encoder_model.onnx", Some("decoder_model.onnx")));
    for (decoder, files, part) in [
        ("decoder_with_past_model.onnx", &both[..1], "decoder_model.onnx: the file does not exist"),
        ("decoder_model_merged.onnx", &[], "encoder_model.onnx: the file does not exist"),
        ("decoder_model.onnx", &both[..1], "decoder_model.onnx: the name does not contain"),
    ] {
        let error = named(decoder, files).expect_err(part);
        assert!(error.contains(part) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn rules_that_lie_are_refused_in_a_line_that_names_the_file() {
    for (from, to, parts) in [
        ("[[1, null], [2, 5]]", "[[0, 5]]", &["forced_decoder_ids", "1 to 64"][..]),
        ("[[1, null], [2, 5]]", "[[9000000000, 5]]", &["forced_decoder_ids"]),
        ("[[1, null], [2, 5]]", "[[1, -5]]", &["forced_decoder_ids"]),
        ("[[1, null], [2, 5]]", "[7]", &["forced_decoder_ids"]),
        ("[[1, null], [2, 5]]", "[[1, 500]]", &["token 500"]),
        ("\"decoder_start_token_id\": 7", "\"decoder_start_token_id\": 128", &["token 128"]),
        ("\"decoder_start_token_id\": 7,", "", &["decoder_start_token_id is missing"]),
        ("[[8]]", "[[8, 9]]", &["bad_words_ids", "sequences"]),
        ("[1, 2]", "[-1]", &["suppress_tokens"]),
        ("\"forced_decoder_ids\": [[1, null], [2, 5]]", "\"language\": \"xx\"", &["language", "lang_to_id"]),
        ("\"suppress_tokens\"", "\"return_timestamps\": true, \"x\"", &["return_timestamps", "not supported"]),
        ("\"suppress_tokens\"", "\"min_length\": 5, \"x\"", &["min_length", "not supported"]),
        ("\"suppress_tokens\"", "\"num_beams\": 5, \"x\"", &["num_beams", "not supported"]),
    ] {
        let error = merged(WHISPER, &SPEECH.replacen(from, to, 1)).expect_err(to).to_string();
        assert!(error.contains("config.json") && !error.contains('\n'), "{to}: {error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{to}: no {parts:?} in {error}");
    }
}
