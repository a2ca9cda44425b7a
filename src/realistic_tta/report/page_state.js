"use strict";
/* What is there and what is chosen. Everything shown is set as text, never as HTML. */

const DATA = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const records = DATA.rows.map((row, place) => {
  const record = Object.fromEntries(DATA.fields.map((name, column) => [name, row[column]]));
  return Object.assign(record, { place, parts: DATA.parts[place], errorsInFirst: DATA.errors_in_first[place] });
});
const chosen = { group: 0, size: null, hidden: new Set() };

const group = () => DATA.groups[chosen.group];

/* The group's finished records with the row each belongs to, at one batch size or at all. */
function members(size = null) {
  return group().records
    .map((place, index) => ({ record: records[place], method: group().methods[group().series[index]] }))
    .filter(({ record }) => record.status === "done" && (size === null || record.batch_size === size));
}

const shown = (method) => !chosen.hidden.has(method);
const mean = (numbers) => numbers.reduce((sum, each) => sum + each, 0) / numbers.length;

/* Records of several seeds by method, in the order of the table. */
function byMethod(size) {
  const found = new Map();
  for (const { record, method } of members(size)) {
    if (!shown(method)) continue;
    if (!found.has(method)) found.set(method, []);
    found.get(method).push(record);
  }
  return found;
}

/* Colors after Okabe and Ito and after Tol, safe for color-blind readers, on light and on dark; a marker and
   a line of its own for each method, so that the plots can be read without any color. */
const LOOKS = {
  source: ["#555555", "#b8bec5", "square", "dash"],
  tbn: ["#d55e00", "#ff8b45", "x", "solid"],
  alpha_bn: ["#cc79a7", "#e39cc6", "triangle-down", "dashdot"],
  adapt_bn: ["#c98a00", "#f0b840", "triangle-up", "dot"],
  tema: ["#3a9bd0", "#8fd0f5", "diamond", "solid"],
  rectified_tema: ["#0072b2", "#4da3e0", "circle", "solid"],
  realistic: ["#aa3377", "#f08cc0", "diamond-tall", "solid"],
  lame: ["#000000", "#f2f2f2", "cross", "dot"],
  tent: ["#009e73", "#2fc79a", "triangle-right", "dashdot"],
  eta: ["#117733", "#7fcf7f", "triangle-left", "dash"],
  sar: ["#882255", "#e07aa8", "star", "solid"],
  cotta: ["#999933", "#cfcf66", "hexagon", "dashdot"],
  adacontrast: ["#332288", "#9d8cf0", "pentagon", "dash"],
};
const OTHER = ["#777777", "#a0a0a0", "hourglass", "solid"];
const dark = window.matchMedia("(prefers-color-scheme: dark)");

/* A method with hyperparameters of its own is drawn like the method, with open markers. */
function look(name) {
  const method = name.split(" (")[0];
  const [light, onDark, marker, dash] = Object.hasOwn(LOOKS, method) ? LOOKS[method] : OTHER;
  return { color: dark.matches ? onDark : light, marker: marker + (method === name ? "" : "-open"), dash,
    width: name === "rectified_tema" || name === "realistic" ? 3.5 : 2 };
}

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value; else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}
