//! Nodes in blocks compute the same bits as single nodes.

use super::{devices, inputs};
use crate::{DevicePool, Executor, Kernels, RunOptions};
use anabranch_kernels::gpu::{self, GpuLimits};
use anabranch_kernels::op::NodeSpec;
use anabranch_kernels::{Tensor, cpu};
use anabranch_placement_core::platform::DeviceKind;
use anabranch_plan::blocks::{BlockMembers, Forming, check, contract, form};
use anabranch_plan::test_programs::{PlacedProgram, cpu_device, random_program};
use anabranch_plan::{self as plan, ChunkRule, MachineDevice, PlanDevice, PlanOptions, StreamMode};
use arbtest::arbitrary::{Result, Unstructured};
use std::sync::Arc;

/// Whether the CPU, or the GPU if there is one, has a kernel for a block.
fn supports(device: &PlanDevice, spec: &NodeSpec, constant: &[bool]) -> bool {
    match (device.kind, super::gpu()) {
        (DeviceKind::Cpu, _) => cpu::prepare(spec, &vec![false; spec.inputs.len()]).is_ok(),
        (_, Some(gpu)) => gpu::supports(spec, constant, gpu.facts() as &GpuLimits).is_ok(),
        (_, None) => false,
    }
}

/// Outputs of a placed program.
fn outputs(placed: &PlacedProgram, options: &PlanOptions) -> Vec<Tensor> {
    let program = Arc::new(placed.program.clone());
    let kernels = Arc::new(Kernels::new(Arc::clone(&program)));
    let plan = placed.plan_with(&*kernels, options).expect("no limits");
    assert_eq!(plan::check(&placed.program, &plan), []);
    let pool = DevicePool::new(devices(placed, 2));
    let executor = Executor::new(plan, kernels, &pool).expect("devices");
    executor.run(&inputs(&program), &RunOptions::default()).expect("nothing fails").outputs
}

/// Moves inputs and outputs to the host; nodes stay on their devices.
fn callers_on_host(placed: &PlacedProgram) -> PlacedProgram {
    let device_of: Vec<u32> =
        placed.placement.device_of.iter().take(placed.program.nodes.len()).map(|on| on.0).collect();
    PlacedProgram::new(placed.program.clone(), &placed.kinds(), &device_of)
}

/// Contracts the blocks of a program. Returns the number of blocks, in all and on GPUs.
fn contracted(placed: &PlacedProgram, chunk: ChunkRule) -> (PlacedProgram, (usize, usize)) {
    let nodes = placed.program.nodes.len();
    let device = |device: &PlanDevice| MachineDevice { kind: device.kind, ..cpu_device(&device.name) };
    let groups = form(&Forming {
        program: &placed.program,
        device_of: &placed.placement.device_of[..nodes],
        devices: &placed.devices.iter().map(device).collect::<Vec<_>>(),
        mode: StreamMode::Always,
        chunk,
        supports: &|device, spec, constant| supports(&placed.devices[device.index()], spec, constant),
    });
    let contraction = contract(&placed.program, &groups).expect("what is formed is blocks");
    assert_eq!(check(&placed.program, &contraction), []);
    let device_of = contraction.members.iter().map(|nodes| placed.placement.device_of[nodes[0].index()].0);
    let device_of: Vec<u32> = device_of.collect();
    let kinds = placed.kinds();
    let on_gpu = |group: &&BlockMembers| kinds[placed.placement.device_of[group.members[0].index()].index()] == "gpu";
    let counts = (groups.len(), groups.iter().filter(on_gpu).count());
    (PlacedProgram::new(contraction.program, &kinds, &device_of), counts)
}

/// Runs a random program in blocks with chunks of all sizes. Returns the number of blocks, in all and on GPUs.
fn same_bits(u: &mut Unstructured<'_>, placed: &PlacedProgram) -> Result<(usize, usize)> {
    let whole = PlanOptions { streaming: StreamMode::Off, ..PlanOptions::default() };
    let expected = outputs(placed, &whole);
    let rules = [ChunkRule::Rows(1), ChunkRule::Rows(7), ChunkRule::Bytes(256 << 10), ChunkRule::Rows(usize::MAX)];
    let chunk = *u.choose(&rules)?;
    let (streamed, blocks) = contracted(placed, chunk);
    let options = PlanOptions { streaming: StreamMode::Always, chunk, ..PlanOptions::default() };
    let found = outputs(&streamed, &options);
    assert_eq!(found.len(), expected.len());
    for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let elements = || (found.elements::<f32>(), expected.elements::<f32>());
        assert!(found.same_bits(expected), "output {at} with chunks of {chunk:?}: {:?}", elements());
    }
    Ok(blocks)
}

#[test]
fn blocks_on_cpus_have_the_bits_of_their_nodes() {
    let mut blocks = 0;
    // A busy machine runs only a few programs in that time.
    for _ in 0..20 {
        arbtest::arbtest(|u| {
            let placed = random_program(u, 3)?.all_on_cpus();
            blocks += same_bits(u, &placed)?.0;
            Ok(())
        })
        .budget_ms(500);
        if blocks > 0 {
            return;
        }
    }
    panic!("no program had a block");
}

#[test]
fn blocks_over_cpus_and_a_gpu_have_the_bits_of_their_nodes() {
    let Some(_) = super::gpu() else { return };
    let mut on_gpu = 0;
    arbtest::arbtest(|u| {
        let placed = callers_on_host(&random_program(u, 2)?.maps_on_gpus());
        on_gpu += same_bits(u, &placed)?.1;
        Ok(())
    })
    .budget_ms(1500);
    assert!(on_gpu > 0, "no program had a block on the GPU");
}
