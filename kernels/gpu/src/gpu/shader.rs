//! Shader that is about to be dispatched: hand-written WGSL with the constants, parameters and buffers of one node.
//!
//! A kernel's `.wgsl` file uses names that its Rust file declares here. Constants are part of the source, so each
//! combination is a separate pipeline. Parameters are read from a uniform buffer, so they may differ between nodes that
//! share a pipeline. The uniform buffer begins with zeros, which no compiler knows, so that `opaque` and `number` of
//! `math.wgsl` can hide values from a compiler's algebra.

use super::library;
use super::pipelines::Signature;
use std::fmt::{Display, Write};

/// First fields of the uniform buffer, all of which are 0: the second field says which element of the first is read.
const ZEROS: &str = "zeros: array<vec4<u32>, 2>, zero: u32";
const ZERO_WORDS: usize = 9;

/// Buffer with its name in the shader.
struct Binding<'a> {
    name: String,
    element: &'static str,
    buffer: &'a wgpu::Buffer,
}

/// WGSL source and its bindings.
pub(crate) struct Shader<'a> {
    name: &'static str,
    /// Extensions of WGSL.
    extensions: Vec<&'static str>,
    body: String,
    constants: String,
    parameters: Vec<(&'static str, u32)>,
    reads: Vec<Binding<'a>>,
    writes: Vec<Binding<'a>>,
}

impl<'a> Shader<'a> {
    /// Creates a shader with an entry point `main`.
    pub(crate) fn new(name: &'static str, body: &str) -> Self {
        Self {
            name,
            extensions: Vec::new(),
            body: body.into(),
            constants: String::new(),
            parameters: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
        }
    }

    /// Enables an extension of WGSL.
    pub(crate) fn enable(&mut self, extension: &'static str) -> &mut Self {
        self.extensions.push(extension);
        self
    }

    pub(crate) fn constant(&mut self, name: &str, value: impl Display) -> &mut Self {
        let _ = writeln!(self.constants, "const {name} = {value}u;");
        self
    }

    /// Declares a number in the uniform buffer; once, although both halves of a shader may name it.
    pub(crate) fn parameter(&mut self, name: &'static str, value: usize) -> &mut Self {
        // Offsets and counts are below 2³²: larger tensors and buffers are refused (`supports`).
        if self.parameters.iter().all(|(known, _)| *known != name) {
            self.parameters.push((name, value as u32));
        }
        self
    }

    /// Declares an array of `element`s that is read. Several names may stand for the same buffer.
    pub(crate) fn read(
        &mut self,
        name: impl Into<String>,
        element: &'static str,
        buffer: &'a wgpu::Buffer,
    ) -> &mut Self {
        self.reads.push(Binding { name: name.into(), element, buffer });
        self
    }

    /// Declares an array of `element`s that is written.
    pub(crate) fn write(
        &mut self,
        name: impl Into<String>,
        element: &'static str,
        buffer: &'a wgpu::Buffer,
    ) -> &mut Self {
        self.writes.push(Binding { name: name.into(), element, buffer });
        self
    }

    pub(crate) fn code(&mut self, text: &str) -> &mut Self {
        self.body.push('\n');
        self.body.push_str(text);
        self
    }

    /// Replaces `{{slot}}` in the source.
    pub(crate) fn fill(&mut self, slot: &str, text: &str) -> &mut Self {
        self.body = self.body.replace(&format!("{{{{{slot}}}}}"), text);
        self
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn signature(&self) -> Signature {
        Signature { reads: self.reads.len() as u32, writes: self.writes.len() as u32 }
    }

    /// Returns the values of the parameters, in the layout of the uniform buffer.
    pub(crate) fn parameters(&self) -> Vec<u32> {
        let own = self.parameters.iter().map(|(_, value)| *value);
        std::iter::repeat_n(0, ZERO_WORDS).chain(own).collect()
    }

    /// Returns the buffers in binding order, without the parameters.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = &'a wgpu::Buffer> + '_ {
        self.reads.iter().chain(&self.writes).map(|binding| binding.buffer)
    }

    pub(crate) fn source(&self) -> String {
        let mut source: String = self.extensions.iter().map(|extension| format!("enable {extension};\n")).collect();
        source.push_str(&self.declarations());
        source.push_str(&self.constants);
        source.push_str(&self.body);
        let functions = library::needed_by(&source);
        source.push('\n');
        source.push_str(&functions);
        source
    }

    fn declarations(&self) -> String {
        let mut text = String::new();
        let mut next = 0;
        let mut declare = |space: &str, name: &str, kind: &str| {
            let _ = writeln!(text, "@group(0) @binding({next}) var<{space}> {name}: {kind};");
            next += 1;
        };
        declare("uniform", "parameters", "Parameters");
        for binding in &self.reads {
            declare("storage, read", &binding.name, &format!("array<{}>", binding.element));
        }
        for binding in &self.writes {
            declare("storage, read_write", &binding.name, &format!("array<{}>", binding.element));
        }
        let fields: String = self.parameters.iter().map(|(name, _)| format!(", {name}: u32")).collect();
        let _ = writeln!(text, "struct Parameters {{ {ZEROS}{fields} }}");
        text
    }
}
