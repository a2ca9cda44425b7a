"use strict";
/* Tables: ours and the paper's, errors by corruption, streams and records. */

const figure = (number, digits = 2) => (number === null || number === undefined ? "–" : number.toFixed(digits));

/* rows: the first cell of each is its head. A box of its own scrolls if the table is wide. */
function drawTable(place, caption, head, rows, kind = "") {
  const line = (cells) => element("tr", {}, ...cells);
  const heads = head.map((text) => element("th", { scope: "col", className: kind, textContent: text }));
  const body = rows.map(([first, ...rest]) =>
    line([element("th", { scope: "row", textContent: first }),
      ...rest.map((cell) => (cell instanceof Node ? cell : element("td", { className: kind, textContent: cell })))]));
  const table = element("table", {}, element("caption", { textContent: caption }),
    element("thead", {}, line(heads)), element("tbody", {}, ...body));
  const box = element("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": caption }, table);
  place.replaceChildren(box);
  return table;
}

function errorCell(error, mark, failed) {
  const cell = element("td", { textContent: failed ? "failed" : figure(error) });
  if (mark) {
    cell.className = mark === 1 ? "best" : "second";
    cell.append(element("span", { className: "hidden", textContent: mark === 1 ? " (best)" : " (second best)" }));
  }
  return cell;
}

function failedAt(method, size) {
  return group().records.some((place, index) => records[place].status === "failed"
    && records[place].batch_size === size && group().methods[group().series[index]] === method);
}

function drawErrors(place, caption, table, ours) {
  const head = ["method", ...table.sizes, "mean"];
  const rows = table.methods.map((method, row) => [method, ...table.errors[row].map((error, column) =>
    errorCell(error, table.marks[row][column],
      ours && error === null && failedAt(method, table.sizes[column])))]);
  drawTable(place, caption, head, rows);
}

function drawResults() {
  const { table, paper, seeds } = group();
  drawErrors(at("ours"), "Measured here", table, true);
  at("paper").replaceChildren();
  if (paper) drawErrors(at("paper"), `In the paper (${paper.dataset})`, paper, false);
  const notes = ["Bold: best of the column. Underlined: second best."];
  if (seeds.length > 1) notes.push(`Means over seeds ${seeds.join(", ")}.`);
  if (paper) notes.push("The paper may use other models and images: compare the pattern, not the numbers.");
  at("table-note").textContent = notes.join(" ");
}

/* Means over seeds and over a corruption's severities, (method, corruption). */
function drawCorruptions() {
  const found = byMethod(chosen.size);
  const all = [...found.values()].flat();
  const used = DATA.corruptions.map((_, place) => place)
    .filter((place) => all.some((record) => record.parts.some((part) => part[0] === place)));
  const rows = [...found].map(([method, few]) => [method, ...used.map((corruption) => {
    const errors = few.flatMap((record) => record.parts)
      .filter((part) => part[0] === corruption).map(([, , images, wrong]) => (100 * wrong) / images);
    return errors.length ? heatCell(mean(errors)) : "–";
  })]);
  const head = ["method", ...used.map((place) => DATA.corruptions[place].replaceAll("_", " "))];
  drawTable(at("corruptions"), `Error in percent at batch size ${chosen.size}`, head, rows).className = "heat";
}

function heatCell(error) {
  const cell = element("td", { textContent: figure(error, 1) });
  cell.style.backgroundColor = `rgba(var(--heat), ${(0.62 * error) / 100})`;
  return cell;
}

function drawFailures() {
  const failed = group().records.map((place) => records[place]).filter((record) => record.status === "failed");
  at("failures").hidden = failed.length === 0;
  at("failed").replaceChildren(...failed.map((record) => element("li", {
    textContent: `${record.method}, batch size ${record.batch_size}, seed ${record.seed}: ${record.message}`,
  })));
}

const VERSIONS = ["stream", "model_checksum", "batch_size", "seed", "package", "commit", "torch", "python", "device"];
const LISTED = ["key", "method", "hyperparameters", "batch_size", "seed", "status", "error", "cost", "seconds",
  "peak_memory", "finished"];

/* What has to be the same for the same figures: a row for every stream, model and version. */
function drawReproduction() {
  at("command").textContent = group().command;
  const found = new Map();
  for (const place of group().records) {
    const values = VERSIONS.map((name) => records[place][name] ?? "–");
    const id = JSON.stringify(values);
    found.set(id, [...values, (found.get(id)?.at(-1) ?? 0) + 1]);
  }
  const head = [...VERSIONS, "records"].map((name) => name.replaceAll("_", " "));
  drawTable(at("streams"), "Streams, models and versions", head, [...found.values()], "words");
  drawRecords();
}

function drawRecords() {
  if (!at("records").closest("details").open) return;
  const text = (value) => (value === null ? "–" : typeof value === "object" ? JSON.stringify(value)
    : typeof value === "number" && !Number.isInteger(value) ? figure(value) : String(value));
  const rows = group().records.map((place) => LISTED.map((name) => text(records[place][name])));
  drawTable(at("records"), "Records", LISTED.map((name) => name.replaceAll("_", " ")), rows, "words");
}
