// The critical chain, explained step by step: each node or transfer, and the item that it had waited for.

const chain = (() => {
  const panel = byId("chain-panel");
  const steps = (isMeasured ? data.measured : data.predicted).chain;
  const entries = new Map(steps.map((step, at) => [`${step.kind} ${step.index}`, at]));
  const thingOf = (step) => (step.kind === "node" ? data.nodes[step.index] : data.transfers[step.index]);
  const timesOfStep = (step) => (isMeasured ? thingOf(step).measured : thingOf(step).predicted);
  const isNode = (step) => step.kind === "node" && thingOf(step).role === "node";
  const link = (step) => element("button", { type: "button", class: "link", onclick: () => select({ kind: step.kind, index: step.index }) }, thingOf(step).name);

  /// Returns the reason why a step did not begin earlier, in words. The step before it was the last of its requirements
  /// to end.
  function reason(at) {
    const { after } = steps[at];
    const before = at > 0 ? steps[at - 1] : null;
    if (before === null || after === "start") return ["nothing: it could begin with the run"];
    if (after === "host") return ["the phase before, which ended with ", link(before), ", and the host's steps between"];
    if (after === "device") return [`${data.devices[thingOf(steps[at]).device].name}, which was busy with `, link(before)];
    if (after === "link") return ["the link, which was busy with ", link(before)];
    if (before.kind === "transfer") return ["its input, sent by ", link(before)];
    return [steps[at].kind === "transfer" ? "what it sends, made by " : "its input, made by ", link(before)];
  }

  /// Returns the shares from the run's start to its end: nodes, transfers, and the time in which nothing of the chain
  /// happens.
  function shares() {
    let [nodes, transfers, reached] = [0, 0, 0];
    for (const step of steps) {
      const { start, end } = timesOfStep(step);
      const own = Math.max(0, end - Math.max(start, reached));
      if (step.kind === "node") nodes += own; else transfers += own;
      reached = Math.max(reached, end);
    }
    return { nodes, transfers, pauses: Math.max(0, makespan - nodes - transfers) };
  }

  function row(step, at) {
    const [thing, times] = [thingOf(step), timesOfStep(step)];
    const where = step.kind === "node" ? deviceChip(thing.device) : element("span", { class: "chip" }, swatch(paint.cross), `${data.devices[thing.from].name} → ${data.devices[thing.to].name}`);
    const busy = times.end - times.start;
    const cell = (name, ...content) => element("td", { class: name }, content);
    return element("tr", {}, cell("right", `${at + 1}`), cell("name", link(step), isNode(step) ? element("span", { class: "quiet" }, ` ${thing.op}`) : step.kind === "node" ? element("span", { class: "quiet" }, ` ${thing.role}`) : ""),
      cell("", where), cell("right", duration(times.start)), cell("right", duration(busy)), cell("right", makespan > 0 ? percent(busy / makespan) : ""),
      cell("right", step.pause_ns > 0 ? duration(step.pause_ns) : ""), cell("name", reason(at)));
  }

  function show() {
    if (panel.hidden) return;
    const { nodes, transfers, pauses } = shares();
    const part = (colour, value, name) => value > 0 && element("i", { style: `flex:${value};background:${colour}`, title: `${name}: ${duration(value)}` });
    const said = (colour, value, name) => element("span", {}, swatch(colour), `${name} ${duration(value)} (${percent(makespan > 0 ? value / makespan : 0)})`);
    const parts = [[paint.mark, nodes, "nodes"], [paint.cross, transfers, "transfers"], [paint.line, pauses, "pauses"]];
    const head = ["", "step", "where", "start", "takes", "of the makespan", "pause before", "began when this had ended"];
    panel.replaceChildren(
      element("p", {}, `The makespan of ${duration(makespan)}${isMeasured ? ", measured," : ", predicted,"} is the length of this chain: each step began as soon as what it waited for longest had ended. Only what shortens one of these steps, or starts it earlier, shortens the run.`),
      element("div", { class: "shares", role: "img", "aria-label": `nodes ${duration(nodes)}, transfers ${duration(transfers)}, pauses ${duration(pauses)}` }, parts.map((one) => part(...one))),
      element("p", { class: "legend" }, parts.map((one) => said(...one))),
      element("table", { class: "figures" }, element("thead", {}, element("tr", {}, head.map((name, at) => element("th", { scope: "col", class: [0, 3, 4, 5, 6].includes(at) ? "right" : undefined }, name)))), element("tbody", {}, steps.map(row))));
  }

  /// Returns a sentence for the details of a node or transfer on the chain.
  const told = (kind, index) => { const at = entries.get(`${kind} ${index}`); return at === undefined ? null : ["step ", `${at + 1} of ${steps.length} of the critical chain; it waited for `, ...reason(at)]; };

  return { show, told, length: steps.length };
})();
