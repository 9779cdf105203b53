"use strict";
// Sorts a table by the column whose head is pressed, and hides the rows that a field does not find. Of many rows only
// the first are shown, until somebody asks for all: a browser takes seconds to lay out thousands. All are printed.
const SHOWN = 200;
const value = (row, column) => row.cells[column].dataset.value ?? row.cells[column].textContent;
const bodyOf = (field) => document.getElementById(field.dataset.table).tBodies[0];

function sort(head) {
  const down = head.getAttribute("aria-sort") === "ascending";
  const numbers = head.classList.contains("number");
  const table = head.closest("table");
  const rows = [...table.tBodies[0].rows].map((row) => [value(row, head.cellIndex), row]);
  rows.sort(([a], [b]) => {
    // Unknown values come last in both orders.
    if (a === "" || b === "") return (a === "") - (b === "");
    const order = numbers ? a - b : a.localeCompare(b, "en", { numeric: true });
    return down ? -order : order;
  });
  table.tBodies[0].append(...rows.map(([, row]) => row));
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const field = document.querySelector(`input[data-table="${table.id}"]`);
  if (field) show(field);
}

function filter(field) {
  const words = field.value.toLowerCase().split(/\s+/);
  for (const row of bodyOf(field).rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
  show(field);
}

function show(field) {
  const all = field.dataset.all !== undefined;
  let found = 0;
  for (const row of bodyOf(field).rows) {
    if (!row.hidden) row.classList.toggle("beyond", ++found > SHOWN && !all);
  }
  const [said, more] = field.closest(".filter").querySelectorAll("output, button");
  const shown = all || found <= SHOWN ? "" : `, ${SHOWN} shown`;
  said.textContent = `${found} of ${bodyOf(field).rows.length}${shown}`;
  more.hidden = shown === "";
}

// Print the content of details.
for (const [event, open] of [["beforeprint", true], ["afterprint", false]]) {
  addEventListener(event, () => {
    for (const details of document.querySelectorAll("tbody details")) details.open = open;
  });
}
for (const button of document.querySelectorAll("thead button")) {
  button.addEventListener("click", () => sort(button.parentNode));
}
for (const field of document.querySelectorAll("input[data-table]")) {
  field.addEventListener("input", () => filter(field));
  field.closest(".filter").querySelector("button").addEventListener("click", () => {
    field.dataset.all = "";
    show(field);
  });
  show(field);
}
