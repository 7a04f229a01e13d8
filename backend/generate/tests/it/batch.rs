//! A batch has the tokens and the texts that each of its prompts has alone, or is refused by name.

use super::tiny::{Positions, TINY, Tiny};
use super::{answer, open};
use anabranch_execute::{CancelToken, RunOptions};
use anabranch_generate::{Choice, Ended, GenerateError, Generator, Prompt, Settings};
use anabranch_onnx::import::proto::data_type;
use std::cell::RefCell;
use std::time::Duration;

/// Tokens, text and end of each answer.
type Answers = Vec<(Vec<u32>, String, Option<Ended>)>;

/// Prompts of these lengths.
fn prompts(lengths: &[usize]) -> Vec<Vec<u32>> {
    let prompt = |(row, length): (usize, &usize)| (0..*length).map(|at| (at * 37 + row * 11) as u32 % 120).collect();
    lengths.iter().enumerate().map(prompt).collect()
}

/// Settings for so many tokens behind each prompt, one more in each row.
fn settings(prompts: &[Vec<u32>], more: usize, choice: Choice) -> Vec<Settings> {
    let of = |(row, prompt): (usize, &Vec<u32>)| Settings {
        max_length: prompt.len() + more + row,
        seed: row as u64,
        choice,
        ..Settings::default()
    };
    prompts.iter().enumerate().map(of).collect()
}

fn together(
    generator: &mut Generator,
    prompts: &[Vec<u32>],
    settings: &[Settings],
    options: &RunOptions,
) -> Result<Answers, GenerateError> {
    let rows = prompts.iter().map(Prompt::from).zip(settings.iter().cloned()).collect();
    let mut batch = generator.start_batch(rows)?;
    let made = generator.complete(&mut batch, options)?;
    Ok(made.into_iter().zip(batch.courses()).map(|((tokens, text), course)| (tokens, text, course.ended())).collect())
}

fn alone(generator: &mut Generator, prompts: &[Vec<u32>], settings: &[Settings]) -> Answers {
    let of = |(prompt, settings): (&Vec<u32>, &Settings)| {
        let mut course = generator.start(prompt, settings, false).expect("a prompt");
        let (mut tokens, mut text) = (Vec::new(), String::new());
        while let Some(piece) = generator.advance(&mut course, &RunOptions::default()) {
            let piece = piece.expect("runs");
            tokens.extend(piece.token);
            text += &piece.text;
        }
        (tokens, text, course.ended())
    };
    prompts.iter().zip(settings).map(of).collect()
}

const DRAWN: Choice = Choice::Sample { temperature: 1.5, top_k: Some(40), top_p: 0.95 };

#[test]
fn each_prompt_has_the_answer_that_it_has_alone() {
    for model in ["llama", "gpt2", "optimum"] {
        for (lengths, more, choice) in [
            (&[9, 1, 30, 4][..], 20, Choice::Greedy),
            // The longest grows out of a capacity while others are in it, and then ends before them.
            (&[4, 252, 9], 6, Choice::Greedy),
            (&[5, 5], 12, DRAWN),
            (&[7], 5, DRAWN),
        ] {
            let prompts = prompts(lengths);
            let settings = settings(&prompts, more, choice);
            let made = together(&mut open(model), &prompts, &settings, &RunOptions::default()).expect("a batch");
            assert_eq!(made, alone(&mut open(model), &prompts, &settings), "{model}: {lengths:?}");
        }
    }
}

#[test]
fn a_batch_whose_rows_end_together_leaves_nothing_behind() {
    for model in ["llama", "gpt2", "optimum"] {
        let (mut generator, prompts) = (open(model), prompts(&[5, 9, 5]));
        let settings = vec![Settings { max_length: 12, ..Settings::default() }; 3];
        for rows in [&[0, 2][..], &[0, 1], &[0, 1, 2]] {
            let settings = &settings[..rows.len()];
            let prompts: Vec<_> = rows.iter().map(|row| prompts[*row].clone()).collect();
            let made = together(&mut generator, &prompts, settings, &RunOptions::default()).expect("a batch");
            assert_eq!(alone(&mut generator, &prompts, settings), made, "{model}: {rows:?}");
        }
    }
}

#[test]
fn each_text_ends_by_its_own_stop_and_leaves_the_batch() {
    let mut generator = open("llama");
    let prompts = prompts(&[6, 11, 3]);
    let mut all = settings(&prompts, 24, Choice::Greedy);
    let whole = alone(&mut generator, &prompts, &all);
    let stop: String = whole[0].1.chars().skip(3).take(2).collect();
    all[0].stops = vec![stop];
    let made = together(&mut generator, &prompts, &all, &RunOptions::default()).expect("a batch");
    assert_eq!(made, alone(&mut open("llama"), &prompts, &all));
    assert_eq!((made[0].2, made[2].2), (Some(Ended::Stop), Some(Ended::Length)));
    assert!(generator.model().bytes() > 0, "the last row");
    // Nothing of a batch is gone on with.
    let mut course = generator.start(&prompts[2], &all[2], true).expect("a prompt");
    assert_eq!(course.timing().prompt, 3);
    assert!(generator.advance(&mut course, &RunOptions::default()).is_some_and(|piece| piece.is_ok()));
}

