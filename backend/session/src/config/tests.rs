use super::*;
use anabranch_planning::Strategy;
use serde_json::json;

#[test]
fn all_settings_are_known_and_wrong_ones_refused_in_words() {
    let given = [
        ("devices", "cpu0, gpu0"),
        ("gpu", "0"),
        ("cpu_devices", "core"),
        ("threads", "2"),
        ("software_gpu", "1"),
        ("gpu_backend", "gl"),
        ("memory", "cpu0=1GiB"),
        ("emulate", "cpu0=2.5"),
        ("place", "auto"),
        ("order", "msr"),
        ("stream", "off"),
        ("chunk", "7rows"),
        ("weights", "staged"),
        ("pinned", "0"),
        ("pin", "b*=cpu0,a=cpu0"),
        ("split", "batch=cpu0:3,gpu0:5"),
        ("colocate", "x*,y*"),
        ("fuse", "0"),
        ("precision", "f16x3"),
        ("costs", "/nowhere/costs.json"),
        ("calibrate", "0"),
        ("platform", ""),
        ("on_device_loss", "replace"),
        ("plan_capacity", "3"),
        ("dims", "batch=4, x[1]=7"),
        ("cached", "300"),
        ("limits", "nodes=5, tensor_bytes=1KiB"),
    ];
    assert!(given.iter().map(|(name, _)| *name).eq(SETTINGS.iter().map(|(name, _)| *name)));
    let mut options = SessionConfig::default();
    let settable = given.iter().filter(|(name, _)| *name != "platform");
    settable.for_each(|(name, value)| options.set(name, value).expect(name));
    let resolved = options.clone().resolve();
    assert_eq!(resolved.devices.only, ["cpu0", "gpu0"]);
    assert_eq!(resolved.devices.memory_overrides, [("cpu0".to_owned(), 1 << 30)]);
    assert_eq!((resolved.plan.streaming, resolved.plan.chunk), (StreamMode::Off, ChunkRule::Rows(7)));
    assert_eq!((resolved.dims["batch"], resolved.dims["x[1]"], resolved.plan_capacity), (4, 7, 3));
    assert_eq!((resolved.limits.nodes, resolved.limits.tensor_bytes, resolved.cached), (5, 1024, Some(300)));
    assert!(resolved.devices.no_gpu && resolved.strategy == Strategy::AUTO && resolved.fuse == Rewrites::NONE);
    assert_eq!(resolved.precision, Precision::F16x3);
    assert!(!resolved.pinned && SessionConfig::default().resolve().pinned);
    assert_eq!(resolved.devices.slowdowns, [("cpu0".to_owned(), 2.5)]);
    let patterns: Vec<_> = resolved.constraints.pins.iter().map(|pin| pin.pattern.as_str()).collect();
    assert_eq!((patterns, resolved.constraints.colocated.len()), (vec!["b*", "a"], 2));
    let wrong = [
        ("speed", "11"),
        ("platform", "/nowhere/platform.json"),
        ("pin", "a=cpu0,a=cpu1"),
        ("colocate", "[1"),
        ("split", "batch=half"),
        ("threads", "0"),
        ("gpu_backend", "opencl"),
        ("precision", "tf32"),
        ("chunk", "0rows"),
        ("stream", "perhaps"),
        ("memory", "much"),
        ("dims", "batch"),
        ("dims", "n=1,n=2"),
        ("memory", "cpu0=1GiB,cpu0=2GiB"),
    ];
    for (name, value) in wrong {
        let error = options.set(name, value).expect_err(name).to_string();
        assert!(error.starts_with(&format!("option `{name}` = `{value}`: ")), "{error}");
    }
}

