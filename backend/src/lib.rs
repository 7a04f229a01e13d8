//! Runs ONNX models on the CPU cores and GPUs of a workstation together.
//!
//! Opening a model imports it, lowers it to kernels, places each node on a device by the predicted costs, and plans
//! execution order, transfers and memory. The plan can then be run any number of times. Measured times of a run can
//! improve the costs for the next plan.
//!
//! # Running a model
//!
//! A [`Session`] opens a model and runs it; inputs and outputs are `ndarray` arrays. Plans are made for the given
//! shapes, and kept.
//!
//! ```
//! use anabranch::{Inputs, Outputs, Session, SessionConfig};
//! use ndarray::array;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/layer.onnx");
//! let session = Session::open(model, SessionConfig::default())?;
//! assert_eq!(session.inputs()[0].to_string(), "x: f32[batch×4]");
//! assert_eq!(session.outputs()[0].to_string(), "y: f32[batch×3]");
//!
//! let mut inputs = Inputs::new().array("x", &array![[1f32, 2.0, 3.0, 4.0]])?;
//! let mut outputs = session.run(&inputs)?;
//! assert_eq!(outputs.view::<f32>("y")?, array![[12.5, 4.0, 0.0]].into_dyn());
//!
//! // Again, in the same buffers.
//! inputs.assign("x", &array![[0f32, 3.0, 0.0, 1.0]])?;
//! session.run_into(&inputs, &mut outputs)?;
//! assert_eq!(outputs.view::<f32>(0)?, array![[2.5, 2.0, 1.0]].into_dyn());
//! # Ok(())
//! # }
//! ```
//!
//! [`SessionConfig`] selects the devices and their threads, the [`Strategy`] that places the nodes, and its
//! [`Constraints`]. [`RunOptions`] give a run a time limit or a [`CancelToken`]. Errors are a [`SessionError`] with an
//! [`ErrorKind`], and the file, node, device or input that they concern.
//!
//! # Comparing placements on this machine
//!
//! [`compare()`](compare::compare) runs a model in several configurations in turn, and compares predicted with measured
//! times.
//!
//! ```
//! use anabranch::compare::{CompareOptions, compare};
//! use anabranch::planning::PlanChoice;
//! use anabranch::{Inputs, Session, SessionConfig, Strategy};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/layer.onnx");
//! let session = Session::open(model, SessionConfig::default().with_dim("batch", 8))?;
//! let inputs = session.fill_random(Inputs::new(), 1)?;
//! let configurations = [Strategy::CPU, Strategy::HEFT].map(|strategy| PlanChoice { strategy, ..session.choice() });
//! let options = CompareOptions::new("layer", configurations.to_vec()).with_runs(5, 2);
//! let comparison = compare(&session, &inputs, &options, &mut || {})?;
//! for outcome in &comparison.outcomes {
//!     println!("{}: {:?} ms predicted, {} ms measured", outcome.configuration.place, outcome.predicted_ms, outcome.measured_ms.median);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Learning costs from profiled runs
//!
//! Costs start from assumed rates. [`Session::calibrate`] measures the devices, and [`Session::learn`] takes times from
//! profiled runs. [`refine()`](refine::refine) does both in rounds: it places again with the new costs and keeps the
//! fastest measured plan. A [`CostStore`] is saved to a file and given to later sessions.
//!
//! ```
//! use anabranch::{CostStore, Inputs, RunOptions, Session, SessionConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/layer.onnx");
//! # let directory = std::env::temp_dir().join(format!("anabranch-doctest-{}", std::process::id()));
//! # std::fs::create_dir_all(&directory)?;
//! # let store = directory.join("costs.json");
//! let session = Session::open(model, SessionConfig::default().with_dim("batch", 8))?;
//! let inputs = session.fill_random(Inputs::new(), 1)?;
//! session.run(&inputs)?; // The first run touches memory for the first time.
//! let mut profiled = RunOptions::default();
//! profiled.profile = true;
//! let run = session.run_with(&inputs, &profiled)?;
//! let learned = session.learn(&run);
//! println!("{} nodes; (predicted − measured) / measured: {:?}", learned.nodes, run.accuracy().makespan.error());
//!
//! session.save_costs(&store)?;
//! let costs = CostStore::load(&store)?.store;
//! let next = Session::open(model, SessionConfig::default().with_costs(costs))?;
//! let planned = next.plan(&inputs)?;
//! println!("predicted: {} s", planned.plan().predicted().makespan);
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok(())
//! # }
//! ```
//!
//! # State, and text
//!
//! [`Session::stateful`] binds outputs of one run to inputs of the next, which a [`Stateful`] keeps where they are
//! made. The module `generate` (the feature of this name) generates text with it: it takes a language model's folder
//! and prompts, and returns text token by token.
//!
//! # Modules
//!
//! [`import`] and [`lower`] turn a model into a [`program`]. [`planning`] places the program on a machine with costs
//! from [`costs`] and makes a [`plan`]. [`execute`] runs the plan; [`learning`] measures devices and learns from
//! runs; [`session`] is the interface to all of these. [`flow`] runs graphs of a user's functions instead.

