/* The script of a page of `pcr-exp explore`. It reads the JSON of the page, and asks nobody for anything. */
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const last = data.groups.length - 1;
const state = { group: 0, view: "whole", difference: false, use: 0, opened: null };
const byId = (id) => document.getElementById(id);

/* ---- Elements and words ------------------------------------------------------------------------------- */

function make(tag, properties = {}, ...children) {
  const svg = ["svg", "g", "path", "line", "circle", "rect", "text"].includes(tag);
  const element = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key in element && !svg) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

function figures(value, digits = 3) {
  const places = value === 0 ? 0 : digits - 1 - Math.floor(Math.log10(Math.abs(value)));
  const shown = Math.min(Math.max(places, 0), 8);
  return value.toLocaleString("en", { minimumFractionDigits: shown, maximumFractionDigits: shown });
}

const kilobytes = (bytes) => `${figures(bytes / 1e3)} kB`;
const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;
const points = (share) => (-100 * share).toFixed(2).replace("-", "\u2212").replace(/^(?=[\d])/, "+");
const similarity = (value) => (value === null ? "\u2013" : value.toFixed(3));
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const exact = (value, text) => make("data", { value: String(value) }, text);

function duration(hours) {
  if (hours >= 1) return `${figures(hours)} h`;
  return hours * 60 >= 1 ? `${figures(hours * 60)} min` : `${figures(hours * 3600)} s`;
}

function dollars(value) {
  if (value > 0 && value < 0.001) return "< $0.001";
  return value === 0 ? "$0" : `$${figures(value, value < 1 ? 2 : 3)}`;
}

/* ---- Pictures: each is its real prefix, which the browser decodes ---------------------------------------- */

const END_OF_IMAGE = new Uint8Array([0xff, 0xd9]);
const urls = new Map();

