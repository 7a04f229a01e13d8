// The run over time: the schedule, the memory and the executable nodes on one axis; predicted above measured.

const timeline = (() => {
  const { view } = axis;
  let mode = "schedule";
  let cursor = null;

  const board = new Board("time", (context, width, height) => draw(context, width, height, cursor));
  const redraw = () => board.redraw();
  const chartHeight = () => Math.max(74, Math.min(150, (board.height - axis.height - 8) / data.devices.length));
  const contentHeight = () => axis.height + 6 + (mode === "schedule" ? schedule.height() : data.devices.length * chartHeight());

  const fit = () => { view.top = 0; axis.show(0, span * 1.02); redraw(); };
  const zoom = (factor, pixel) => { axis.zoom(factor, pixel); redraw(); };

  function pan(dx, dy) {
    view.top = Math.max(0, Math.min(view.top - dy, contentHeight() - board.height));
    axis.pan(dx);
    redraw();
  }

  /// Brings both bars of an item into view.
  function reveal(item) {
    if (item.kind === "group") return redraw();
    const times = [schedule.thingOf(item).predicted, schedule.thingOf(item).measured].filter(Boolean);
    if (times.length === 0) return redraw();
    const [start, end] = [Math.min(...times.map((t) => t.start)), Math.max(...times.map((t) => t.end))];
    if (start < view.from || end > view.to) {
      const wanted = Math.max(view.to - view.from, (end - start) * 1.3);
      axis.show((start + end - wanted) / 2, (start + end + wanted) / 2);
    }
    const lane = schedule.laneNumber(item);
    if (mode === "schedule" && lane >= 0) {
      const top = axis.height + lane * schedule.laneHeight();
      if (top < view.top + axis.height || top + schedule.laneHeight() > view.top + board.height) view.top = Math.max(0, Math.min(top - axis.height, contentHeight() - board.height));
    }
    redraw();
  }

  function draw(context, width, height, pointer) {
    axis.resize(width);
    schedule.resize(height - axis.height - 8);
    view.top = Math.max(0, Math.min(view.top, contentHeight() - height));
    context.font = smallType;
    context.textBaseline = "middle";
    axis.drawGrid(context, height);
    context.save();
    context.beginPath();
    context.rect(0, axis.height, width, height - axis.height);
    context.clip();
    context.translate(0, axis.height + 4 - view.top);
    if (mode === "schedule") schedule.draw(context, width, height); else steps.draw(context, mode, width, chartHeight());
    context.restore();
    axis.drawEnds(context, height);
    axis.drawRange(context, height);
    axis.drawCursor(context, pointer, height);
  }

  // --- the user

  const place = (event) => {
    const box = board.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };

  function at(event) {
    const [px, py] = place(event);
    if (mode !== "schedule" || px < axis.gutter || py < axis.height) return null;
    return schedule.at(px, py - axis.height - 4 + view.top);
  }

  /// Measures a range until the next click on the axis or Escape.
  function measureRange(range) {
    axis.range = range !== null && range.to > range.from ? range : null;
    details.show();
    if (axis.range !== null) announce(`${duration(range.to - range.from)} selected`);
    redraw();
  }

  /// A drag on the axis, or with the shift key, measures; elsewhere it moves the view.
  let begun = null;
  function drag(dx, dy, event) {
    if (begun === null) return pan(dx, dy);
    const times = [begun, axis.timeAt(place(event)[0])].map((time) => Math.max(0, Math.min(span * 1.02, time)));
    measureRange({ from: Math.min(...times), to: Math.max(...times) });
  }

  function onKey(event) {
    const moves = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] };
    if (moves[event.key]) pan(...moves[event.key]);
    else if (event.key === "+") zoom(1.25);
    else if (event.key === "-") zoom(0.8);
    else if (event.key === "0") fit();
    else if (event.key === "m") measureRange({ from: Math.max(0, view.from), to: Math.min(span, view.to) });
    else return;
    event.preventDefault();
  }

  function listen() {
    const canvas = board.canvas;
    canvas.addEventListener("pointerdown", (event) => {
      const [px, py] = place(event);
      begun = px >= axis.gutter && (event.shiftKey || py < axis.height) ? axis.timeAt(px) : null;
    });
    onDrag(canvas, drag, (event) => (begun === null ? select(at(event), "timeline") : measureRange(null)));
    canvas.addEventListener("pointermove", (event) => {
      cursor = place(event)[0];
      redraw();
      if (event.buttons !== 0) return;
      const item = at(event);
      hover(item);
      if (item !== null) showTip(event, ...tipOf(item));
      else if (mode !== "schedule" && cursor > axis.gutter) showTip(event, duration(axis.timeAt(cursor)), steps.valuesAt(mode, axis.timeAt(cursor)));
      else showTip(event);
    });
    canvas.addEventListener("pointerleave", (event) => { cursor = null; hover(null); showTip(event); redraw(); });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (event.shiftKey || sideways) pan(-(sideways ? event.deltaX : event.deltaY), 0);
      else if (event.altKey) pan(0, -event.deltaY);
      else zoom(Math.exp(-Math.max(-240, Math.min(240, event.deltaY)) / 320), place(event)[0]);
    }, { passive: false });
    canvas.addEventListener("keydown", onKey);
    byId("time-in").addEventListener("click", () => zoom(1.6));
    byId("time-out").addEventListener("click", () => zoom(1 / 1.6));
    byId("time-fit").addEventListener("click", fit);
    byId("chain").addEventListener("change", (event) => { schedule.options.onlyChain = event.target.checked; redraw(); });
    byId("arrows").addEventListener("change", (event) => { schedule.options.arrows = event.target.checked; redraw(); });
    onSelect((item, from) => (item === null || from === "timeline" ? redraw() : reveal(item)));
  }

  function setMode(name) {
    mode = name;
    view.top = 0;
    document.querySelectorAll(".for-schedule").forEach((part) => { part.hidden = name !== "schedule"; });
    keys();
    redraw();
  }

  /// Describes every colour and line.
  function keys() {
    const named = (shape, text) => element("span", {}, shape, text);
    const box = (background, opacity = 1) => element("span", { class: "swatch", style: `background:${background};opacity:${opacity}` });
    const line = (colour, kind) => element("span", { class: "stroke", style: `border-top:2px ${kind} ${colour}` });
    const made = [];
    if (mode === "schedule") {
      data.devices.forEach((device, index) => made.push(named(box(paint.device[index]), device.name)));
      if (data.transfers.some((one) => one.route !== "shared")) made.push(named(box(paint.cross), "transfer"), named(line(paint.quiet, "solid"), "arrow: from maker to transfer to reader"));
      if (lanes.some((lane) => lane.items.some((item) => item.streamed))) made.push(named(box(`repeating-linear-gradient(135deg,${paint.cross} 0 2px,${paint.paper} 2px 4px)`), "streamed in chunks"));
      if (isMeasured) made.push(named(box(paint.quiet, 0.42), "predicted, above"), named(box(paint.quiet), "measured, below"));
    } else {
      made.push(named(box("linear-gradient(90deg," + paint.device.join(",") + ")", 0.6), isMeasured ? "measured" : "predicted"));
      if (isMeasured) made.push(named(line(paint.quiet, "dashed"), "predicted"));
      if (mode === "memory") {
        made.push(named(line(paint.quiet, "dotted"), "planned peak"));
        if (isMeasured) made.push(named(line(paint.ink, "solid"), "measured peak"));
        if (data.devices.some((device) => device.limit !== null)) made.push(named(line(paint.bad, "dashed"), "limit (↑: beyond the chart)"));
      }
    }
    const upright = (background) => element("span", { class: "stroke upright", style: `background:${background}` });
    made.push(named(upright(`repeating-linear-gradient(${paint.quiet} 0 4px,transparent 4px 7px)`), "predicted end"));
    if (isMeasured) made.push(named(upright(paint.ink), "measured end"));
    byId("keys").replaceChildren(...made);
  }

  /// Returns a picture of all lanes or charts over the whole time, made by `write`.
  function picture(width, write) {
    const [kept, size] = [{ ...view }, [board.width, board.height]];
    schedule.resize(0);
    board.height = Math.ceil(mode === "schedule" ? contentHeight() + 8 : axis.height + 14 + 150 * data.devices.length);
    board.width = width;
    fit();
    const made = write((context, across, down) => draw(context, across, down, null), width, board.height);
    [board.width, board.height] = size;
    Object.assign(view, kept);
    return made;
  }

  return { board, view, picture, listen, fit, redraw, setMode, measureRange };
})();
