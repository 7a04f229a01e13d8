//! `anabranch generate` and `anabranch run --steps`, as their users see them.

use crate::command::{Anabranch, bundled};
use anabranch_report::npy::{read_npz, write_npy};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const LLAMA: &str = "language/llama";

#[test]
fn the_text_that_comes_is_that_of_the_tokens() {
    let command = Anabranch::new();
    let model = bundled(LLAMA);
    let arguments = ["generate", &model, "--no-gpu", "--prompt", "The river", "--max-length", "20"];
    let told = command.json(&arguments);
    let answer = &told["answers"][0];
    let (text, prompt) = (answer["text"].as_str().expect("a text"), answer["prompt_tokens"].as_u64().expect("a count"));
    assert_eq!(
        (answer["tokens"].as_array().map(Vec::len), answer["ended"].as_str()),
        (Some(20 - prompt as usize), Some("length"))
    );
    assert!(answer["tokens_per_second"].as_f64() > Some(0.0) && told["plans"].as_u64() > Some(0));
    let output = command.run(&arguments);
    let [out, said] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert_eq!(out.trim_end_matches('\n'), text.trim_end_matches('\n'));
    assert!(said.contains(&format!("prompt of {prompt} tokens")) && said.contains("tokens per second"), "{said}");
}

/// Without a GPU that multiplies halves, products are in `f32`, and a note says so.
#[test]
fn a_precision_is_taken_and_a_note_says_what_it_becomes() {
    let command = Anabranch::new();
    let (llama, mlp) = (bundled(LLAMA), bundled("mlp.onnx"));
    let generate = ["generate", &llama, "--prompt", "The river", "--max-length", "8"];
    for arguments in [&generate[..], &["pipe", &mlp, "--random", "3", "--dim", "batch=2", "--no-measure"]] {
        let arguments = [arguments, &["--no-gpu", "--precision"]].concat();
        let output = command.run(&[&arguments[..], &["f16x3"]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.contains("computed in f32, not in f16x3: there is no GPU"), "{said}");
        command.refuses(&[&arguments[..], &["f8"]].concat(), &["f8", "f16x3"]);
    }
}

#[test]
fn several_prompts_are_answered_as_each_alone() {
    let command = Anabranch::new();
    std::fs::write(command.path("sea.txt"), "The sea").expect("written");
    let model = bundled(LLAMA);
    let all =
        ["generate", &model, "--no-gpu", "--prompt", "The river", "--prompt-file", "sea.txt", "--max-length", "16"];
    let both = command.json(&all);
    let alone = command.json(&["generate", &model, "--no-gpu", "--prompt", "The sea", "--max-length", "16"]);
    assert_eq!(both["answers"][1]["tokens"], alone["answers"][0]["tokens"]);
    let drawn =
        ["generate", &model, "--no-gpu", "--prompt", "a", "--prompt", "a", "--max-length", "16", "--temperature", "2"];
    let drawn = command.json(&drawn);
    assert_ne!(drawn["answers"][0]["tokens"], drawn["answers"][1]["tokens"], "each prompt has a seed of its own");
}

#[test]
fn a_batch_has_the_answers_of_each_prompt_alone() {
    let command = Anabranch::new();
    for (model, more) in [(LLAMA, &["--temperature", "2"][..]), ("language/optimum", &[])] {
        let model = bundled(model);
        let prompts = ["--prompt", "The river", "--prompt", "a", "--prompt", "Where the sea is", "--max-length", "24"];
        let arguments = [&["generate", &model, "--no-gpu"][..], &prompts, more].concat();
        let alone = command.json(&arguments);
        let together = command.json(&[&arguments[..], &["--batch", "2"]].concat());
        for at in 0..3 {
            for field in ["tokens", "text", "ended", "prompt", "prompt_tokens"] {
                assert_eq!(together["answers"][at][field], alone["answers"][at][field], "{model}: {at}");
            }
        }
        let text = command.text(&[&arguments[..], &["--batch", "3"]].concat());
        assert_eq!(text, command.text(&arguments), "{model}");
    }
    let (gpt2, t5) = (bundled("language/gpt2"), bundled("language/t5"));
    for (arguments, parts) in [
        (&[&*gpt2, "--batch", "2", "--chat"][..], &["--batch", "--prompt"][..]),
        (&[&gpt2, "--batch", "0", "--prompt", "x"], &["--batch", "at least 1"]),
        (&[&gpt2, "--batch", "2", "--bench", "8,2"], &["--batch", "--bench"]),
        (&[&t5, "--batch", "2", "--prompt", "x", "--prompt", "y"], &["one prompt at a time", "encoder"]),
    ] {
        command.refuses(&[&["generate", "--no-gpu"][..], arguments].concat(), parts);
    }
}

#[test]
fn features_of_an_encoder_are_answered() {
    let command = Anabranch::new();
    let arrays = read_npz(bundled("language/whisper/greedy.npz").as_ref()).expect("bundled");
    write_npy(&command.path("speech.npy"), &arrays["features"]).expect("writable");
    write_npy(&command.path("tokens.npy"), &arrays["tokens"]).expect("writable");
    let (whisper, t5) = (bundled("language/whisper"), bundled("language/t5"));
    let arguments = ["generate", &whisper, "--no-gpu", "--features", "speech.npy", "--max-length", "21"];
    let told = command.json(&arguments);
    let tokens: Vec<i64> = serde_json::from_value(told["answers"][0]["tokens"].clone()).expect("tokens");
    assert_eq!(Some(&*tokens), arrays["tokens"].elements::<i64>().map(|all| &all[..20]));
    assert_eq!(told["answers"][0]["features"], "speech.npy");
    let text = command.text(&[&arguments[..], &["--features", "speech.npy"]].concat());
    assert!(text.starts_with("1: speech.npy\n") && text.contains("\n2: speech.npy\n"), "{text}");
    for (arguments, parts) in [
        (&[&*whisper, "--features", "tokens.npy"][..], &["tokens.npy", "i64[200]", "f32[1×8×80]"][..]),
        (&[&whisper, "--features", "none.npy"], &["none.npy"]),
        (&[&whisper, "--prompt", "x"], &["f32[1×8×80]", "--features"]),
        (&[&whisper, "--features", "speech.npy", "--prompt", "a", "--prompt", "b"], &["one --prompt"]),
        (&[&whisper, "--features", "speech.npy", "--chat"], &["--chat"]),
        (&[&whisper, "--bench", "8,2"], &["features"]),
        (&[&t5, "--features", "speech.npy"], &["speech.npy", "takes text"]),
        (&[&bundled(LLAMA), "--features", "speech.npy"], &["speech.npy", "no encoder"]),
    ] {
        command.refuses(&[&["generate", "--no-gpu"][..], arguments].concat(), parts);
    }
}

/// Returns what a chat of these messages prints.
fn chat(command: &Anabranch, arguments: &[&str], messages: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["generate", "--no-gpu", "--chat", "--json"])
        .args(arguments)
        .current_dir(command.directory.path())
        .env("XDG_DATA_HOME", command.directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("piped").write_all(messages.as_bytes()).expect("read");
    child.wait_with_output().expect("it ends")
}

#[test]
fn a_chat_reads_messages_line_by_line() {
    let command = Anabranch::new();
    let output = chat(&command, &[&bundled(LLAMA), "--max-length", "60"], "Hi\n\nAnd\n");
    assert!(output.status.success());
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(told["answers"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_chat_that_fills_the_context_says_so_and_keeps_its_answers() {
    let command = Anabranch::new();
    std::fs::create_dir(command.path("short")).expect("made");
    for file in ["model.onnx", "genai_config.json", "tokenizer.json", "tokenizer_config.json"] {
        let bytes = std::fs::read(Path::new(&bundled(LLAMA)).join(file)).expect("bundled");
        std::fs::write(command.path("short").join(file), bytes).expect("written");
    }
    let config = command.path("short").join("genai_config.json");
    let text = std::fs::read_to_string(&config).expect("there");
    std::fs::write(config, text.replace("\"context_length\": 2048", "\"context_length\": 40")).expect("written");
    let output = chat(&command, &["short"], "Where does the water go?\nAnd then?\nAnd then?\nSo?\n");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("the chat has reached the model's context of 40 tokens") && said.contains("new chat"),
        "{said}"
    );
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(told["answers"].as_array().is_some_and(|answers| !answers.is_empty()));
}

#[test]
fn a_concatenated_cache_is_planned_once_per_capacity() {
    let command = Anabranch::new();
    let told = command.json(&["generate", &bundled("language/optimum"), "--no-gpu", "--bench", "8,4", "--repeat", "2"]);
    assert_eq!((told["plans"].as_u64(), &told["notes"]), (Some(0), &serde_json::json!([])));
}

#[test]
fn rates_are_measured_for_each_length() {
    let command = Anabranch::new();
    let model = bundled(LLAMA);
    let told = command.json(&["generate", &model, "--no-gpu", "--bench", "8,2", "--bench", "16,0", "--repeat", "2"]);
    let tests: Vec<_> = told["rates"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| (row["test"].as_str(), row["tokens"].as_u64()))
        .collect();
    assert_eq!(tests, [(Some("prefill"), Some(8)), (Some("decode"), Some(2)), (Some("prefill"), Some(16))]);
    let text = command.text(&["generate", &model, "--no-gpu", "--bench", "8,2", "--repeat", "1", "-q"]);
    assert!(text.contains("tokens/s") && text.contains("prefill") && text.contains("decode"), "{text}");
}

#[test]
fn rates_are_predicted_for_devices_that_are_not_here() {
    let command = Anabranch::new();
    let model = bundled(LLAMA);
    let told = command.json(&["generate", &model, "--no-gpu", "--bench", "40,300", "--platform", "one-gpu"]);
    let rates = told["rates"].as_array().expect("rows");
    let names = |of: &str| rates.iter().map(|row| row[of].clone()).collect::<Vec<_>>();
    assert_eq!(names("test"), ["prefill", "decode"]);
    assert_eq!(names("cache"), [0, 339]);
    for row in rates {
        assert!(row["predicted_tokens_per_second"].as_f64() > Some(0.0), "{row}");
        assert_eq!(row["devices"][1]["device"], "gpuA");
    }
    // A GPU that holds nothing leaves everything to the CPU.
    let limited = ["generate", &model, "--no-gpu", "--bench", "40,300", "--platform", "one-gpu", "--memory", "gpuA=0"];
    let alone = command.json(&limited);
    assert_eq!(alone["rates"][1]["devices"][1]["nodes"], 0);
    let text = command.text(&["generate", &model, "--no-gpu", "--bench", "40,2", "--platform", "one-gpu"]);
    assert!(text.contains("predicted, not measured") && text.contains("gpuA"), "{text}");
}

#[test]
fn the_least_memory_that_keeps_a_rate_is_found() {
    let command = Anabranch::new();
    let model = bundled(LLAMA);
    let rates = serde_json::json!({
        "matmul_flops": 1e15, "conv_flops": 1e15, "map_flops": 1e15, "bandwidth": 1e14, "launch": 1e-9
    });
    let link = |from: &str, to: &str| serde_json::json!({ "from": from, "to": to, "latency": 1e-9, "rate": 1e13 });
    let platform = serde_json::json!({
        "format": "anabranch-platform", "version": 1, "extends": true,
        "devices": [{ "name": "gpuA", "kind": "gpu", "memory": "1 GiB", "rates": rates }],
        "links": [link("cpu0", "gpuA"), link("gpuA", "cpu0")],
    });
    std::fs::write(command.path("fast.json"), platform.to_string()).expect("written");
    let fit = |more: &[&str]| {
        command.json(&[&["fit", &model, "--no-gpu", "--platform", "fast.json", "--bench", "40,20"], more].concat())
    };
    let within = fit(&["--within", "10%"]);
    let tried = within["tried"].as_array().expect("rows");
    let limits: Vec<u64> = tried.iter().filter_map(|row| row["limit_bytes"].as_u64()).collect();
    assert!(limits.len() >= 12 && limits.is_sorted() && limits[0] == 0, "{limits:?}");
    for row in tried {
        let limit = row["limit_bytes"].as_u64().unwrap_or(u64::MAX);
        assert!(row["peak_bytes"].as_u64().expect("a number") <= limit, "{row}");
        let goal = within["goal_tokens_per_second"].as_f64();
        assert_eq!(row["kept"].as_bool(), Some(row["decode_tokens_per_second"].as_f64() >= goal), "{row}");
    }
    assert_eq!(tried.iter().find(|row| row["kept"] == true), Some(&within["least"]));
    assert!(tried.last().expect("a row")["peak_bytes"].as_u64() > Some(0), "the GPU has a part: {tried:?}");
    assert!(tried.iter().any(|row| row["kept"] == false), "{tried:?}");
    // No memory keeps an enormous rate.
    assert!(fit(&["--tokens-per-second", "1e12"])["least"].is_null());
}

#[test]
fn what_cannot_be_generated_is_refused_in_a_line() {
    let command = Anabranch::new();
    let (llama, gpt2) = (bundled(LLAMA), bundled("language/gpt2"));
    for (arguments, parts) in [
        (&[&*llama][..], &["--prompt"][..]),
        (&["missing", "--prompt", "x"], &["missing: the folder does not exist"]),
        (&[&llama, "--prompt", ""], &["prompt is empty"]),
        (&[&llama, "--prompt", "x", "--temperature", "-1"], &["temperature is -1", "above 0"]),
        (&[&llama, "--prompt", "x", "--top-k", "-1"], &["--top-k", "-1", "at least 1"]),
        (&[&llama, "--prompt", "x", "--top-p", "2"], &["top_p", "2"]),
        (&[&llama, "--prompt", "The river", "--max-length", "3"], &["answer is 3", "maximum length"]),
        (&[&llama, "--prompt-file", "missing.txt"], &["missing.txt"]),
        (&[&llama, "--model", "../x.onnx", "--prompt", "x"], &["../x.onnx", "outside"]),
        (&[&gpt2, "--chat", "--prompt", "x"], &["chat template", "--chat"]),
        (&[&gpt2, "--bench", "512,1"], &["512"]),
        (&[&gpt2, "--bench", "512"], &["512,128"]),
        (&[&gpt2, "--prompt", "x", "--place", "nowhere"], &["nowhere"]),
    ] {
        let arguments = [&["generate", "--no-gpu"][..], arguments].concat();
        command.refuses(&arguments, parts);
    }
    command.refuses(&["generate", &llama, "--platform", "one-gpu", "--prompt", "x"], &["--platform", "--bench"]);
    command.refuses(&["fit", &llama, "--no-gpu"], &["no GPU", "--platform"]);
    command.refuses(&["fit", &llama, "--platform", "one-gpu", "--bench", "9,0"], &["--bench P,0", "1 token"]);
    command.refuses(&["fit", &llama, "--platform", "one-gpu", "--cores", "4"], &["--cores"]);
    command.refuses(&["fit", &llama, "--platform", "one-gpu", "--repeat", "3"], &["--repeat", "nothing is run"]);
    command.refuses(&["fit", &bundled("mlp.onnx"), "--tokens-per-second", "3"], &["--tokens-per-second", "tokens"]);
    let both = ["fit", &llama, "--platform", "one-gpu", "--tokens-per-second", "3", "--within", "5%"];
    command.refuses(&both, &["--within", "--tokens-per-second"]);
}

#[test]
fn a_model_with_state_runs_step_by_step() {
    let command = Anabranch::new();
    let unet = bundled("unet.onnx");
    let steps = ["run", &unet, "--no-gpu", "--steps", "5", "--feed", "y=x", "--random", "1"];
    let told = command.json(&[&steps[..], &["--output", "last.npz"]].concat());
    assert_eq!((told["steps"].as_u64(), told["plans"].as_u64()), (Some(5), Some(1)));
    assert_eq!(told["state_bytes"], serde_json::json!([4096, 4096]));
    assert!(command.path("last.npz").exists());
    // A state that stays on a GPU is written, too.
    let on_gpu = ["--steps", "2", "--feed", "y=x", "--random", "1", "--software-gpu", "--place", "gpu0"];
    command.text(&[&["run", &unet][..], &on_gpu, &["--output", "gpu.npz"]].concat());
    let written = anabranch_report::npy::read_npz(&command.path("gpu.npz")).expect("written");
    assert!(written["y"].elements::<f32>().is_some_and(|y| y.iter().any(|y| *y != 0.0)));
    assert!(command.text(&steps).contains("steps per second"));
    for (feed, parts) in [
        ("y", &["OUTPUT=INPUT"][..]),
        ("y*=x", &["one *"]),
        ("z=x", &["no output `z`", "y"]),
        ("y=z", &["no input `z`", "x"]),
    ] {
        command.refuses(&["run", &unet, "--no-gpu", "--steps", "2", "--feed", feed], parts);
    }
    command.refuses(&["run", &unet, "--no-gpu", "--steps", "2"], &["present.*"]);
    command.refuses(
        &["run", &unet, "--no-gpu", "--steps", "2", "--feed", "y=x", "--repeat", "3"],
        &["--repeat", "--steps"],
    );
    let inspected =
        command.run(&["inspect", &bundled("language/gpt2/model.onnx"), "--dim", "sequence_length=1", "--json"]);
    let inspected: serde_json::Value = serde_json::from_slice(&inspected.stdout).expect("JSON");
    assert_eq!(inspected["state"][0]["input"], "past_key_values.0.key");
    assert_eq!(inspected["state"].as_array().map(Vec::len), Some(4));
}
