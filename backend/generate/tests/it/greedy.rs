//! Tokens are the right ones, and the same however they are asked for.

use super::{answer, folder, integers, open, open_in};
use anabranch_device::DetectOptions;
use anabranch_execute::{CancelToken, RunOptions};
use anabranch_generate::{Choice, Ended, Generator, Message, Settings};
use anabranch_planning::Strategy;
use anabranch_session::SessionConfig;

#[test]
fn greedy_tokens_are_those_of_the_reference_for_200_steps() {
    for model in ["llama", "gpt2", "optimum"] {
        let (prompt, want) = (integers(model, "prompt"), integers(model, "tokens"));
        let settings = Settings { max_length: prompt.len() + want.len(), ..Settings::default() };
        let mut generator = open(model);
        let (tokens, text) = answer(&mut generator, &prompt, &settings);
        assert_eq!(tokens, want, "{model}");
        assert_eq!(text, generator.decode(&tokens), "{model}");
    }
}

#[test]
fn greedy_tokens_are_the_same_if_a_gpu_holds_the_cache() {
    let (prompt, want) = (integers("llama", "prompt"), integers("llama", "tokens"));
    let settings = Settings { max_length: prompt.len() + want.len(), ..Settings::default() };
    let devices = DetectOptions::default().with_software_gpu(true);
    let options = SessionConfig::default().with_devices(devices).with_strategy(Strategy::GPU);
    let mut generator = Generator::open(&folder("llama"), None, options).expect("a language model");
    assert_eq!(answer(&mut generator, &prompt, &settings).0, want);
    assert!(generator.model().is_on_gpu());
}

#[test]
fn a_seed_gives_the_same_tokens_on_any_number_of_threads() {
    let choice = Choice::Sample { temperature: 1.5, top_k: Some(40), top_p: 0.95 };
    let settings = |seed| Settings { choice, seed, max_length: 40, ..Settings::default() };
    let prompt = [3, 60, 7];
    let mut one = open("llama");
    let (tokens, _) = answer(&mut one, &prompt, &settings(1));
    assert_eq!(answer(&mut one, &prompt, &settings(1)).0, tokens);
    let mut two = open_in(&folder("llama"), 2).expect("a language model");
    assert_eq!(answer(&mut two, &prompt, &settings(1)).0, tokens);
    assert_ne!(answer(&mut one, &prompt, &settings(2)).0, tokens);
}

#[test]
fn a_text_ends_by_its_length_a_stop_text_an_end_or_a_cancellation() {
    let mut generator = open("llama");
    let prompt = generator.encode("the river").expect("text");
    let settings = Settings { max_length: prompt.len() + 12, ..Settings::default() };
    let (tokens, text) = answer(&mut generator, &prompt, &settings);
    assert_eq!(tokens.len(), 12);
    let stop = text.chars().skip(4).take(3).collect::<String>();
    let stopped = Settings { stops: vec![stop.clone()], ..settings.clone() };
    let (_, short) = answer(&mut generator, &prompt, &stopped);
    assert_eq!(short, text[..text.find(&stop).expect("a part of it")]);

    let token = CancelToken::new();
    let run = RunOptions::default().with_cancel(token.clone());
    let mut course = generator.start(&prompt, &settings, false).expect("a prompt");
    let mut count = 0;
    while let Some(piece) = generator.advance(&mut course, &run) {
        count += usize::from(piece.expect("a cancelled run is no error").token.is_some());
        if count == 3 {
            token.cancel();
        }
    }
    assert_eq!((course.ended(), count), (Some(Ended::Cancelled), 3));
    assert_eq!(answer(&mut generator, &prompt, &settings).0, tokens, "the generator is as good as before");

    // So warm that all tokens come, the end among them.
    let choice = Choice::Sample { temperature: 9.0, top_k: None, top_p: 1.0 };
    let all = Settings { choice, max_length: 1500, ..Settings::default() };
    let mut course = generator.start(&prompt, &all, false).expect("a prompt");
    while let Some(piece) = generator.advance(&mut course, &RunOptions::default()) {
        piece.expect("runs");
    }
    assert_eq!(course.ended(), Some(Ended::End));
}

