//! One part of a graph: a session of Anabranch that ONNX Runtime calls as one node.

use super::abi::{NodeComputeInfo, VERSION};
use super::api::Api;
use super::graph::Part;
use super::report::Report;
use super::status::{Failure, Result, guarded};
use super::values;
use anabranch::import::{self, Model};
use anabranch::{
    Inputs, Outputs, Prepared, RunOptions, Session, SessionConfig, SessionError, Shape, Tensor, TensorSpec, borrowed,
};
use ort_sys::{OrtKernelContext, OrtStatusPtr, OrtValue};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// A compiled part that ONNX Runtime holds. It begins with the fields that ONNX Runtime knows.
#[repr(C)]
pub(crate) struct Compiled {
    base: NodeComputeInfo,
    api: Api,
    name: String,
    /// The part with the initialisers as inputs, whose elements come with the first run.
    model: Model,
    /// Names and indices of the inputs among those of ONNX Runtime's node: first inputs that vary, then constants.
    varying: Vec<(String, usize)>,
    constant: Vec<(String, usize)>,
    /// For each output of the model, its index among those of ONNX Runtime's node.
    outputs: Vec<usize>,
    options: SessionConfig,
    report: Arc<Report>,
}

/// State that a session of ONNX Runtime holds of a part while it may run it.
#[derive(Default)]
struct State {
    /// Opened by the first run that can.
    session: OnceLock<Session>,
    /// Held while it is opened.
    opening: Mutex<()>,
    /// Plans that the report contains.
    reported: Mutex<Vec<Weak<Prepared>>>,
}

impl Compiled {
    /// Makes a part that ONNX Runtime calls by a node with these inputs and outputs.
    ///
    /// # Errors
    /// If it is not a valid model, or the node lacks one of its inputs or outputs.
    pub(crate) fn new(
        api: Api,
        name: String,
        part: &Part,
        (inputs, outputs): (&[String], &[String]),
        options: SessionConfig,
        report: Arc<Report>,
    ) -> Result<Self> {
        let model = import::from_message(&part.message)?;
        let index = |names: &[String]| -> HashMap<String, usize> {
            names.iter().enumerate().map(|(at, name)| (name.clone(), at)).collect()
        };
        let (inputs, outputs) = (index(inputs), index(outputs));
        let place = |of: &HashMap<String, usize>, value: &str| {
            let missing = || Failure::new(format_args!("part {name}: its node has no input or output `{value}`"));
            of.get(value).copied().ok_or_else(missing)
        };
        let (mut varying, mut constant) = (Vec::new(), Vec::new());
        for (input, _) in &part.inputs {
            let found = (input.clone(), place(&inputs, input)?);
            if part.constants.contains_key(input) { constant.push(found) } else { varying.push(found) }
        }
        let outputs = model.outputs.iter().map(|output| place(&outputs, &output.name)).collect::<Result<_>>()?;
        let base = NodeComputeInfo {
            ort_version_supported: VERSION,
            CreateState: create_state,
            Compute: compute,
            ReleaseState: release_state,
        };
        Ok(Self { base, api, name, model, varying, constant, outputs, options, report })
    }

    /// Returns the value at an index of the node's inputs.
    fn input(&self, context: *mut OrtKernelContext, at: usize, name: &str) -> Result<*const OrtValue> {
        // SAFETY: `context` is of the call that is being answered.
        let value =
            self.api.get(ptr::null(), |out| unsafe { (self.api.ort.KernelContext_GetInput)(context, at, out) })?;
        let missing = || Failure::new(format_args!("part {}: input `{name}` is missing", self.name));
        if value.is_null() { Err(missing()) } else { Ok(value) }
    }

