//! Encoder-decoder models make ONNX Runtime's tokens, and folders and prompts that lie end in one line.

use super::{answer, folder, integers, open, open_in, stored};
use anabranch_execute::{CancelToken, RunOptions};
use anabranch_generate::{Ended, Prompt, Sample, Settings, measure};
use anabranch_kernels::{Shape, Tensor};
use anabranch_onnx::import::proto::{
    DimensionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, data_type,
};
use std::fs;
use tempfile::TempDir;

fn floats(dims: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_elements(Shape::new(dims).expect("small"), values).expect("as many")
}

/// The prompt of a model's reference.
fn prompt(model: &str) -> Prompt {
    if model == "t5" {
        return Prompt::from(&integers(model, "prompt"));
    }
    let (dims, bytes) = stored(model, "features");
    let values = bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four")));
    Prompt { tokens: Vec::new(), features: Some(floats(&dims, &values.collect::<Vec<_>>())) }
}

/// Settings for so many tokens behind the one that a decoder begins with.
fn tokens(count: usize) -> Settings {
    Settings { max_length: 1 + count, ..Settings::default() }
}

#[test]
fn greedy_tokens_are_those_of_the_reference_for_200_steps() {
    for model in ["t5", "whisper"] {
        let want = integers(model, "tokens");
        let mut generator = open(model);
        let (made, text) = answer(&mut generator, prompt(model), &tokens(200));
        assert_eq!(made, want, "{model}");
        assert_eq!(text, generator.decode(&made), "{model}");
    }
}

#[test]
fn each_answer_has_the_cross_attention_of_its_own_prompt() {
    let mut generator = open("t5");
    let (first, _) = answer(&mut generator, prompt("t5"), &tokens(20));
    let other = [5u32, 6, 7, 127];
    let (second, _) = answer(&mut generator, &other, &tokens(20));
    assert_ne!(first, second);
    assert_eq!(answer(&mut open("t5"), &other, &tokens(20)).0, second);
    // Nothing of the answer before is gone on with, even if that is asked for.
    let mut course = generator.start(prompt("t5"), &tokens(20), true).expect("a prompt");
    assert_eq!(course.timing().prompt, 11);
    let pieces = std::iter::from_fn(|| generator.advance(&mut course, &RunOptions::default()));
    assert_eq!(pieces.filter_map(|piece| piece.expect("runs").token).collect::<Vec<_>>(), first);
}

#[test]
fn a_cancelled_encoder_is_an_end_and_the_next_answer_is_as_good_as_before() {
    for model in ["t5", "whisper"] {
        let mut generator = open(model);
        let (want, _) = answer(&mut generator, prompt(model), &tokens(6));
        for steps in [0, 1, 2] {
            let token = CancelToken::new();
            let run = RunOptions::default().with_cancel(token.clone());
            let mut course = generator.start(prompt(model), &tokens(6), false).expect("a prompt");
            for _ in 0..steps {
                generator.advance(&mut course, &run).expect("a piece").expect("runs");
            }
            token.cancel();
            assert!(generator.advance(&mut course, &run).is_none_or(|piece| piece.expect("no error").token.is_none()));
            assert_eq!(course.ended(), Some(Ended::Cancelled), "{model} after {steps}");
        }
        assert_eq!(answer(&mut generator, prompt(model), &tokens(6)).0, want, "{model}");
    }
}

#[test]
fn the_decoders_text_behind_features_goes_on_as_the_configuration_says() {
    let mut generator = open("whisper");
    let begin = generator.encode("<|startoftranscript|><|de|>").expect("text");
    assert_eq!(begin, [122, 124], "nothing is added around it");
    let with = |tokens: &[u32]| Prompt { tokens: tokens.to_vec(), ..prompt("whisper") };
    let (made, _) = answer(&mut generator, with(&begin), &tokens(8));
    assert_eq!(made, integers("whisper", "tokens")[1..8], "the model itself chooses German");
    let (english, _) = answer(&mut generator, with(&[122, 123]), &tokens(8));
    assert_eq!(english[..2], [125, 126], "task and silence of timestamps are forced");
    let error = generator.generate(with(&[5]), &tokens(8)).err().expect("an open language").to_string();
    assert!(error.contains("language") && error.contains("token 122") && !error.contains('\n'), "{error}");
}

