//! Runs one dataflow graph over all the devices of a workstation.
//!
//! An ONNX model is imported, lowered to kernels, placed on the CPU cores and GPUs that are there by a strategy that knows what each node
//! costs on each device, planned down to the order, the transfers and the bytes of every device, and run. What a run measures can go
//! back into the costs that the next plan is made with.
//!
//! # Running a model
//!
//! A [`Session`] opens a model and runs it; inputs and outputs are `ndarray` arrays. Plans are made for the shapes that are given, and
//! kept.
//!
//! ```
//! use anabranch::{Inputs, Outputs, Session, SessionOptions};
//! use ndarray::array;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/layer.onnx");
//! let session = Session::open(model, SessionOptions::default())?;
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
//! [`SessionOptions`] say which devices to use and with how many threads, which [`Strategy`] places the nodes, and within which
//! [`Constraints`]. [`RunOptions`] give a run a time limit or a [`CancelToken`]. What goes wrong is a [`SessionError`] with an
//! [`ErrorKind`], and the file, node, device or input that it is about.
//!
//! # Comparing placements on the devices that are there
//!
//! [`compare()`](compare::compare) runs a model placed in several ways in turn, and sets what was predicted beside what was measured.
//!
//! ```
//! use anabranch::compare::{CompareOptions, compare};
//! use anabranch::planning::PlanChoice;
//! use anabranch::{Inputs, Session, SessionOptions, Strategy};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/layer.onnx");
//! let session = Session::open(model, SessionOptions::default().with_dim("batch", 8))?;
//! let inputs = session.fill_random(Inputs::new(), 1)?;
//! let ways = [Strategy::CPU, Strategy::HEFT].map(|strategy| PlanChoice { strategy, ..session.choice() });
//! let options = CompareOptions::new("layer", ways.to_vec()).with_runs(5, 2);
//! let comparison = compare(&session, &inputs, &options, &mut || {})?;
//! for outcome in &comparison.outcomes {
//!     println!("{}: {:?} ms predicted, {} ms measured", outcome.way.place, outcome.predicted_ms, outcome.measured_ms.median);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Learning costs from profiled runs
//!
//! Costs start from assumed rates. [`Session::calibrate`] measures the devices, [`Session::learn`] takes times from profiled runs, and
//! [`refine()`](refine::refine) does that in rounds, placing again with what was learned and keeping what is measured to be fastest. A
//! [`CostStore`] is saved to a file and given to later sessions.
//!
//! ```
//! use anabranch::{CostStore, Inputs, RunOptions, Session, SessionOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/layer.onnx");
//! # let directory = std::env::temp_dir().join(format!("anabranch-doctest-{}", std::process::id()));
//! # std::fs::create_dir_all(&directory)?;
//! # let store = directory.join("costs.json");
//! let session = Session::open(model, SessionOptions::default().with_dim("batch", 8))?;
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
//! let next = Session::open(model, SessionOptions::default().with_costs(costs))?;
//! let planned = next.plan(&inputs)?;
//! println!("predicted: {} s", planned.plan().predicted().makespan);
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok(())
//! # }
//! ```
//!
//! # State, and text
//!
//! [`Session::stateful`] binds outputs of one run to inputs of the next, which a [`Stateful`] keeps where they are made.
//! The module `generate` (the feature of this name) is a language model's face on it: a folder, prompts, and text token by token.
//!
//! # The rooms
//!
//! [`import`] and [`lower`] make a [`program`] of a model; [`planning`] places it on a machine with costs from [`profile`] and makes a
//! [`plan`]; [`execute`] runs that; [`learning`] measures devices and learns from runs; [`session`] is the face of it all. [`flow`] runs graphs
//! of a user's functions instead.

pub mod blocks {
    //! Streaming blocks on one device: nodes that are computed together, chunk of rows by chunk of rows, as one node.

    pub use anabranch_plan::blocks::{
        BlockError, BlockGain, BlockMembers, BlockNode, BlockSummary, Contraction, Fault, Forming, Readers, block_node,
        check, chunk_rows, contract, form,
    };
}

#[cfg(feature = "lab")]
pub mod canonical {
    //! The canonical task graph of a program (De Matteis et al. 2023, sections 3.2 and 7.3): what streams through a dataflow device.

    pub use anabranch_lab::canonical::{CanonicalProgram, ConversionError, Granularity, residual_network};
}

#[cfg(feature = "tuning")]
pub mod compare {
    //! Ways to place, order and stream one model, each really run on the devices that are here: predicted against measured.