pub mod blocks {
    //! Streaming blocks on one device: nodes that are computed together as one node, chunk of rows by chunk of rows.

    pub use anabranch_plan::blocks::{
        BlockError, BlockGain, BlockMembers, BlockNode, BlockSummary, Contraction, Fault, Forming, Readers, block_node,
        check, chunk_rows, contract, form,
    };
}

pub mod borrowed {
    //! Memory of callers in other languages as tensors: a run reads its inputs and writes its outputs there.

    pub use anabranch_session::borrowed::{SMALL, copy_out, input, output, owned};
}

#[cfg(feature = "lab")]
pub mod canonical {
    //! The canonical task graph of a program (De Matteis et al. 2023, sections 3.2 and 7.3): streaming through a
    //! dataflow device.

    pub use anabranch_lab::canonical::{CanonicalProgram, ConversionError, Granularity, residual_network};
}

#[cfg(feature = "tuning")]
pub mod compare {
    //! Configurations of placing, ordering and streaming one model, each really run on this machine: predicted against
    //! measured times.

    pub use anabranch_tuning::compare::{
        Agreement, CompareOptions, Comparison, Configuration, DYNAMIC, DeviceOutcome, Difference, Latencies, Load,
        Median, Outcome, Ratio, Series, SeriesOptions, Together, Tolerance, Top1, Worst, compare, compare_seen, floats,
        measure, runs_per_second, together,
    };
}

pub mod compiled {
    //! Compiled models: a lowered program, its weights and its plan in one file (`MODEL.anabranch`). A session runs it
    //! without lowering or planning.

    pub use anabranch_session::compiled::{About, Cache, CacheOutcome, CachedSession, CompiledError, is_compiled};
}

pub mod constant {
    //! Constants: type and shape at once, elements on demand.

    pub use anabranch_ir::constant::{Constant, ConstantError};
}

pub mod costs {
    //! Costs of runs: histories of measured times, the store that keeps them, and the model that predicts from them.

    pub use anabranch_costs::{
        Cold, CostFormat, CostSource, CostStore, DeviceCosts, Estimate, FORMAT_VERSION, History, ImportExportError,
        LinkCosts, Loaded, MachineCosts, NodeCost, NodeCosts, Predictor, RECENT, Rates, RunCosts, Sample, Slowdown,
        StoreError, interval,
    };
}

pub mod device {
    //! Devices of this machine: its CPU devices, its GPUs, and their distances.

    pub use anabranch_device::{
        CacheSummary, CpuDevice, CpuGranularity, DetectError, DetectOptions, DeviceRef, GpuBackend, GpuDevice,
        GpuFeatures, GpuKind, GpuLimits, Host, Inventory, MemorySource, NumaNode, PciAddress, SizeError, Source,
        affinity, detect, exact_bytes, format_bytes, format_list, parse_bytes, parse_memory_override,
    };
}

#[cfg(feature = "flow")]
pub mod drops {
    //! Drops: physical graphs of DALiuGE that really run (Wu et al. 2017, "DALiuGE: A graph execution framework for
    //! harnessing the astronomical data deluge"). Applications are shell commands or a few functions, data are files or
    //! memory.

