// Colours of the graph: by device, operator, time, error, memory or critical chain, for nodes and closed groups.

const shades = (() => {
  let by = "device";
  let most = { time: 1, memory: 1 };

  const sum = (list, value) => list.reduce((total, index) => total + value(data.nodes[index]), 0);
  const times = new Map();
  /// Time of an item, in nanoseconds; the nodes in a group are added up.
  const timeOf = (item) => {
    if (!times.has(item)) times.set(item, sum(scene.nodesOf(item), timeOfNode));
    return times.get(item);
  };
  const memoryOf = (item) => sum(scene.nodesOf(item), memoryOfNode);
  function errorOfItem(item) {
    const list = scene.nodesOf(item).filter((index) => data.nodes[index].measured);
    return list.length === 0 ? undefined : errorFrom(sum(list, (node) => lengthOf(node.predicted)), sum(list, (node) => lengthOf(node.measured)));
  }

  /// Returns the key that takes most of the time of an item's nodes, or most nodes if none takes time.
  function greatest(item, key) {
    const found = new Map();
    for (const index of scene.nodesOf(item)) {
      const node = data.nodes[index];
      found.set(key(node), (found.get(key(node)) || 0) + timeOfNode(node) + 1e-3);
    }
    return [...found].reduce((best, one) => (best === null || one[1] > best[1] ? one : best), null)[0];
  }

  /// The operators that take most time have their own colours.
  const total = new Map();
  const operators = (() => {
    data.nodes.filter((node) => node.role === "node").forEach((node) => total.set(node.op, (total.get(node.op) || 0) + timeOfNode(node)));
    return [...total].sort((one, other) => other[1] - one[1]).map(([name]) => name).slice(0, 7);
  })();
  const operatorColour = (op) => { const at = operators.indexOf(op); return at < 0 ? paint.palette[7] : paint.palette[at]; };

  /// Logarithmic over three powers of ten, because a few nodes take nearly all time.
  const ramp = (value, top) => mixed(paint.cold, paint.hot, Math.min(1, Math.max(0, 1 + Math.log10(Math.max(value / top, 1e-3)) / 3)));

  const colours = {
    device: (item) => paint.device[greatest(item, (node) => node.device)],
    operator: (item) => operatorColour(greatest(item, (node) => node.op)),
    time: (item) => ramp(timeOf(item), most.time),
    memory: (item) => ramp(memoryOf(item), most.memory),
    error: (item) => {
      const error = errorOfItem(item);
      if (error === undefined) return paint.faint;
      const share = Math.max(-1, Math.min(1, Math.log2(Math.max(1 + error, 1e-6)) / 2));
      return mixed(paint.faint, share < 0 ? paint.hot : paint.accent, Math.abs(share));
    },
    critical: (item) => (scene.nodesOf(item).some((index) => isCritical(data.nodes[index])) ? paint.mark : paint.faint),
  };

  /// Returns the shares of a group's time by device, for its stripe.
  function devicesOf(item) {
    const found = new Map();
    for (const index of scene.nodesOf(item)) {
      const node = data.nodes[index];
      found.set(node.device, (found.get(node.device) || 0) + timeOfNode(node) + 1e-3);
    }
    const total = [...found.values()].reduce((all, one) => all + one, 0);
    return [...found].sort((one, other) => one[0] - other[0]).map(([device, time]) => [paint.device[device], time / total]);
  }

  /// Scales end at the greatest visible value.
  function measure(items) {
    const top = (value) => items.reduce((found, { item }) => Math.max(found, value(item)), 1);
    most = { time: top(timeOf), memory: top(memoryOf) };
  }

  function legend() {
    const gradient = (...stops) => element("span", { class: "ramp", style: `background:linear-gradient(90deg,${stops.join(",")})` });
    const named = (colour, name) => element("span", {}, swatch(colour), name);
    const kinds = {
      device: () => data.devices.map((device, index) => named(paint.device[index], device.name)),
      operator: () => [...operators.map((op) => named(operatorColour(op), op)), total.size > operators.length && named(paint.palette[7], "others")],
      time: () => [element("span", {}, duration(most.time / 1e3), gradient(paint.cold, paint.hot), `${duration(most.time)}, logarithmic`)],
      memory: () => [element("span", {}, bytes(Math.round(most.memory / 1e3)), gradient(paint.cold, paint.hot), `${bytes(most.memory)} of constants and outputs, logarithmic`)],
      error: () => [element("span", {}, "took 4 × as long as predicted", gradient(paint.hot, paint.faint, paint.accent), "a quarter"), named(paint.faint, "no time to compare")],
      critical: () => [named(paint.mark, "on the chain of waits that makes the makespan"), named(paint.faint, "not on it")],
    };
    const line = (colour, width) => element("span", { class: "stroke", style: `border-top:${width}px solid ${colour}` });
    const shapes = [
      element("span", {}, line(paint.edge, 1.5), "value on one device"),
      data.transfers.length > 0 && element("span", {}, line(paint.cross, 2.5), "value between devices"),
      element("span", {}, element("span", { class: "swatch dashed" }), "input or output"),
      data.nodes.some((node) => node.block !== null) && element("span", {}, element("span", { class: "swatch stack" }), "streaming block"),
      scene.hasFar && element("span", {}, "items with over 16 edges: all but the nearest show when selected"),
      scene.groups > 0 && element("span", {}, element("span", { class: "swatch outline" }), "group: + opens, − closes"),
    ];
    byId("legend").replaceChildren(...[...kinds[by](), ...shapes].filter(Boolean));
  }

  return {
    of: (item) => colours[by](item), by: () => by, set: (name) => { by = name; }, names: Object.keys(colours),
    legend, measure, timeOf, memoryOf, errorOf: errorOfItem, devicesOf,
  };
})();
