// Panels as files and on paper: PNG in double resolution, SVG, tables as CSV, and a print of everything in light
// colours.

const exporting = (() => {
  function save(name, type, content) {
    const address = URL.createObjectURL(new Blob([content], { type }));
    element("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  }

  const stem = () => (byId("model").textContent.replace(/\.[^.]*$/, "").replace(/[^\w.-]+/g, "_") || "report");

  function svgOf(draw, width, height) {
    const context = new SvgContext(width, height);
    draw(context, width, height);
    return context.file(paint.paper);
  }

  function png(board, name) {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [Math.round(board.width * 2), Math.round(board.height * 2)];
    const context = canvas.getContext("2d");
    context.setTransform(2, 0, 0, 2, 0, 0);
    context.fillStyle = paint.paper;
    context.fillRect(0, 0, board.width, board.height);
    board.draw(context, board.width, board.height);
    canvas.toBlob((blob) => save(`${stem()}-${name}.png`, "image/png", blob));
  }

  const svg = (board, name) => save(`${stem()}-${name}.svg`, "image/svg+xml", svgOf(board.draw, board.width, board.height));

  /// Returns the cells of a table on the page as CSV.
  function csvOf(rows) {
    const quoted = (cell) => (/[",\n]/.test(cell) ? `"${cell.replace(/"/g, '""')}"` : cell);
    return rows.map((cells) => cells.map((cell) => quoted(String(cell))).join(",")).join("\n") + "\n";
  }

  /// Saves the content of the lower panel.
  function lower(form) {
    const tab = shownTab();
    if (tab === "nodes") return save(`${stem()}-nodes.csv`, "text/csv", csvOf(table.cells()));
    if (tab === "chain") return save(`${stem()}-chain.csv`, "text/csv", csvOf([...byId("chain-panel").querySelectorAll("tr")].map((row) => [...row.children].map((cell) => cell.textContent))));
    const board = tab === "runs" ? runs.board : timeline.board;
    return form === "png" ? png(board, tab) : svg(board, tab);
  }

  /// Every panel, one below the other, for printing. The page is light until `done`.
  let wasDark = false;
  function print() {
    wasDark = document.documentElement.classList.contains("dark");
    setTheme(false);
    const figure = (title, keys, file) => element("figure", {}, element("h2", {}, title), keys && Object.assign(keys.cloneNode(true), { id: "" }), Object.assign(element("div"), { innerHTML: file }));
    const made = [figure("Graph", byId("legend"), graph.picture(1000, 520, svgOf))];
    for (const [tab, title] of [["schedule", "Schedule"], ["memory", "Memory"], ["executable", "Executable nodes"]]) {
      timeline.setMode(tab);
      made.push(figure(title, byId("keys"), timeline.picture(1000, svgOf)));
    }
    if (runs.count > 1) { runs.keys(); made.push(figure("Runs", byId("keys"), svgOf(runs.board.draw, 1000, 300))); }
    byId("print").replaceChildren(...made);
    showTab(shownTab());
  }

  function done() {
    byId("print").replaceChildren();
    setTheme(wasDark);
    repaintAll();
  }

  function listen() {
    byId("graph-png").addEventListener("click", () => png(graph.board, "graph"));
    byId("graph-svg").addEventListener("click", () => svg(graph.board, "graph"));
    byId("lower-png").addEventListener("click", () => lower("png"));
    byId("lower-svg").addEventListener("click", () => lower("svg"));
    byId("lower-csv").addEventListener("click", () => lower("csv"));
    byId("print-all").addEventListener("click", () => window.print());
    window.addEventListener("beforeprint", print);
    window.addEventListener("afterprint", done);
  }

  return { listen, svgOf, csvOf, print, done };
})();
