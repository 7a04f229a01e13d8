//! A batch whose rows are divided among devices gives the bits of the whole batch, or is refused.

use anabranch::execute::RunOptions;
use anabranch::import::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, data_type,
};
use anabranch::import::{self, Dim, Model};
use anabranch::plan_file::PlanFile;
use anabranch::planning::{PlanChoice, Strategy};
use anabranch::session::{ErrorKind, Inputs, Session, SessionConfig, SessionError};
use anabranch::{Shape, Tensor};
use anabranch_tests::{MODELS, model, options, reference, same};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;

/// Returns a bundled model whose inputs have the dimension `rows` along this axis, and else the sizes of the reference.
fn of_rows(name: &str, axis: usize) -> Model {
    let mut model = import::load(&model(name)).expect("a bundled model is sound");
    let (given, _) = reference(name);
    let shapes: BTreeMap<_, _> = given.specs().map(|(name, spec)| (name.to_owned(), spec.shape.clone())).collect();
    for input in &mut model.inputs {
        let sizes = shapes.get(&input.name).map_or(&[][..], |shape| shape.dims());
        let dims = sizes.iter().enumerate().map(|(at, size)| match at == axis {
            true => Dim::Symbol("rows".into()),
            false => Dim::Known(*size),
        });
        input.dims = Some(dims.collect());
    }
    model
}

/// Opens a model for batches of so many rows on the cores of this machine.
fn opened(model: &Model, rows: usize, place: &str, split: Option<&str>) -> Session {
    let mut config = options(place).without_gpu().with_dim("rows", rows);
    if let Some(split) = split {
        config.set("split", split).expect("a split");
    }
    Session::new(model.clone(), config).expect("a sound model")
}

/// Runs a model with and without a split, and compares.
fn check(name: &str, axis: usize, rows: usize, split: &str) -> Result<(), SessionError> {
    let model = of_rows(name, axis);
    let whole = opened(&model, rows, "cpu0", None);
    let inputs = whole.fill_random(Inputs::new(), 7)?;
    let expected = whole.run(&inputs)?;
    let session = opened(&model, rows, "split", Some(split));
    let run = session.run_with(&inputs, &RunOptions::default())?;
    assert!(same(&run.outputs, &expected), "{name} {split}");
    let plan = run.prepared.plan();
    let peaks = run.peaks().into_iter().zip(plan.memory().devices());
    assert!(peaks.into_iter().all(|(peak, planned)| peak <= planned.peak()), "{name} {split}");
    Ok(())
}

#[test]
fn bundled_models_give_the_bits_of_the_whole_batch() {
    for name in MODELS {
        for (rows, splits) in [
            (2, &["rows=cpu0:1,cpu1:1", "batch=auto"][..]),
            (5, &["rows=cpu0:1,cpu1:4", "rows=cpu1:3,cpu0:2", "rows=cpu0:5", "rows=auto"]),
            (9, &["rows=cpu0:8,cpu1:1", "rows=cpu1:4,cpu0:5"]),
        ] {
            for split in splits {
                check(name, 0, rows, split).unwrap_or_else(|error| panic!("{name} {split}: {error}"));
            }
        }
    }
}

/// Returns the bytes of some rows of an output, along its first axis of `rows` rows.
fn bytes_of(tensor: &Tensor, rows: usize, part: Range<usize>) -> Vec<u8> {
    let dims = tensor.spec().shape.dims();
    let axis = dims.iter().position(|size| *size == rows).expect("each output has the rows");
    let stack = tensor.bytes().len() / dims[..axis].iter().product::<usize>();
    let row = stack / rows;
    tensor.bytes().chunks(stack).flat_map(|stack| &stack[part.start * row..part.end * row]).copied().collect()
}