    pub use anabranch_tuning::compare::{
        Agreement, CompareOptions, Comparison, DYNAMIC, DeviceOutcome, Difference, Latencies, Load, Median, Outcome,
        Ratio, Series, SeriesOptions, Together, Tolerance, Top1, Way, Worst, compare, compare_seen, floats, measure,
        runs_per_second, together,
    };
}

pub mod compiled {
    //! Compiled models: a lowered program, its weights and its plan in one file (`MODEL.anabranch`), from which a session runs without lowering or
    //! planning anything.

    pub use anabranch_session::compiled::{About, Cache, CompiledError, Course, Kept, is_compiled};
}

pub mod constant {
    //! Constants: type and shape at once, elements when somebody asks for them.

    pub use anabranch_ir::constant::{Constant, ConstantError};
}

pub mod device {
    //! What this machine computes with: its CPU devices, its GPUs, and where they stand to each other.

    pub use anabranch_device::{
        CacheSummary, CpuDevice, CpuGranularity, DetectError, DetectOptions, DeviceRef, GpuDevice, GpuFeatures,
        GpuKind, GpuLimits, Host, Inventory, MemorySource, NumaNode, PciAddress, SizeError, Source, affinity, detect,
        exact_bytes, format_bytes, format_list, parse_bytes, parse_memory_override,
    };
}

#[cfg(feature = "flow")]
pub mod drops {
    //! Drops: physical graphs of DALiuGE that run for real (Wu et al. 2017, "DALiuGE: A graph execution framework for harnessing the astronomical
    //! data deluge"). Applications are shell commands or a few functions, data are files or memory.

    pub use anabranch_flow::drops::{
        DropReport, DropsError, Failed, Naming, Outcome, Prepared, Reason, Recipe, State, end_all,
    };
}

pub mod execute {
    //! Execution: a plan followed by its caller's thread, or one that stands in for it, and one thread for each further device and each link.

    pub use anabranch_execute::{
        Activity, CancelToken, ComputeDevice, CpuTeam, DevicePool, DeviceTensor, DynamicExecutor, Event, ExecError,
        Executor, Forecast, GpuOpener, Kernels, Lane, RunOptions, RunOutput, Weights,
    };
}

pub mod files {
    //! Files of users: read within bounds and only if they are files, written whole or not at all.

    pub use anabranch_base::files::{
        MOST_BYTES, abandon, append, json_problem, make_directory, may_write, open, read, read_text, write,
    };
}

#[cfg(feature = "flow")]
pub mod flow {
    //! Flows: dataflow graphs whose nodes are functions of a user's, run by workers in the manner of Sucuri (Silva et al. 2016, "Task Scheduling
    //! in Sucuri Dataflow Library").

    pub use anabranch_flow::{
        Allocation, AllocationError, Collected, Crew, Flow, FlowError, FlowEvent, FlowOptions, FlowReport, Inputs,
        Links, NodeReport, Number, Output, Parcel, Peers, Scheduler, Sent, Traffic, WorkerReport, programs,
    };
}

#[cfg(feature = "generate")]
pub mod generate {
    //! Text from language models: folders as onnxruntime-genai and optimum export them, token by token.

    pub use anabranch_generate::{
        Choice, Config, Course, Ended, GenerateError, Generation, Generator, Message, Overrides, Piece, Rates, Sample,
        Sampler, Settings, Timing, measure,
    };
}

pub mod import {
    //! ONNX files to [`Model`]s.

    pub use anabranch_onnx::import::{
        Attribute, AttributeError, Dim, ImportError, ImportErrorKind, Input, Kind, Labels, LimitError, Limits, Model,
        Node, OPSETS, Output, Subgraph, ValueIndex, attribute, data_files, element_type, error, from_bytes,
        from_bytes_within, from_message, item_in_file, load, load_within, model, proto, survey, tensor_to_bytes,
    };
}

pub mod interruption {
    //! Work that ends early once nobody wants its result: lowering and planning, which have no run's options at hand.

    #[doc(hidden)]
    pub use anabranch_base::interruption::for_this_thread;
    pub use anabranch_base::interruption::{Interrupt, is_due, under};
}

pub mod learning {
    //! What runs teach: calibration by probes, the times of profiled runs into the cost store, and how well runs were predicted.

    pub use anabranch_learning::{
        Accuracy, CalibrationError, CalibrationStep, Calibrator, Compared, Learned, LinkAccuracy, NodeAccuracy,
        ProfiledRun, calibrate, record,
    };
}

pub mod lent {
    //! Memory of callers in other languages as tensors: where a run reads its inputs and leaves its outputs.

