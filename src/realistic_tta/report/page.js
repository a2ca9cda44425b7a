"use strict";
/* Ties the controls to what is drawn. */

/* A method's marker beside its name: the legend of all plots. */
function swatch(method) {
  const { color, marker } = look(method);
  const SHAPES = {
    circle: "M12 8A4 4 0 1 1 4 8A4 4 0 1 1 12 8Z", square: "M4 4H12V12H4Z", diamond: "M8 2.5L13.5 8L8 13.5L2.5 8Z",
    "triangle-up": "M8 3L13 12H3Z", "triangle-down": "M8 13L3 4H13Z", "triangle-left": "M3 8L12 3V13Z",
    "triangle-right": "M13 8L4 3V13Z", cross: "M6 3H10V6H13V10H10V13H6V10H3V6H6Z",
    x: "M3 5L5 3L8 6L11 3L13 5L10 8L13 11L11 13L8 10L5 13L3 11L6 8Z",
    star: "M8 2L9.8 6.2L14 6.5L10.8 9.3L11.8 13.5L8 11.2L4.2 13.5L5.2 9.3L2 6.5L6.2 6.2Z",
    hexagon: "M8 2.5L13 5.2V10.8L8 13.5L3 10.8V5.2Z", pentagon: "M8 2.5L13.5 6.5L11.4 13H4.6L2.5 6.5Z",
    hourglass: "M4 3H12L8 8L12 13H4L8 8Z", "diamond-tall": "M8 1.5L12 8L8 14.5L4 8Z",
    hexagon2: "M2.5 8L5.2 3H10.8L13.5 8L10.8 13H5.2Z",
  };
  const open = marker.endsWith("-open");
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  for (const [name, value] of Object.entries({ width: 16, height: 16, viewBox: "0 0 16 16", "aria-hidden": "true" })) {
    svg.setAttribute(name, value);
  }
  path.setAttribute("d", SHAPES[marker.replace("-open", "")]);
  path.setAttribute("fill", open ? "none" : color);
  path.setAttribute("stroke", color);
  path.setAttribute("stroke-width", open ? 2 : 0);
  svg.append(path);
  return svg;
}

function drawMethods() {
  at("methods").replaceChildren(...group().methods.map((method) => {
    const box = element("input", { type: "checkbox", checked: shown(method), value: method });
    box.addEventListener("change", () => {
      if (box.checked) chosen.hidden.delete(method); else chosen.hidden.add(method);
      draw();
    });
    return element("label", {}, box, swatch(method), document.createTextNode(method));
  }));
}

function drawChoices() {
  const { sizes } = group();
  if (!sizes.includes(chosen.size)) chosen.size = sizes[Math.floor(sizes.length / 2)];
  at("size").replaceChildren(...sizes.map((size) => element("option", { value: size, textContent: size })));
  at("size").value = chosen.size;
  const [first, ...rest] = group().headline;
  at("headline").textContent = first;
  at("more").textContent = rest.join(" ");
  at("paper-toggle").hidden = group().paper === null;
  drawMethods();
}

/* A plot is drawn when it comes near the window, and again only if what is chosen has changed: the page
   opens at once, and a click never waits for what nobody sees. */
const PLOTS = { "plot-sizes": drawSizes, "plot-curve": drawCurve, "plot-cost": drawCost, "layer-plots": drawLayerPlots };
const stale = new Set();
const near = new Set();
const watch = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) near.add(target.id); else near.delete(target.id);
  }
  drawStale();
}, { rootMargin: "250px" });

function drawStale() {
  for (const id of [...stale].filter((each) => near.has(each))) {
    stale.delete(id);
    PLOTS[id]();
  }
}

function redraw(...ids) {
  for (const id of ids) stale.add(id);
  drawStale();
}

function drawAtSize() {
  for (const place of document.querySelectorAll(".at-size")) place.textContent = `at batch size ${chosen.size}`;
  drawCorruptions();
  redraw("plot-curve", "plot-cost");
}

function draw() {
  redraw("plot-sizes");
  drawAtSize();
  drawTraced();
  redraw("layer-plots");
}

function drawGroup() {
  drawChoices();
  drawResults();
  drawFailures();
  drawReproduction();
  draw();
}

function hideAll(hidden) {
  chosen.hidden = new Set(hidden ? group().methods : []);
  drawMethods();
  draw();
}

/* Called when the plotting library is there; until then the page has its tables already. */
function startPlots() {
  for (const id of Object.keys(PLOTS)) watch.observe(at(id));
  document.documentElement.dataset.ready = "yes";
}

at("group").replaceChildren(...DATA.groups.map((each, place) => element("option", { value: place, textContent: each.label })));
at("group").addEventListener("change", (event) => { chosen.group = Number(event.target.value); drawGroup(); });
at("size").addEventListener("change", (event) => { chosen.size = Number(event.target.value); drawAtSize(); });
at("csv").addEventListener("click", download);
at("all").addEventListener("click", () => hideAll(false));
at("none").addEventListener("click", () => hideAll(true));
at("with-paper").addEventListener("change", () => redraw("plot-sizes"));
at("smooth").addEventListener("change", () => redraw("plot-curve"));
at("trace").addEventListener("change", () => redraw("layer-plots"));
at("controls").addEventListener("submit", (event) => event.preventDefault());
at("records").closest("details").addEventListener("toggle", drawRecords);
dark.addEventListener("change", () => { drawMethods(); draw(); });
drawGroup();