function octets(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

function address(image, group, view) {
  const key = `${image} ${group} ${view}`;
  if (!urls.has(key)) {
    const { pieces, crops } = data.images[image];
    const blob =
      view === "crop"
        ? new Blob([octets(crops[group])], { type: "image/webp" })
        : new Blob([...pieces.slice(0, group + 1).map(octets), END_OF_IMAGE], { type: "image/jpeg" });
    urls.set(key, URL.createObjectURL(blob));
  }
  return urls.get(key);
}

function show(element, url) {
  if (element.dataset.wanted === url) return;
  element.dataset.wanted = url;
  const next = new Image();
  next.src = url;
  const swap = () => {
    if (element.dataset.wanted === url) element.src = url; // else the slider has moved on
  };
  next.decode().then(swap, swap);
}

/* A picture of an image at a group; with the difference, all scans lie over it, and CSS subtracts. */
function picture(image, alt) {
  const now = make("img", { alt });
  const whole = make("img", { alt: "", className: "whole" });
  whole.setAttribute("aria-hidden", "true");
  const frame = make("span", { className: "frame" }, now, whole);
  frame.draw = (group, view, difference) => {
    frame.classList.toggle("difference", difference);
    show(now, address(image, group, view));
    if (difference) show(whole, address(image, last, view));
    now.alt = `${alt}, scan group ${data.groups[group]}${difference ? ", difference to all scans" : ""}`;
  };
  return frame;
}

const nameOf = (image) => data.images[image].id;
const similarities = (image) => data.images[image][state.view === "crop" ? "cropMsSsim" : "msSsim"];

const cards = [];
for (const { name, images } of data.classes) {
  const grid = make("div", { className: "grid", role: "list" });
  for (const image of images) {
    const frame = picture(image, name);
    const bytes = make("span");
    const measured = make("span");
    const button = make("button", { type: "button", title: nameOf(image) }, frame);
    button.setAttribute("aria-label", `${name}, ${nameOf(image)}: open large`);
    button.addEventListener("click", () => openImage(image, name));
    const caption = make("span", { className: "caption" }, bytes, measured);
    grid.append(make("div", { className: "card", role: "listitem" }, button, caption));
    cards.push({ image, frame, bytes, measured });
  }
  const heading = make("h3", {}, name, make("small", {}, ` ${images.length}`));
  byId("gallery").append(make("section", { className: "class" }, heading, grid));
}
const inGrid = cards.map((card) => card.image);

function drawGallery() {
  for (const { image, frame, bytes, measured } of cards) {
    frame.draw(state.group, state.view, state.difference);
    bytes.replaceChildren(exact(data.images[image].bytes[state.group], kilobytes(data.images[image].bytes[state.group])));
    const value = similarities(image)[state.group];
    measured.replaceChildren("MS-SSIM ", exact(value ?? "", similarity(value)));
  }
}

/* ---- The slider over scan groups --------------------------------------------------------------------------- */

function drawDial() {
  const { group } = state;
  const sizes = data.epoch.imageBytes;
  const values = inGrid.map((image) => similarities(image)[group]).filter((value) => value !== null);
  byId("group-number").textContent = data.groups[group];
  byId("dial-bytes").replaceChildren(exact(sizes[group], kilobytes(sizes[group])));
  byId("dial-share").textContent = percent(sizes[group] / sizes[last], 0);
  byId("dial-similarity").textContent = values.length ? similarity(mean(values)) : "\u2013";
  for (const slider of document.querySelectorAll("input.group")) {
    slider.value = group;
    slider.setAttribute("aria-valuetext", `scan group ${data.groups[group]}, ${kilobytes(sizes[group])} an image`);
    slider.style.setProperty("--filled", `${last ? (100 * group) / last : 100}%`);
  }
}

for (const slider of document.querySelectorAll("input.group")) {
  slider.max = last;
  slider.addEventListener("input", () => choose(Number(slider.value)));
}
for (const group of data.groups) byId("ticks").append(make("span", {}, String(group)));

function choose(group) {
  state.group = group;
  drawDial();
  drawGallery();
  drawTask();
  drawStorage();
  drawOpened();
}

for (const radio of document.querySelectorAll("input[name=view]")) {
  radio.addEventListener("change", () => {
    state.view = radio.value;
    choose(state.group);
  });
}
byId("difference").addEventListener("change", (event) => {
  state.difference = event.target.checked;
  drawGallery();
  drawOpened();
});

/* ---- One image, large -------------------------------------------------------------------------------------- */

const dialog = byId("large");

function openImage(image, name) {
  const frame = picture(image, name);
  state.opened = { image, frame };
  byId("large-name").textContent = name;
  byId("large-id").textContent = `${nameOf(image)}, ${data.images[image].width} \u00d7 ${data.images[image].height} px`;
  byId("large-picture").replaceChildren(frame);
  drawOpened();
  dialog.showModal();
}

function drawOpened() {
  if (!state.opened) return;
  const { image, frame } = state.opened;
  const { bytes, width, height } = data.images[image];
  frame.style.aspectRatio = state.view === "crop" ? 1 : width / height;
  frame.draw(state.group, state.view, state.difference);
  byId("large-numbers").textContent =
    `group ${data.groups[state.group]}: ${kilobytes(bytes[state.group])}, ` +
    `${percent(bytes[state.group] / bytes[last], 0)} of all scans, ` +
    `MS-SSIM ${similarity(similarities(image)[state.group])}`;
}

byId("large-close").addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
dialog.addEventListener("close", () => (state.opened = null));

/* ---- The task ------------------------------------------------------------------------------------------------ */

const TOLERATED = "tolerated";

/* What a group's accuracy and loss are, for whoever does not see the chart. */
function inWords(use, row) {
  const lost = `${points(row.loss)} points against all scans (${points(row.loss_high)} to ${points(row.loss_low)})`;
  return `Group ${row.train_group}, ${use.words}: ${data.task.words} ${percent(row.score)}, ${lost}, ${row.verdict}`;
}

function drawChart(number) {
  const use = data.task.uses[number];
  const holder = byId(`chart-${use.name}`);
  const width = Math.max(holder.clientWidth, 260);
  const height = width > 400 ? 250 : 234;
  const box = { left: 46, right: width - 12, top: 14, bottom: height - (width > 400 ? 44 : 28) };
  const { whole, margin } = data.task;
  // All panels show the same span; bars are of the difference to all scans, drawn below its accuracy.
  const every = data.task.uses.flatMap(({ rows }) => rows);
  const lowest = Math.min(whole - margin, ...every.map((row) => whole - row.loss_high));
  const highest = Math.max(whole, ...every.map((row) => whole - row.loss_low));
  const pad = Math.max(0.08 * (highest - lowest), 0.004);
  const y = (score) => box.bottom - ((score - lowest + pad) / (highest - lowest + 2 * pad)) * (box.bottom - box.top);
  const step = (box.right - box.left) / use.rows.length;
  const x = (place) => box.left + (place + 0.5) * step;
  const svg = make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "radiogroup" });
  svg.setAttribute("aria-label", `${data.task.words} over scan groups, ${use.words}`);
  for (const score of ticks(lowest, highest)) {
    svg.append(make("line", { class: "rule", x1: box.left, x2: box.right, y1: y(score), y2: y(score) }));
    svg.append(make("text", { class: "tick", x: box.left - 8, y: y(score) + 4, "text-anchor": "end" }, shortPercent(score)));
  }
  for (const [score, kind] of [[whole, "all"], [whole - margin, "margin"]]) {
    svg.append(make("line", { class: kind, x1: box.left, x2: box.right, y1: y(score), y2: y(score) }));
  }
  const chosen = use.rows.findIndex((row) => row.train_group === data.groups[state.group]);
  if (chosen >= 0) {
    const look = { class: "chosen", x: x(chosen) - step / 2, y: box.top, width: step, height: box.bottom - box.top };
    svg.prepend(make("rect", look));
  }
  svg.append(make("path", { class: "curve", d: use.rows.map((row, i) => `${i ? "L" : "M"}${x(i)} ${y(row.score)}`).join("") }));
  use.rows.forEach((row, place) => {
    const isChosen = place === chosen && number === state.use;
    const point = make("g", { role: "radio", "aria-checked": isChosen, "aria-label": inWords(use, row), class: "point" });
    point.setAttribute("tabindex", place === Math.max(chosen, 0) ? 0 : -1);
    point.dataset.group = row.train_group;
    point.append(make("rect", { class: "hit", x: x(place) - step / 2, y: box.top, width: step, height: box.bottom - box.top + 34 }));
    const [low, high] = [y(whole - row.loss_high), y(whole - row.loss_low)];
    point.append(make("line", { class: "bar", x1: x(place), x2: x(place), y1: low, y2: high }));
    const isEnough = row.verdict === TOLERATED;
    point.append(make("circle", { class: isEnough ? "dot enough" : "dot", cx: x(place), cy: y(row.score), r: isChosen ? 7 : 5 }));
    point.append(make("text", { class: "tick", x: x(place), y: box.bottom + 18, "text-anchor": "middle" }, String(row.train_group)));
    if (width > 400) {
      point.append(make("text", { class: "tick faint", x: x(place), y: box.bottom + 34, "text-anchor": "middle" }, kilobytes(row.image_bytes)));
    }
    const pick = (at) => {
      state.use = number;
      choose(data.groups.indexOf(use.rows[at].train_group));
      holder.querySelector("[tabindex='0']").focus({ preventScroll: true });
    };
    point.addEventListener("click", () => pick(place));
    point.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key] ?? 0;
      if (!move && event.key !== " " && event.key !== "Enter") return;
      event.preventDefault();
      pick(Math.min(Math.max(place + move, 0), use.rows.length - 1));
    });
    svg.append(point);
  });
  holder.replaceChildren(svg);
}

