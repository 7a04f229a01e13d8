// The graph: zooming and panning, drawing, and the user's actions. Boxes scale, text does not: every box that is large
// enough has its name.

const graph = (() => {
  const view = { x: 0, y: 0, scale: 1 };
  let found = new Set();
  let mapImage = null;
  let shown = null;
  /// Size of the board into which the whole graph was fitted; null once the user has moved or zoomed.
  let fittedInto = null;

  const board = new Board("graph", draw);
  const map = new Board("minimap", drawMap);
  const font = (size, weight = 400) => `${weight} ${size}px system-ui, 'Segoe UI', Arial, 'DejaVu Sans', sans-serif`;

  // --- the view

  /// Returns the visible scene, up to date after groups were opened or closed.
  function current() {
    const now = scene.now();
    if (now !== shown) { shown = now; mapImage = null; shades.measure(now.items); shades.legend(); }
    return now;
  }

  const place = (event) => {
    const box = board.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const world = ([x, y]) => [(x - view.x) / view.scale, (y - view.y) / view.scale];
  /// Returns a box in pixels of the screen.
  const onScreen = (box) => {
    const [width, height] = [box.width * view.scale, box.height * view.scale];
    return { left: box.x * view.scale + view.x - width / 2, top: box.y * view.scale + view.y - height / 2, width, height };
  };
  const fitting = () => Math.min(1.25, (board.width - 16) / current().width, (board.height - 16) / current().height);
  function redraw() { board.redraw(); map.redraw(); }

  function fit() {
    scene.shape(board.width / board.height);
    view.scale = Math.max(fitting(), 1e-4);
    view.x = (board.width - current().width * view.scale) / 2;
    view.y = (board.height - current().height * view.scale) / 2;
    fittedInto = [board.width, board.height];
    redraw();
  }

  function zoom(factor, [x, y] = [board.width / 2, board.height / 2]) {
    const scale = Math.min(4, Math.max(Math.min(fitting(), 1) / 2, view.scale * factor));
    view.x = x - (x - view.x) * (scale / view.scale);
    view.y = y - (y - view.y) * (scale / view.scale);
    view.scale = scale;
    fittedInto = null;
    redraw();
  }

  function pan(dx, dy) { view.x += dx; view.y += dy; fittedInto = null; redraw(); }

  /// Brings an item into view, in legible size. Opens the groups around it.
  function reveal(item) {
    scene.uncover(item);
    const box = current().boxes.get(item);
    const { left, top, width, height } = onScreen(box);
    const inside = left > 0 && left + width < board.width && top > 0 && top + height < board.height;
    if (inside && view.scale > 0.3) return redraw();
    fittedInto = null;
    view.scale = Math.max(view.scale, Math.min(0.8, Math.max(fitting(), 0.55)));
    view.x = board.width / 2 - box.x * view.scale;
    view.y = board.height / 2 - box.y * view.scale;
    redraw();
  }

  /// Opens or closes a group, which stays under the pointer.
  function toggle(item) {
    const before = current().boxes.get(item);
    scene.toggle(item);
    const after = current().boxes.get(item);
    fittedInto = null;
    view.x += (before.x - after.x) * view.scale;
    view.y += (before.y - before.height / 2 - after.y + after.height / 2) * view.scale;
    announce(`${scene.nameOf(item)} ${scene.isOpen(item) ? "open" : "closed"}`);
    redraw();
  }

  // --- drawing

  function draw(context, boardWidth, boardHeight) {
    if (fittedInto !== null && (fittedInto[0] !== board.width || fittedInto[1] !== board.height)) fit();
    const { items, frames, edges } = current();
    const [left, top] = world([0, 0]);
    const [right, bottom] = world([boardWidth, boardHeight]);
    const near = (box) => box.x + box.width >= left && box.x - box.width <= right && box.y + box.height >= top && box.y - box.height <= bottom;
    frames.filter(near).forEach((box) => drawFrame(context, box));
    drawEdges(context, edges.filter((line) => !line.far && line.right >= left && line.left <= right && line.bottom >= top && line.top <= bottom));
    const seen = items.filter(near);
    if (view.scale < 0.16) drawSmall(context, seen); else seen.forEach((box) => drawItem(context, box));
    drawNames(context, seen, frames.filter(near));
    drawMarks(context);
  }

  /// Draws an edge: curves that leave and arrive vertically, or round corners if the edge goes along the columns.
  function trace(context, points, curved) {
    const at = ([x, y]) => [x * view.scale + view.x, y * view.scale + view.y];
    const placed = points.map(at);
    context.moveTo(...placed[0]);
    for (let index = 1; index < placed.length; index += 1) {
      const [[x1, y1], [x2, y2]] = [placed[index - 1], placed[index]];
      const straight = Math.abs(x1 - x2) < 0.5 || Math.abs(y1 - y2) < 0.5;
      const next = placed[index + 1];
      if (curved && straight && next && (Math.abs(next[0] - x2) < 0.5 || Math.abs(next[1] - y2) < 0.5)) context.arcTo(x2, y2, ...next, 7 * view.scale);
      else if (curved && !straight) context.bezierCurveTo(x1, (y1 + y2) / 2, x2, (y1 + y2) / 2, x2, y2);
      else context.lineTo(x2, y2);
    }
  }

  function stroke(context, lines, colour, width) {
    if (lines.length === 0) return;
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.beginPath();
    lines.forEach((line) => trace(context, line.points, view.scale > 0.2));
    context.stroke();
    if (view.scale <= 0.35) return;
    context.fillStyle = colour;
    context.beginPath();
    for (const { points } of lines) {
      const [x, y] = points[points.length - 1].map((value, axis) => value * view.scale + (axis === 0 ? view.x : view.y));
      context.moveTo(x, y);
      context.lineTo(x - 3.2, y - 6.5);
      context.lineTo(x + 3.2, y - 6.5);
      context.closePath();
    }
    context.fill();
  }

  function drawEdges(context, lines) {
    const wide = Math.min(1.4, Math.max(0.7, view.scale));
    stroke(context, lines.filter((line) => !line.crosses), paint.edge, wide);
    stroke(context, lines.filter((line) => line.crosses), paint.cross, wide + 0.8);
  }

  function drawFrame(context, box) {
    const { left, top, width, height } = onScreen(box);
    context.beginPath();
    context.roundRect(left, top, width, height, 7);
    context.globalAlpha = 0.55;
    context.fillStyle = paint.panel;
    context.fill();
    context.globalAlpha = 1;
    context.strokeStyle = paint.line;
    context.lineWidth = 1;
    context.stroke();
  }

  /// Draws all items of a colour as one shape, so that thousands of them fit into a frame's time.
  function drawSmall(context, seen) {
    const byColour = new Map();
    for (const box of seen) {
      const colour = shades.of(box.item);
      if (!byColour.has(colour)) byColour.set(colour, []);
      byColour.get(colour).push(onScreen(box));
    }
    for (const [colour, boxes] of byColour) {
      context.fillStyle = colour;
      context.beginPath();
      boxes.forEach(({ left, top, width, height }) => context.rect(left, top, Math.max(1, width), Math.max(1, height)));
      context.fill();
    }
  }

  const isEnd = (item) => !scene.isGroup(item) && data.nodes[item].role !== "node";
  const fillOf = (item) => (isEnd(item) ? paint.panel : shades.by() === "device" ? mixed(paint.paper, shades.of(item), 0.22) : shades.of(item));

  function drawItem(context, box) {
    const { item } = box;
    const { left, top, width, height } = onScreen(box);
    const radius = Math.min(6, height / 4);
    const shape = (shift) => { context.beginPath(); context.roundRect(left + shift, top + shift, width, height, radius); };
    const behind = scene.isGroup(item) || data.nodes[item].block !== null;
    if (behind) {
      // A group or block looks like a stack of nodes.
      shape(3 * view.scale);
      context.fillStyle = mixed(paint.paper, shades.of(item), 0.5);
      context.fill();
    }
    shape(0);
    context.fillStyle = fillOf(item);
    context.fill();
    context.lineWidth = scene.isGroup(item) ? 1.6 : 1;
    context.strokeStyle = isEnd(item) || shades.by() !== "device" ? paint.edge : shades.of(item);
    context.setLineDash(isEnd(item) ? [4, 3] : []);
    context.stroke();
    context.setLineDash([]);
    if (shades.by() === "device" && !isEnd(item)) drawStripe(context, item, { left, top, width, height });
    if (scene.isGroup(item)) drawSign(context, box);
  }

  /// Draws the devices of an item at its left. The height of each is its share of the item's time.
  function drawStripe(context, item, { left, top, height }) {
    let y = top + 1;
    for (const [colour, share] of shades.devicesOf(item)) {
      context.fillStyle = colour;
      context.fillRect(left + 0.5, y, Math.max(1.5, 5 * view.scale), share * (height - 2));
      y += share * (height - 2);
    }
  }

  /// Returns the position of a group's `+` or `−`; null if it would be too small to be hit.
  function signOf(box) {
    const { left, top, width, height } = onScreen(box);
    const size = Math.min(16, 18 * view.scale);
    if (size < 7 || width < 40) return null;
    const middle = scene.isOpen(box.item) ? top + Math.min(10, height / 2) : top + height / 2;
    return { x: left + width - size - 2, y: middle, size };
  }

  function drawSign(context, box) {
    const sign = signOf(box);
    if (sign === null) return;
    const ink = scene.isOpen(box.item) ? paint.quiet : inkOn(fillOf(box.item));
    context.strokeStyle = ink;
    context.lineWidth = 1.5;
    const arm = sign.size * 0.32;
    context.beginPath();
    context.moveTo(sign.x - arm, sign.y);
    context.lineTo(sign.x + arm, sign.y);
    if (!scene.isOpen(box.item)) { context.moveTo(sign.x, sign.y - arm); context.lineTo(sign.x, sign.y + arm); }
    context.stroke();
  }

  /// Draws names of open groups on their frames, then of nodes and closed groups in their boxes, if they fit.
  function drawNames(context, seen, frames) {
    const taken = [];
    for (const box of frames) {
      const { left, top, width, height } = onScreen(box);
      if (width < 36 || height < 22) continue;
      // An open group larger than the screen keeps its name in sight.
      const [x, y] = [Math.max(left + 7, 6), Math.max(top + Math.min(14, 4 + 14 * view.scale), 13)];
      const room = Math.min(left + width, board.width) - x - 22;
      context.font = font(11, 600);
      const text = fittedEnd(context, scene.nameOf(box.item), room);
      const wide = context.measureText(text).width;
      const spot = { left: x - 3, right: x + wide + 3, top: y - 11, bottom: y + 4 };
      if (text === "" || taken.some((other) => spot.left < other.right && spot.right > other.left && spot.top < other.bottom && spot.bottom > other.top)) continue;
      taken.push(spot);
      context.globalAlpha = 0.85;
      context.fillStyle = paint.panel;
      context.fillRect(spot.left, spot.top, wide + 6, 15);
      context.globalAlpha = 1;
      context.fillStyle = paint.quiet;
      context.fillText(text, x, y);
      drawSign(context, box);
    }
    seen.forEach((box) => drawName(context, box));
  }

  function drawName(context, box) {
    const { item } = box;
    const { left, top, width, height } = onScreen(box);
    if (width < 30 || height < 9) return;
    const group = scene.isGroup(item);
    const room = width - 14 - (group && signOf(box) !== null ? 20 : 0);
    const middle = top + height / 2;
    context.fillStyle = isEnd(item) ? paint.ink : inkOn(fillOf(item));
    const node = group ? null : data.nodes[item];
    const title = group ? scene.nameOf(item) : isEnd(item) ? `${node.op} ${node.name}` : node.op;
    const short = group ? fittedEnd : fitted;
    if (height < 25) {
      context.font = font(Math.min(11, Math.max(7, height - 4)), 600);
      context.fillText(short(context, title, room), left + 8, middle + Math.min(4, height / 3));
      return;
    }
    const time = isEnd(item) ? "" : duration(shades.timeOf(item));
    context.font = font(11);
    const beside = room > 90 && time !== "" ? context.measureText(time).width + 8 : 0;
    if (beside > 0) { context.textAlign = "right"; context.fillText(time, left + 8 + room, middle - 3); context.textAlign = "left"; }
    context.font = font(12, 600);
    context.fillText(short(context, title, room - beside), left + 10, isEnd(item) ? middle + 4 : middle - 3);
    if (isEnd(item)) return;
    context.font = font(11);
    context.globalAlpha = 0.78;
    const below = group ? nodeCount(scene.nodesOf(item).length) : node.name;
    context.fillText(group ? fitted(context, below, room) : fittedEnd(context, below, room), left + 10, middle + 11);
    context.globalAlpha = 1;
  }

  /// Marks selected, hovered and found items at every scale.
  function drawMarks(context) {
    const { boxes, edges } = current();
    const ring = (item, colour) => {
      const box = boxes.get(item);
      if (box === undefined) return;
      const { left, top, width, height } = onScreen(box);
      context.beginPath();
      context.roundRect(left - 2, top - 2, width + 4, height + 4, 7);
      context.strokeStyle = colour;
      context.lineWidth = 2;
      context.stroke();
    };
    const item = selectedItem();
    if (item !== null) {
      const touches = selected.kind === "transfer"
        ? (line) => line.edges.some((edge) => data.edges[edge].transfer === selected.index)
        : (line) => line.from === item || line.to === item;
      stroke(context, edges.filter(touches), paint.accent, 2);
    }
    new Set([...found].map(scene.standsFor)).forEach((one) => ring(one, paint.mark));
    if (hovered !== null && hovered.kind !== "transfer") ring(itemOf(hovered), paint.quiet);
    if (item !== null) ring(item, paint.accent);
  }

  /// Returns the item of a selection: its own, or the item that stands for it.
  const itemOf = (one) => (one.kind === "group" ? scene.toGroup(one.index) : scene.standsFor(one.kind === "node" ? one.index : data.transfers[one.index].node));
  const selectedItem = () => (selected === null ? null : itemOf(selected));

  function drawMap(context, mapWidth, mapHeight) {
    const { width, height, items } = current();
    const scale = Math.min(mapWidth / width, mapHeight / height) * 0.94;
    const [x, y] = [(mapWidth - width * scale) / 2, (mapHeight - height * scale) / 2];
    if (mapImage === null || mapImage.width !== map.canvas.width) {
      mapImage = document.createElement("canvas");
      [mapImage.width, mapImage.height] = [map.canvas.width, map.canvas.height];
      const image = mapImage.getContext("2d");
      const ratio = map.canvas.width / mapWidth;
      image.scale(ratio, ratio);
      for (const box of items) {
        image.fillStyle = shades.of(box.item);
        const [across, down] = [Math.max(1.4, box.width * scale), Math.max(1.2, box.height * scale)];
        image.fillRect(x + box.x * scale - across / 2, y + box.y * scale - down / 2, across, down);
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

  /// Returns the item at a point, innermost first. Frames count at their heads.
  function boxAt([px, py]) {
    const [x, y] = world([px, py]);
    const hit = (box) => Math.abs(box.x - x) <= box.width / 2 && Math.abs(box.y - y) <= box.height / 2;
    const { items, frames } = current();
    return items.find(hit) || [...frames].reverse().find((box) => hit(box) && py - onScreen(box).top < 22) || null;
  }

  const asSelection = (item) => (scene.isGroup(item) ? { kind: "group", index: scene.toIndex(item) } : { kind: "node", index: item });
  const at = (event) => { const box = boxAt(place(event)); return box === null ? null : asSelection(box.item); };

  function onClick(event) {
    const box = boxAt(place(event));
    const sign = box !== null && scene.isGroup(box.item) ? signOf(box) : null;
    const [px, py] = place(event);
    if (sign !== null && Math.abs(px - sign.x) < 11 && Math.abs(py - sign.y) < 11) toggle(box.item);
    else select(box === null ? null : asSelection(box.item), "graph");
  }

  /// Moves the selection along the edges, or to a neighbour in its layer. Without a selection, selects the first item.
  function step(key) {
    const { items, boxes, edges } = current();
    const item = selectedItem();
    if (item === null || !boxes.has(item)) return select(asSelection(items[0].item));
    const here = boxes.get(item);
    const ends = { ArrowDown: edges.filter((line) => line.from === item).map((line) => line.to), ArrowUp: edges.filter((line) => line.to === item).map((line) => line.from) }[key];
    const near = (box) => Math.abs(box.x - here.x) + Math.abs(box.y - here.y);
    const beside = () => items.filter((box) => (key === "ArrowLeft" ? box.x < here.x - 1 : box.x > here.x + 1) && Math.abs(box.y - here.y) < box.height + here.height);
    const list = ends === undefined ? beside() : ends.map((other) => boxes.get(other)).filter(Boolean);
    if (list.length > 0) select(asSelection(list.reduce((best, box) => (near(box) < near(best) ? box : best)).item));
  }

  function onKey(event) {
    const moves = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    const item = selectedItem();
    if (moves[event.key] && event.shiftKey) pan(...moves[event.key]);
    else if (moves[event.key]) step(event.key);
    else if ((event.key === "Enter" || event.key === " ") && item !== null && scene.isGroup(item)) toggle(item);
    else if (event.key === "Enter") step("ArrowDown");
    else if (event.key === "+") zoom(1.25);
    else if (event.key === "-") zoom(0.8);
    else if (event.key === "0") fit();
    else return;
    event.preventDefault();
  }

  function listen() {
    onDrag(board.canvas, pan, onClick);
    board.canvas.addEventListener("dblclick", (event) => { const box = boxAt(place(event)); if (box !== null && scene.isGroup(box.item)) toggle(box.item); });
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
    board.canvas.addEventListener("keydown", onKey);
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
    byId("open-all").addEventListener("click", () => { scene.openAll(); fit(); });
    byId("close-all").addEventListener("click", () => { scene.closeAll(); fit(); });
    byId("groups").hidden = scene.groups === 0;
    byId("colour").addEventListener("change", (event) => colour(event.target.value));
    onSelect((item, from) => (item === null || from === "graph" ? redraw() : reveal(item.kind === "group" ? scene.toGroup(item.index) : selectedNode())));
  }

  function colour(name) { shades.set(name); repaint(); }

  /// Called after the theme or the colouring has changed.
  function repaint() { mapImage = null; current(); shades.legend(); redraw(); }

  /// Marks the nodes whose names, ops or operators contain `text`, and returns them.
  function search(text) {
    const wanted = text.trim().toLowerCase();
    const contains = (node) => [node.name, node.op, ...node.operators].some((part) => part.toLowerCase().includes(wanted));
    found = new Set(wanted === "" ? [] : data.nodes.flatMap((node, index) => (contains(node) ? [index] : [])));
    redraw();
    return [...found];
  }

  /// Returns a picture of the whole graph in this size, made by `write`.
  function picture(width, height, write) {
    const [kept, size, into, aspect] = [{ ...view }, [board.width, board.height], fittedInto, scene.aspect()];
    [board.width, board.height] = [width, height];
    fit();
    const made = write(draw, width, height);
    [board.width, board.height] = size;
    scene.shape(aspect, true);
    Object.assign(view, kept);
    fittedInto = into;
    return made;
  }

  return { board, view, picture, listen, fit, redraw, repaint, colour, search, toggle, onScreen, current };
})();