#[test]
fn what_a_chat_shares_with_the_one_before_is_not_computed_again() {
    let mut generator = open("llama");
    let settings = Settings { max_length: 60, ..Settings::default() };
    let mut said = vec![Message::new("user", "the water")];
    let first = generator.encode_chat(&said).expect("a template");
    assert_eq!(generator.decode(&first), "the water", "special tokens are no text");
    let mut course = generator.start(&first, &settings, true).expect("a prompt");
    assert_eq!(generator.advance(&mut course, &RunOptions::default()).map(|piece| piece.is_ok()), Some(true));
    // As if the model had said nothing.
    said.extend([Message::new("assistant", ""), Message::new("user", "and then")]);
    let second = generator.encode_chat(&said).expect("a template");
    assert!(second.starts_with(&first));
    let course = generator.start(&second, &settings, true).expect("a prompt");
    assert_eq!(course.timing().prompt, second.len() - first.len());
    let course = generator.start(&second, &settings, false).expect("a prompt");
    assert_eq!(course.timing().prompt, second.len());
}

#[test]
fn an_answer_is_not_continued_with_the_cache_of_another() {
    let mut generator = open("llama");
    let prompt = generator.encode("the water").expect("tokens");
    let settings = Settings { max_length: 60, ..Settings::default() };
    let mut first = generator.start(&prompt, &settings, false).expect("a prompt");
    let mut second = generator.start(&prompt, &settings, true).expect("a prompt");
    let mut advanced = |course| generator.advance(course, &RunOptions::default()).expect("no end");
    let error = advanced(&mut first).expect_err("the second has the cache").to_string();
    assert!(error.contains("another answer was started"), "{error}");
    assert!(advanced(&mut second).is_ok());
}

#[test]
fn characters_of_several_tokens_come_whole() {
    let mut generator = open("llama");
    let tokens = generator.encode("é the é").expect("text");
    assert_eq!((tokens[0], tokens[1], generator.decode(&tokens).as_str()), (96, 97, "é the é"));
    let choice = Choice::Sample { temperature: 3.0, top_k: None, top_p: 1.0 };
    for seed in 0..4 {
        let settings = Settings { choice, seed, max_length: 60, ignore_ends: true, ..Settings::default() };
        let (tokens, text) = answer(&mut generator, &tokens, &settings);
        assert_eq!(text, generator.decode(&tokens), "seed {seed}");
    }
}

#[test]
fn two_thousand_tokens_take_one_plan_for_each_capacity_and_the_memory_of_the_last() {
    let mut generator = open("llama");
    let prompt = integers("llama", "prompt");
    let settings = Settings { max_length: prompt.len() + 2000, ignore_ends: true, ..Settings::default() };
    let mut course = generator.start(&prompt, &settings, false).expect("a prompt");
    let (mut count, mut seen) = (0, Vec::new());
    while let Some(piece) = generator.advance(&mut course, &RunOptions::default()) {
        count += usize::from(piece.expect("runs").token.is_some());
        if [20, 1100, 2000].contains(&count) {
            seen.push((generator.session().plans_made(), generator.model().bytes()));
        }
    }
    // Two layers of keys and values with two heads of 16 numbers.
    let bytes = |capacity: u64| 2 * 2 * 2 * 16 * 4 * capacity;
    // A prompt and a step of 256, and steps of 512, 1,024 and 2,048.
    assert_eq!((count, seen), (2000, vec![(2, bytes(256)), (5, bytes(2048)), (5, bytes(2048))]));
    // Nothing is planned again.
    let (tokens, _) = answer(&mut generator, &prompt, &Settings { max_length: 60, ..settings });
    assert_eq!((tokens.len(), generator.session().plans_made()), (60 - prompt.len(), 5));
}
