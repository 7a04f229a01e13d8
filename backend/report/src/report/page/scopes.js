// The graph in groups: which are open, and where everything that is seen stands. Items are nodes, then groups; a closed group stands
// for all that is in it.

const scene = (() => {
  const [nodeWidth, nodeHeight, groupWidth, groupHeight] = [156, 34, 196, 46];
  /// Around what is in an open group, and above it for its name.
  const [pad, head] = [4, 20];
  /// Items that are seen at first, at most, and after opening all.
  const [mostAtFirst, mostOpen] = [70, 1500];
  /// Edges of an item, on either side, that are all drawn.
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

  /// Inputs come before all nodes, outputs after them, whatever their numbers.
  function rankOf(index) {
    const { role } = data.nodes[index];
    return role === "input" ? index - 2 * count : index;
  }

  const chainOf = (item) => { const chain = [item]; for (let up = parentOf(item); up !== null; up = parentOf(up)) chain.push(up); return chain; };
  /// By group, its members' edges: two members' places, and the edges between what is in them.
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

  // Of an item that very many others need, or that needs very many, all edges would hide the rest: the nearest leads to it, the others are
  // far, and seen when one of their ends is selected.
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
  /// Width over height that the whole should have.
  let aspect = 2.2;
  let arranged = new Map();
  let shown = null;

  /// Forgets what stands on an item's place.
  function touch(item) {
    for (let group = item; ; group = parentOf(group)) { arranged.delete(group); if (group === null) break; }
    shown = null;
  }

  function toggle(item, wanted = !open.has(item)) {
    if (!isGroup(item) || open.has(item) === wanted) return;
    if (wanted) open.add(item); else open.delete(item);
    touch(item);
  }

  /// Opens group after group, the outer before the inner, as long as no more items are seen than so many.
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

  /// Draws for a board of this width over height, unless it is as before; nearly as before will do where it need not be `exactly`.
  function shape(wanted, exactly = false) {
    if (!(wanted > 0) || wanted === aspect || (!exactly && Math.abs(Math.log(wanted / aspect)) < 0.25)) return;
    aspect = Math.min(3, Math.max(0.5, wanted));
    arranged = new Map();
    shown = null;
  }

  const closeAll = () => { [...open].forEach((group) => toggle(group, false)); };

  /// Opens all that an item is in.
  const uncover = (item) => chainOf(item).slice(1).forEach((group) => toggle(group, true));

  /// The item that stands for a node: itself, or the outermost closed group that it is in.
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

  /// The drawing of a group's members, or of the whole; kept until something in it changes.
  function arrange(group) {
    if (!arranged.has(group)) {
      const boxes = members.get(group).map(sizeOf);
      const list = [...joins.get(group).values()];
      // Groups may need each other by turns; what leads back does not count for the layers.
      const forward = list.filter((join) => join.from < join.to && !join.far);
      const drawn = layout(boxes, forward.map((join) => [join.from, join.to]), group === null ? aspect : Math.min(1.5, aspect));
      const bends = new Map(forward.map((join, at) => [join, drawn.bends[at]]));
      arranged.set(group, { ...drawn, boxes, list, bends });
    }
    return arranged.get(group);
  }

  /// All that is seen: `items` with their boxes (middle and size), closed groups and nodes before open ones' frames in `frames`, and
  /// `edges` with their points.
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

  /// The lines of two members' join: one for each pair of items that are seen. Each leaves its item's foot, goes along the members'
  /// bends, and ends at the other's head.
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
    // What comes or goes upright over a group's middle does so over the item in it instead.
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

  /// Nodes that an item stands for.
  const nodesOf = (item) => (isGroup(item) ? inside[item - count] : [item]);
  const nameOf = (item) => (isGroup(item) ? groupOf(item).name : data.nodes[item].name);

  openUpTo(mostAtFirst);
  return {
    now: () => (shown ??= build()), shape, aspect: () => aspect, isGroup, isOpen: (item) => open.has(item), toggle, uncover, standsFor, nodesOf, nameOf, parentOf, count,
    openAll: () => openUpTo(mostOpen), closeAll, groups: data.scopes.length, hasFar,
    /// A group's number among the scopes, as selections have it, and back.
    toGroup: (index) => index + count, toIndex: (item) => item - count,
  };
})();
