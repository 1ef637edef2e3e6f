// The pages' own script: live pages, keys, charts. Pages can be read without it.

// --- live: one stream for all tabs of a browser, held by the tab that can be seen --------------------

const news = new BroadcastChannel("stoker");
const connection = document.getElementById("connection");
let stream = null;

// Nothing is replaced under a person's hands: while they type, choose or select.
function isInUse() {
  const at = document.activeElement;
  const writes = at && at.closest("#main") && /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName);
  return writes || document.querySelector("#main input:checked");
}

function look() {
  if (window.htmx && !document.hidden && !isInUse()) htmx.trigger(document.body, "look");
}

// A look may have been under way when they began.
document.body.addEventListener("htmx:beforeSwap", (event) => { if (isInUse()) event.detail.shouldSwap = false; });

function say(text) {
  if (!connection) return;
  connection.textContent = text;
  connection.hidden = !text;
}

function listen(over) {
  stream = new EventSource("/ui/live");
  stream.onopen = () => say("");
  stream.onerror = () => say("not connected: trying again");
  stream.addEventListener("tick", () => { news.postMessage("look"); look(); });
  stream.addEventListener("over", () => { over(); location.reload(); });
}

// Only one tab holds the lock; the others hear of news from it. Browsers have locks for HTTPS and for this machine only.
const alone = (run) => navigator.locks ? navigator.locks.request("stoker-live", run) : run();

async function follow() {
  if (document.hidden || !document.querySelector("#main[hx-get]")) return;
  await alone(() => new Promise((done) => {
    if (document.hidden) return done();
    const over = () => { stream?.close(); stream = null; document.removeEventListener("visibilitychange", hide); done(); };
    const hide = () => { if (document.hidden) over(); };
    document.addEventListener("visibilitychange", hide);
    listen(over);
  }));
}

news.onmessage = look;
document.addEventListener("visibilitychange", () => { if (!document.hidden) { look(); follow(); } });
follow();

// When a page is replaced by a newer one, what a person has opened stays open, the chosen row stays chosen, and charts stay.
if (window.Idiomorph) {
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) =>
    !(name === "open" && node.tagName === "DETAILS") && !(name === "class" && node.classList.contains("here"));
  Idiomorph.defaults.callbacks.beforeNodeMorphed = (old, fresh) => {
    if (!old.dataset?.chart) return true;
    old.dataset.chart = fresh.dataset.chart;
    draw(old);
    return false;
  };
}
document.body.addEventListener("htmx:sendError", () => say("not connected: trying again"));
document.body.addEventListener("htmx:afterRequest", (event) => { if (event.detail.successful) say(""); });

// --- charts ------------------------------------------------------------------------------------------

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function draw(place) {
  if (!window.uPlot) return;
  const { data, series, unit } = JSON.parse(place.dataset.chart);
  if (place.plot) return place.plot.setData(data);
  const axis = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") }, font: "11px system-ui" };
  const lines = series.map(({ label, tone }) => ({ label, stroke: colour(tone), width: 1.5, points: { show: false }, value: (_, v) => v == null ? "–" : `${+v.toFixed(2)} ${unit}` }));
  place.plot = new uPlot({
    width: place.clientWidth, height: 170, series: [{}, ...lines], legend: { live: true },
    axes: [axis, { ...axis, size: 48 }], scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.05 : 1] } },
  }, data, place);
  new ResizeObserver(() => place.plot.setSize({ width: place.clientWidth, height: 170 })).observe(place);
}

document.querySelectorAll("[data-chart]").forEach(draw);
document.body.addEventListener("htmx:afterSettle", () => document.querySelectorAll("[data-chart]").forEach(draw));

// --- keys --------------------------------------------------------------------------------------------

const PLACES = { o: "/ui/", q: "/ui/queues", j: "/ui/jobs", d: "/ui/dead", w: "/ui/workflows" };
let goes = false;

function move(by) {
  const rows = [...document.querySelectorAll("[data-rows] tbody tr")];
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.classList.contains("here"));
  rows[at]?.classList.remove("here");
  const next = rows[Math.max(0, Math.min(rows.length - 1, at + by))];
  next.classList.add("here");
  next.scrollIntoView({ block: "nearest" });
  next.querySelector("a")?.focus({ preventScroll: true });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const at = event.target;
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName) && at.type !== "checkbox") {
    if (event.key === "Escape") at.blur();
    return;
  }
  if (goes && PLACES[event.key]) { goes = false; location.href = PLACES[event.key]; return; }
  goes = event.key === "g";
  const here = document.querySelector("tr.here");
  if (event.key === "/") { event.preventDefault(); document.getElementById("search")?.focus(); }
  else if (event.key === "?") location.href = "/ui/help";
  else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "x") { const box = here?.querySelector("input[type=checkbox]"); if (box) box.click(); }
});