#[test]
fn each_part_has_the_bits_of_the_whole_batch_on_its_kind_of_device() {
    const ROWS: usize = 7;
    for name in MODELS {
        let model = of_rows(name, 0);
        let open = |place: &str, split: Option<&str>| {
            let mut config = options(place).with_dim("rows", ROWS);
            split.into_iter().for_each(|split| config.set("split", split).expect("a split"));
            Session::new(model.clone(), config).expect("a sound model")
        };
        let (gpu, cpu) = (open("gpu", None), open("cpu0", None));
        assert!(!gpu.inventory().gpus.is_empty(), "no software GPU: run scripts/setup");
        let inputs = gpu.fill_random(Inputs::new(), 7).expect("known shapes");
        let [on_gpu, on_cpu] = [gpu, cpu].map(|session| session.run(&inputs).expect("it runs"));
        let divided = open("split", Some("rows=gpu0:4,cpu1:3")).run(&inputs);
        let divided = divided.unwrap_or_else(|error| panic!("{name}: {error}"));
        for (output, tensor) in divided.iter() {
            for (rows, whole) in [(0..4, &on_gpu), (4..ROWS, &on_cpu)] {
                let whole = whole.tensor(output).expect("the same outputs");
                let same = bytes_of(tensor, ROWS, rows.clone()) == bytes_of(whole, ROWS, rows.clone());
                assert!(same, "{name}: {output}: rows {rows:?}");
            }
        }
    }
}

