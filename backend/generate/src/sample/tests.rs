use super::*;
use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;

fn sampler(choice: Choice, seed: u64) -> Sampler {
    Sampler::new(&Settings { choice, seed, ..Settings::default() }).expect("sound settings")
}

fn sample(temperature: f64, top_k: Option<usize>, top_p: f64) -> Choice {
    Choice::Sample { temperature, top_k, top_p }
}

/// Logits with many ties, some of them masked.
fn logits(u: &mut Unstructured<'_>) -> Result<Vec<f32>> {
    let count = u.int_in_range(1..=40)?;
    let values = [-3.0, -0.0, 0.0, 1.0, 1.0, 2.5, 80.0, f32::NEG_INFINITY];
    let mut logits = (0..count).map(|_| u.choose(&values).copied()).collect::<Result<Vec<_>>>()?;
    logits[u.int_in_range(0..=count - 1)?] = 0.5;
    Ok(logits)
}

/// The tokens that may be drawn, by the definition: the most probable `k`, and of these as few as have the probability
/// `p` together.
fn support(logits: &[f32], temperature: f64, k: Option<usize>, p: f64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..logits.len() as u32).filter(|at| logits[*at as usize] > f32::NEG_INFINITY).collect();
    order.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b)));
    order.truncate(k.unwrap_or(usize::MAX));
    let weights: Vec<f64> = order
        .iter()
        .map(|at| (f64::from(logits[*at as usize] - logits[order[0] as usize]) / temperature).exp())
        .collect();
    let total: f64 = weights.iter().sum();
    let enough = |count: usize| weights[..count].iter().sum::<f64>() >= p * total;
    let count = (1..=order.len()).find(|count| enough(*count)).unwrap_or(order.len());
    order.truncate(count);
    order
}

#[test]
fn only_tokens_of_the_support_are_drawn_and_each_seed_draws_the_same() {
    arbtest(|u| {
        let logits = logits(u)?;
        let k = u.arbitrary::<bool>()?.then_some(u.int_in_range(1..=45)?);
        let (temperature, p) = (*u.choose(&[0.1, 1.0, 7.0])?, *u.choose(&[0.0, 1e-9, 0.3, 0.5, 0.999, 1.0])?);
        let seed = u.arbitrary()?;
        let support = support(&logits, temperature, k, p);
        let (mut one, mut other) = (sampler(sample(temperature, k, p), seed), sampler(sample(temperature, k, p), seed));
        for _ in 0..20 {
            let token = one.choose(&logits).expect("numbers");
            assert!(support.contains(&token), "{token} of {support:?} for {logits:?}, {k:?}, {p}");
            assert_eq!(other.choose(&logits), Ok(token));
        }
        one.weigh(&logits).expect("numbers");
        one.keep();
        assert_eq!(one.candidates.iter().map(|(token, _)| *token).collect::<Vec<_>>(), support);
        Ok(())
    });
}

#[test]
fn draws_are_as_frequent_as_they_are_probable() {
    let mut sampler = sampler(sample(1.0, None, 1.0), 7);
    let logits = [1f32, 2.0, 4.0].map(f32::ln);
    let mut counts = [0u32; 3];
    (0..70_000).for_each(|_| counts[sampler.choose(&logits).expect("numbers") as usize] += 1);
    for (count, want) in counts.iter().zip([10_000u32, 20_000, 40_000]) {
        // Six standard deviations of the rarest.
        assert!(count.abs_diff(want) < 800, "{counts:?}");
    }
}

#[test]
fn the_greatest_logit_wins_and_of_equal_ones_the_lowest_token() {
    let mut greedy = sampler(Choice::Greedy, 0);
    assert_eq!(greedy.choose(&[0.0, 3.0, 3.0, f32::NEG_INFINITY]), Ok(1));
    assert_eq!(sampler(sample(1.0, Some(1), 1.0), 3).choose(&[0.0, 3.0, 3.0]), Ok(1));
    assert_eq!(sampler(sample(1.0, None, 0.0), 3).choose(&[0.0, 3.0, 3.0]), Ok(1));
}

#[test]
fn seen_tokens_are_less_probable() {
    let settings = Settings { repetition_penalty: 2.0, ..Settings::default() };
    let mut sampler = Sampler::new(&settings).expect("sound settings");
    assert_eq!(sampler.choose(&[3.0, 2.0]), Ok(0));
    sampler.see(0);
    assert_eq!(sampler.choose(&[3.0, 2.0]), Ok(1));
    sampler.see(1);
    assert_eq!(sampler.choose(&[-1.0, -1.5]), Ok(0));
    sampler.see(77);
    assert_eq!(sampler.choose(&[-1.0, -1.5]), Ok(0), "a token that is none of the model's");
}

#[test]
fn logits_that_are_no_numbers_are_refused_by_their_token() {
    for choice in [Choice::Greedy, sample(1.0, Some(2), 0.9)] {
        let mut sampler = sampler(choice, 0);
        for wrong in [f32::NAN, f32::INFINITY, -f32::NAN] {
            let error = sampler.choose(&[0.0, 1.0, wrong, 9.0]).expect_err("no number");
            assert!(error.contains("token 2"), "{error}");
        }
        assert!(sampler.choose(&[f32::NEG_INFINITY; 3]).expect_err("all masked").contains("masks"));
        assert!(sampler.choose(&[]).is_err());
        assert_eq!(sampler.choose(&[f32::NEG_INFINITY, -1e30]), Ok(1));
    }
}

#[test]
fn settings_without_sense_are_refused_by_their_name() {
    let of = |choice| Settings { choice, ..Settings::default() };
    for (settings, name) in [
        (of(sample(0.0, None, 1.0)), "temperature"),
        (of(sample(f64::NAN, None, 1.0)), "temperature"),
        (of(sample(1.0, None, 1.1)), "top_p"),
        (of(sample(1.0, None, f64::NAN)), "top_p"),
        (of(sample(1.0, Some(0), 1.0)), "top_k"),
        (Settings { repetition_penalty: -1.0, ..Settings::default() }, "repetition_penalty"),
    ] {
        assert!(Sampler::new(&settings).map(drop).expect_err(name).contains(name));
    }
}

#[test]
fn what_a_caller_says_counts_before_the_configuration() {
    let greedy = Settings { max_length: 64, ..Settings::default() };
    assert_eq!(greedy.with(&Overrides::default()), greedy);
    let warm = Overrides { temperature: Some(0.5), max_length: Some(9), seed: 3, ..Overrides::default() };
    let warm = greedy.with(&warm);
    assert_eq!((warm.choice, warm.max_length, warm.seed), (sample(0.5, None, 1.0), 9, 3));
    let narrow = warm.with(&Overrides { top_k: Some(2), ..Overrides::default() });
    assert_eq!((narrow.choice, narrow.max_length), (sample(0.5, Some(2), 1.0), 9));
    let cold = warm.with(&Overrides { temperature: Some(0.0), top_k: Some(2), ..Overrides::default() });
    assert_eq!(cold.choice, Choice::Greedy);
}