#[test]
fn rates_of_an_encoder_and_its_decoder_are_measured() {
    let mut generator = open("t5");
    let sample = Sample { prompt: 16, tokens: 4 };
    let rates = measure(&mut generator, sample, 2, &RunOptions::default(), &mut || {}).expect("measured");
    assert_eq!((rates.prefill.len(), rates.decode.len(), rates.predicted_prefill), (2, 2, None));
    let error = measure(&mut open("whisper"), sample, 1, &RunOptions::default(), &mut || {}).expect_err("no features");
    assert!(error.to_string().contains("features"), "{error}");
}

/// A copy of a model's folder.
fn copied(model: &str) -> TempDir {
    let copy = tempfile::tempdir().expect("a temporary directory");
    for entry in fs::read_dir(folder(model)).expect("bundled") {
        let entry = entry.expect("readable");
        fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("copied");
    }
    copy
}

/// An encoder that looks hidden states of 20 numbers up; their width is declared or not.
fn narrow(declared: bool) -> Vec<u8> {
    let dims = || vec![DimensionProto::known(1), DimensionProto::symbol("length")];
    let width = if declared { DimensionProto::known(20) } else { DimensionProto::symbol("width") };
    let graph = GraphProto {
        node: vec![NodeProto::of("Gather", &["table", "input_ids"], &["last_hidden_state"])],
        input: vec![ValueInfoProto::tensor("input_ids", data_type::INT64, dims())],
        output: vec![ValueInfoProto::tensor("last_hidden_state", data_type::FLOAT, [dims(), vec![width]].concat())],
        initializer: vec![TensorProto::f32s("table", &[128, 20], &[0.5; 2560])],
        ..GraphProto::default()
    };
    ModelProto::of(graph, 17).to_bytes()
}

#[test]
fn files_that_do_not_fit_each_other_are_refused_in_a_line_that_names_one() {
    let removed = |_: Vec<u8>| None;
    // A name of the same length, so that the file stays sound.
    let renamed = |from: &'static str, to: &'static str| {
        move |bytes: Vec<u8>| {
            let mut bytes = bytes;
            let places: Vec<usize> =
                (0..bytes.len() - from.len()).filter(|at| bytes[*at..].starts_with(from.as_bytes())).collect();
            assert!(!places.is_empty(), "{from}");
            places.into_iter().for_each(|at| bytes[at..at + to.len()].copy_from_slice(to.as_bytes()));
            Some(bytes)
        }
    };
    let replaced = |declared: bool| move |_: Vec<u8>| Some(narrow(declared));
    type Change = Box<dyn Fn(Vec<u8>) -> Option<Vec<u8>>>;
    let cases: [(&str, &str, Change, &[&str]); 11] = [
        ("t5", "encoder_model", Box::new(removed), &["encoder_model.onnx: the file does not exist"]),
        ("t5", "decoder_model", Box::new(removed), &["decoder_model.onnx: the file does not exist"]),
        ("t5", "decoder_with_past_model", Box::new(removed), &["none of decoder_model_merged.onnx"]),
        ("t5", "encoder_model", Box::new(replaced(true)), &["decoder_model.onnx", "of 24", "produces 20"]),
        ("t5", "encoder_model", Box::new(renamed("last_hidden_state", "past_hidden_state")), &["last_hidden_state"]),
        ("whisper", "encoder_model", Box::new(renamed("input_features", "input_featurez")), &["takes input_featurez"]),
        (
            "t5",
            "decoder_model",
            Box::new(renamed("present.1.encoder.value", "present.1.encoder.valux")),
            &["decoder_model.onnx", "no output `present.1.encoder.value`"],
        ),
        (
            "t5",
            "decoder_model",
            Box::new(renamed("present.1.decoder.value", "present.1.decoder.valux")),
            &["decoder_model.onnx", "no output `present.1.decoder.value`"],
        ),
        (
            "t5",
            "decoder_with_past_model",
            Box::new(renamed("past_key_values.1.decoder.value", "past_key_values.1.decoder.valux")),
            &["decoder_with_past_model.onnx", "past_key_values.1.decoder.value"],
        ),
        (
            "whisper",
            "decoder_model_merged",
            Box::new(renamed("use_cache_branch", "use_cache_brunch")),
            &["decoder_model_merged.onnx", "use_cache_brunch"],
        ),
        (
            "whisper",
            "decoder_model_merged",
            Box::new(renamed("encoder_hidden_states", "encoder_hidden_statez")),
            &["decoder_model_merged.onnx", "encoder_hidden_statez"],
        ),
    ];
    for (model, file, change, parts) in cases {
        let copy = copied(model);
        let path = copy.path().join(format!("{file}.onnx"));
        match change(fs::read(&path).expect("there")) {
            Some(bytes) => fs::write(&path, bytes).expect("written"),
            None => fs::remove_file(&path).expect("removed"),
        }
        let error = open_in(copy.path(), 1).err().unwrap_or_else(|| panic!("{model} {file}: {parts:?}")).to_string();
        assert!(parts.iter().all(|part| error.contains(part)) && !error.contains('\n'), "{parts:?}: {error}");
    }
    let copy = copied("t5");
    fs::write(copy.path().join("encoder_model.onnx"), narrow(false)).expect("written");
    let mut generator = open_in(copy.path(), 1).expect("a width that only a run shows");
    let mut pieces = generator.generate(prompt("t5"), &tokens(8)).expect("a prompt");
    let error = pieces.next().expect("an error").expect_err("unlike widths").to_string();
    assert!(error.contains("decoder_model.onnx") && error.contains("encoder_hidden_states"), "{error}");
    assert!(!error.contains('\n') && pieces.next().is_none(), "{error}");
}

