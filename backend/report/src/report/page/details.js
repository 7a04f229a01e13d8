// The panel beside the graph: the whole run, or the selection.

const details = (() => {
  const panel = byId("details");

  const nodeLink = (index) => element("button", { type: "button", class: "link", onclick: () => select({ kind: "node", index }) }, data.nodes[index].name);
  const heading = (text) => element("h3", {}, text);
  const row = (name, ...values) => element("tr", {}, element("td", {}, name), values.map((value) => element("td", {}, value)));
  const facts = (...rows) => element("table", { class: "wide" }, element("tbody", {}, rows.filter(Boolean)));
  const close = () => element("button", { class: "close", type: "button", title: "Back to the run (Esc)", onclick: () => select(null) }, "✕");

  /// Describes an item's step of the critical chain, and its wait.
  const onChain = (kind, index) => { const told = chain.told(kind, index); return told !== null && element("p", {}, swatch(paint.mark), told); };

  /// Returns `predicted 30 % too short`, if the error is known.
  function compared(thing) {
    const error = errorOf(thing);
    if (error === undefined || !(lengthOf(thing.predicted) > 0)) return "";
    return `predicted ${percent(Math.abs(error))} too ${error < 0 ? "short" : "long"}: (predicted − measured) / measured`;
  }

  function timesTable(thing) {
    const head = element("tr", {}, element("th", {}), element("th", {}, "start"), element("th", {}, "end"), element("th", {}, "time"));
    const line = (name, times) => times && row(name, duration(times.start), duration(times.end), duration(lengthOf(times)));
    const waited = thing.measured && thing.measured.start - thing.measured.ready;
    return [
      element("table", {}, element("tbody", {}, [head, line("predicted", thing.predicted), line("measured", thing.measured)].filter(Boolean))),
      thing.measured && element("p", { class: "quiet" },
        [compared(thing), waited > 0 ? `waited ${duration(waited)} for what it needs` : ""].filter(Boolean).join("; ")),
    ];
  }

  // --- the run

  function gauge(device, index) {
    const most = Math.max(1, device.limit || device.planned_peak, device.planned_peak);
    const bar = (value, kind) => element("i", { class: kind, style: `width:${(100 * value) / most}%;background:${paint.device[index]}` });
    const busy = lanes[index].busy;
    const count = data.nodes.filter((node) => node.device === index && node.role === "node").length;
    return element("div", { style: "margin:0 0 9px" },
      element("div", {}, deviceChip(index), " ", element("span", { class: "quiet" }, `${nodeCount(count)}, busy ${percent(makespan > 0 ? busy / makespan : 0)}`)),
      element("div", { class: "quiet", style: "font-size:11.5px" }, device.description),
      element("div", { class: "gauge" }, bar(device.planned_peak, "planned"), device.measured_peak !== null && bar(device.measured_peak, "measured")),
      element("div", { class: "quiet", style: "font-size:11.5px" },
        `peak planned ${bytes(device.planned_peak)}`, device.measured_peak === null ? "" : `, measured ${bytes(device.measured_peak)}`,
        device.limit === null ? "" : `, limit ${bytes(device.limit)}`));
  }

  /// Describes the number of runs and their makespans. The rest of the page shows the profiled run nearest to the
  /// median.
  function runs(told) {
    const median = `${duration(told.median_ns)}${told.count > 1 ? `, between ${duration(told.low_ns)} and ${duration(told.high_ns)} with ${Math.round(100 * told.confidence)} % confidence` : ""}`;
    return facts(
      row("measured", `${told.count}${told.cold ? ", the first of them cold" : ` after ${told.warmup} to warm up`}`),
      row("median", median), row("least", duration(told.min_ns)), row("90 % within", duration(told.p90_ns)),
      row("first of all", duration(told.first_ns)), told.node_error_percent !== null && row("nodes off by", `${percent(told.node_error_percent / 100)} (Σ |predicted − measured| of Σ measured)`),
      row("the one shown", `${duration(data.measured.makespan_ns)}, the profiled one nearest to the median`),
      told.busy && row("the machine", "was busy with other things: measure again when it is quiet"));
  }

  /// Lists the plans that a run executed in order, because shapes depend on computed values.
  function phases(told) {
    const line = (phase, at) => row(`phase ${at}`, `${nodeCount(phase.nodes)}, from ${duration(phase.begun_ns)}, ${duration(phase.took_ns)}; predicted ${duration(phase.predicted_ns)}`);
    return facts(...told.each.slice(0, 24).map(line), told.each.length > 24 && row("and more", `${told.each.length - 24} phases`), row("host", `${duration(told.host_ns)} between them`),
      told.planning_ns > 0 && row("planning", duration(told.planning_ns)), told.left_out > 0 && row("not shown", `${told.left_out} further runs of plans`));
  }

  function run() {
    const { facts: told } = data;
    const links = lanes.filter((lane) => lane.device === undefined);
    const sources = new Map();
    data.nodes.filter((node) => node.role === "node").forEach((node) => {
      const cost = node.costs[node.device];
      const source = cost === null || cost === undefined ? "unknown" : cost.source.replace(/ ×.*/, "");
      sources.set(source, (sources.get(source) || 0) + 1);
    });
    return [
      heading("Devices"), data.devices.map(gauge),
      told.one_device !== null && element("p", { class: "quiet" }, told.one_device),
      links.length > 0 && [heading("Links"), element("table", {}, element("tbody", {}, links.map((lane) => {
        const sum = lane.items.reduce((total, item) => total + item.thing.bytes, 0);
        return row(lane.name, `${lane.items.length} ×`, bytes(sum), duration(lane.busy));
      })))],
      isMeasured && [heading("Runs"), runs(told.runs)],
      told.phases !== null && [heading("Phases"), phases(told.phases)],
      heading("Predictions rest on"), facts(...[...sources].map(([source, count]) => row(source, nodeCount(count)))),
      told.candidates.length > 0 && [heading("Chosen from"), facts(...told.candidates.map((other) =>
        row(other.streamed ? `${other.name}, streamed` : other.name, duration(other.makespan_s * 1e9))))],
      heading("Made by"),
      element("p", {}, element("code", {}, told.command)),
      element("p", { class: "quiet" }, told.machine),
      element("p", { class: "quiet" }, `${told.date}, Anabranch ${told.version}; placed by ${told.strategy} in ${duration(told.place_ns)}`),
    ];
  }

  // --- a node

  function costsTable(node) {
    const line = (cost, index) => {
      const spread = cost && cost.deviation_ns ? ` ± ${duration(cost.deviation_ns)}` : "";
      return element("tr", { class: index === node.device ? "here" : undefined }, element("td", {}, deviceChip(index)),
        element("td", {}, cost ? duration(cost.ns) + spread : "cannot run"), element("td", { class: "quiet" }, cost ? cost.source : ""));
    };
    return element("table", { class: "costs" }, element("tbody", {}, node.costs.map(line)));
  }

  function whyTable(why) {
    if (why.candidates.length === 0) return undefined;
    const figure = (value) => (why.seconds ? duration(value * 1e9) : amount(value));
    return element("table", { class: why.terms.length > 2 ? "terms" : undefined }, element("tbody", {},
      element("tr", {}, element("th", {}), why.terms.map((term) => element("th", {}, term))),
      why.candidates.map(([device, values], place) => element("tr", { class: place === 0 ? "here" : undefined },
        element("td", {}, deviceChip(device)), values.map((value) => element("td", {}, figure(value)))))));
  }

  const most = 12;

  /// Returns the first entries, and the others in a fold. `wrap` puts entries into a list or table.
  function capped(entries, wrap) {
    const rest = entries.slice(most);
    return [wrap(entries.slice(0, most)), rest.length > 0 && element("details", {}, element("summary", {}, `${rest.length} more`), wrap(rest))];
  }

  const listOf = (entries) => element("ul", {}, entries);

  /// Lists tensors with their number among those of the node, and the nodes at their other ends.
  function ports(numbered, ends) {
    const nodes = (list) => capped(list.map(([index, transfer]) => [" ", nodeLink(index), transfer === null ? "" : [" ", transferLink(transfer)]]), (links) => links);
    return capped(numbered.map(({ port, at }) => element("li", {}, element("span", { class: "quiet" }, `${at + 1} `), element("code", {}, port.spec), ` ${port.name} `,
      element("span", { class: "quiet" }, bytes(port.bytes)), nodes(ends[at] || []))), listOf);
  }

  /// Lists a node's constants.
  function weights(numbered) {
    const sum = numbered.reduce((total, { port }) => total + port.bytes, 0);
    return [heading(`${numbered.length} ${numbered.length === 1 ? "weight" : "weights"}, ${bytes(sum)}`), ports(numbered, {})];
  }

  const transferLink = (index) => element("button", { type: "button", class: "link", onclick: () => select({ kind: "transfer", index }), style: `color:${paint.cross}` }, `(${data.transfers[index].route})`);

  function node(index) {
    const one = data.nodes[index];
    const [makers, readers] = [{}, {}];
    for (const edge of data.edges) {
      if (edge.from === index) (readers[edge.port] ??= []).push([edge.to, edge.transfer]);
      if (edge.to !== index) continue;
      const name = (data.nodes[edge.from].outputs[edge.port] || {}).name;
      one.inputs.forEach((port, at) => { if (port.name === name) (makers[at] ??= []).push([edge.from, edge.transfer]); });
    }
    const program = one.role === "node";
    const reads = one.inputs.map((port, at) => ({ port, at }));
    const [constant, computed] = [reads.filter(({ port }) => port.constant), reads.filter(({ port }) => !port.constant)];
    return [
      close(), element("h2", {}, one.name),
      element("p", {}, one.op, " ", deviceChip(one.device), program && element("span", { class: "quiet" }, ` ${one.class}${one.flops > 0 ? `, ${amount(one.flops)} FLOP` : ""}`)),
      program && [heading("Time"), timesTable(one), onChain("node", index)],
      one.why.text !== "" && [heading("Why here"), element("p", {}, one.why.text), whyTable(one.why)],
      program && [heading("Predicted by device"), costsTable(one)],
      one.block !== null && [heading(`Streaming block of ${one.block.members.length}`),
        element("p", { class: "quiet" }, `${one.block.rows} rows, ${one.block.chunk_rows} at a time`),
        capped(one.block.members.map(([op, made, own]) => element("li", {}, `${op} `, element("code", {}, made),
          element("span", { class: "quiet" }, own.map(([name, value]) => `; ${name} ${value}`).join("")))), listOf)],
      one.attributes.length > 0 && [heading("Parameters"), facts(...one.attributes.map(([name, value]) => row(name, value)))],
      constant.length > 0 && weights(constant),
      computed.length > 0 && [heading("Reads"), ports(computed, makers)],
      one.outputs.length > 0 && [heading("Makes"), ports(one.outputs.map((port, at) => ({ port, at })), readers)],
      one.operators.length > 0 && [heading(one.operators.length > 1 ? `${one.operators.length} operators in one` : "Operator"),
        capped(one.operators.map((name) => element("li", {}, name)), listOf)],
    ];
  }

  function transfer(index) {
    const one = data.transfers[index];
    const readers = data.edges.filter((edge) => edge.transfer === index).map((edge) => edge.to);
    return [
      close(), element("h2", {}, one.name),
      element("p", {}, deviceChip(one.from), " → ", deviceChip(one.to), ` ${bytes(one.bytes)}`),
      element("p", { class: "quiet" }, one.route === "streamed" ? `streamed in ${one.chunks} chunks into its reader, which computes each while the next is under way`
        : one.route === "shared" ? "read in place: the devices share one memory" : "copied whole"),
      (one.predicted || one.measured) && [heading("Time"), timesTable(one), onChain("transfer", index)],
      heading("From"), element("p", {}, nodeLink(one.node)),
      heading("To"), element("ul", {}, readers.map((reader) => element("li", {}, nodeLink(reader)))),
    ];
  }

  // --- a group, and a range of the time

  function group(index) {
    const item = scene.toGroup(index);
    const nodes = scene.nodesOf(item).map((one) => data.nodes[one]);
    const sums = (key) => {
      const found = new Map();
      nodes.forEach((one) => { const [count, time] = found.get(key(one)) || [0, 0]; found.set(key(one), [count + 1, time + timeOfNode(one)]); });
      return [...found].sort((one, other) => other[1][1] - one[1][1]);
    };
    const error = shades.errorOf(item);
    return [
      close(), element("h2", {}, scene.nameOf(item)),
      element("p", {}, `${nodeCount(nodes.length)} `, element("button", { type: "button", onclick: () => { graph.toggle(item); show(); } }, scene.isOpen(item) ? "Close the group" : "Open the group")),
      heading("Time"), facts(row(isMeasured ? "measured, in all" : "predicted, in all", duration(shades.timeOf(item))), row("of all nodes", percent(shades.timeOf(item) / Math.max(1, data.nodes.reduce((sum, one) => sum + timeOfNode(one), 0)))),
        error !== undefined && row("predicted off by", `${errorText(error)}: (p − m) / m`), row("constants and outputs", bytes(shades.memoryOf(item)))),
      heading("Devices"), facts(...sums((one) => one.device).map(([device, [count, time]]) => row(deviceChip(device), `${nodeCount(count)}, ${duration(time)}`))),
      heading("Operators"), facts(...sums((one) => one.op).slice(0, 12).map(([op, [count, time]]) => row(op, `${count} ×, ${duration(time)}`))),
    ];
  }

  function range() {
    const { from, to } = axis.range;
    const line = ({ lane, count, busy, top }) => row([element("span", {}, swatch(lane.colour()), lane.name), element("div", { class: "quiet" }, top.map(([name, time]) => `${name} ${duration(time)}`).join(", "))], `${count} ×`, duration(busy), percent(busy / (to - from)));
    return [
      element("button", { class: "close", type: "button", title: "Forget the range (Esc)", onclick: () => timeline.measureRange(null) }, "✕"),
      element("h2", {}, duration(to - from)), element("p", { class: "quiet" }, `from ${duration(from)} to ${duration(to)}, ${isMeasured ? "measured" : "predicted"}: what happened, for how long, and which share of the range`),
      element("table", { class: "range" }, element("tbody", {}, axis.figures(axis.range).map(line))),
    ];
  }

  function show() {
    const views = { node, transfer, group };
    const made = axis.range !== null ? range() : selected === null ? run() : views[selected.kind](selected.index);
    panel.replaceChildren(...made.flat(9).filter((part) => part instanceof Node));
    panel.scrollTop = 0;
  }

  onSelect(() => { axis.range = null; show(); });
  return { show };
})();
