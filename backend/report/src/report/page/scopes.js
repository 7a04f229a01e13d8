// The graph in groups: which groups are open, and the positions of all visible items. Items are nodes, then groups. A
// closed group stands for everything in it.

const scene = (() => {
  const [nodeWidth, nodeHeight, groupWidth, groupHeight] = [156, 34, 196, 46];
  /// Padding around the members of an open group, and height of its name.
  const [pad, head] = [4, 20];
  /// Most visible items at first, and after opening all.
  const [mostAtFirst, mostOpen] = [70, 1500];
  /// Most edges of an item, on either side, that are all drawn.
  const mostJoins = 16;
  const count = data.nodes.length;
  const isGroup = (item) => item >= count;
  const groupOf = (item) => data.scopes[item - count];
  const parentOf = (item) => {
    const parent = isGroup(item) ? groupOf(item).parent : data.nodes[item].scope;
    return parent === null ? null : parent + count;
  };

  // --- what never changes: who is in what, and which edges join the members of one group

  const members = new Map([[null, []], ...data.scopes.map((_, group) => [group + count, []])]);
  /// Nodes in a group, at any depth.
  const inside = data.scopes.map(() => []);
  const first = data.scopes.map(() => Infinity);
  data.nodes.forEach((node, index) => {
    for (let group = parentOf(index); group !== null; group = parentOf(group)) {
      inside[group - count].push(index);
      first[group - count] = Math.min(first[group - count], rankOf(index));
    }
  });
  for (let item = 0; item < count + data.scopes.length; item += 1) members.get(parentOf(item)).push(item);
  const rank = (item) => (isGroup(item) ? first[item - count] : rankOf(item));
  members.forEach((list) => list.sort((one, other) => rank(one) - rank(other) || one - other));
  const place = new Map();
  members.forEach((list) => list.forEach((item, at) => place.set(item, at)));

  /// Inputs come before all nodes, outputs after them.
  function rankOf(index) {
    const { role } = data.nodes[index];
    return role === "input" ? index - 2 * count : index;
  }

  const chainOf = (item) => { const chain = [item]; for (let up = parentOf(item); up !== null; up = parentOf(up)) chain.push(up); return chain; };
  /// Edges between members, by group: the indices of two members, and the edges between the nodes in them.
  const joins = new Map([...members.keys()].map((group) => [group, new Map()]));
  data.edges.forEach((edge, number) => {
    const [from, to] = [chainOf(edge.from), chainOf(edge.to)];
    while (from.length > 1 && to.length > 1 && from[from.length - 1] === to[to.length - 1]) { from.pop(); to.pop(); }
    const [one, other] = [from[from.length - 1], to[to.length - 1]];
    if (one === other) return;
    const list = joins.get(parentOf(one));
    const key = place.get(one) * (count + data.scopes.length) + place.get(other);
    if (!list.has(key)) list.set(key, { from: place.get(one), to: place.get(other), edges: [] });
    list.get(key).edges.push(number);
  });

  // If very many items need an item, or it needs very many, drawing all edges would hide the rest. The nearest edge is
  // drawn. The others are far: they are drawn when one of their ends is selected.
  joins.forEach((list) => {
    const forward = [...list.values()].filter((join) => join.from < join.to);
    const count = (side) => { const found = new Map(); forward.forEach((join) => found.set(join[side], (found.get(join[side]) || 0) + 1)); return found; };
    const [makers, readers] = [count("to"), count("from")];
    const [last, first] = [new Map(), new Map()];
    forward.forEach(({ from, to }) => { last.set(to, Math.max(last.get(to) ?? -1, from)); first.set(from, Math.min(first.get(from) ?? Infinity, to)); });
    forward.forEach((join) => {
      join.far = (makers.get(join.to) > mostJoins && last.get(join.to) !== join.from) || (readers.get(join.from) > mostJoins && first.get(join.from) !== join.to);
    });
  });
  const hasFar = [...joins.values()].some((list) => [...list.values()].some((join) => join.far));

  // --- what is open

  const open = new Set();
  /// Desired width over height of the whole.
  let aspect = 2.2;
  let arranged = new Map();
  let shown = null;

  /// Forgets the layouts that depend on an item.
  function touch(item) {
    for (let group = item; ; group = parentOf(group)) { arranged.delete(group); if (group === null) break; }
    shown = null;
  }

  function toggle(item, wanted = !open.has(item)) {
    if (!isGroup(item) || open.has(item) === wanted) return;
    if (wanted) open.add(item); else open.delete(item);
    touch(item);
  }

  /// Opens group after group, outer before inner, as long as at most `most` items are visible.
  function openUpTo(most) {
    let seen = members.get(null).length;
    let level = members.get(null).filter(isGroup);
    while (level.length > 0) {
      const next = [];
      const all = level.reduce((sum, group) => sum + members.get(group).length - 1, 0);
      if (seen + all > most) break;
      for (const group of level) { toggle(group, true); next.push(...members.get(group).filter(isGroup)); }
      seen += all;
      level = next;
    }
  }

  /// Sets the width over height of the board, unless it is unchanged. A small change counts only if `exactly` is true.
  function shape(wanted, exactly = false) {
    if (!(wanted > 0) || wanted === aspect || (!exactly && Math.abs(Math.log(wanted / aspect)) < 0.25)) return;
    aspect = Math.min(3, Math.max(0.5, wanted));
    arranged = new Map();
    shown = null;
  }

  const closeAll = () => { [...open].forEach((group) => toggle(group, false)); };

  /// Opens all groups around an item.
  const uncover = (item) => chainOf(item).slice(1).forEach((group) => toggle(group, true));

  /// Returns the item that stands for a node: itself, or the outermost closed group around it.
  function standsFor(index) {
    const chain = chainOf(index);
    for (let at = chain.length - 1; at > 0; at -= 1) if (!open.has(chain[at])) return chain[at];
    return index;
  }

  // --- where everything is

  function sizeOf(item) {
    if (!isGroup(item)) return { width: nodeWidth, height: nodeHeight };
    if (!open.has(item)) return { width: groupWidth, height: groupHeight };
    const own = arrange(item);
    return { width: Math.max(own.width, groupWidth) + 2 * pad, height: own.height + head + pad };
  }

  /// Returns the layout of a group's members, or of the whole. It is kept until something in it changes.
  function arrange(group) {
    if (!arranged.has(group)) {
      const boxes = members.get(group).map(sizeOf);
      const list = [...joins.get(group).values()];
      // Groups may depend on each other in a cycle; edges that lead back do not count for the layers.
      const forward = list.filter((join) => join.from < join.to && !join.far);
      const drawn = layout(boxes, forward.map((join) => [join.from, join.to]), group === null ? aspect : Math.min(1.5, aspect));
      const bends = new Map(forward.map((join, at) => [join, drawn.bends[at]]));
      arranged.set(group, { ...drawn, boxes, list, bends });
    }
    return arranged.get(group);
  }

  /// Returns everything visible: `items` with their boxes (middle and size), closed groups and nodes before the frames
  /// of open groups in `frames`, and `edges` with their points.
  function build() {
    const [items, frames, boxes, edges] = [[], [], new Map(), []];
    const lay = (group, left, top) => {
      const own = arrange(group);
      members.get(group).forEach((item, at) => {
        const box = { item, x: left + own.at[at][0], y: top + own.at[at][1], ...own.boxes[at] };
        boxes.set(item, box);
        if (!open.has(item)) { items.push(box); return; }
        frames.push(box);
        const inner = arrange(item);
        const slack = (box.width - 2 * pad - inner.width) / 2;
        lay(item, box.x - box.width / 2 + pad + slack, box.y - box.height / 2 + head);
      });
    };
    lay(null, 0, 0);
    const route = (group, left, top) => {
      const own = arrange(group);
      for (const join of own.list) edges.push(...lines(join, boxes, members.get(group), own.bends.get(join) || [], left, top));
      members.get(group).filter((item) => open.has(item)).forEach((item) => {
        const box = boxes.get(item);
        const slack = (box.width - 2 * pad - arrange(item).width) / 2;
        route(item, box.x - box.width / 2 + pad + slack, box.y - box.height / 2 + head);
      });
    };
    route(null, 0, 0);
    const { width, height } = arrange(null);
    return { width, height, items, frames, boxes, edges };
  }

  /// Returns the lines between two members: one for each pair of visible items. Each leaves its item's foot, follows
  /// the members' bends, and ends at the other item's head.
  function lines(join, boxes, list, bends, left, top) {
    const merged = new Map();
    for (const number of join.edges) {
      const edge = data.edges[number];
      const [from, to] = [standsFor(edge.from), standsFor(edge.to)];
      const key = `${from} ${to}`;
      if (!merged.has(key)) merged.set(key, { from, to, edges: [], crosses: false, far: join.far === true });
      merged.get(key).edges.push(number);
      if (edge.transfer !== null) merged.get(key).crosses = true;
    }
    const between = bends.map(([x, y]) => [left + x, top + y]);
    const [outer, into] = [boxes.get(list[join.from]), boxes.get(list[join.to])];
    // An end at a group's middle is moved to the middle of the item in it.
    const along = (one, other) => between.map(([x, y], at) => [at === 0 && Math.abs(x - outer.x) < 0.5 ? one.x : at === between.length - 1 && Math.abs(x - into.x) < 0.5 ? other.x : x, y]);
    return [...merged.values()].map((line) => {
      const [one, other] = [boxes.get(line.from), boxes.get(line.to)];
      const points = [[one.x, one.y + one.height / 2]];
      if (outer !== one) points.push([one.x, outer.y + outer.height / 2]);
      points.push(...along(one, other));
      if (into !== other) points.push([other.x, into.y - into.height / 2]);
      points.push([other.x, other.y - other.height / 2]);
      const [xs, ys] = [points.map((point) => point[0]), points.map((point) => point[1])];
      return { ...line, points, left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys) };
    });
  }

  /// Returns the nodes that an item stands for.
  const nodesOf = (item) => (isGroup(item) ? inside[item - count] : [item]);
  const nameOf = (item) => (isGroup(item) ? groupOf(item).name : data.nodes[item].name);

  openUpTo(mostAtFirst);
  return {
    now: () => (shown ??= build()), shape, aspect: () => aspect, isGroup, isOpen: (item) => open.has(item), toggle, uncover, standsFor, nodesOf, nameOf, parentOf, count,
    openAll: () => openUpTo(mostOpen), closeAll, groups: data.scopes.length, hasFar,
    /// Converts an item to a group's number among the scopes, as selections use it, and back.
    toGroup: (index) => index + count, toIndex: (item) => item - count,
  };
})();
