// The table of nodes: sorted by any column, filtered, and fast with thousands of rows, because only visible rows exist.

const table = (() => {
  const rowHeight = 24;
  const share = (node) => (isCritical(node) && makespan > 0 ? lengthOf(timesOf(node)) / makespan : 0);
  const cost = (node) => node.costs[node.device];
  const waited = (node) => (node.measured ? node.measured.start - node.measured.ready : 0);

  /// Name, subject, width, sort value, text. Figures start with the greatest. An error is (predicted − measured) /
  /// measured.
  const columns = [
    { name: "node", width: "24%", value: (node) => node.name.toLowerCase(), text: (node) => node.name, words: true },
    { name: "op", width: "11%", value: (node) => node.op, text: (node) => node.op, words: true },
    { name: "device", width: "9%", value: (node) => node.device, text: (node) => [swatch(paint.device[node.device]), data.devices[node.device].name], words: true },
    { name: "start", value: (node) => timesOf(node).start, text: (node) => duration(timesOf(node).start), ascending: true },
    { name: "predicted", value: (node) => lengthOf(node.predicted), text: (node) => duration(lengthOf(node.predicted)) },
    { name: "measured", value: (node) => lengthOf(node.measured), text: (node) => duration(lengthOf(node.measured)), measured: true },
    { name: "error", of: " (p − m) / m", value: (node) => Math.abs(errorOf(node) ?? -1), text: (node) => errorCell(node), measured: true },
    { name: "critical share", value: share, text: (node) => (share(node) > 0 ? percent(share(node)) : "") },
    { name: "waited", value: waited, text: (node) => (waited(node) > 0 ? duration(waited(node)) : ""), measured: true },
    { name: "cost from", width: "11%", value: (node) => (cost(node) ? cost(node).source : ""), text: (node) => (cost(node) ? cost(node).source : ""), words: true },
  ].filter((column) => isMeasured || !column.measured);

  function errorCell(node) {
    const error = errorOf(node);
    if (error === undefined) return "";
    const off = Math.abs(error) > 0.5 ? "bad" : Math.abs(error) < 0.15 ? "good" : undefined;
    return element("span", { class: off }, Math.abs(error) >= 10 ? `×${amount(1 + error)}` : errorText(error));
  }

  let sorted = { column: columns.find((column) => column.name === (isMeasured ? "measured" : "predicted")), down: true };
  let wanted = "";
  let rows = [];
  const panel = byId("table-panel");
  const [head, body] = [byId("table").tHead, byId("table").tBodies[0]];

  function sort() {
    const parts = wanted.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const text = (node) => [node.name, node.op, data.devices[node.device].name, ...node.operators].join(" ").toLowerCase();
    const fits = (node) => node.role === "node" && parts.every((part) => text(node).includes(part));
    const { column, down } = sorted;
    rows = data.nodes.flatMap((node, index) => (fits(node) ? [{ index, value: column.value(node) }] : []));
    const order = (one, other) => (one.value < other.value ? -1 : one.value > other.value ? 1 : 0);
    rows.sort((one, other) => (down ? order(other, one) : order(one, other)) || one.index - other.index);
    const all = data.nodes.filter((node) => node.role === "node").length;
    byId("count").textContent = rows.length === all ? `${all} nodes` : `${rows.length} of ${all} nodes`;
    show();
  }

  function drawHead() {
    const cell = (column) => {
      const here = sorted.column === column;
      const arrow = here ? (sorted.down ? " ↓" : " ↑") : "";
      return element("th", { class: column.words ? undefined : "right", style: column.width ? `width:${column.width}` : undefined, "aria-sort": here ? (sorted.down ? "descending" : "ascending") : undefined },
        element("button", { type: "button", onclick: () => sortBy(column.name), style: `text-align:${column.words ? "left" : "right"}` }, column.name + (column.of || "") + arrow));
    };
    head.replaceChildren(element("tr", {}, columns.map(cell)));
  }

  function sortBy(name) {
    const column = columns.find((one) => one.name === name);
    sorted = { column, down: sorted.column === column ? !sorted.down : !(column.words || column.ascending) };
    panel.scrollTop = 0;
    drawHead();
    sort();
  }

  /// Shows the visible rows, between two empty rows as high as the others.
  function show() {
    if (panel.hidden) return;
    const first = Math.max(0, Math.floor(panel.scrollTop / rowHeight) - 10);
    const last = Math.min(rows.length, first + Math.ceil(panel.clientHeight / rowHeight) + 20);
    const space = (count) => element("tr", {}, element("td", { colspan: columns.length, style: `height:${count * rowHeight}px;padding:0;border:0` }));
    const made = rows.slice(first, last).map(({ index }) => {
      const node = data.nodes[index];
      const cells = columns.map((column) => element("td", { class: column.words ? undefined : "right", title: column.name === "node" ? node.name : undefined }, column.text(node)));
      return element("tr", { "data-node": index, class: selectedNode() === index ? "selected" : undefined }, cells);
    });
    body.replaceChildren(...(first > 0 ? [space(first)] : []), ...made, ...(last < rows.length ? [space(rows.length - last)] : []));
  }

  function filter(text) { wanted = text; panel.scrollTop = 0; sort(); }

  function reveal(index) {
    const at = rows.findIndex((row) => row.index === index);
    if (at < 0 || panel.hidden) return;
    const top = at * rowHeight;
    if (top < panel.scrollTop || top + 3 * rowHeight > panel.scrollTop + panel.clientHeight) panel.scrollTop = Math.max(0, top - panel.clientHeight / 2);
  }

  function move(step) {
    const at = rows.findIndex((row) => row.index === selectedNode());
    const next = rows[Math.max(0, Math.min(rows.length - 1, at + step))];
    if (next !== undefined) { select({ kind: "node", index: next.index }, "table"); reveal(next.index); show(); }
  }

  function listen() {
    let due = false;
    panel.addEventListener("scroll", () => {
      if (due) return;
      due = true;
      requestAnimationFrame(() => { due = false; show(); });
    });
    new ResizeObserver(show).observe(panel);
    body.addEventListener("click", (event) => {
      const row = event.target.closest("tr[data-node]");
      if (row) select({ kind: "node", index: Number(row.dataset.node) }, "table");
    });
    panel.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
      event.preventDefault();
      move(event.key === "ArrowDown" ? 1 : -1);
    });
    byId("filter").addEventListener("input", (event) => filter(event.target.value));
    onSelect((item, from) => { if (selectedNode() !== null && from !== "table") reveal(selectedNode()); show(); });
  }

  /// Returns head and filtered rows as text.
  const cells = () => [columns.map((column) => column.name), ...rows.map(({ index }) => columns.map((column) => element("i", {}, column.text(data.nodes[index])).textContent))];

  return { listen, cells, sort, sortBy, drawHead, show, shown: () => rows.map((row) => row.index) };
})();
