//! Provider for one session of ONNX Runtime: claims parts of its graph, and compiles them.

use super::abi::{Absent, Ep, NodeComputeInfo, VERSION};
use super::api::Api;
use super::capability::{Claim, claim};
use super::compiled::Compiled;
use super::factory::NAME_TEXT;
use super::graph::{Graph, value_name};
use super::options::Options;
use super::parts::parts;
use super::report::Report;
use super::status::{Failure, Result, guarded};
use ort_sys::{OrtGraph, OrtLogger, OrtLoggingLevel, OrtNode, OrtStatusPtr, OrtValueInfo};
use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;

/// The provider. It begins with the fields that ONNX Runtime knows.
#[repr(C)]
pub(crate) struct Provider {
    base: Ep,
    api: Api,
    logger: *const OrtLogger,
    options: Options,
    report: Arc<Report>,
}

impl Provider {
    pub(crate) fn new(api: Api, logger: *const OrtLogger, options: Options) -> Self {
        let others: [Absent; 8] = [ptr::null(); 8];
        let base = Ep {
            ort_version_supported: VERSION,
            GetName: name,
            GetCapability: get_capability,
            Compile: compile,
            ReleaseNodeComputeInfos: release_node_compute_infos,
            others,
        };
        let report = Arc::new(Report::new(options.report.clone()));
        Self { base, api, logger, options, report }
    }

    fn claim(&self, ort: *const OrtGraph, support: *mut c_void) -> Result<()> {
        let graph = Graph::read(self.api, ort)?;
        let claim = claim(self.api, &graph)?;
        for part in &claim.parts {
            let nodes: Vec<*const OrtNode> = part.iter().map(|at| graph.nodes[*at].ort).collect();
            // SAFETY: the nodes and `support` are of the call that is being answered. Without options, initialisers
            // stay inputs, and stay with ONNX Runtime.
            let added = unsafe {
                (self.api.ep.EpGraphSupportInfo_AddNodesToFuse)(support, nodes.as_ptr(), nodes.len(), ptr::null())
            };
            self.api.done(added)?;
        }
        self.tell(&graph, &claim)
    }

    fn tell(&self, graph: &Graph, claim: &Claim) -> Result<()> {
        let ours: usize = claim.parts.iter().map(Vec::len).sum();
        let (all, parts) = (graph.nodes.len(), claim.parts.len());
        let text = format!("nodes computed here: {ours} of {all}, in parts: {parts}");
        self.api.log(self.logger, OrtLoggingLevel::ORT_LOGGING_LEVEL_INFO, &text);
        for why in claim.refused.values() {
            self.api.log(self.logger, OrtLoggingLevel::ORT_LOGGING_LEVEL_INFO, why);
        }
        self.report.claimed(graph, claim).map_err(|error| Failure::argument(format_args!("the report: {error}")))
    }

    fn compile(&self, ort: *const OrtGraph, node: *const OrtNode) -> Result<Compiled> {
        let api = self.api;
        let graph = Graph::read(api, ort)?;
        let whole = vec![true; graph.nodes.len()];
        // A claimed part may be several parts here, if only initialisers connect them.
        let nodes: Vec<usize> = parts(&graph.makers(), &whole).concat();
        let names = |infos: Vec<*const OrtValueInfo>| {
            infos.into_iter().map(|info| value_name(api, info)).collect::<Result<Vec<_>>>()
        };
        let inputs = names(api.list(node, api.ort.Node_GetNumInputs, api.ort.Node_GetInputs)?)?;
        let outputs = names(api.list(node, api.ort.Node_GetNumOutputs, api.ort.Node_GetOutputs)?)?;
        // SAFETY: `node` is of the call that is being answered.
        let name = api.text(|out| unsafe { (api.ort.Node_GetName)(node, out) })?;
        let session = self.options.session.clone();
        Compiled::new(api, name, &graph.part(&nodes), (&inputs, &outputs), session, Arc::clone(&self.report))
    }
}

/// Returns the provider of a pointer that ONNX Runtime passes.
///
/// # Safety
/// `ep` must be a pointer to a [`Provider`] that was given to ONNX Runtime.
unsafe fn provider<'a>(ep: *const Ep) -> &'a Provider {
    // SAFETY: by this function's contract; a `Provider` begins with its `Ep`, and is only read.
    unsafe { &*ep.cast::<Provider>() }
}

unsafe extern "system" fn name(_: *const Ep) -> *const c_char {
    NAME_TEXT.as_ptr()
}

unsafe extern "system" fn get_capability(ep: *mut Ep, graph: *const OrtGraph, support: *mut c_void) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes the pointer that `CreateEp` returned.
    let provider = unsafe { provider(ep) };
    guarded(provider.api.ort, || provider.claim(graph, support))
}

unsafe extern "system" fn compile(
    ep: *mut Ep,
    graphs: *const *const OrtGraph,
    nodes: *const *const OrtNode,
    count: usize,
    computed: *mut *mut NodeComputeInfo,
    _context: *mut *mut OrtNode,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes the pointer that `CreateEp` returned, `count` graphs and nodes, and room for as many
    // results. Results from before a failure are freed by `release_node_compute_infos`.
    unsafe {
        let provider = provider(ep);
        guarded(provider.api.ort, || {
            for at in 0..count {
                let part = provider.compile(*graphs.add(at), *nodes.add(at))?;
                *computed.add(at) = Box::into_raw(Box::new(part)).cast();
            }
            Ok(())
        })
    }
}

unsafe extern "system" fn release_node_compute_infos(ep: *mut Ep, infos: *mut *mut NodeComputeInfo, count: usize) {
    // SAFETY: ONNX Runtime passes the pointers that `compile` returned, once, when nothing runs.
    let status = unsafe {
        guarded(provider(ep).api.ort, || {
            let given = (0..count).map(|at| *infos.add(at)).filter(|info| !info.is_null());
            given.for_each(|info| drop(Box::from_raw(info.cast::<Compiled>())));
            Ok(())
        })
    };
    // The error cannot be reported: this function returns nothing.
    let _ = status;
}
