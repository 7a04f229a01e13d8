// Sorts tables of figures by a click on a column's head: figures by their value in any unit, other cells by name.
"use strict";

const units = { ns: 1e-9, "µs": 1e-6, ms: 1e-3, s: 1, min: 60, B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, TiB: 1024 ** 4, "%": 1, "×": 1 };

/// Sort key of a cell: a number, a text, or null for an empty cell.
function keyOf(cell) {
  const text = cell.textContent.trim();
  const figure = /^([+\-−]?[\d.]+)(?:\s*([^\s\d(]+))?/.exec(text);
  if (text === "" || text === "–") return null;
  if (figure === null || !(figure[2] === undefined || figure[2] in units)) return text.toLowerCase();
  return Number(figure[1].replace("−", "-")) * (figure[2] === undefined ? 1 : units[figure[2]]);
}

/// Numbers come before texts; missing values come last in either direction.
function compare(one, other, sign) {
  if (one === null || other === null) return (one === null) - (other === null);
  if (typeof one !== typeof other) return typeof one === "number" ? -1 : 1;
  return sign * (one < other ? -1 : one > other ? 1 : 0);
}

function sort(table, column, head) {
  const down = head.getAttribute("aria-sort") === "ascending";
  table.querySelectorAll("th").forEach((one) => one.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = [...table.rows].slice(1);
  rows.sort((one, other) => compare(keyOf(one.cells[column]), keyOf(other.cells[column]), down ? -1 : 1));
  rows.forEach((row) => row.parentNode.append(row));
}

for (const table of document.querySelectorAll("table.figures")) {
  [...table.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(table, column, head));
    head.append(button);
  });
}
