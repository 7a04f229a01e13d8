use crate::Generator;
use anabranch_execute::{CancelToken, RunOptions};
use anabranch_session::SessionConfig;
use std::path::Path;

#[test]
fn a_failure_that_loses_the_cache_leaves_none_of_its_tokens() {
    for model in ["llama", "gpt2"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/language").join(model);
        let options = SessionConfig::default().without_gpu();
        let mut generator = Generator::open(&folder, None, options).expect("bundled");
        let decoder = generator.emptied();
        let prompt = [1, 2, 3];
        let first = decoder.feed(&prompt, &RunOptions::default()).expect("a prompt").to_vec();
        let cancelled = CancelToken::new();
        cancelled.cancel();
        let stopped = RunOptions::default().with_cancel(cancelled);
        decoder.feed(&[4], &stopped).map(drop).expect_err("cancelled");
        assert_eq!(decoder.held(), prompt, "{model} keeps what a failed step did not lose");
        // As after a panic in the node that appends to the cache.
        decoder.model.reset();
        decoder.feed(&[4], &stopped).map(drop).expect_err("cancelled");
        assert!(decoder.held().is_empty(), "{model}");
        assert_eq!(decoder.feed(&prompt, &RunOptions::default()).expect("the prompt again"), first, "{model}");
    }
}