function ticks(low, high) {
  const rough = (high - low) / 5.5 || 0.01;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, i) => (first + i) * step);
}

const shortPercent = (share) => `${Number((100 * share).toFixed(2))} %`;

let drawnMistakes = "";

function drawTask() {
  if (!data.task) return;
  data.task.uses.forEach((_, number) => drawChart(number));
  for (const row of document.querySelectorAll("#task-numbers tr")) {
    row.classList.toggle("chosen", Number(row.dataset.group) === data.groups[state.group]);
  }
  const use = data.task.uses[state.use];
  const found = use.mistakes.find(({ group }) => group === data.groups[state.group]);
  const key = `${state.use} ${state.group}`;
  if (key === drawnMistakes) return;
  drawnMistakes = key;
  byId("mistakes").replaceChildren(...mistakes(use, found));
}

function mistakes(use, found) {
  const group = data.groups[state.group];
  if (!use.mistakes.length) {
    return [make("p", { className: "note" }, "The label is no single class, so no image is right or wrong.")];
  }
  if (!found) return [make("p", {}, `Group ${group} was not measured.`)];
  const heading = make("h3", {}, `Right with all scans, wrong at group ${group}`);
  const trained = make("small", {}, ` trained there, ${use.words}`);
  heading.append(trained);
  const counts = make("p", { className: "note" });
  counts.append(exact(found.numLost, found.numLost.toLocaleString("en")), ` lost, `);
  counts.append(exact(found.numGained, found.numGained.toLocaleString("en")), ` gained. `);
  const usedAt = use.name === "same" ? state.group : last;
  if (!found.numLost) return [heading, counts];
  if (!data.task.hasIds) {
    counts.append("This measurement did not save which images: run tolerance again (it keeps its features).");
    return [heading, counts];
  }
  if (!found.shown.length) {
    counts.append("None of them is in these records, or there was no room for it in this page.");
    return [heading, counts];
  }
  counts.append(
    found.shown.length < found.numLost ? `The ${found.shown.length} worst that are in this page` : "The worst first",
    use.name === "same" ? ", as the network saw them:" : ", as the network saw them, with all scans:",
  );
  const grid = make("div", { className: "grid", role: "list" });
  for (const { image, said, right } of found.shown) {
    const frame = picture(image, right);
    frame.draw(usedAt, "crop", false);
    const button = make("button", { type: "button", title: nameOf(image) }, frame);
    button.setAttribute("aria-label", `${right}, taken for ${said}, ${nameOf(image)}: open large`);
    button.addEventListener("click", () => openImage(image, right));
    const caption = make("span", { className: "caption" }, make("b", {}, right), make("span", {}, `taken for ${said}`));
    grid.append(make("div", { className: "card", role: "listitem" }, button, caption));
  }
  return [heading, counts, grid];
}

