// The graph: zoomed and panned, with as much detail as there is room for.

const graph = (() => {
  const [width, height, nodeWidth, nodeHeight] = data.drawing;
  const view = { x: 0, y: 0, scale: 1 };
  const nodes = data.nodes;
  let found = new Set();
  let colouring = "device";
  let mapImage = null;

  // Each edge's points from end to end, and the box around them.
  const routes = data.edges.map((edge) => {
    const [from, to] = [nodes[edge.from].at, nodes[edge.to].at];
    const points = [[from[0], from[1] + nodeHeight / 2], ...edge.bends, [to[0], to[1] - nodeHeight / 2]];
    const [xs, ys] = [points.map((point) => point[0]), points.map((point) => point[1])];
    return { points, left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys) };
  });
  const edgesOf = nodes.map(() => []);
  data.edges.forEach((edge, index) => { edgesOf[edge.from].push(index); edgesOf[edge.to].push(index); });
  const transferEdges = data.transfers.map(() => []);
  data.edges.forEach((edge, index) => { if (edge.transfer !== null) transferEdges[edge.transfer].push(index); });

  // --- colours

  const longest = Math.max(1, ...nodes.map((node) => lengthOf(timesOf(node))));
  const shades = {
    device: (node) => paint.device[node.device],
    // Logarithmic over three powers of ten, because a few nodes take nearly all of the time.
    time: (node) => {
      const share = 1 + Math.log10(Math.max(lengthOf(timesOf(node)) / longest, 1e-3)) / 3;
      return mixed(paint.cold, paint.hot, Math.min(1, Math.max(0, share)));
    },
    error: (node) => {
      const error = errorOf(node);
      if (error === undefined) return paint.faint;
      const share = Math.max(-1, Math.min(1, Math.log2(Math.max(1 + error, 1e-6)) / 2));
      return mixed(paint.faint, share < 0 ? paint.hot : paint.accent, Math.abs(share));
    },
    critical: (node) => (isCritical(node) ? paint.mark : paint.faint),
  };
  const shade = (node) => shades[colouring](node);

  function legend() {
    const ramp = (from, to, ...stops) => element("span", { class: "ramp", style: `background:linear-gradient(90deg,${[from, ...stops, to].join(",")})` });
    const kinds = {
      device: () => data.devices.map((device, index) => element("span", {}, swatch(paint.device[index]), device.name)),
      time: () => [element("span", {}, duration(longest / 1e3), ramp(paint.cold, paint.hot), duration(longest))],
      error: () => [element("span", {}, "took longer", ramp(paint.hot, paint.accent, paint.faint), "took less")],
      critical: () => [element("span", {}, swatch(paint.mark), "on the chain of waits that makes the makespan")],
    };
    byId("legend").replaceChildren(...kinds[colouring]());
  }

  // --- the view

  const board = new Board("graph", draw);
  const map = new Board("minimap", drawMap);
  const place = (event) => {
    const box = board.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const world = ([x, y]) => [(x - view.x) / view.scale, (y - view.y) / view.scale];
  const fitting = () => Math.min(1.25, (board.width - 24) / width, (board.height - 24) / height);

  function redraw() { board.redraw(); map.redraw(); }

  function fit() {
    view.scale = Math.max(fitting(), 1e-4);
    view.x = (board.width - width * view.scale) / 2;
    view.y = (board.height - height * view.scale) / 2;
    redraw();
  }

  function zoom(factor, [x, y] = [board.width / 2, board.height / 2]) {
    const scale = Math.min(4, Math.max(Math.min(fitting(), 1) / 2, view.scale * factor));
    view.x = x - (x - view.x) * (scale / view.scale);
    view.y = y - (y - view.y) * (scale / view.scale);
    view.scale = scale;
    redraw();
  }

  function pan(dx, dy) { view.x += dx; view.y += dy; redraw(); }

  /// Brings a node into view, large enough to be read.
  function reveal(index) {
    const [x, y] = nodes[index].at;
    const [left, top] = [x * view.scale + view.x, y * view.scale + view.y];
    const inside = left > 60 && left < board.width - 60 && top > 30 && top < board.height - 30;
    if (inside && view.scale > 0.3) return redraw();
    view.scale = Math.max(view.scale, Math.min(0.8, Math.max(fitting(), 0.55)));
    view.x = board.width / 2 - x * view.scale;
    view.y = board.height / 2 - y * view.scale;
    redraw();
  }

  // --- drawing

  function draw(context, boardWidth, boardHeight) {
    const { scale } = view;
    const [left, top] = world([0, 0]);
    const [right, bottom] = world([boardWidth, boardHeight]);
    const visible = (box) => box.right >= left && box.left <= right && box.bottom >= top && box.top <= bottom;
    context.translate(view.x, view.y);
    context.scale(scale, scale);
    drawEdges(context, visible, scale);
    const near = nodes.filter(({ at: [x, y] }) =>
      x + nodeWidth >= left && x - nodeWidth <= right && y + nodeHeight >= top && y - nodeHeight <= bottom);
    if (scale < 0.28) drawBlocks(context, near); else near.forEach((node) => drawNode(context, node, scale));
    drawMarks(context, scale);
  }

  /// Curves that leave and arrive upright; round corners where an edge goes along the columns.
  function trace(context, { points }, curved) {
    context.moveTo(...points[0]);
    for (let at = 1; at < points.length; at += 1) {
      const [[x1, y1], [x2, y2]] = [points[at - 1], points[at]];
      const straight = x1 === x2 || y1 === y2;
      const next = points[at + 1];
      if (curved && straight && next && (next[0] === x2 || next[1] === y2)) context.arcTo(x2, y2, ...next, 7);
      else if (curved && !straight) context.bezierCurveTo(x1, (y1 + y2) / 2, x2, (y1 + y2) / 2, x2, y2);
      else context.lineTo(x2, y2);
    }
  }

  function stroke(context, indices, colour, lineWidth, curved, heads) {
    if (indices.length === 0) return;
    context.strokeStyle = colour;
    context.lineWidth = lineWidth;
    context.beginPath();
    indices.forEach((index) => trace(context, routes[index], curved));
    context.stroke();
    if (!heads) return;
    context.fillStyle = colour;
    context.beginPath();
    for (const index of indices) {
      const [x, y] = routes[index].points[routes[index].points.length - 1];
      context.moveTo(x, y);
      context.lineTo(x - 3.5, y - 7);
      context.lineTo(x + 3.5, y - 7);
      context.closePath();
    }
    context.fill();
  }

  function drawEdges(context, visible, scale) {
    const [local, crossing] = [[], []];
    routes.forEach((box, index) => {
      if (visible(box)) (data.edges[index].transfer === null ? local : crossing).push(index);
    });
    const [curved, heads] = [scale > 0.2, scale > 0.4];
    const thin = Math.max(1, 0.7 / scale);
    stroke(context, local, paint.edge, thin, curved, heads);
    stroke(context, crossing, paint.cross, Math.max(1.8, 1.1 / scale), curved, heads);
  }

  /// All nodes of a colour as one shape: what fits thousands of them into a frame.
  function drawBlocks(context, near) {
    const byColour = new Map();
    for (const node of near) {
      const colour = shade(node);
      if (!byColour.has(colour)) byColour.set(colour, []);
      byColour.get(colour).push(node.at);
    }
    for (const [colour, places] of byColour) {
      context.fillStyle = colour;
      context.beginPath();
      places.forEach(([x, y]) => context.rect(x - nodeWidth / 2, y - nodeHeight / 2, nodeWidth, nodeHeight));
      context.fill();
    }
  }

  function outline(context, [x, y], grow = 0) {
    const radius = 6 + grow;
    context.beginPath();
    context.roundRect(x - nodeWidth / 2 - grow, y - nodeHeight / 2 - grow, nodeWidth + 2 * grow, nodeHeight + 2 * grow, radius);
  }

  function drawNode(context, node, scale) {
    const [x, y] = node.at;
    const [left, top] = [x - nodeWidth / 2, y - nodeHeight / 2];
    const colour = shade(node);
    const plain = node.role !== "node";
    if (node.block !== null) {
      // A block is a stack of nodes.
      outline(context, [x + 3, y + 3]);
      context.fillStyle = mixed(paint.paper, colour, 0.5);
      context.fill();
    }
    outline(context, node.at);
    context.fillStyle = plain ? paint.panel : colouring === "device" ? mixed(paint.paper, colour, 0.22) : colour;
    context.fill();
    context.lineWidth = 1;
    context.strokeStyle = plain ? paint.edge : colouring === "device" ? colour : paint.edge;
    context.setLineDash(plain ? [4, 3] : []);
    context.stroke();
    context.setLineDash([]);
    if (colouring === "device" && !plain) {
      context.fillStyle = colour;
      context.beginPath();
      context.roundRect(left, top, 5, nodeHeight, [6, 0, 0, 6]);
      context.fill();
    }
    if (scale < 0.42) return;
    const ink = plain || colouring === "device" ? paint.ink : inkOn(colour);
    context.fillStyle = ink;
    context.font = "600 12px system-ui, 'Segoe UI', Arial, 'DejaVu Sans', sans-serif";
    node.label ??= plain ? fitted(context, `${node.op} ${node.name}`, nodeWidth - 20) : fitted(context, node.op, nodeWidth - 70);
    context.fillText(node.label, left + 12, plain ? y + 4 : y - 3);
    if (plain) return;
    context.font = "11px system-ui, 'Segoe UI', Arial, 'DejaVu Sans', sans-serif";
    context.globalAlpha = 0.78;
    node.small ??= fittedEnd(context, node.name, nodeWidth - 22);
    context.fillText(node.small, left + 12, y + 11);
    context.textAlign = "right";
    context.fillText(duration(lengthOf(timesOf(node))), left + nodeWidth - 8, y - 3);
    context.textAlign = "left";
    context.globalAlpha = 1;
  }

  /// What is selected, pointed at or found stands out at every scale.
  function drawMarks(context, scale) {
    const wide = Math.max(2, 2 / scale);
    const edges = selected === null ? [] : selected.kind === "node" ? edgesOf[selected.index] : transferEdges[selected.index];
    stroke(context, edges, paint.accent, wide, scale > 0.2, scale > 0.4);
    context.lineWidth = wide;
    context.strokeStyle = paint.mark;
    for (const index of found) { outline(context, nodes[index].at, wide); context.stroke(); }
    const ring = (index, colour) => {
      outline(context, nodes[index].at, wide);
      context.strokeStyle = colour;
      context.stroke();
    };
    if (hovered !== null && hovered.kind === "node") ring(hovered.index, paint.quiet);
    if (selectedNode() !== null) ring(selectedNode(), paint.accent);
  }

  function drawMap(context, mapWidth, mapHeight) {
    const scale = Math.min(mapWidth / width, mapHeight / height) * 0.94;
    const [x, y] = [(mapWidth - width * scale) / 2, (mapHeight - height * scale) / 2];
    if (mapImage === null || mapImage.width !== map.canvas.width) {
      mapImage = document.createElement("canvas");
      [mapImage.width, mapImage.height] = [map.canvas.width, map.canvas.height];
      const image = mapImage.getContext("2d");
      const ratio = map.canvas.width / mapWidth;
      image.scale(ratio, ratio);
      for (const node of nodes) {
        image.fillStyle = shade(node);
        const [across, down] = [Math.max(1.4, nodeWidth * scale), Math.max(1.2, nodeHeight * scale)];
        image.fillRect(x + node.at[0] * scale - across / 2, y + node.at[1] * scale - down / 2, across, down);
      }
    }
    context.drawImage(mapImage, 0, 0, mapWidth, mapHeight);
    const [left, top] = world([0, 0]);
    const [right, bottom] = world([board.width, board.height]);
    context.strokeStyle = paint.accent;
    context.lineWidth = 1.5;
    context.strokeRect(x + left * scale, y + top * scale, (right - left) * scale, (bottom - top) * scale);
    map.shown = { scale, x, y };
    map.canvas.style.visibility = view.scale > fitting() * 1.05 ? "visible" : "hidden";
  }

  // --- the user

  function at(event) {
    const [x, y] = world(place(event));
    const hit = (node) => Math.abs(node.at[0] - x) <= nodeWidth / 2 && Math.abs(node.at[1] - y) <= nodeHeight / 2;
    const index = nodes.findIndex(hit);
    return index < 0 ? null : { kind: "node", index };
  }

  function listen() {
    onDrag(board.canvas, pan, (event) => select(at(event), "graph"));
    board.canvas.addEventListener("pointermove", (event) => {
      if (event.buttons !== 0) return;
      const item = at(event);
      hover(item);
      if (item === null) showTip(event); else showTip(event, ...tipOf(item));
    });
    board.canvas.addEventListener("pointerleave", (event) => { hover(null); showTip(event); });
    board.canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.shiftKey) pan(-event.deltaY, 0);
      else zoom(Math.exp(-Math.max(-240, Math.min(240, event.deltaY)) / 320), place(event));
    }, { passive: false });
    board.canvas.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
      if (moves[event.key]) pan(...moves[event.key]);
      else if (event.key === "+") zoom(1.25);
      else if (event.key === "-") zoom(0.8);
      else if (event.key === "0") fit();
      else return;
      event.preventDefault();
    });
    const toPlace = (event) => {
      const box = map.canvas.getBoundingClientRect();
      const { scale, x, y } = map.shown;
      view.x = board.width / 2 - ((event.clientX - box.left - x) / scale) * view.scale;
      view.y = board.height / 2 - ((event.clientY - box.top - y) / scale) * view.scale;
      redraw();
    };
    onDrag(map.canvas, (dx, dy, event) => toPlace(event), toPlace);
    byId("zoom-in").addEventListener("click", () => zoom(1.4));
    byId("zoom-out").addEventListener("click", () => zoom(1 / 1.4));
    byId("fit").addEventListener("click", fit);
    byId("colour").addEventListener("change", (event) => colour(event.target.value));
    onSelect((item, from) => (selectedNode() === null || from === "graph" ? redraw() : reveal(selectedNode())));
  }

  function colour(name) { colouring = name; repaint(); }

  /// After the theme or the colouring has changed.
  function repaint() { mapImage = null; legend(); redraw(); }

  /// Marks the nodes whose names, ops or operators contain `text`; returns them.
  function search(text) {
    const wanted = text.trim().toLowerCase();
    const contains = (node) => [node.name, node.op, ...node.operators].some((part) => part.toLowerCase().includes(wanted));
    found = new Set(wanted === "" ? [] : nodes.flatMap((node, index) => (contains(node) ? [index] : [])));
    redraw();
    return [...found];
  }

  return { board, view, listen, fit, zoom, pan, reveal, redraw, repaint, colour, search, at };
})();
