// The head of the page, what joins its parts, and its test of itself.

function drawHeader() {
  const { facts, predicted, measured } = data;
  // Of a path, what tells it from others.
  byId("model").textContent = facts.model.split("/").pop() || facts.model;
  byId("model").title = facts.model;
  byId("subtitle").textContent = `${facts.strategy} on ${data.devices.map((device) => device.name).join(", ")} · ${facts.machine} · ${facts.date}`;
  byId("subtitle").title = byId("subtitle").textContent;
  const tile = (value, name, off) => element("div", { class: "tile" }, element("b", {}, value, off ? element("span", { class: "off", title: "(predicted − measured) / measured" }, off) : ""), element("span", {}, name));
  const tiles = [];
  if (isMeasured) {
    const { latencies_ns: latencies, cold, median_ns: median } = facts.runs;
    const name = latencies.length > 1 ? `measured, median of ${latencies.length}` : cold ? "measured, one cold run" : "measured, one run";
    tiles.push(tile(duration(median), name));
    tiles.push(tile(duration(predicted.makespan_ns), "predicted; error (p − m) / m", errorText(errorFrom(predicted.makespan_ns, median))));
  } else {
    tiles.push(tile(duration(predicted.makespan_ns), "predicted makespan"));
  }
  const { moved, in_place: inPlace } = isMeasured ? measured : predicted;
  tiles.push(tile(bytes(moved.bytes), `over ${moved.transfers} transfers${inPlace.transfers > 0 ? `, ${inPlace.transfers} read in place` : ""}`));
  const peak = (device) => device.measured_peak ?? device.planned_peak;
  for (const device of data.devices.filter((one) => peak(one) > 0).slice(0, 3)) tiles.push(tile(bytes(peak(device)), `peak on ${device.name}`));
  tiles.push(tile(`${data.nodes.filter((node) => node.role === "node").length}`, "nodes"));
  byId("tiles").replaceChildren(...tiles);
}

function showTab(name) {
  document.querySelectorAll("[data-tab]").forEach((tab) => tab.setAttribute("aria-selected", tab.dataset.tab === name));
  const isTable = name === "nodes";
  byId("table-panel").hidden = !isTable;
  byId("time-panel").hidden = isTable;
  document.querySelectorAll(".for-time").forEach((part) => { part.hidden = isTable; });
  document.querySelectorAll(".for-table").forEach((part) => { part.hidden = !isTable; });
  if (isTable) table.show(); else timeline.setMode(name);
}

/// After the theme has changed.
function repaintAll() {
  graph.repaint();
  timeline.keys();
  timeline.redraw();
  details.show();
  table.show();
}

function findNode(text) {
  const found = graph.search(text);
  byId("matches").textContent = text.trim() === "" ? "" : `${found.length} found`;
  return found;
}

function listenToPage() {
  document.querySelectorAll("[data-tab]").forEach((tab) => tab.addEventListener("click", () => showTab(tab.dataset.tab)));
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", () => { setTheme(dark.matches); repaintAll(); });
  byId("theme").addEventListener("click", () => { setTheme(!document.documentElement.classList.contains("dark")); repaintAll(); });
  let last = -1;
  byId("search").addEventListener("input", (event) => { last = -1; findNode(event.target.value); });
  byId("search").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    const found = findNode(event.target.value);
    if (found.length === 0) return;
    last = (last + (event.shiftKey ? found.length - 1 : 1)) % found.length;
    select({ kind: "node", index: found[last] }, "search");
  });
  document.addEventListener("keydown", (event) => {
    if (event.target.matches("input, select")) { if (event.key === "Escape") event.target.blur(); return; }
    if (event.key === "/") { event.preventDefault(); byId("search").focus(); }
    if (event.key === "Escape") select(null);
  });
  const splitter = byId("splitter");
  const toHeight = (event) => {
    const box = byId("main").getBoundingClientRect();
    const share = Math.min(0.8, Math.max(0.12, (box.bottom - event.clientY) / box.height));
    byId("main").style.setProperty("--lower", `${(100 * share).toFixed(2)}%`);
  };
  onDrag(splitter, (dx, dy, event) => toHeight(event), () => {});
}