function fillTaskNumbers() {
  const [full, same] = data.task.uses;
  const interval = (row, what, say) => `${say(row[`${what}_low`])} to ${say(row[`${what}_high`])}`;
  full.rows.forEach((row, place) => {
    const cells = [make("th", { scope: "row" }, String(row.train_group)), make("td", {}, kilobytes(row.image_bytes))];
    for (const { score, loss, verdict, ...rest } of [row, same.rows[place]]) {
      const lost = `${points(rest.loss_high)} to ${points(rest.loss_low)}`;
      cells.push(make("td", {}, exact(score, percent(score)), make("small", {}, interval(rest, "score", percent))));
      cells.push(make("td", {}, exact(loss, points(loss)), make("small", {}, lost)), make("td", {}, verdict));
    }
    const line = make("tr", {}, ...cells);
    line.dataset.group = row.train_group;
    byId("task-numbers").append(line);
  });
}

/* ---- Storage: the throughput model, as pcr_exp/analysis/plan.py has it, for one worker ------------------------ */

const MIB = 2 ** 20;
const GB = 1e9;
const MAX_READS_IN_FLIGHT = 512;
const IN_FLIGHT_UNKNOWN = 4;

function readsInFlight(storage, readBytes) {
  const busyS = storage.seekMs / 1e3 + readBytes / (storage.bandwidthMibPerS * MIB);
  const readsPerS = Math.min(1 / busyS, storage.requestsPerS ?? Infinity);
  if (readsPerS === Infinity) return IN_FLIGHT_UNKNOWN;
  return Math.min(Math.ceil((readsPerS * storage.latencyMs) / 1e3) + 2, MAX_READS_IN_FLIGHT);
}