#[test]
fn the_order_of_devices_and_earlier_limits_do_not_count() {
    let resolved = |text: &str| {
        let mut config = SessionConfig::default();
        config.set("devices", text).expect("names");
        config.resolve().devices
    };
    assert_eq!(resolved("cpu1,cpu0,cpu1"), resolved("cpu0,cpu1"));
    let mut config = SessionConfig::default();
    config.set("limits", "nodes=5").expect("known");
    config.set("limits", "tensor_bytes=1KiB").expect("known");
    let limits = config.resolve().limits;
    assert_eq!((limits.nodes, limits.tensor_bytes), (Limits::default().nodes, 1024));
}

#[test]
fn json_sets_what_text_sets_and_separates_names_that_text_cannot() {
    let pairs = [
        ("threads", json!(2), "2"),
        ("gpu", json!(false), "0"),
        ("devices", json!(["cpu0", "gpu0"]), "cpu0,gpu0"),
        ("memory", json!({"cpu0": 1024, "gpu0": "1KiB"}), "gpu0=1KiB,cpu0=1024"),
        ("pin", json!([["b*", "cpu0"], ["a", "gpu0"]]), "b*=cpu0,a=gpu0"),
        ("pin", json!(["b*=cpu0", "a=gpu0"]), r#"[["b*", "cpu0"], ["a", "gpu0"]]"#),
        ("dims", json!({"batch": 4, "x[1]": 7}), "x[1]=7,batch=4"),
        ("limits", json!({"nodes": 5}), "nodes=5"),
        ("strategy", json!("mite"), "mite"),
        ("plans", json!(3), "3"),
    ];
    for (name, value, as_text) in pairs {
        let (mut by_json, mut by_text) = (SessionConfig::default(), SessionConfig::default());
        by_json.set_json(name, &value).expect(name);
        by_text.set(name, as_text).expect(name);
        assert_eq!(format!("{by_json:?}"), format!("{by_text:?}"), "{name}");
        assert_ne!(format!("{by_json:?}"), format!("{:?}", SessionConfig::default()), "{name}");
    }
    let mut options = SessionConfig::default();
    options.set_json("dims", &json!({"a,b=c": 4})).expect("a name with separators");
    options.set_json("devices", &json!(["cpu0,cpu1"])).expect("one name with a comma");
    let resolved = options.clone().resolve();
    assert_eq!((resolved.dims["a,b=c"], resolved.devices.only.len()), (4, 1));
    for (name, value) in [
        ("threads", json!(null)),
        ("threads", json!([2])),
        ("threads", json!(2.5)),
        ("gpu", json!("perhaps")),
        ("devices", json!(3)),
        ("devices", json!([["cpu0"]])),
        ("dims", json!({"a": []})),
        ("dims", json!({"a": -1})),
        ("pin", json!([["a", "b", "c"]])),
        ("emulate", json!({"cpu0": "fast"})),
    ] {
        let error = options.set_json(name, &value).expect_err(name).to_string();
        assert!(error.starts_with(&format!("option `{name}` = `")), "{error}");
    }
}

#[test]
fn values_left_out_come_from_the_base() {
    let given = SessionConfig::default().with_strategy(Strategy::CPU).with_dim("n", 3);
    let base = SessionConfig::default().with_strategy(Strategy::AUTO).with_memory("cpu0", 5).with_cached(7);
    let resolved = given.or(base).resolve();
    assert_eq!((resolved.strategy, resolved.cached, resolved.dims["n"]), (Strategy::CPU, Some(7), 3));
    assert_eq!(resolved.devices.memory_overrides, [("cpu0".to_owned(), 5)]);
}

#[test]
fn an_object_of_options_is_read_as_each_option_and_refused_by_name() {
    let config: SessionConfig = serde_json::from_value(json!({"place": "auto", "threads": 2})).expect("known");
    assert_eq!((config.place, config.threads.map(|count| count.get())), (Some(Strategy::AUTO), Some(2)));
    for wrong in [json!({"speed": 1}), json!({"threads": 0}), json!([]), json!("place=auto")] {
        assert!(serde_json::from_value::<SessionConfig>(wrong.clone()).is_err(), "{wrong}");
    }
}
