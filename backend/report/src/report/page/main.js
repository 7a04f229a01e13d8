// The head of the page, and the code that connects its parts.

function drawHeader() {
  const { facts, predicted, measured } = data;
  // The last part of a path distinguishes it.
  byId("model").textContent = facts.model.split("/").pop() || facts.model;
  byId("model").title = facts.model;
  byId("subtitle").textContent = `${facts.strategy} on ${data.devices.map((device) => device.name).join(", ")} · ${facts.machine} · ${facts.date}`;
  const tile = (value, name, off) => element("div", { class: "tile" }, element("b", {}, value, off ? element("span", { class: "off", title: "(predicted − measured) / measured" }, off) : ""), element("span", {}, name));
  const tiles = [];
  if (isMeasured) {
    const { count, cold, median_ns: median } = facts.runs;
    const name = count > 1 ? `measured, median of ${count}` : cold ? "measured, one cold run" : "measured, one run";
    tiles.push(tile(duration(median), name));
    const known = facts.runs.predicted;
    const how = facts.runs.vague ? "predicted, not known yet: calibrate, or repeat" : "predicted; error (p − m) / m";
    tiles.push(known ? tile(duration(predicted.makespan_ns), how, errorText(errorFrom(predicted.makespan_ns, median))) : tile("unknown", "predicted before the first run"));
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

const tabs = [...document.querySelectorAll("[data-tab]")];
const shownTab = () => tabs.find((tab) => tab.getAttribute("aria-selected") === "true").dataset.tab;

function showTab(name) {
  tabs.forEach((tab) => { tab.setAttribute("aria-selected", tab.dataset.tab === name); tab.tabIndex = tab.dataset.tab === name ? 0 : -1; });
  const panels = { nodes: "table-panel", chain: "chain-panel", runs: "runs-panel" };
  const panel = panels[name] || "time-panel";
  [...Object.values(panels), "time-panel"].forEach((one) => { byId(one).hidden = one !== panel; });
  const isTime = panel === "time-panel";
  if (isTime) byId(panel).setAttribute("aria-labelledby", `tab-${name}`);
  const kinds = { ".for-time": isTime, ".for-schedule": name === "schedule", ".for-table": name === "nodes", ".for-canvas": isTime || name === "runs", ".for-rows": name === "nodes" || name === "chain" };
  for (const [kind, wanted] of Object.entries(kinds)) document.querySelectorAll(kind).forEach((part) => { part.hidden = !wanted; });
  if (isTime) timeline.setMode(name);
  if (name === "nodes") table.show();
  if (name === "chain") chain.show();
  if (name === "runs") { runs.keys(); runs.board.redraw(); }
}

/// Arrow keys move from tab to tab, as in any list of tabs.
function onTabKey(event) {
  const seen = tabs.filter((tab) => !tab.hidden);
  const step = { ArrowRight: 1, ArrowLeft: seen.length - 1 }[event.key];
  if (step === undefined) return;
  const next = seen[(seen.findIndex((tab) => tab.dataset.tab === shownTab()) + step) % seen.length];
  showTab(next.dataset.tab);
  next.focus();
  event.preventDefault();
}

/// Called after the theme has changed.
function repaintAll() {
  graph.repaint();
  showTab(shownTab());
  details.show();
}

function findNode(text) {
  const found = graph.search(text);
  byId("matches").textContent = text.trim() === "" ? "" : `${found.length} found`;
  return found;
}

function listenToPage() {
  tabs.forEach((tab) => { tab.addEventListener("click", () => showTab(tab.dataset.tab)); tab.addEventListener("keydown", onTabKey); });
  byId("tab-runs").hidden = runs.count < 2;
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
    if (event.key === "Escape") { timeline.measureRange(null); select(null); }
  });
  const splitter = byId("splitter");
  const toShare = (share) => {
    const bounded = Math.min(0.8, Math.max(0.12, share));
    byId("main").style.setProperty("--lower", `${(100 * bounded).toFixed(2)}%`);
    splitter.setAttribute("aria-valuenow", Math.round(100 * bounded));
  };
  const box = () => byId("main").getBoundingClientRect();
  onDrag(splitter, (dx, dy, event) => toShare((box().bottom - event.clientY) / box().height), () => {});
  splitter.addEventListener("keydown", (event) => {
    const step = { ArrowUp: 0.05, ArrowDown: -0.05 }[event.key];
    if (step === undefined) return;
    toShare(byId("lower").getBoundingClientRect().height / box().height + step);
    event.preventDefault();
  });
}

function start() {
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches);
  drawHeader();
  listenToPage();
  graph.listen();
  timeline.listen();
  runs.listen();
  exporting.listen();
  table.listen();
  table.drawHead();
  table.sort();
  showTab("schedule");
  graph.repaint();
  details.show();
  // Sizes are known once the page is laid out.
  requestAnimationFrame(() => {
    graph.board.resize();
    graph.fit();
    timeline.fit();
    document.documentElement.dataset.openedMs = Math.round(performance.now());
    fromFragment();
  });
}

/// Reads the fragment, with parts joined by `&`: `#dark`, `#node=NAME`, `#tab=memory`, `#colour=time`, `#open` (all
/// groups). `#selftest` tests the page.
function fromFragment() {
  const wishes = new URLSearchParams(location.hash.slice(1));
  if (wishes.has("dark") || wishes.has("light")) { setTheme(wishes.has("dark")); repaintAll(); }
  if (wishes.has("tab") && document.querySelector(`[data-tab="${CSS.escape(wishes.get("tab"))}"]`)) showTab(wishes.get("tab"));
  if (shades.names.includes(wishes.get("colour"))) { byId("colour").value = wishes.get("colour"); byId("colour").dispatchEvent(new Event("change")); }
  if (wishes.has("open")) byId("open-all").click();
  const index = data.nodes.findIndex((node) => node.name === wishes.get("node"));
  if (index >= 0) select({ kind: "node", index });
  if (wishes.has("selftest")) testing.all();
}

start();
