//! One plan serves all lengths of a cache up to a capacity, if the model takes a padded cache. If it does not, the
//! tokens are right all the same, and a note says why.

use super::tiny::{CONTEXT, Positions, TINY, Tiny};
use super::{answer, folder, open, open_in};
use anabranch_execute::{CancelToken, RunOptions};
use anabranch_generate::{Choice, Ended, Message, Sample, Settings, measure};
use anabranch_onnx::import::proto::data_type;

const PROMPT: [u32; 5] = [3, 60, 7, 9, 1];

/// Greedy tokens after a long prompt up to the context, the plans that they took, and the note.
fn tokens(model: Tiny) -> (Vec<u32>, u64, Option<String>) {
    let (mut generator, _directory) = model.open();
    let settings = Settings { ignore_ends: true, ..Settings::default() };
    let prompt: Vec<u32> = (0..230).map(|at| at * 37 % 126).collect();
    let (tokens, _) = answer(&mut generator, &prompt, &settings);
    assert_eq!(tokens.len(), CONTEXT - prompt.len());
    (tokens, generator.session().plans_made(), generator.note().map(str::to_owned))
}

#[test]
fn padding_changes_no_token_whatever_a_model_has_its_positions_and_masks_from() {
    let half = Tiny { cache: data_type::FLOAT16, ..TINY };
    let windowed = Tiny { window: Some(40), ..TINY };
    let chunked = Tiny { chunk: Some(280), ..TINY };
    let [plain, of_half, of_windowed, of_chunked] = [TINY, half, windowed, chunked].map(|model| {
        let (tokens, plans, note) = tokens(Tiny { mask: false, ..model });
        assert!(plans >= 100 && note.is_none(), "without a mask: {plans} plans, {note:?}");
        tokens
    });
    // A prompt, and a step of 256 and of 329 positions, both with padding and without.
    let padded = |plans: u64, note: Option<&str>| plans == 5 && note.is_none();
    let refused = |plans: u64, note: Option<&str>| plans > 70 && note.is_some_and(|note| note.contains("differ by"));
    for (name, model, want, is_so) in [
        ("given", TINY, &plain, &padded as &dyn Fn(u64, Option<&str>) -> bool),
        ("counted by the mask", Tiny { positions: Positions::Counted, ..TINY }, &plain, &padded),
        ("a window", windowed, &of_windowed, &padded),
        ("a cache in f16", half, &of_half, &padded),
        ("a merged decoder", Tiny { branch: true, ..TINY }, &plain, &padded),
        ("of the shape", Tiny { positions: Positions::OfShape, ..TINY }, &plain, &refused),
        // Only a capacity beyond the first chunk shows it.
        ("chunks of keys", chunked, &of_chunked, &refused),
    ] {
        let (made, plans, note) = tokens(model);
        assert_eq!(&made, want, "{name}");
        assert!(is_so(plans, note.as_deref()), "{name}: {plans} plans, {note:?}");
    }
}

#[test]
fn two_thousand_tokens_of_a_concatenated_cache_take_two_plans_for_each_capacity() {
    let mut generator = open("optimum");
    let settings = Settings { max_length: 5 + 2000, ignore_ends: true, ..Settings::default() };
    let (tokens, _) = answer(&mut generator, &PROMPT, &settings);
    // A prompt; and steps of 256, 512, 1,024 and 2,047 positions, of which the first are computed both ways.
    assert_eq!((tokens.len(), generator.session().plans_made(), generator.note()), (2000, 9, None));
    // The prompt's plan is the oldest of the nine, of which a session keeps eight. The same numbers are computed.
    let settings = Settings { max_length: 300, ..settings };
    let again = answer(&mut generator, &PROMPT, &settings).0;
    assert_eq!((&again[..], generator.session().plans_made()), (&tokens[..295], 10));
}

#[test]
fn draws_over_a_padded_cache_are_the_same_on_any_number_of_threads_and_each_time() {
    let choice = Choice::Sample { temperature: 1.5, top_k: Some(40), top_p: 0.95 };
    let settings = Settings { choice, seed: 3, max_length: 320, ignore_ends: true, ..Settings::default() };
    let mut one = open("optimum");
    let (tokens, _) = answer(&mut one, &PROMPT, &settings);
    assert_eq!(answer(&mut one, &PROMPT, &settings).0, tokens);
    let mut two = open_in(&folder("optimum"), 2).expect("a language model");
    assert_eq!(answer(&mut two, &PROMPT, &settings).0, tokens);
}

#[test]
fn a_chat_goes_on_from_a_padded_cache() {
    let settings = Settings { max_length: 300, ignore_ends: true, ..Settings::default() };
    let mut generator = open("optimum");
    let mut said = vec![Message::new("user", "the water")];
    let first = generator.encode_chat(&said).expect("a template");
    let mut course = generator.start(&first, &settings, true).expect("a prompt");
    let answered: Vec<u32> = std::iter::from_fn(|| generator.advance(&mut course, &RunOptions::default()))
        .filter_map(|piece| piece.expect("runs").token)
        .collect();
    // The answer as its tokens, all but the last of which are in the cache.
    said.push(Message::new("user", "and then"));
    let next = generator.encode_chat(&said[1..]).expect("a template");
    let whole = [first, answered, next].concat();
    let settings = Settings { max_length: whole.len() + 30, ..settings };
    let go_on = |generator: &mut anabranch_generate::Generator, go_on| {
        let mut course = generator.start(&whole, &settings, go_on).expect("a prompt");
        let pieces = std::iter::from_fn(|| generator.advance(&mut course, &RunOptions::default()));
        let tokens: Vec<u32> = pieces.filter_map(|piece| piece.expect("runs").token).collect();
        (tokens, course.timing().prompt)
    };
    let (tokens, computed) = go_on(&mut generator, true);
    assert!(computed < whole.len() - 250, "{computed} of {}", whole.len());
    assert_eq!((tokens, whole.len()), go_on(&mut open("optimum"), false), "as if it was read at once");
}

#[test]
fn a_cancelled_comparison_loses_nothing() {
    let settings = Settings { max_length: 40, ignore_ends: true, ..Settings::default() };
    let (tokens, _) = answer(&mut open("optimum"), &PROMPT, &settings);
    let mut generator = open("optimum");
    let token = CancelToken::new();
    let mut course = generator.start(&PROMPT, &settings, false).expect("a prompt");
    generator.advance(&mut course, &RunOptions::default()).expect("a piece").expect("runs");
    token.cancel();
    drop(generator.advance(&mut course, &RunOptions::default().with_cancel(token)));
    assert_eq!((course.ended(), generator.note()), (Some(Ended::Cancelled), None));
    let prompt = [&PROMPT[..], &tokens[..1]].concat();
    let mut course = generator.start(&prompt, &settings, true).expect("a prompt");
    assert_eq!(course.timing().prompt, 1, "the prompt is in the cache");
    let rest = std::iter::from_fn(|| generator.advance(&mut course, &RunOptions::default()));
    assert_eq!(rest.filter_map(|piece| piece.expect("runs").token).collect::<Vec<_>>(), tokens[1..]);
}

#[test]
fn rates_of_a_padded_cache_make_no_plans_once_it_is_compared() {
    let mut generator = open("optimum");
    let sample = Sample { prompt: 250, tokens: 12 };
    let rates = measure(&mut generator, sample, 2, &RunOptions::default(), &mut || {}).expect("measured");
    assert_eq!((rates.plans, rates.decode.len()), (0, 2));
    assert!(rates.predicted_decode.is_some_and(|rate| rate > 0.0));
}