    pub use anabranch_flow::drops::{
        DropReport, DropState, DropsError, Failed, Naming, Outcome, PreparedRecipe, Reason, Recipe, Shell, end_all,
        read, run_command,
    };
}

pub mod execute {
    //! Execution of plans: by the caller's thread or its deputy, and one thread for each further device and each link.

    pub use anabranch_execute::{
        Activity, CancelToken, ComputeDevice, CpuTeam, DevicePool, DeviceTensor, DynamicExecutor, Event, ExecError,
        Executor, Forecast, GpuOpener, Kernels, Lane, RunOptions, RunOutput, Weights,
    };
}

pub mod files {
    //! Files of users: reads regular files within bounds, and writes files whole or not at all.

    pub use anabranch_base::files::{
        MOST_BYTES, abandon, append, json_problem, make_directory, may_write, open, read, read_text, without_os_errors,
        write,
    };
}

#[cfg(feature = "flow")]
pub mod flow {
    //! Flows: dataflow graphs whose nodes are a user's functions, run by workers in the manner of Sucuri (Silva et al.
    //! 2016, "Task Scheduling in Sucuri Dataflow Library").

    pub use anabranch_flow::{
        Allocation, AllocationError, Collected, Flow, FlowError, FlowEvent, FlowOptions, FlowReport, Inputs, Links,
        NodeReport, Output, Scheduler, Traffic, WorkerConfig, WorkerReport, current_worker, programs,
    };
}

#[cfg(feature = "generate")]
pub mod generate {
    //! Text from language models: folders as onnxruntime-genai and optimum export them, token by token.

    pub use anabranch_generate::{
        Batch, Choice, Config, Course, EncoderConfig, Ended, Forecast, GenerateError, Generation, Generator, Message,
        Overrides, Piece, Prompt, Rates, Rules, Sample, Sampler, Settings, Timing, forecast, measure,
    };
}

pub mod import {
    //! Import of ONNX files as [`Model`]s.

    pub use anabranch_onnx::import::{
        Attribute, AttributeError, Dim, ImportError, ImportErrorKind, Input, Kind, Labels, LimitError, Limits, Model,
        Node, OPSETS, Output, Subgraph, ValueIndex, attribute, data_files, element_type, error, from_bytes,
        from_bytes_within, from_message, item_in_file, load, load_within, model, proto, survey, tensor_to_bytes,
    };
}

pub mod interruption {
    //! Early end of work whose caller was cancelled: lowering and planning, which do not know the options of a run.

    #[doc(hidden)]
    pub use anabranch_base::interruption::for_this_thread;
    pub use anabranch_base::interruption::{Interrupt, is_due, under};
}

pub mod learning {
    //! Learning from runs: calibration by probes, times of profiled runs for the cost store, and the accuracy of
    //! predictions.

    pub use anabranch_base::load::Load;
    pub use anabranch_learning::{
        Accuracy, CalibrationError, CalibrationStep, Calibrator, Compared, Learned, LinkAccuracy, NodeAccuracy,
        ProfiledRun, calibrate, record,
    };
}

pub mod lower {
    //! Lowers a model to a program: shapes become numbers, operators become a few ops each, constants are folded, and
    //! neighbouring ops are fused.

    pub use anabranch_onnx::lower::{
        Continuation, LowerError, LowerOptions, Obstacle, Rewrite, Rewrites, UnknownRewrite, lower, operators,
    };
}

#[cfg(feature = "pipeline")]
pub mod pipeline {
    //! Pipelines over sequences of inputs: the stages of a model work at the same time on different devices.

    pub use anabranch_pipeline::{
        Among, DeviceTimes, DistributedStage, DividedState, Division, DivisionMessage, DivisionOptions, DivisionStage,
        Finished, Goal, LatencyShares, MachineLink, MachineTimes, Machines, Measured, MeasuredReplica, MeasuredStage,
        Pipeline, PipelineError, PipelineOptions, PipelinePlan, StageCosts, StageDevices, StageMapping, StageOutput,
        StagePlan, StageSpan, Tried, divide,
    };
}