function level(place, storage) {
  const { numImages, imagesPerRecord, imageBytes, decodeImagesPerS } = data.epoch;
  const bytes = imageBytes[place];
  const readBytes = bytes * imagesPerRecord;
  const bandwidth = storage.bandwidthMibPerS * MIB;
  const latencyS = storage.latencyMs / 1e3;
  const seekS = storage.seekMs / 1e3;
  const transferS = readBytes / bandwidth;
  const seekSPerImage = seekS / imagesPerRecord;
  const free = bandwidth / bytes;
  const limits = {
    training: storage.trainImagesPerS,
    decoding: (storage.cores ?? Infinity) * decodeImagesPerS[place],
    bandwidth: seekSPerImage ? 1 / (1 / free + seekSPerImage) : free,
    requests: (storage.requestsPerS ?? Infinity) * imagesPerRecord,
    latency: (readsInFlight(storage, readBytes) * imagesPerRecord) / (latencyS + seekS + readBytes / bandwidth),
  };
  const name = Object.keys(limits).reduce((least, key) => (limits[key] < limits[least] ? key : least));
  const rate = limits[name];
  const epochBytes = numImages * bytes;
  const requests = Math.ceil(numImages / imagesPerRecord);
  return {
    rate,
    limit: name === "bandwidth" && seekS > transferS ? "seeks" : name,
    epochH: numImages / rate / 3600,
    dollars: (epochBytes / GB) * storage.dollarsPerGb + (requests / 1000) * storage.dollarsPer1000Requests,
  };
}

/* Sliders are logarithmic; at an end of some stands 0, or no limit (null). */
const KNOBS = {
  bandwidthMibPerS: { least: 1, most: 1e5 },
  latencyMs: { least: 0.1, most: 1000, zero: true },
  trainImagesPerS: { least: 10, most: 1e6 },
  dollarsPerGb: { least: 0.001, most: 1, zero: true },
  seekMs: { least: 0.1, most: 100, zero: true },
  requestsPerS: { least: 1, most: 1e5, free: true },
  cores: { least: 1, most: 1024, free: true },
  dollarsPer1000Requests: { least: 1e-5, most: 0.1, zero: true },
};
const STEPS = 200;
const storage = { ...data.start, cores: 8, dollarsPerGb: 0.09, dollarsPer1000Requests: 0 };

function valueAt(knob, place) {
  if (knob.zero && place === 0) return 0;
  if (knob.free && place === STEPS) return null;
  const value = knob.least * (knob.most / knob.least) ** (place / STEPS);
  return Number(value.toPrecision(2));
}

function placeOf(knob, value) {
  if (value === null) return STEPS;
  if (value === 0) return 0;
  return Math.round((STEPS * Math.log(value / knob.least)) / Math.log(knob.most / knob.least));
}

function drawKnob(name) {
  const place = Math.min(Math.max(placeOf(KNOBS[name], storage[name]), 0), STEPS);
  const [slider, field] = [byId(`slide-${name}`), byId(`field-${name}`)];
  slider.value = place;
  slider.style.setProperty("--filled", `${(100 * place) / STEPS}%`);
  slider.setAttribute("aria-valuetext", storage[name] === null ? "no limit" : String(storage[name]));
  if (document.activeElement !== field) field.value = storage[name] ?? "";
}