function start() {
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches);
  drawHeader();
  listenToPage();
  graph.listen();
  timeline.listen();
  table.listen();
  table.drawHead();
  table.sort();
  showTab("schedule");
  graph.repaint();
  details.show();
  // Sizes are known once the page is laid out.
  requestAnimationFrame(() => { graph.board.resize(); graph.fit(); timeline.fit(); fromFragment(); });
}

/// `#dark`, `#node=NAME`, `#tab=memory`, `#colour=time`, joined by `&`, show the page so; `#selftest` tests it.
function fromFragment() {
  const wishes = new URLSearchParams(location.hash.slice(1));
  if (wishes.has("dark") || wishes.has("light")) { setTheme(wishes.has("dark")); repaintAll(); }
  if (wishes.has("tab") && document.querySelector(`[data-tab="${CSS.escape(wishes.get("tab"))}"]`)) showTab(wishes.get("tab"));
  if (wishes.has("colour")) { byId("colour").value = wishes.get("colour"); byId("colour").dispatchEvent(new Event("change")); }
  const index = data.nodes.findIndex((node) => node.name === wishes.get("node"));
  if (index >= 0) select({ kind: "node", index });
  if (wishes.has("selftest")) selfTest();
}

/// Exercises every control as a user would, and leaves `pass` or what failed in the document.
async function selfTest() {
  const frame = () => new Promise((resolve) => setTimeout(resolve, 20));
  const failures = [];
  const check = (what, holds) => { if (!holds) failures.push(what); };
  window.addEventListener("error", (event) => failures.push(event.message));
  const press = (id) => byId(id).click();
  const type = (id, text) => { byId(id).value = text; byId(id).dispatchEvent(new Event("input", { bubbles: true })); };
  const key = (target, name) => target.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
  const painted = (canvas) => {
    const copy = document.createElement("canvas");
    [copy.width, copy.height] = [canvas.width, canvas.height];
    const context = copy.getContext("2d", { willReadFrequently: true });
    context.drawImage(canvas, 0, 0);
    return context.getImageData(0, 0, copy.width, copy.height).data.some((part, at) => at % 4 === 3 && part > 0);
  };
  const point = (board, x, y) => {
    const box = board.canvas.getBoundingClientRect();
    return { clientX: box.left + x, clientY: box.top + y, button: 0, pointerId: 1, bubbles: true };
  };
  const clickAt = (board, x, y) => {
    board.canvas.setPointerCapture = () => {};
    ["pointerdown", "pointerup"].forEach((name) => board.canvas.dispatchEvent(new PointerEvent(name, point(board, x, y))));
  };
  try {
    const count = data.nodes.filter((node) => node.role === "node").length;
    await frame();
    graph.board.now(); timeline.board.now();
    check("the graph is drawn", painted(graph.board.canvas));
    check("the schedule is drawn", painted(timeline.board.canvas));
    check("the head shows the model", byId("model").title === data.facts.model && data.facts.model.endsWith(byId("model").textContent));

    const before = graph.view.scale;
    press("zoom-in");
    check("zooming in enlarges the graph", graph.view.scale > before);
    press("fit");
    check("fitting shows all again", Math.abs(graph.view.scale - before) < 1e-9);
    const [x, y] = [graph.view.x, graph.view.y];
    key(graph.board.canvas, "ArrowLeft");
    check("an arrow pans", graph.view.x === x + 60 && graph.view.y === y);
    press("fit");
    graph.board.canvas.dispatchEvent(new WheelEvent("wheel", { ...point(graph.board, 50, 50), deltaY: -200, cancelable: true }));
    check("the wheel zooms", graph.view.scale > before);
    press("fit");

    const first = data.nodes[0];
    const [cx, cy] = [first.at[0] * graph.view.scale + graph.view.x, first.at[1] * graph.view.scale + graph.view.y];
    clickAt(graph.board, cx, cy);
    check("a click selects the node", selected !== null && selected.kind === "node" && selected.index === 0);
    check("details show the node", byId("details").textContent.includes(first.name) && byId("details").textContent.includes("Why here"));
    key(document.body, "Escape");
    check("Escape deselects", selected === null && byId("details").textContent.includes("Devices"));

    type("search", first.name);
    check("search finds the node", byId("matches").textContent !== "" && byId("matches").textContent !== "0 found");
    key(byId("search"), "Enter");
    check("Enter selects what was found", selected !== null && selected.kind === "node");
    type("search", "no node is called so");
    check("search can find nothing", byId("matches").textContent === "0 found");
    type("search", "");
    select(null);

    for (const tab of ["memory", "executable", "schedule"]) {
      showTab(tab);
      timeline.board.now();
      check(`${tab} is drawn`, painted(timeline.board.canvas));
    }
    const length = timeline.view.to - timeline.view.from;
    press("time-in");
    check("zooming in shortens the time shown", timeline.view.to - timeline.view.from < length);
    press("time-fit");
    check("fitting shows all of the time", Math.abs(timeline.view.to - timeline.view.from - length) < 1e-6 * length);
    const lane = timeline.lanes.find((one) => one.predicted.length > 0);
    const bar = lane.predicted[Math.floor(lane.predicted.length / 2)];
    clickAt(timeline.board, timeline.x((bar.start + bar.end) / 2), 24 + 4 + timeline.lanes.indexOf(lane) * timeline.laneHeight() + 12 - timeline.view.top);
    check("a click on a bar selects", selected !== null);
    const transfer = data.transfers.findIndex((one) => one.route !== "shared");
    if (transfer >= 0) {
      select({ kind: "transfer", index: transfer });
      check("details show the transfer", byId("details").textContent.includes(data.transfers[transfer].name));
    }
    press("chain");
    timeline.board.now();
    press("chain");

    showTab("nodes");
    await frame();
    check("the table counts the nodes", table.shown().length === count && byId("count").textContent === `${count} nodes`);
    for (const name of isMeasured ? ["error", "measured", "critical share"] : ["predicted", "critical share"]) {
      table.sortBy(name);
      const down = table.shown();
      table.sortBy(name);
      const up = table.shown();
      check(`sorting by ${name} turns around`, count < 2 || down.length === up.length);
      check(`the head says that ${name} is sorted`, document.querySelector("#table th[aria-sort]").textContent.startsWith(name));
    }
    table.sortBy("predicted");
    const times = table.shown().map((index) => lengthOf(data.nodes[index].predicted));
    check("rows are in order", times.every((time, at) => at === 0 || times[at - 1] >= time));
    check("only rows in sight exist", document.querySelectorAll("#table tbody tr").length < 200);
    type("filter", data.devices[first.device].name);
    check("the filter keeps the device's nodes", table.shown().length > 0 && table.shown().every((index) => `${data.nodes[index].name} ${data.nodes[index].op} ${data.devices[data.nodes[index].device].name} ${data.nodes[index].operators}`.toLowerCase().includes(data.devices[first.device].name.toLowerCase())));
    type("filter", "");
    document.querySelector("#table tr[data-node] td").click();
    check("a row selects its node", selectedNode() === table.shown()[0]);

    for (const colouring of ["time", "error", "critical", "device"]) {
      graph.colour(colouring);
      graph.board.now();
      check(`colouring by ${colouring} draws`, painted(graph.board.canvas));
    }
    press("theme");
    graph.board.now(); timeline.board.now();
    check("both themes draw", painted(graph.board.canvas));
    press("theme");
    showTab("schedule");
    select(null);
    await frame();
  } catch (error) {
    failures.push(`${error}`);
  }
  document.documentElement.dataset.selftest = failures.length === 0 ? "pass" : `fail: ${failures.join("; ")}`;
}

start();
