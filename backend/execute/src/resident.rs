//! Tensors that stay on a device: the output of one run is the input of a later one without crossing the bus.

use super::engine::Engine;
use super::in_place::{is_placeholder, placeholder};
use super::link::download;
use super::pool::DevicePool;
use super::verify_specs;
use super::worker::GpuTensors;
use anabranch_base::error_kind::ErrorKind;
use anabranch_device::ComputeDevice;
use anabranch_ir::program::Program;
use anabranch_kernels::gpu::{Gpu, GpuBuffer};
use anabranch_kernels::{Buffer, DType, Tensor, TensorSpec};
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::{ExecError, HOST, InPlace, Plan};
use std::fmt;
use std::sync::Arc;

/// A tensor on a device: on a GPU in its own buffer, on a CPU in the host's memory. Clones share its elements, which
/// never change while there are clones.
#[derive(Clone)]
pub struct DeviceTensor {
    spec: TensorSpec,
    device: Arc<str>,
    memory: Memory,
}

#[derive(Clone)]
enum Memory {
    Host(Tensor),
    Gpu(Arc<dyn Stored>),
}

/// A buffer of an opened GPU. This is a trait object, because a GPU's type is so deep that users who need a tensor to
/// be `Send` would otherwise have to raise the compiler's recursion limit.
trait Stored: Send + Sync {
    fn gpu(&self) -> &Arc<Gpu>;
    fn buffer(&self) -> &GpuBuffer;
}

impl Stored for (Arc<Gpu>, GpuBuffer) {
    fn gpu(&self) -> &Arc<Gpu> {
        &self.0
    }

    fn buffer(&self) -> &GpuBuffer {
        &self.1
    }
}

impl DeviceTensor {
    /// Creates a tensor in the memory of the host, to which `device` belongs.
    pub fn on_host(device: &str, tensor: Tensor) -> Self {
        Self { spec: tensor.spec().clone(), device: device.into(), memory: Memory::Host(tensor) }
    }

    /// Returns the tensor without elements that stands for an input on a GPU which goes on with a former output.
    pub fn placeholder(dtype: DType) -> Self {
        Self::on_host("the host", placeholder(dtype))
    }

    /// Whether it is a [`placeholder`](Self::placeholder).
    pub fn is_placeholder(&self) -> bool {
        self.host().is_some_and(is_placeholder)
    }

    /// Returns type and shape.
    pub fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    /// Returns the name of its device.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Returns the tensor itself, if it is in the host's memory.
    pub fn host(&self) -> Option<&Tensor> {
        match &self.memory {
            Memory::Host(tensor) => Some(tensor),
            Memory::Gpu(_) => None,
        }
    }

    /// Returns its elements on the host; from a GPU, a copy of them. Waits until the GPU has made them.
    ///
    /// # Errors
    /// If the GPU was lost, or there is no memory for the copy.
    pub fn read(&self) -> Result<Tensor, ExecError> {
        match &self.memory {
            Memory::Host(tensor) => Ok(tensor.clone()),
            Memory::Gpu(stored) => {
                let short = || ExecError::memory("the host");
                let mut buffer = Buffer::try_zeroed(self.spec.bytes()).ok_or_else(short)?;
                let read = download(stored.gpu(), stored.buffer(), buffer.bytes_mut());
                read.map_err(|halt| halt.failure().error.on(&*self.device))?;
                let tensor = Tensor::new(self.spec.clone(), Arc::new(buffer));
                tensor.map_err(|_| ExecError::internal("a tensor of a device has the wrong size"))
            }
        }
    }

    /// The buffer, if it is on a GPU.
    pub(super) fn buffer(&self) -> Option<&GpuBuffer> {
        match &self.memory {
            Memory::Host(_) => None,
            Memory::Gpu(stored) => Some(stored.buffer()),
        }
    }

    /// Whether the tensor is on a device in its present opened state in a pool.
    fn is_on(&self, pool: &DevicePool, device: DeviceId) -> bool {
        match &self.memory {
            Memory::Host(_) => false,
            Memory::Gpu(stored) => stored.gpu().fault().is_none() && pool.is_current(device, stored.gpu()),
        }
    }

    /// Whether nothing else holds the tensor, so that it may be written again.
    fn is_unshared(&mut self) -> bool {
        match &mut self.memory {
            Memory::Host(_) => false,
            Memory::Gpu(stored) => Arc::get_mut(stored).is_some(),
        }
    }
}

impl fmt::Debug for DeviceTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceTensor({} on {})", self.spec, self.device)
    }
}

impl DevicePool {
    /// Copies a tensor to a device; in the host's memory, where CPU devices read it, it is shared.
    ///
    /// # Errors
    /// If there is no such device, or the GPU cannot be used.
    pub fn upload(&self, device: DeviceId, tensor: &Tensor) -> Result<DeviceTensor, ExecError> {
        let Some(target) = self.devices().get(device.index()) else {
            return Err(ExecError::internal("a tensor was to be uploaded to a device that is not there"));
        };
        if let ComputeDevice::Cpu(cpu) = target {
            return Ok(DeviceTensor::on_host(&cpu.name, tensor.clone()));
        }
        let gpu = self.gpu(device)?;
        let buffer = gpu.upload(tensor.bytes()).map_err(|error| ExecError::unusable(target.name(), &error))?;
        let memory = Memory::Gpu(Arc::new((gpu, buffer)));
        Ok(DeviceTensor { spec: tensor.spec().clone(), device: target.name().into(), memory })
    }