    /// Returns the session. Opens it with the elements of the initialisers that this call brings.
    fn session<'s>(&self, state: &'s State, context: *mut OrtKernelContext) -> Result<&'s Session> {
        if let Some(session) = state.session.get() {
            return Ok(session);
        }
        let _alone = state.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = state.session.get() {
            return Ok(session);
        }
        let mut model = self.model.clone();
        for (name, at) in &self.constant {
            // SAFETY: ONNX Runtime keeps initialisers in place and unchanged as long as its session. That session frees
            // the state, and with it the session that reads them, before it ends.
            let constant = unsafe { values::constant(self.api, self.input(context, *at, name)?, name) }?;
            if !model.fix_input(name, constant) {
                return Err(Failure::new(format_args!("part {}: `{name}` differs from its declaration", self.name)));
            }
        }
        let session = Session::new(model, self.options.clone())?;
        Ok(state.session.get_or_init(|| session))
    }

    /// Runs the part in ONNX Runtime's memory.
    fn run(&self, state: &State, context: *mut OrtKernelContext) -> Result<()> {
        let session = self.session(state, context)?;
        let mut inputs = Inputs::new();
        for (name, at) in &self.varying {
            // SAFETY: inputs stay unchanged until this call is answered, and the session releases them when its run
            // ends.
            let tensor = unsafe { values::tensor(self.api, self.input(context, *at, name)?, name) }?;
            inputs = inputs.tensor(name, tensor);
        }
        session.outlasting(|| {
            let prepared = session.prepare(&inputs)?;
            self.tell(state, &prepared);
            match prepared.rest() {
                Some(_) => Ok(self.run_in_phases(session, &inputs, context)),
                None => self.run_plan(session, &prepared, &inputs, context),
            }
        })?
    }

    /// Runs a whole plan in ONNX Runtime's memory. The inner result holds failures that are not the session's.
    fn run_plan(
        &self,
        session: &Session,
        prepared: &Arc<Prepared>,
        inputs: &Inputs,
        context: *mut OrtKernelContext,
    ) -> std::result::Result<Result<()>, SessionError> {
        let specs = prepared.program.outputs.iter().map(|output| &output.spec);
        let places = specs.clone().zip(&self.outputs).map(|(spec, at)| self.output(context, *at, spec));
        let places: Result<Vec<Option<NonNull<u8>>>> = places.collect();
        let places = match places {
            Ok(places) => places,
            Err(failure) => return Ok(Err(failure)),
        };
        let memory = |(spec, place): (&TensorSpec, &Option<NonNull<u8>>)| {
            // SAFETY: the memory is this output's alone; it is used until the run ends, within this call.
            place.and_then(|place| unsafe { borrowed::output(place, spec) }).unwrap_or_else(no_memory)
        };
        let mut outputs = Outputs::over(specs.zip(&places).map(memory).collect());
        session.run_prepared_into(prepared, inputs, &mut outputs, &RunOptions::default())?;
        for (tensor, place) in outputs.tensors().iter().zip(places) {
            // SAFETY: the memory has as many bytes as the output, and belongs to no other tensor of ours: the tensor
            // that was made over it is gone, or it is this one.
            unsafe { left(tensor, place) };
        }
        Ok(Ok(()))
    }

    /// Runs a part whose shapes are known only in its run, and copies its outputs.
    fn run_in_phases(&self, session: &Session, inputs: &Inputs, context: *mut OrtKernelContext) -> Result<()> {
        let outputs = session.run(inputs)?;
        for (tensor, at) in outputs.tensors().iter().zip(&self.outputs) {
            let place = self.output(context, *at, tensor.spec())?;
            // SAFETY: the memory has as many bytes as the output, and belongs to no tensor of ours.
            unsafe { left(tensor, place) };
        }
        Ok(())
    }

    /// Returns the memory of an output; `None` if it has no bytes.
    fn output(&self, context: *mut OrtKernelContext, at: usize, spec: &TensorSpec) -> Result<Option<NonNull<u8>>> {
        let dims: Vec<i64> = spec.shape.dims().iter().map(|dim| *dim as i64).collect();
        // SAFETY: `context` is of the call that is being answered, and the number of dimensions is correct.
        let data: *mut c_void = unsafe {
            let value = self.api.get(ptr::null_mut(), |out| {
                (self.api.ort.KernelContext_GetOutput)(context, at, dims.as_ptr(), dims.len(), out)
            })?;
            if value.is_null() || spec.bytes() == 0 {
                return Ok(None);
            }
            let theirs = values::spec(self.api, value, "an output")?;
            if theirs != *spec {
                let text = format!("part {}: an output is {spec}, but ONNX Runtime expects {theirs}", self.name);
                return Err(Failure::new(text));
            }
            self.api.get(ptr::null_mut(), |out| (self.api.ort.GetTensorMutableData)(value, out))?
        };
        Ok(NonNull::new(data.cast()))
    }

    /// Adds a plan to the report if it is new.
    fn tell(&self, state: &State, prepared: &Arc<Prepared>) {
        if !self.report.is_wanted() {
            return;
        }
        let mut reported = state.reported.lock().unwrap_or_else(PoisonError::into_inner);
        reported.retain(|known| known.strong_count() > 0);
        if !reported.iter().any(|known| ptr::eq(known.as_ptr(), Arc::as_ptr(prepared))) {
            reported.push(Arc::downgrade(prepared));
            // A report that cannot be written was rejected when the part was compiled: it is no reason to fail a run.
            let _ = self.report.planned(&self.name, prepared);
        }
    }
}

/// Copies an output to its memory, if it has any.
///
/// # Safety
/// As [`borrowed::copy_out`].
unsafe fn left(tensor: &Tensor, place: Option<NonNull<u8>>) {
    if let Some(place) = place {
        // SAFETY: by this function's contract.
        unsafe { borrowed::copy_out(tensor, place) };
    }
}

/// Returns the placeholder of an output that is copied.
fn no_memory() -> Tensor {
    Tensor::zeroed(TensorSpec::new(anabranch::DType::U8, Shape::new([0]).expect("no elements fit everywhere")))
}

/// Returns the part of a handle that ONNX Runtime passes.
///
/// # Safety
/// `info` must be a pointer to a [`Compiled`] that was given to ONNX Runtime.
unsafe fn compiled<'a>(info: *mut NodeComputeInfo) -> &'a Compiled {
    // SAFETY: by this function's contract; a `Compiled` begins with its `NodeComputeInfo`, and is only read.
    unsafe { &*info.cast::<Compiled>() }
}

unsafe extern "system" fn create_state(
    info: *mut NodeComputeInfo,
    _context: *const c_void,
    state: *mut *mut c_void,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes the pointer that `Provider::compile` returned, and a writable pointer.
    unsafe {
        guarded(compiled(info).api.ort, || {
            *state = Box::into_raw(Box::new(State::default())).cast();
            Ok(())
        })
    }
}

unsafe extern "system" fn compute(
    info: *mut NodeComputeInfo,
    state: *mut c_void,
    context: *mut OrtKernelContext,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes the pointers that `Provider::compile` and `create_state` returned; a state is only
    // read.
    unsafe { guarded(compiled(info).api.ort, || compiled(info).run(&*state.cast::<State>(), context)) }
}

unsafe extern "system" fn release_state(info: *mut NodeComputeInfo, state: *mut c_void) {
    // SAFETY: as in `compute`; ONNX Runtime gives a state back once, when nothing runs.
    let status = unsafe {
        guarded(compiled(info).api.ort, || {
            drop(Box::from_raw(state.cast::<State>()));
            Ok(())
        })
    };
    // The error cannot be reported: this function returns nothing.
    let _ = status;
}