#[test]
fn prompts_that_an_encoder_does_not_take_are_refused_in_a_line() {
    let (mut t5, mut whisper) = (open("t5"), open("whisper"));
    let heard =
        |dims: &[usize]| Prompt { tokens: Vec::new(), features: Some(floats(dims, &vec![0.5; dims.iter().product()])) };
    let of_integers = Tensor::from_elements(Shape::new([1, 8, 80]).expect("small"), &[1i64; 640]).expect("as many");
    let cases: [(&str, Prompt, &[&str]); 11] = [
        ("t5", Prompt::default(), &["no token"]),
        ("t5", Prompt::from(&[1; 513]), &["513 tokens", "at most 512"]),
        ("t5", Prompt::from(&[5, 128]), &["token 128", "vocabulary of 128"]),
        ("t5", heard(&[1, 8, 80]), &["takes text"]),
        ("whisper", Prompt::from(&[122]), &["f32[1×8×80]", "--features"]),
        ("whisper", heard(&[1, 8, 79]), &["f32[1×8×79]", "f32[1×8×80]"]),
        ("whisper", heard(&[8, 80]), &["f32[8×80]"]),
        ("whisper", heard(&[2, 8, 80]), &["f32[2×8×80]"]),
        ("whisper", heard(&[1, 8, 0]), &["f32[1×8×0]"]),
        ("whisper", Prompt { features: Some(of_integers), ..Prompt::default() }, &["i64[1×8×80]"]),
        ("whisper", Prompt { tokens: vec![122; 300], ..heard(&[1, 8, 80]) }, &["300 tokens", "256"]),
    ];
    for (model, prompt, parts) in cases {
        let generator = if model == "t5" { &mut t5 } else { &mut whisper };
        let error = generator.generate(prompt, &Settings::default()).err().expect("refused").to_string();
        assert!(parts.iter().all(|part| error.contains(part)) && !error.contains('\n'), "{parts:?}: {error}");
    }
    let nan = Prompt { tokens: Vec::new(), features: Some(floats(&[1, 8, 80], &[f32::NAN; 640])) };
    let mut pieces = whisper.generate(nan, &tokens(8)).expect("seen when it runs");
    // The language is chosen among tokens whose logits are no numbers.
    let error = pieces.next().expect("an error").expect_err("no numbers").to_string();
    assert!(error.contains("NaN") && error.contains("decoder_model_merged.onnx"), "{error}");
    let error = open("llama").generate(heard(&[1, 8, 80]), &Settings::default()).err().expect("no encoder").to_string();
    assert!(error.contains("no encoder"), "{error}");
}
