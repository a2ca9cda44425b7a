"use strict";
/* Plots, drawn by plotly.js from what is chosen. */

const CONFIG = { displayModeBar: false, responsive: true, displaylogo: false };

const narrow = () => window.innerWidth < 600;

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function axis(title, more = {}) {
  return { title: { text: title, standoff: 10 }, gridcolor: css("--line"), linecolor: css("--soft"),
    zeroline: false, automargin: true, fixedrange: !window.matchMedia("(pointer: fine)").matches, ...more };
}

function layout(x, y, more = {}) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
    font: { family: getComputedStyle(document.body).fontFamily, size: narrow() ? 11 : 13, color: css("--ink") },
    margin: { l: narrow() ? 44 : 60, r: 16, t: 16, b: 48 }, xaxis: x, yaxis: y, hovermode: "closest",
    hoverlabel: { bgcolor: css("--panel"), bordercolor: css("--line"), font: { color: css("--ink") } }, ...more,
  };
}

function lineOf(method, x, y, more = {}) {
  const { color, marker, dash, width } = look(method);
  return { type: "scatter", mode: "lines+markers", name: plain(method), x, y, connectgaps: true,
    line: { color: color, width, dash }, marker: { color: color, symbol: marker, size: 9 }, ...more };
}

/* plotly reads some HTML in its texts; a name is never meant as such. */
function plain(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function drawSizes() {
  const { table, paper } = group();
  const lines = (from, more) => from.methods.map((method, row) => ({ method, row }))
    .filter(({ method }) => shown(method) && table.methods.includes(method))
    .map(({ method, row }) => lineOf(method, from.sizes, from.errors[row].slice(0, -1), more(method)));
  const template = (method, who) => `${plain(method)}${who}: %{y:.2f} %<extra></extra>`;
  const traces = lines(table, (method) => ({ hovertemplate: template(method, "") }));
  if (paper && at("with-paper").checked) {
    traces.unshift(...lines(paper, (method) => ({ mode: "lines", hovertemplate: template(method, ", paper"),
      opacity: 0.45, line: { color: look(method).color, width: 1.5, dash: look(method).dash } })));
  }
  const x = axis("batch size", { type: "log", tickvals: table.sizes, ticktext: table.sizes.map(String) });
  Plotly.react("plot-sizes", traces, layout(x, axis("error (%)", { rangemode: "tozero" }), { hovermode: "x unified" }), CONFIG);
}

/* Mean of the neighbours on both sides, as many as there are. */
function smooth(values) {
  const width = Math.max(1, Math.round(values.length / 50));
  return values.map((_, place) => mean(values.slice(Math.max(0, place - width), place + width + 1)));
}

/* The mean over seeds where these have points at the same images; else the first seed's. */
function curveOf(few) {
  const [positions] = DATA.error_curves[few[0].place];
  const same = few.filter((record) => DATA.error_curves[record.place][0] === positions);
  const seen = DATA.positions[positions];
  const errors = seen.map((_, point) => mean(same.map((record) => DATA.error_curves[record.place][1][point])));
  return { seen, errors: at("smooth").checked ? smooth(errors) : errors };
}

function drawCurve() {
  const traces = [...byMethod(chosen.size)].map(([method, few]) => {
    const { seen, errors } = curveOf(few);
    return lineOf(method, seen, errors, { marker: { ...lineOf(method).marker, size: 7, maxdisplayed: 12 },
      hovertemplate: `${plain(method)}: %{y:.1f} % after %{x:,} images<extra></extra>` });
  });
  const { shapes, annotations } = shifts();
  const y = axis("error (%)", { rangemode: "tozero" });
  Plotly.react("plot-curve", traces, layout(axis("images seen", { showgrid: !shapes.length }), y,
    { shapes, annotations, margin: { l: narrow() ? 44 : 60, r: narrow() ? 16 : 48, t: annotations.length ? 96 : 16, b: 48 } }), CONFIG);
}

/* Where one corruption ends and the next begins; a mixed stream has no such place. */
function shifts() {
  const first = members(chosen.size)[0]?.record;
  if (!first || first.scenario.startsWith("mixed") || !first.parts.length) return { shapes: [], annotations: [] };
  const shapes = [], annotations = [];
  let from = 0, before = null;
  for (const [corruption, , images] of first.parts) {
    if (corruption !== before) {
      shapes.push({ type: "line", x0: from, x1: from, yref: "paper", y0: 0, y1: 1, layer: "below",
        line: { color: css("--line"), width: 1 } });
      annotations.push({ x: from, y: 1, yref: "paper", xanchor: "left", yanchor: "bottom", textangle: narrow() ? -90 : -50, showarrow: false,
        text: plain(DATA.corruptions[corruption].replaceAll("_", " ")), font: { size: narrow() ? 9 : 11, color: css("--soft") } });
    }
    from += images;
    before = corruption;
  }
  return { shapes, annotations };
}

function drawCost() {
  const points = [...byMethod(chosen.size)].map(([method, few]) => ({ method,
    costs: few.map((record) => record.cost).filter((cost) => cost !== null),
    error: mean(few.map((record) => record.error)) })).filter(({ costs }) => costs.length)
    .map(({ method, costs, error }) => ({ method, cost: mean(costs), error }));
  const traces = withLabels(points, at("plot-cost")).map(({ method, cost, error, label }) => {
    const { color, marker } = look(method);
    return { type: "scatter", mode: label ? "markers+text" : "markers", name: plain(method), x: [cost], y: [error],
      text: [plain(method)], textposition: label, cliponaxis: false,
      textfont: { color: css("--soft"), size: 12 }, marker: { color: color, symbol: marker, size: 13 },
      hovertemplate: `${plain(method)}: %{y:.2f} % error at %{x:.2f} times the source model<extra></extra>` };
  });
  const ticks = [0.5, 1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 500];
  const x = axis("time, multiples of the source model’s", { type: "log", tickvals: ticks, ticktext: ticks.map((n) => `${n} ×`) });
  Plotly.react("plot-cost", traces, layout(x, axis("error (%)")), CONFIG);
}

/* Each point's name on the first side where it covers no other name or point; none where there is no room. */
function withLabels(points, box) {
  if (!points.length) return [];
  const scale = (values, length) => {
    const low = Math.min(...values), span = Math.max(...values) - low || 1;
    return (value) => ((value - low) / span) * length * 0.85;
  };
  const across = scale(points.map(({ cost }) => Math.log(cost)), box.clientWidth - 80);
  const down = scale(points.map(({ error }) => -error), box.clientHeight - 70);
  const placed = points.map((point) => ({ ...point, x: across(Math.log(point.cost)), y: down(-point.error) }));
  const taken = placed.map(({ x, y }) => ({ left: x - 7, right: x + 7, top: y - 7, bottom: y + 7 }));
  const free = (area) => taken.every((other) => area.right < other.left || area.left > other.right
    || area.bottom < other.top || area.top > other.bottom);
  for (const point of placed) {
    const { x, y } = point, wide = 7 * point.method.length;
    const sides = {
      "top center": { left: x - wide / 2, right: x + wide / 2, top: y - 24, bottom: y - 8 },
      "bottom center": { left: x - wide / 2, right: x + wide / 2, top: y + 8, bottom: y + 24 },
      "middle right": { left: x + 8, right: x + 8 + wide, top: y - 8, bottom: y + 8 },
      "middle left": { left: x - 8 - wide, right: x - 8, top: y - 8, bottom: y + 8 },
    };
    point.label = Object.keys(sides).find((side) => free(sides[side])) ?? null;
    if (point.label) taken.push(sides[point.label]);
  }
  return placed;
}

const KINDS = { source_weight: "source weight", divergence: "divergence" };

/* The runs whose layers were traced. */
function drawTraced() {
  const traced = members().filter(({ record, method }) => DATA.layers[record.key] && shown(method));
  const wanted = at("trace").value || traced.find(({ method }) => method === "rectified_tema")?.record.key;
  at("layers").hidden = traced.length === 0;
  at("trace").replaceChildren(...traced.map(({ record, method }) => element("option", { value: record.key,
    textContent: `${method}, batch size ${record.batch_size}, seed ${record.seed}` })));
  if (traced.some(({ record }) => record.key === wanted)) at("trace").value = wanted;
  const left = DATA.about.layers_left_out;
  at("layers-note").textContent = left ? `The traces of ${left} more records are left out to keep this page small.` : "";
}

function drawLayerPlots() {
  const layers = DATA.layers[at("trace").value];
  const kinds = layers ? Object.keys(KINDS).filter((kind) => layers[kind]) : [];
  at("layer-plots").replaceChildren(...kinds.map((kind) => element("div", { className: "plot small", id: `plot-${kind}` })));
  for (const kind of kinds) drawHeat(kind, layers);
}

function drawHeat(kind, layers) {
  const values = kind === "divergence" ? layers[kind].map((row) => row.map((v) => (v > 0 ? Math.log10(v) : null))) : layers[kind];
  const told = kind === "divergence" ? "log10 divergence" : KINDS[kind];
  const trace = { type: "heatmap", x: layers.images, y: layers.names.map((_, place) => place + 1), z: values,
    customdata: layers.names.map((name, row) => layers.images.map((_, point) => [plain(name), layers[kind][row][point]])),
    colorscale: "Cividis", colorbar: { title: { text: told, side: "right" }, thickness: 12 },
    ...(kind === "source_weight" ? { zmin: 0, zmax: Math.max(0.5, ...values.flat()) } : {}),
    hovertemplate: `%{customdata[0]}: ${KINDS[kind]} %{customdata[1]} after %{x:,} images<extra></extra>` };
  const y = axis("layer", { autorange: "reversed", dtick: Math.max(1, Math.round(layers.names.length / 8)) });
  Plotly.react(`plot-${kind}`, [trace], layout(axis("images seen"), y), CONFIG);
}