/// Rows of the batch have positions of their own, and heads before or behind the positions.
#[test]
fn rotary_embeddings_are_divided_by_the_batch() {
    const ROWS: usize = 5;
    let angles = |name: &str, start: f32| {
        let elements: Vec<f32> = (0..16 * 4).map(|at| (start + at as f32 * 0.1).sin()).collect();
        TensorProto::f32s(name, &[16, 4], &elements)
    };
    let positions: Vec<i64> = (0..ROWS as i64 * 6).map(|at| at * 7 % 16).collect();
    for dims in [&[ROWS, 3, 6, 8][..], &[ROWS, 6, 24]] {
        let symbols = |dims: &[usize]| {
            let known = dims[1..].iter().map(|size| DimensionProto::known(*size as i64));
            std::iter::once(DimensionProto::symbol("rows")).chain(known).collect()
        };
        let node = NodeProto::of("RotaryEmbedding", &["x", "cos", "sin", "at"], &["y"]);
        let node = if dims.len() == 3 { node.with(AttributeProto::int("num_heads", 3)) } else { node };
        let input = vec![
            ValueInfoProto::tensor("x", data_type::FLOAT, symbols(dims)),
            ValueInfoProto::tensor("at", data_type::INT64, symbols(&[ROWS, 6])),
        ];
        let output = vec![ValueInfoProto { name: "y".into(), r#type: None }];
        let initializer = vec![angles("cos", 1.5), angles("sin", 0.0)];
        let graph = GraphProto { node: vec![node], input, output, initializer, ..GraphProto::default() };
        let model = ModelProto::of(graph, 23).to_bytes();
        let at = Tensor::from_elements(Shape::new([ROWS, 6]).expect("small"), &positions).expect("as many");
        let run = |place: &str, split: Option<&str>| {
            let mut config = options(place).with_dim("rows", ROWS);
            split.into_iter().for_each(|split| config.set("split", split).expect("a split"));
            let session = Session::from_bytes(&model, config).expect("a sound model");
            let inputs = session.fill_random(Inputs::new().tensor("at", at.clone()), 7).expect("known shapes");
            session.run(&inputs).unwrap_or_else(|error| panic!("{place} {split:?}: {error}"))
        };
        let [gpu, cpu] = ["gpu", "cpu0"].map(|place| run(place, None));
        for (split, parts) in [
            ("rows=cpu0:2,cpu1:3", [(0..2, &cpu), (2..ROWS, &cpu)]),
            ("rows=gpu0:1,cpu0:4", [(0..1, &gpu), (1..ROWS, &cpu)]),
        ] {
            let divided = run("split", Some(split));
            for (rows, whole) in parts {
                let [found, wanted] = [&divided, whole].map(|run| run.tensor("y").expect("an output"));
                let [found, wanted] = [found, wanted].map(|tensor| bytes_of(tensor, ROWS, rows.clone()));
                assert_eq!(found, wanted, "{dims:?}, {split}: rows {rows:?}");
            }
        }
    }
}

/// Threads share a line of a GPU by the shape of all lines: a part of one row has another shape than the batch.
#[test]
fn lines_across_the_batch_are_summed_alike_on_a_gpu() {
    const ROWS: usize = 5;
    let operators = [
        NodeProto::of("Softmax", &["x"], &["y"]).with(AttributeProto::int("axis", 0)),
        NodeProto::of("ReduceMean", &["x"], &["y"]).with(AttributeProto::ints("axes", &[0])),
        NodeProto::of("ReduceLogSumExp", &["x"], &["y"]).with(AttributeProto::ints("axes", &[0])),
    ];
    for node in operators {
        let dims = vec![DimensionProto::known(777), DimensionProto::symbol("rows")];
        let input = vec![ValueInfoProto::tensor("x", data_type::FLOAT, dims)];
        let output = vec![ValueInfoProto { name: "y".into(), r#type: None }];
        let name = node.op_type.clone();
        let graph = GraphProto { node: vec![node], input, output, ..GraphProto::default() };
        let model = ModelProto::of(graph, 17).to_bytes();
        let run = |place: &str, split: Option<&str>| {
            let mut config = options(place).with_dim("rows", ROWS);
            split.into_iter().for_each(|split| config.set("split", split).expect("a split"));
            let session = Session::from_bytes(&model, config).expect("a sound model");
            session.run(&session.fill_random(Inputs::new(), 7).expect("known shapes")).expect("it runs")
        };
        let [gpu, cpu] = ["gpu", "cpu0"].map(|place| run(place, None));
        let divided = run("split", Some("rows=gpu0:1,cpu0:4"));
        let [gpu, cpu, divided] = [&gpu, &cpu, &divided].map(|run| run.tensor("y").expect("an output"));
        for (rows, whole) in [(0..1, gpu), (1..ROWS, cpu)] {
            assert_eq!(bytes_of(divided, ROWS, rows.clone()), bytes_of(whole, ROWS, rows.clone()), "{name} {rows:?}");
        }
    }
}

#[test]
fn rows_that_depend_on_each_other_are_refused_with_the_node() {
    for (name, node) in [("decoder", "attn/MatMul"), ("encoder", "self_attn/MatMul"), ("gru", "GRU"), ("lstm", "LSTM")]
    {
        let error = check(name, 1, 5, "rows=cpu0:2,cpu1:3").expect_err("axis 1 is time");
        assert_eq!(error.kind(), ErrorKind::Constraint, "{error}");
        assert!(error.node().is_some_and(|found| found.contains(node)), "{name}: {error}");
        assert!(error.to_string().contains("does not compute each row by itself"), "{name}: {error}");
    }
}

#[test]
fn wrong_parts_and_dimensions_are_named() {
    for (split, expected) in [
        ("rows=cpu0:2,cpu1:2", "4 rows together, but the batch has 5"),
        ("rows=cpu0:2,cpu7:3", "there is no device `cpu7`; the devices are cpu0, cpu1"),
        ("columns=auto", "no input has a dimension `columns`; name one of"),
    ] {
        let error = check("mlp", 0, 5, split).expect_err("a slip").to_string();
        assert!(error.contains(expected), "{error}");
    }
    let one = check("mlp", 0, 1, "rows=auto").expect_err("one row").to_string();
    assert!(one.contains("`rows` has 1 row;"), "{one}");
    let pinned = opened(&of_rows("mlp", 0), 5, "split", Some("rows=auto"));
    let inputs = pinned.fill_random(Inputs::new(), 7).expect("known shapes");
    let mut config = options("split").without_gpu().with_dim("rows", 5).with_pin("*", "cpu0");
    config.set("split", "rows=auto").expect("a split");
    let pinned = Session::new(of_rows("mlp", 0), config).expect("a sound model");
    let error = pinned.run(&inputs).map(drop).expect_err("each part is on its own device").to_string();
    assert!(error.contains("pinned or colocated"), "{error}");
}

#[test]
fn costs_are_learned_and_plans_are_predicted_again() {
    let session = opened(&of_rows("convnet", 0), 6, "split", Some("rows=cpu0:2,cpu1:4"));
    let inputs = session.fill_random(Inputs::new(), 7).expect("known shapes");
    let run = session.run_with(&inputs, &RunOptions::default().with_profile(true)).expect("it runs");
    session.learn(&run);
    let again = session.predict(&inputs, run.prepared.planned(), &session.choice().plan).expect("the same plan");
    assert!(again.is_same_plan(run.prepared.planned()));
    let divided = again.divided.as_ref().expect("it is divided");
    assert_eq!(divided.parts, [("cpu0".to_owned(), 2), ("cpu1".to_owned(), 4)]);
}

#[test]
fn a_compiled_model_holds_the_divided_program() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("divided.anabranch");
    let model = of_rows("mlp", 0);
    let whole = opened(&model, 6, "cpu0", None);
    let inputs = whole.fill_random(Inputs::new(), 7).expect("known shapes");
    let expected = whole.run(&inputs).expect("it runs");
    let split = "rows=cpu0:2,cpu1:4";
    opened(&model, 6, "split", Some(split)).compile(&inputs, &path, "test").expect("it compiles");
    let config = |split: Option<&str>| {
        let mut config = SessionConfig::default();
        split.into_iter().for_each(|split| config.set("split", split).expect("a split"));
        config
    };
    for config in [config(None), config(Some(split)), config(None).with_threads(NonZeroUsize::MIN)] {
        let session = Session::open(&path, config).expect("it was just written");
        let run = session.run_with(&inputs, &RunOptions::default()).expect("it runs");
        assert!(same(&run.outputs, &expected));
        assert!(run.prepared.program.nodes.iter().any(|node| node.name.ends_with("@cpu1")));
    }
    let error = Session::open(&path, config(Some("rows=auto"))).map(drop).expect_err("another program").to_string();
    assert!(error.contains("was compiled with the split rows=cpu0:2,cpu1:4, not with rows=auto"), "{error}");
}

#[test]
fn a_plan_file_keeps_its_parts() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("plan.json");
    let (model, split) = (of_rows("convnet", 0), Some("rows=cpu0:2,cpu1:4"));
    let session = opened(&model, 6, "split", split);
    let inputs = session.fill_random(Inputs::new(), 7).expect("known shapes");
    let planned = session.plan(&inputs).expect("it fits");
    let file = PlanFile::of(planned.plan(), &planned.program, &planned.blocks);
    std::fs::write(&path, serde_json::to_string(&file).expect("plain data")).expect("a file");
    let again = opened(&model, 6, &path.display().to_string(), split).plan(&inputs).expect("the same program");
    assert!(again.is_same_plan(&planned) && again.divided.is_some());
    let error = opened(&model, 6, &path.display().to_string(), None).plan(&inputs).map(drop).expect_err("other nodes");
    assert_eq!(error.kind(), ErrorKind::PlanFile, "{error}");
}

#[test]
fn a_strategy_that_the_parts_would_overrule_is_refused() {
    let model = of_rows("mlp", 0);
    for place in ["heft", "cpu", "cp", "exact:5", "cpu1"] {
        let mut config = options(place).without_gpu().with_dim("rows", 6);
        config.set("split", "rows=cpu0:2,cpu1:4").expect("a split");
        let error = Session::new(model.clone(), config).map(drop).expect_err("nothing is left to place");
        let expected = format!("so that `{place}` has nothing to place");
        assert!(error.kind() == ErrorKind::Constraint && error.to_string().contains(&expected), "{error}");
    }
    for place in ["split", "auto"] {
        let session = opened(&model, 6, place, Some("rows=cpu0:2,cpu1:4"));
        let inputs = session.fill_random(Inputs::new(), 7).expect("known shapes");
        let planned = session.plan(&inputs).expect("it fits");
        assert!(planned.divided.is_some() && planned.plan().strategy() == place, "{place}");
        // A comparison measures the whole batch, too.
        let choice = PlanChoice { strategy: Strategy::Device("cpu1".into()), ..session.choice() };
        let whole = session.plan_with(&inputs, &choice).expect("it fits");
        assert!(whole.divided.is_none() && whole.plan().strategy() == "cpu1", "{place}");
    }
    let session = opened(&model, 6, "split", None);
    let inputs = session.fill_random(Inputs::new(), 7).expect("known shapes");
    let error = session.plan(&inputs).map(drop).expect_err("there are no parts").to_string();
    assert!(error.contains("no batch is divided"), "{error}");
}
