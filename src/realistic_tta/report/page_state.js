"use strict";
/* What is there and what is chosen. Everything shown is set as text, never as HTML. */

const DATA = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const records = DATA.rows.map((row, place) => {
  const record = Object.fromEntries(DATA.fields.map((name, column) => [name, row[column]]));
  return Object.assign(record, { place, parts: DATA.parts[place] });
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

/* Colours after Okabe and Ito, safe for colour-blind readers; a marker of its own for each method,
   so that the plots can be read without any colour. */
const HUES = {
  light: ["#0072b2", "#d55e00", "#009e73", "#b5568c", "#b07800", "#3a9bd0"],
  dark: ["#4da3e0", "#ff8b45", "#2fc79a", "#e39cc6", "#e8b33c", "#8fd0f5"],
};
const MARKERS = ["circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star",
  "hexagon", "pentagon", "bowtie", "hourglass"];
const ORDER = ["source", "rectified_tema", "tent", "tema", "tbn", "alpha_bn", "adapt_bn", "cotta", "lame",
  "eta", "adacontrast", "sar"];
const dark = window.matchMedia("(prefers-color-scheme: dark)");

function look(method) {
  const names = [...ORDER, ...group().methods.filter((name) => !ORDER.includes(name))];
  const place = names.indexOf(method);
  const hues = HUES[dark.matches ? "dark" : "light"];
  return {
    colour: place === 0 ? (dark.matches ? "#c9ced4" : "#4a525b") : hues[(place - 1) % hues.length],
    marker: MARKERS[place % MARKERS.length] + (place > hues.length ? "-open" : ""),
    dash: place === 0 ? "dash" : "solid",
    width: method === "rectified_tema" ? 3.5 : 2,
  };
}

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value; else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}