for (const [name, knob] of Object.entries(KNOBS)) {
  const [slider, field] = [byId(`slide-${name}`), byId(`field-${name}`)];
  slider.max = STEPS;
  const set = (value) => {
    storage[name] = value;
    drawKnob(name);
    drawStorage();
  };
  slider.addEventListener("input", () => set(valueAt(knob, Number(slider.value))));
  field.addEventListener("input", () => {
    const value = field.value === "" && knob.free ? null : Number(field.value);
    const isUsable = value === null || value > 0 || (value === 0 && knob.zero && field.value !== "");
    field.setAttribute("aria-invalid", !isUsable);
    if (isUsable) set(value);
  });
  field.addEventListener("blur", () => {
    field.setAttribute("aria-invalid", false);
    drawKnob(name);
  });
  drawKnob(name);
}

const preset = byId("preset");
for (const name of Object.keys(data.storages)) preset.append(make("option", { value: name }, name.replaceAll("_", " ")));
preset.addEventListener("change", () => {
  if (!preset.value) return;
  Object.assign(storage, data.storages[preset.value]);
  for (const name of Object.keys(KNOBS)) drawKnob(name);
  drawStorage();
});

function drawStorage() {
  const levels = data.groups.map((_, place) => level(place, storage));
  const most = Math.max(...levels.map(({ rate }) => rate), storage.trainImagesPerS);
  const isPreset = (values) => Object.entries(values).every(([key, value]) => storage[key] === value);
  preset.value = Object.keys(data.storages).find((name) => isPreset(data.storages[name])) ?? "";
  const lines = levels.map(({ rate, limit, epochH, dollars: cost }, place) => {
    const bar = make("span", { className: limit === "training" ? "bar free" : "bar" });
    bar.style.width = `${(100 * rate) / most}%`;
    const pick = make("button", { type: "button" }, String(data.groups[place]));
    pick.setAttribute("aria-label", `choose group ${data.groups[place]}`);
    pick.setAttribute("aria-pressed", place === state.group);
    const line = make(
      "tr",
      { className: place === state.group ? "chosen" : "" },
      make("th", { scope: "row" }, pick),
      make("td", { className: "wide" }, kilobytes(data.epoch.imageBytes[place])),
      make("td", { className: "rate" }, make("span", { className: "track" }, bar), exact(rate, figures(rate))),
      make("td", { className: "limit" }, limit),
      make("td", {}, exact(epochH, duration(epochH))),
      make("td", {}, exact(cost, dollars(cost))),
    );
    line.dataset.group = data.groups[place];
    line.addEventListener("click", () => choose(place));
    return line;
  });
  const body = byId("storage-numbers");
  const focused = [...body.querySelectorAll("button")].indexOf(document.activeElement);
  body.replaceChildren(...lines);
  if (focused >= 0) body.querySelectorAll("button")[focused].focus({ preventScroll: true });
  byId("storage-words").textContent = summary(levels);
}

function summary(levels) {
  const free = levels.map(({ limit }) => limit === "training").lastIndexOf(true);
  const now = levels[state.group];
  const here = `Group ${data.groups[state.group]}: ${figures(now.rate)} images/s, limited by ${now.limit}.`;
  if (free === last) return `${here} Training waits at no group: all scans can be read.`;
  if (free < 0) return `${here} Training waits at every group.`;
  return `${here} Group ${data.groups[free]} is the highest at which training does not wait.`;
}

/* ---- At the start ---------------------------------------------------------------------------------------------- */

if (data.task) {
  fillTaskNumbers();
  new ResizeObserver(() => data.task.uses.forEach((_, number) => drawChart(number))).observe(byId("charts"));
}
choose(Math.min(1, last));
