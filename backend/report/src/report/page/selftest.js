// The page's test of itself, for `#selftest`: every control as a user would use it, every panel at every width.

const testing = (() => {
  const failures = [];
  const check = (what, holds) => { if (!holds) failures.push(what); };
  const frame = () => new Promise((resolve) => setTimeout(resolve, 20));
  const press = (id) => byId(id).click();
  const type = (id, text) => { byId(id).value = text; byId(id).dispatchEvent(new Event("input", { bubbles: true })); };
  const key = (target, name, more = {}) => target.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true, ...more }));

  function painted(canvas) {
    const copy = document.createElement("canvas");
    [copy.width, copy.height] = [canvas.width, canvas.height];
    const context = copy.getContext("2d", { willReadFrequently: true });
    context.drawImage(canvas, 0, 0);
    return context.getImageData(0, 0, copy.width, copy.height).data.some((part, at) => at % 4 === 3 && part > 0);
  }

  function point(board, x, y) {
    const box = board.canvas.getBoundingClientRect();
    return { clientX: box.left + x, clientY: box.top + y, button: 0, pointerId: 1, bubbles: true };
  }

  function clickAt(board, x, y) {
    board.canvas.setPointerCapture = () => {};
    ["pointerdown", "pointerup"].forEach((name) => board.canvas.dispatchEvent(new PointerEvent(name, point(board, x, y))));
  }

  const middleOf = (box) => { const { left, top, width, height } = graph.onScreen(box); return [left + Math.min(width / 2, 12), top + height / 2]; };

  // --- the graph

  function graphView() {
    graph.board.now(); timeline.board.now();
    check("the graph is drawn", painted(graph.board.canvas));
    check("the schedule is drawn", painted(timeline.board.canvas));
    check("the head shows the model", byId("model").title === data.facts.model && data.facts.model.endsWith(byId("model").textContent));
    press("fit");
    const before = graph.view.scale;
    press("zoom-in");
    check("zooming in enlarges the graph", graph.view.scale > before);
    press("fit");
    check("fitting shows all again", Math.abs(graph.view.scale - before) < 1e-9);
    const [x, y] = [graph.view.x, graph.view.y];
    key(graph.board.canvas, "ArrowLeft", { shiftKey: true });
    check("an arrow with shift pans", graph.view.x === x + 60 && graph.view.y === y);
    press("fit");
    graph.board.canvas.dispatchEvent(new WheelEvent("wheel", { ...point(graph.board, 50, 50), deltaY: -200, cancelable: true }));
    check("the wheel zooms", graph.view.scale > before);
    press("fit");
    for (const colouring of shades.names) {
      byId("colour").value = colouring;
      check(`${colouring} can be chosen`, byId("colour").value === colouring);
      graph.colour(colouring);
      graph.board.now();
      check(`colouring by ${colouring} draws`, painted(graph.board.canvas));
      check(`colouring by ${colouring} has a legend`, byId("legend").textContent !== "");
    }
    graph.colour("device");
    byId("colour").value = "device";
  }

  /// No two items may overlap, and everything in an open group is within its frame.
  function drawing(when) {
    const { items, frames, boxes, edges, width, height } = graph.current();
    const sorted = [...items].sort((one, other) => one.x - one.width / 2 - (other.x - other.width / 2));
    const overlaps = sorted.some((one, at) => {
      for (let next = at + 1; next < sorted.length && sorted[next].x - sorted[next].width / 2 < one.x + one.width / 2 - 0.5; next += 1) {
        if (Math.abs(sorted[next].y - one.y) < (sorted[next].height + one.height) / 2 - 0.5) return true;
      }
      return false;
    });
    check(`${when}: no two items overlap`, !overlaps);
    const within = (box, outer) => Math.abs(box.x - outer.x) <= (outer.width - box.width) / 2 + 0.5 && Math.abs(box.y - outer.y) <= (outer.height - box.height) / 2 + 0.5;
    check(`${when}: all items are within their groups`, [...items, ...frames].every((box) => scene.parentOf(box.item) === null ? within(box, { x: width / 2, y: height / 2, width, height }) : within(box, boxes.get(scene.parentOf(box.item)))));
    const shownNodes = items.reduce((sum, box) => sum + scene.nodesOf(box.item).length, 0);
    check(`${when}: each node is shown once`, shownNodes === data.nodes.length);
    check(`${when}: each edge between two items is drawn`, data.edges.every((edge) => scene.standsFor(edge.from) === scene.standsFor(edge.to)) || edges.length > 0);
    const all = (line) => line.edges.every((edge) => scene.standsFor(data.edges[edge].from) === line.from && scene.standsFor(data.edges[edge].to) === line.to);
    check(`${when}: lines join what their edges join`, edges.every(all));
  }

  function groups() {
    press("close-all");
    drawing("closed");
    const group = graph.current().items.find((box) => scene.isGroup(box.item));
    if (group !== undefined) {
      select({ kind: "group", index: scene.toIndex(group.item) });
      check("details show the group", byId("details").textContent.includes(scene.nameOf(group.item)));
      const before = graph.current().items.length;
      graph.board.canvas.dispatchEvent(new MouseEvent("dblclick", point(graph.board, ...middleOf(group))));
      check("a double click opens a group", graph.current().items.length > before && scene.isOpen(group.item));
      drawing("one open");
      key(graph.board.canvas, "Enter");
      check("Enter closes a group", !scene.isOpen(group.item) && graph.current().items.length === before);
      select(null);
    }
    press("open-all");
    drawing("open");
    graph.board.now();
    check("open groups are drawn", painted(graph.board.canvas));
    press("fit");
  }

  function selecting() {
    press("fit");
    const box = graph.current().items.find((one) => !scene.isGroup(one.item) && data.nodes[one.item].role === "node");
    const index = box === undefined ? 0 : box.item;
    if (box === undefined) select({ kind: "node", index }); else clickAt(graph.board, ...middleOf(box));
    const node = data.nodes[index];
    check("a click selects the node", selected !== null && selected.kind === "node" && selected.index === index);
    check("details show the node", byId("details").textContent.includes(node.name) && byId("details").textContent.includes("Why here"));
    check("what is selected is said", byId("status").textContent.includes(node.name));
    const next = data.edges.find((edge) => edge.from === index);
    if (next !== undefined) { key(graph.board.canvas, "ArrowDown"); check("an arrow goes along an edge", selected.kind !== "node" || selected.index !== index); }
    key(document.body, "Escape");
    check("Escape deselects", selected === null && byId("details").textContent.includes("Devices"));
    press("close-all");
    type("search", node.name);
    check("search finds the node", byId("matches").textContent !== "" && byId("matches").textContent !== "0 found");
    key(byId("search"), "Enter");
    check("Enter shows what was found", selected !== null && selected.kind === "node" && scene.standsFor(selected.index) === selected.index);
    type("search", "no node is called so");
    check("search can find nothing", byId("matches").textContent === "0 found");
    type("search", "");
    select(null);
  }

  function parameters() {
    const shown = (index) => { select({ kind: "node", index }); return byId("details").textContent; };
    const told = data.nodes.findIndex((node) => node.attributes.length > 0);
    if (told >= 0) check("details show the kernel's parameters", data.nodes[told].attributes.every(([name, value]) => shown(told).includes(`${name}${value}`)));
    const weighted = data.nodes.findIndex((node) => node.role === "node" && node.inputs.some((port) => port.constant));
    if (weighted >= 0) check("details show the weights", data.nodes[weighted].inputs.every((port) => shown(weighted).includes(port.name) && shown(weighted).includes(bytes(port.bytes))));
    const long = data.nodes.findIndex((node) => node.inputs.filter((port) => port.constant).length > 12);
    if (long >= 0) { shown(long); check("a long list is folded", byId("details").querySelectorAll("details:not([open]) li").length === data.nodes[long].inputs.filter((port) => port.constant).length - 12); }
    select(null);
  }

  // --- times

  function times() {
    for (const tab of ["memory", "executable", "schedule"]) {
      showTab(tab);
      timeline.board.now();
      check(`${tab} is drawn`, painted(timeline.board.canvas));
      check(`${tab} has a legend`, byId("keys").textContent !== "");
    }
    const length = timeline.view.to - timeline.view.from;
    press("time-in");
    check("zooming in shortens the time shown", timeline.view.to - timeline.view.from < length);
    press("time-fit");
    check("fitting shows all of the time", Math.abs(timeline.view.to - timeline.view.from - length) < 1e-6 * length);
    timeline.board.now();
    const lane = lanes.findIndex((one) => one.predicted.length > 0);
    const bar = lanes[lane].predicted[Math.floor(lanes[lane].predicted.length / 2)];
    clickAt(timeline.board, axis.x((bar.start + bar.end) / 2), axis.height + 4 + lane * schedule.laneHeight() + 12 - timeline.view.top);
    check("a click on a bar selects", selected !== null);
    const moved = data.transfers.findIndex((one) => one.route !== "shared" && (isMeasured ? one.measured : one.predicted));
    if (moved >= 0) {
      select({ kind: "transfer", index: moved });
      check("details show the transfer", byId("details").textContent.includes(data.transfers[moved].name));
      check("arrows lead to and from the transfer", schedule.arrowsOf().marked.includes(moved) && schedule.hopsOf(moved).some(([, to]) => to.kind === "node"));
    }
    press("chain"); timeline.board.now(); press("chain");
    select(null);
    key(timeline.board.canvas, "m");
    check("a range is measured", axis.range !== null && byId("details").textContent.includes(duration(axis.range.to - axis.range.from)));
    const whole = axis.figures({ from: 0, to: span });
    check("the whole range holds all that happens", whole.every(({ lane: one, busy }) => Math.abs(busy - one.busy) <= 1e-6 * span + 1));
    key(document.body, "Escape");
    check("Escape forgets the range", axis.range === null);
  }

  function chainAndRuns() {
    showTab("chain");
    check("every step of the chain is told", byId("chain-panel").querySelectorAll("tbody tr").length === chain.length && chain.length > 0);
    if (runs.count < 2) return;
    showTab("runs");
    runs.board.resize(); runs.board.now();
    check("all runs are drawn", painted(runs.board.canvas) && runs.board.canvas.getAttribute("aria-label").startsWith(`${data.facts.runs.count} measured runs`));
  }

  async function nodes() {
    const count = data.nodes.filter((node) => node.role === "node").length;
    showTab("nodes");
    await frame();
    check("the table counts the nodes", table.shown().length === count && byId("count").textContent === `${count} nodes`);
    for (const name of isMeasured ? ["error", "measured", "critical share"] : ["predicted", "critical share"]) {
      table.sortBy(name);
      check(`the head says that ${name} is sorted`, document.querySelector("#table th[aria-sort]").textContent.startsWith(name));
      const down = document.querySelector("#table th[aria-sort]").getAttribute("aria-sort");
      table.sortBy(name);
      check(`sorting by ${name} turns around`, document.querySelector("#table th[aria-sort]").getAttribute("aria-sort") !== down);
    }
    table.sortBy("predicted");
    const lengths = table.shown().map((index) => lengthOf(data.nodes[index].predicted));
    check("rows are in order", lengths.every((time, at) => at === 0 || lengths[at - 1] >= time));
    check("only rows in sight exist", document.querySelectorAll("#table tbody tr").length < 200);
    check("the table as CSV has every node", exporting.csvOf(table.cells()).trim().split("\n").length >= count + 1);
    const name = data.devices[data.nodes[0].device].name;
    type("filter", name);
    const kept = (index) => { const node = data.nodes[index]; return `${node.name} ${node.op} ${data.devices[node.device].name} ${node.operators}`.toLowerCase().includes(name.toLowerCase()); };
    check("the filter keeps the device's nodes", table.shown().length > 0 && table.shown().every(kept));
    type("filter", "");
    document.querySelector("#table tr[data-node] td").click();
    check("a row selects its node", selectedNode() === table.shown()[0]);
    select(null);
  }

  // --- the page

  function files() {
    const board = (name, one) => {
      const file = exporting.svgOf(one.draw, Math.max(300, one.width), Math.max(200, one.height));
      const read = new DOMParser().parseFromString(file, "image/svg+xml");
      check(`${name} as SVG is well formed`, read.querySelector("parsererror") === null && read.querySelectorAll("path").length > 0 && !/NaN|undefined/.test(file));
    };
    board("the graph", graph.board);
    showTab("schedule");
    board("the schedule", timeline.board);
    const kept = graph.view.scale;
    exporting.print();
    check("every panel is printed", byId("print").querySelectorAll("figure svg").length >= 4);
    check("printing leaves the view", graph.view.scale === kept && shownTab() === "schedule");
    const clips = [...byId("print").querySelectorAll("clipPath")].map((clip) => clip.id);
    check("clips of printed panels differ", new Set(clips).size === clips.length && clips.length > 0);
    exporting.done();
  }

  function reading() {
    const controls = [...document.querySelectorAll("button, input, select, canvas:not([aria-hidden])")];
    const named = (one) => (one.textContent.trim() || one.getAttribute("aria-label") || (one.closest("label") || one).textContent).trim() !== "";
    const nameless = controls.filter((one) => !named(one) && !one.closest("[hidden]")).map((one) => one.id || one.outerHTML.slice(0, 60));
    check(`every control has a name: ${nameless}`, nameless.length === 0);
    showTab("schedule");
    key(byId("tab-schedule"), "ArrowRight");
    check("an arrow goes from tab to tab", shownTab() === "chain" && document.activeElement === byId("tab-chain") && byId("tab-schedule").tabIndex === -1);
    check("the tab's panel is named after it", byId("chain-panel").getAttribute("aria-labelledby") === "tab-chain" && !byId("chain-panel").hidden);
    key(byId("splitter"), "ArrowUp");
    check("the splitter listens to keys", byId("splitter").getAttribute("aria-valuenow") !== "40");
    byId("main").style.removeProperty("--lower");
    press("theme"); graph.board.now(); timeline.board.now();
    check("both themes draw", painted(graph.board.canvas));
    press("theme");
  }

  /// At widths from a telephone's to a large screen's, nothing sticks out, and no text is cut.
  async function widths() {
    for (const width of [360, 768, 1440, 2560]) {
      byId("page").style.width = `${width}px`;
      for (const tab of tabs.filter((one) => !one.hidden)) {
        showTab(tab.dataset.tab);
        await frame();
        const seen = [...document.querySelectorAll("header *, .bar, .bar *, .legend, .legend *, aside *, .canvas")].filter((one) => !one.closest("[hidden]") && one.getClientRects().length > 0 && !one.closest("option, select > *"));
        const out = seen.filter((one) => { const box = one.getBoundingClientRect(); return box.right > width + 0.5 || box.left < -0.5; });
        const cut = seen.filter((one) => !one.matches("canvas, .canvas, select, input") && one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).display !== "inline" && one.clientWidth > 0);
        const told = (list) => [...new Set(list.map((one) => one.id || one.className || one.tagName))].slice(0, 4).join(" ");
        check(`${tab.dataset.tab} at ${width} pixels: nothing stands out (${told(out)})`, out.length === 0);
        check(`${tab.dataset.tab} at ${width} pixels: no text is cut (${told(cut)})`, cut.length === 0);
      }
      const board = graph.board.canvas.getBoundingClientRect();
      check(`at ${width} pixels the graph has room`, board.width >= Math.min(300, width - 40) && board.height >= 100);
    }
    byId("page").style.removeProperty("width");
    showTab("schedule");
    await frame();
  }

  /// Leaves `pass`, or the failures, in the document.
  async function all() {
    window.addEventListener("error", (event) => failures.push(event.message));
    try {
      await frame();
      graphView(); groups(); selecting(); parameters(); times(); chainAndRuns();
      await nodes();
      files(); reading();
      await widths();
    } catch (error) {
      failures.push(`${error} ${error.stack}`);
    }
    document.documentElement.dataset.selftest = failures.length === 0 ? "pass" : `fail: ${failures.join("; ")}`;
  }

  return { all };
})();