pub mod plan {
    //! The plan: the work of every device and link, its order, and its memory.
    //!
    //! ```
    //! use anabranch::{Inputs, Session, SessionConfig};
    //!
    //! # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/layer.onnx");
    //! let session = Session::open(model, SessionConfig::default().with_dim("batch", 8))?;
    //! let planned = session.plan(&session.fill_random(Inputs::new(), 1)?)?;
    //! let plan = planned.plan();
    //! for node in plan.steps().iter().filter_map(|step| step.node()) {
    //!     println!("{node:?} on {}: {}", plan.device(plan.device_of(node)).name, plan.reason(node));
    //! }
    //! println!("{} s predicted, {} bytes between devices", plan.predicted().makespan, plan.traffic().copied.bytes);
    //! assert!(plan.memory().devices()[0].peak() > 0);
    //! # Ok::<(), Box<dyn std::error::Error>>(())
    //! ```

    pub use anabranch_plan::{
        Allocation, CandidatePlan, ChunkRule, DeviceMemory, Displaced, HOST, Holding, KernelNeeds, LinkPlan,
        MachineDevice, MemoryItem, MemoryPlan, MemoryShortage, Moved, Needs, PackedConstant, Plan, PlanDevice,
        PlanError, PlanOptions, Predicted, Residency, Ring, Route, SharedConstant, Step, Stream, StreamMode, Traffic,
        Transfer, TransferId, Violation, check,
    };
}

pub mod plan_file {
    //! The plan as a file that people read and edit (in the manner of Sucuri's allocation file).

    pub use anabranch_plan::plan_file::{FileError, ListedBlock, PlanFile};
}

pub mod planning {
    //! Plans a lowered program: the machine and its costs, constraints, placement, streaming blocks, prediction, and
    //! memory limits.

    pub use anabranch_planning::{
        Algorithm, BlockSource, Constraints, DeviceEntry, LinkEntry, Lowered, Machine, MachineDevice, Order, Parts,
        Pin, Placed, PlacementRequest, Placing, PlanChoice, Planned, Planner, PlanningError, PlatformFile, Resident,
        Split, Strategy, compute_devices, link, machine_devices, name_matches,
    };
}

pub mod program {
    //! The lowered program: nodes that kernels compute, on values of known types and shapes.

    pub use anabranch_ir::program::{ModelOperator, Node, NodeId, Origin, Output, Program, Value, ValueId};
}

#[cfg(feature = "tuning")]
pub mod refine {
    //! Runs, learns and places again, until the plan is as good as the measurements allow.

    pub use anabranch_tuning::refine::{Measured, RefineOptions, Refined, Refinement, Round, Verdict, refine};
}

pub mod session {
    //! The library's interface: open a model, describe it, run arrays through it.

    pub use anabranch_session::{
        ArrayError, Dynamic, ErrorKind, EventKind, HostOperator, Inputs, Later, LaterRun, OnDeviceLoss, OutputError,
        OutputKey, Outputs, Part, Prepared, ResolvedConfig, Run, RunEvent, RunEvents, RunPrediction, SETTINGS, Session,
        SessionConfig, SessionError, SettingError, State, StatePair, Stateful, ValueInfo, random_tensor, tensor, view,
    };
}

pub mod tasks {
    //! The task graph of a program, on which placement decides.

    pub use anabranch_plan::tasks::{NodeLimits, ProgramTasks, Residence, Role};
}

pub use anabranch_base::suggest::did_you_mean;
pub use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
pub use anabranch_onnx::{Item, Part};
pub use anabranch_placement_core::platform::{DeviceId, DeviceKind};
pub use costs::CostStore;
pub use device::{CpuGranularity, DetectOptions};
pub use execute::{CancelToken, RunOptions};
pub use import::{Dim, Kind};
pub use plan::PlanOptions;
pub use planning::{Constraints, Order, Parts, PlatformFile, Split, Strategy};
pub use session::{
    ErrorKind, Inputs, OnDeviceLoss, OutputError, Outputs, Prepared, Run, Session, SessionConfig, SessionError,
    Stateful, ValueInfo,
};

/// Former name of [`SessionConfig`].
#[deprecated = "use SessionConfig"]
pub type SessionOptions = SessionConfig;
