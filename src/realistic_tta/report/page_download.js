"use strict";
/* The records as CSV, the columns of `rtta results --csv`. */

function csvCell(value) {
  if (value === null || value === undefined) return "";
  let text = typeof value === "object" ? JSON.stringify(value) : String(value);
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`; // else a spreadsheet runs it
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function csvText() {
  const used = DATA.corruptions;
  const lines = records.map((record) => {
    const errors = used.map(() => []);
    for (const [corruption, , images, wrong] of record.parts) errors[corruption].push((100 * wrong) / images);
    const means = errors.map((few) => (few.length ? mean(few) : null));
    return [...DATA.fields.map((name) => record[name]), ...means, ...record.errorsInFirst].map(csvCell).join(",");
  });
  const first = DATA.first_images.map((images) => `error_in_first_${images}`);
  const head = [...DATA.fields, ...used.map((name) => `error_${name}`), ...first].map(csvCell).join(",");
  return `${[head, ...lines].join("\n")}\n`;
}

function download() {
  const address = URL.createObjectURL(new Blob([csvText()], { type: "text/csv" }));
  element("a", { href: address, download: "results.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
