//! Streaming changes the order of computation, never the result: bit for bit, except on GPUs whose drivers contract
//! products and sums.

use anabranch::device::GpuKind;
use anabranch::lower::Rewrites;
use anabranch::plan::{ChunkRule, StreamMode};
use anabranch_tests::{MODELS, assert_close, options, reference, session};

/// Runs every bundled model with and without streaming on all devices of a kind; returns the number of blocks.
fn compare(place: &str, fuse: Rewrites, chunk: ChunkRule) -> usize {
    let mut blocks = 0;
    for name in MODELS {
        let run = |streaming| {
            let mut options = options(place);
            options.fuse = Some(fuse);
            options.stream = Some(streaming);
            options.chunk = Some(chunk);
            let session = session(name, options);
            let (inputs, _) = reference(name);
            let run = session.run_with(&inputs, &Default::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
            let contracts = place == "gpu" && session.inventory().gpus[0].kind != GpuKind::Software;
            (run.outputs, run.prepared.blocks.len(), contracts)
        };
        let ((whole, none, _), (streamed, some, contracts)) = (run(StreamMode::Off), run(StreamMode::Always));
        assert_eq!(none, 0, "{name} has blocks without streaming");
        blocks += some;
        if contracts {
            assert_close(name, &streamed, &reference(name).1);
            continue;
        }
        for ((output, whole), (_, streamed)) in whole.iter().zip(streamed.iter()) {
            assert!(whole.same_bits(streamed), "{name} on {place}: {output} differs");
        }
    }
    blocks
}

#[test]
fn on_cpus_streamed_models_have_the_same_bits() {
    assert!(compare("cpu", Rewrites::NONE, ChunkRule::Auto) > 0);
    assert!(compare("heft", Rewrites::NONE, ChunkRule::Rows(3)) > 0);
    compare("cpu", Rewrites::ALL, ChunkRule::Bytes(64 << 10));
}

#[test]
fn on_a_gpu_streamed_models_have_the_same_bits() {
    compare("gpu", Rewrites::NONE, ChunkRule::Auto);
    compare("gpu", Rewrites::ALL, ChunkRule::Auto);
}
