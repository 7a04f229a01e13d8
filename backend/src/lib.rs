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
//! # The rooms
//!
//! [`import`] and [`lower`] make a [`program`] of a model; [`planning`] places it on a machine with costs from [`profile`] and makes a
//! [`plan`]; [`execute`] runs that; [`learning`] measures devices and learns from runs; [`session`] is the face of it all. [`flow`] runs graphs
//! of a user's functions instead.

pub use anabranch_base::files;
pub use anabranch_costs as profile;
pub use anabranch_device as device;
pub use anabranch_execute as execute;
pub use anabranch_flow as flow;
pub use anabranch_flow::drops;
pub use anabranch_ir::{constant, program};
pub use anabranch_lab::canonical;
pub use anabranch_learning as learning;
pub use anabranch_onnx::{Item, Part, import, lower};
pub use anabranch_pipeline as pipeline;
pub use anabranch_plan::{self as plan, blocks, plan_file, tasks};
pub use anabranch_planning as planning;
pub use anabranch_session::{self as session, compiled, lent};
pub use anabranch_tuning::{compare, refine};

pub use anabranch_base::suggest::did_you_mean;
pub use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
pub use anabranch_placement::platform::{DeviceId, DeviceKind};
pub use device::{CpuGranularity, DetectOptions};
pub use execute::{CancelToken, RunOptions};
pub use import::{Dim, Kind};
pub use plan::PlanOptions;
pub use planning::{Constraints, Order, PlatformFile, Strategy};
pub use profile::CostStore;
pub use session::{
    ErrorKind, Inputs, OnDeviceLoss, OutputError, Outputs, Prepared, Run, Session, SessionError, SessionOptions,
    ValueInfo,
};