    pub use anabranch_session::lent::{SMALL, borrowed, kept, leave, room};
}

pub mod lower {
    //! Lowers a model to a program: every shape a number, every operator a few ops of the op set, constants folded, and
    //! neighbouring ops fused.

    pub use anabranch_onnx::lower::{
        LowerError, LowerOptions, Obstacle, Rest, Rewrite, Rewrites, UnknownRewrite, lower, operators,
    };
}

#[cfg(feature = "pipeline")]
pub mod pipeline {
    //! Streams of data sets: a model as a pipeline of stages that work at the same time on different devices.

    pub use anabranch_pipeline::{
        Among, Finished, Goal, LatencyShares, Measured, MeasuredReplica, MeasuredStage, Pipeline, PipelineError,
        PipelineOptions, PipelinePlan, StageCosts, StageDevices, StageMapping, StagePlan, StageSpan, Tried,
    };
}

pub mod plan {
    //! The plan: what every device and link will do, in which order, and in which memory.

    pub use anabranch_plan::{
        Allocation, CandidatePlan, ChunkRule, DeviceMemory, HOST, Held, Holding, KernelNeeds, LinkPlan, MachineDevice,
        MemoryPlan, MemoryShortage, Moved, Needs, PackedConstant, Plan, PlanDevice, PlanError, PlanOptions, Predicted,
        Residency, Ring, Route, SharedConstant, Step, Stream, StreamMode, Traffic, Transfer, TransferId, Violation,
        check,
    };
}

pub mod plan_file {
    //! The plan as a file that a person reads and edits (in the manner of Sucuri's allocation file).

    pub use anabranch_plan::plan_file::{FileError, ListedBlock, PlanFile};
}

pub mod planning {
    //! From a lowered program to a plan: the machine and its costs, constraints, placement, streaming blocks, prediction, and fitting all
    //! of it into the devices' memory.

    pub use anabranch_planning::{
        Algorithm, BlockSource, Constraints, DeviceEntry, LinkEntry, Lowered, Machine, MachineDevice, Order, Pin,
        Placed, PlacementRequest, Placing, PlanChoice, Planned, Planner, PlanningError, PlatformFile, Resident,
        Strategy, compute_devices, link, machine_devices, name_matches,
    };
}

pub mod profile {
    //! What runs cost: histories of measured times, the store that keeps them, and the model that predicts from them.

    pub use anabranch_costs::{
        Cold, CostSource, CostStore, DeviceCosts, Estimate, Exchange, ExchangeError, FORMAT_VERSION, History,
        LinkCosts, Loaded, MachineCosts, NodeCost, NodeCosts, Predictor, RECENT, Rates, RunCosts, Sample, Slowdown,
        StoreError, interval,
    };
}

pub mod program {
    //! The lowered program: nodes that kernels compute, on values of known types and shapes.

    pub use anabranch_ir::program::{ModelOperator, Node, NodeId, Origin, Output, Program, Value, ValueId};
}

#[cfg(feature = "tuning")]
pub mod refine {
    //! Runs, learns, and places again: until the plan is as good as what was measured lets it be.

    pub use anabranch_tuning::refine::{Measured, RefineOptions, Refined, Refinement, Round, Verdict, refine};
}

pub mod session {
    //! The library's face: open a model, describe it, run arrays through it.

    pub use anabranch_session::{
        ArrayError, Dynamic, ErrorKind, HostStep, Inputs, Later, LaterRun, OnDeviceLoss, OutputError, OutputKey,
        Outputs, Part, Prepared, Run, RunPrediction, SETTINGS, Session, SessionError, SessionOptions, SettingError,
        State, StatePair, Stateful, ValueInfo, events_json, random_tensor, tensor, view,
    };
}

pub mod tasks {
    //! The task graph of a program: what placement decides over.

    pub use anabranch_plan::tasks::{NodeLimits, ProgramTasks, Residence, Role};
}

pub use anabranch_base::suggest::did_you_mean;
pub use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
pub use anabranch_onnx::{Item, Part};
pub use anabranch_placement_core::platform::{DeviceId, DeviceKind};
pub use device::{CpuGranularity, DetectOptions};
pub use execute::{CancelToken, RunOptions};
pub use import::{Dim, Kind};
pub use plan::PlanOptions;
pub use planning::{Constraints, Order, PlatformFile, Strategy};
pub use profile::CostStore;
pub use session::{
    ErrorKind, Inputs, OnDeviceLoss, OutputError, Outputs, Prepared, Run, Session, SessionError, SessionOptions,
    Stateful, ValueInfo,
};