#[test]
fn habits_of_exporters_make_no_difference_or_are_refused() {
    let prompts = prompts(&[12, 3, 7]);
    let settings = settings(&prompts, 10, Choice::Greedy);
    let batch = |model: Tiny| {
        let (mut generator, _directory) = model.open();
        together(&mut generator, &prompts, &settings, &RunOptions::default())
    };
    let mut widest = Vec::new();
    for (name, model) in [
        ("given", TINY),
        ("counted by the mask", Tiny { positions: Positions::Counted, ..TINY }),
        ("a window", Tiny { window: Some(5), ..TINY }),
        ("a cache in f16", Tiny { cache: data_type::FLOAT16, ..TINY }),
        ("a merged decoder", Tiny { branch: true, ..TINY }),
        ("a fixed capacity", Tiny { capacity: Some(64), ..TINY }),
    ] {
        let (mut generator, _directory) = model.open();
        let want = alone(&mut generator, &prompts, &settings);
        assert_eq!(batch(model).expect(name), want, "{name}");
        widest.push(want);
    }
    assert!(widest.windows(2).any(|pair| pair[0] != pair[1]), "the models differ");
    for (model, parts) in [
        (Tiny { positions: Positions::OfShape, ..TINY }, &["one prompt at a time", "differ by"][..]),
        (Tiny { positions: Positions::OfFirst, ..TINY }, &["one prompt at a time", "differ by"]),
        (Tiny { mixed: true, ..TINY }, &["one prompt at a time", "next to other prompts"]),
        (Tiny { fixed: true, ..TINY }, &["one prompt at a time", "`input_ids`", "fixed size"]),
        (Tiny { mask: false, ..TINY }, &["one prompt at a time", "no attention mask"]),
    ] {
        let error = batch(model).expect_err(parts[1]).to_string();
        assert!(parts.iter().all(|part| error.contains(part)) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn a_batch_is_refused_cancelled_or_ended_by_the_next_answer_in_a_line() {
    let mut generator = open("optimum");
    let prompts = prompts(&[6, 2]);
    let all = settings(&prompts, 8, Choice::Greedy);
    let rows = |lengths: &[Vec<u32>]| lengths.iter().map(Prompt::from).zip(all.iter().cloned()).collect::<Vec<_>>();
    let error = generator.start_batch(rows(&[vec![1], Vec::new()])).err().expect("no token").to_string();
    assert!(error.contains("prompt 2") && error.contains("no token") && !error.contains('\n'), "{error}");
    let token = CancelToken::new();
    let run = RunOptions::default().with_cancel(token.clone());
    let mut batch = generator.start_batch(rows(&prompts)).expect("a batch");
    assert_eq!(generator.advance_batch(&mut batch, &run).expect("runs").len(), 2);
    token.cancel();
    generator.advance_batch(&mut batch, &run).expect("an end is no error");
    assert!(batch.courses().iter().all(|course| course.ended() == Some(Ended::Cancelled)));
    let mut batch = generator.start_batch(rows(&prompts)).expect("a batch");
    generator.advance_batch(&mut batch, &RunOptions::default()).expect("runs");
    let late = RunOptions::default().with_timeout(Duration::ZERO);
    generator.advance_batch(&mut batch, &late).expect_err("out of time");
    assert_eq!(generator.advance_batch(&mut batch, &RunOptions::default()).expect("over"), []);
    let mut batch = generator.start_batch(rows(&prompts)).expect("a batch");
    let (tokens, _) = answer(&mut generator, &prompts[0], &all[0]);
    let error = generator.advance_batch(&mut batch, &RunOptions::default()).expect_err("over").to_string();
    assert!(error.contains("another answer"), "{error}");
    let made = together(&mut generator, &prompts, &all, &RunOptions::default()).expect("a batch");
    assert_eq!(made[0].0, tokens);
}

#[test]
fn any_batch_has_the_answers_of_each_prompt_alone() {
    let opened = [TINY, Tiny { capacity: Some(40), ..TINY }].map(|model| [model.open(), model.open()]);
    let generators = RefCell::new(opened);
    arbtest::arbtest(|u| {
        let [(one, _), (all, _)] = &mut generators.borrow_mut()[usize::from(u.arbitrary::<bool>()?)];
        let (mut prompts, mut settings) = (Vec::new(), Vec::new());
        for _ in 0..u.int_in_range(1..=4)? {
            let count = u.int_in_range(1..=9)?;
            let prompt = (0..count).map(|_| u.int_in_range(0..=127)).collect::<Result<Vec<u32>, _>>()?;
            let max_length = count + u.int_in_range(1..=9)?;
            let choice = if u.arbitrary()? { DRAWN } else { Choice::Greedy };
            let stops = if u.arbitrary()? { vec!["e".to_owned(), "th".to_owned()] } else { Vec::new() };
            settings.push(Settings { max_length, choice, stops, seed: u.arbitrary()?, ..Settings::default() });
            prompts.push(prompt);
        }
        let made = together(all, &prompts, &settings, &RunOptions::default()).expect("a batch");
        assert_eq!(made, alone(one, &prompts, &settings), "{prompts:?} with {settings:?}");
        Ok(())
    });
}
