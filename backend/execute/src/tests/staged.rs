//! Weights that are sent to a GPU in each run.

use super::{assert_right, executor, gpu, kernels};
use crate::RunOptions;
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::test_programs::{Maker, PlacedProgram, add, relu};
use anabranch_plan::{PlanError, PlanOptions, Residency, StreamMode};

const GPU: DeviceId = DeviceId(1);

/// Bytes of each weight.
const WEIGHT: u64 = 4 * 64 * 32;

/// Layers of a GPU that each add their own weight, with a node of the host in the middle.
fn layers(count: usize) -> PlacedProgram {
    let dims = [64, 32];
    let mut maker = Maker::new();
    let mut value = maker.input(&dims);
    let mut device_of = Vec::new();
    for layer in 0..count {
        let weight = maker.constant(&dims, |at| ((at * 7 + layer * 13) % 31) as f32 * 0.25 - 3.0);
        value = maker.node(add(), &[value, weight], &dims);
        device_of.push(1);
        if layer == count / 2 {
            value = maker.node(relu(), &[value], &dims);
            device_of.push(0);
        }
    }
    PlacedProgram::new(maker.finish(&[value]), &["cpu", "gpu"], &device_of)
}

fn staged(stays: u64) -> PlanOptions {
    PlanOptions::default().with_weights(Residency::Within([(GPU, stays)].into()))
}

#[test]
fn staged_weights_give_the_bits_of_resident_ones() {
    let Some(_) = gpu() else { return };
    let placed = layers(9);
    for stays in [0, WEIGHT, 4 * WEIGHT, 9 * WEIGHT] {
        let executor = executor(&placed, &staged(stays), 1);
        let sent = executor.plan().transfers().iter().filter(|t| placed.program.constant(t.value).is_some()).count();
        assert_eq!(sent as u64, 9 - stays / WEIGHT);
        for profile in [false, true, false] {
            assert_right(&executor, &RunOptions::default().with_profile(profile));
        }
    }
}

#[test]
fn weights_of_many_times_the_memory_run() {
    let Some(_) = gpu() else { return };
    let placed = layers(40);
    let kernels = kernels(&placed.program);
    let peak =
        |options: &PlanOptions| placed.plan_with(&*kernels, options).expect("no limit").memory().devices()[1].clone();
    let (resident, least) = (peak(&PlanOptions::default()), peak(&staged(0)));
    assert_eq!((resident.constants, least.constants), (40 * WEIGHT, 0));
    assert!(least.peak() <= 9 * WEIGHT, "three staging buffers, two weights and values, not {}", least.peak());
    let limited = placed.limited(|device| if device == 1 { least.peak() } else { u64::MAX });
    assert!(matches!(limited.plan_with(&*kernels, &PlanOptions::default()), Err(PlanError::Memory(_))));
    assert!(resident.peak() > 5 * least.peak());
    let executor = executor(&limited, &staged(0), 1);
    for _ in 0..3 {
        assert_right(&executor, &RunOptions::default());
    }
}

/// Values that the host makes one after the other and a GPU reads one after the other: with little memory on the GPU,
/// each is copied when its turn comes.
#[test]
fn copies_wait_for_their_turn_where_memory_is_short() {
    let Some(_) = gpu() else { return };
    let dims = [64, 32];
    let mut maker = Maker::new();
    let x = maker.input(&dims);
    let made: Vec<_> = (0..8).map(|_| maker.node(relu(), &[x], &dims)).collect();
    let read: Vec<_> = made.iter().map(|value| maker.node(add(), &[*value, *value], &dims)).collect();
    let device_of: Vec<u32> = [[0; 8], [1; 8]].concat();
    let placed = PlacedProgram::new(maker.finish(&read), &["cpu", "gpu"], &device_of);
    let kernels = kernels(&placed.program);
    let options = PlanOptions::default().with_streaming(StreamMode::Off);
    let within = |limit: u64| {
        let limited = placed.limited(|device| if device == 1 { limit } else { u64::MAX });
        limited.plan_with(&*kernels, &options).map(|plan| (plan.memory().devices()[1].peak(), limited))
    };
    let (roomy, _) = within(u64::MAX).expect("no limit");
    let (mut least, mut tight) = within(roomy).expect("exactly as much as it takes");
    while let Ok(less) = within(least - 1) {
        (least, tight) = less;
    }
    assert!(roomy >= 11 * WEIGHT && least <= 7 * WEIGHT, "{roomy} and {least} bytes for values of {WEIGHT}");
    let executor = executor(&tight, &options, 1);
    for profile in [false, true] {
        assert_right(&executor, &RunOptions::default().with_profile(profile));
    }
}