    /// Returns a buffer for an output on a GPU: a former output's that nothing else holds, the plan's own that no run
    /// had yet, or a new buffer.
    fn target(
        &self,
        device: DeviceId,
        spec: &TensorSpec,
        former: Option<DeviceTensor>,
        unused: impl FnOnce() -> Option<(Arc<Gpu>, GpuBuffer)>,
    ) -> Result<DeviceTensor, ExecError> {
        if let Some(mut former) = former
            && former.spec == *spec
            && former.is_on(self, device)
            && former.is_unshared()
        {
            return Ok(former);
        }
        let new = || {
            let gpu = self.gpu(device)?;
            let buffer = gpu.storage((spec.bytes().max(1) as u64).next_multiple_of(4));
            let refused = |error| ExecError::unusable(self.devices()[device.index()].name(), &error);
            let buffer = buffer.map_err(refused)?;
            Ok::<_, ExecError>((gpu, buffer))
        };
        let memory = Memory::Gpu(Arc::new(unused().map_or_else(new, Ok)?));
        let device = self.devices()[device.index()].name().into();
        Ok(DeviceTensor { spec: spec.clone(), device, memory })
    }
}

/// The tensors that a plan's runs read and write on GPUs.
pub(super) struct OnGpus<'a> {
    pub(super) plan: &'a Plan,
    pub(super) program: &'a Program,
    pub(super) pool: &'a DevicePool,
    pub(super) engine: &'a Engine,
    /// Inputs that may lie in the memory of outputs, by their numbers among those of GPUs.
    pub(super) in_place: &'a [InPlace],
}

impl OnGpus<'_> {
    /// Returns the tensors of a run for these inputs. A former output that an input goes on with is the input and, if
    /// nothing else holds it, the output. Other former outputs that nothing holds are written again.
    ///
    /// # Errors
    /// If an input is not there, or a GPU was lost. What the run would have gone on with is then where it was.
    pub(super) fn tensors(
        &self,
        given: &[DeviceTensor],
        resident: &mut Vec<DeviceTensor>,
    ) -> Result<GpuTensors, ExecError> {
        let mut inputs = given.to_vec();
        for pair in self.continuing(given) {
            let there = resident.get(pair.output).filter(|tensor| !tensor.is_placeholder());
            let missing = || {
                let text = format!(
                    "input {} of those on GPUs continues a former output, but no former output is there",
                    pair.input
                );
                ExecError::new(ErrorKind::Input, text)
            };
            inputs[pair.input] = there.ok_or_else(missing)?.clone();
        }
        self.verify(&inputs)?;
        let mut former: Vec<_> = std::mem::take(resident).into_iter().map(Some).collect();
        for pair in self.continuing(given) {
            inputs[pair.input] = DeviceTensor::placeholder(DType::U8);
            if let Some(tensor) = &mut former[pair.output] {
                let is_free = tensor.is_unshared();
                inputs[pair.input] = tensor.clone();
                former[pair.output].take_if(|_| !is_free);
            }
        }
        let is_input = |output: usize| self.continuing(given).any(|pair| pair.output == output);
        let outputs = self.program.outputs.iter().enumerate();
        let outputs = outputs.map(|(at, output)| (self.plan.output_device(at), &output.spec));
        let outputs =
            outputs.filter(|(device, _)| *device != HOST).enumerate().map(|(at, (device, spec))| {
                match former.get_mut(at).and_then(Option::take) {
                    Some(tensor) if is_input(at) => Ok(DeviceTensor { spec: spec.clone(), ..tensor }),
                    tensor => self.pool.target(device, spec, tensor, || self.engine.unused_slot(device, at as u32)),
                }
            });
        match outputs.collect::<Result<_, _>>() {
            Ok(outputs) => Ok(GpuTensors { inputs, outputs }),
            Err(error) => {
                *resident = self.left(given, &inputs);
                Err(error)
            }
        }
    }

    /// Returns the former outputs that a failed run went on with, in their places among the outputs. A placeholder
    /// stands for other outputs.
    pub(super) fn left(&self, given: &[DeviceTensor], inputs: &[DeviceTensor]) -> Vec<DeviceTensor> {
        let mut left = Vec::new();
        for pair in self.continuing(given) {
            left.resize_with(pair.output, || DeviceTensor::placeholder(DType::U8));
            left.push(inputs[pair.input].clone());
        }
        left
    }

    /// The pairs of which a run with these inputs goes on with the former output, in the order of outputs.
    fn continuing(&self, given: &[DeviceTensor]) -> impl Iterator<Item = &InPlace> {
        self.in_place.iter().filter(|pair| given.get(pair.input).is_some_and(DeviceTensor::is_placeholder))
    }

    /// Checks that these tensors fit the plan's inputs on GPUs.
    fn verify(&self, given: &[DeviceTensor]) -> Result<(), ExecError> {
        let inputs = || {
            let inputs = self.program.inputs.iter().enumerate();
            let inputs = inputs.map(|(at, id)| (self.plan.input_device(at), self.program.value(*id)));
            inputs.filter(|(device, _)| *device != HOST)
        };
        verify_specs(
            inputs().map(|(_, value)| value),
            given.iter().map(DeviceTensor::spec),
            "inputs that stay on GPUs",
        )?;
        for ((device, value), tensor) in inputs().zip(given) {
            if !tensor.is_on(self.pool, device) {
                let text = format!(
                    "input {:?} must be a tensor on {:?} as it is open now; the given tensor, of {:?}, is elsewhere or \
                     was lost with its device; read it and upload it again",
                    value.name,
                    self.plan.device(device).name,
                    tensor.device
                );
                return Err(ExecError::new(ErrorKind::Input, text));
            }
        }
        Ok(())
    }
}
