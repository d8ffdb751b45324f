// Controls, keys, and the first question.
function fillControls() {
  for (const bucket of index.buckets) byId("bucket").append(make("option", { value: bucket }, bucket));
  for (const k of frames) byId("k").append(make("option", { value: String(k) }, String(k)));
  byId("k").closest("label").hidden = frames.length < 2;
  for (const base of bases) {
    byId("series").append(make("option", { value: base }, base));
    byId("other").append(make("option", { value: base }, base));
  }
}

function read() {
  const before = state.sort;
  for (const [name, id] of Object.entries(CONTROLS)) state[name] = byId(id).value;
  if (state.sort !== before) current = -1; // another order is asked for to see what stands first
  changed();
}

function clear() {
  for (const [name, id] of Object.entries(CONTROLS)) byId(id).value = first[name];
  state.also = new Set(usual);
  read();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  const inside = byId("questions").contains(event.target);
  if (event.key === "/" && !typing) byId("search").focus();
  else if (event.key === "Escape" && inside) close();
  else if (!typing && (event.key === "j" || (event.key === "ArrowDown" && inside))) step(1);
  else if (!typing && (event.key === "k" || (event.key === "ArrowUp" && inside))) step(-1);
  else return;
  event.preventDefault();
}

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
}

function start() {
  fillControls();
  document.querySelectorAll("main table").forEach(sortable);
  document.querySelectorAll(".sifted").forEach(siftable);
  document.querySelectorAll("figure:has(.point)").forEach(pointable);
  byId("filters").addEventListener("input", read);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("clear").addEventListener("click", clear);
  byId("previous").addEventListener("click", () => turn(-1));
  byId("next").addEventListener("click", () => turn(1));
  byId("theme").addEventListener("click", switchTheme);
  document.addEventListener("keydown", onKey);
  let waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => drawn && draw(), 120);
  });
  window.addEventListener("hashchange", () => location.hash.includes("=") && follow());
  follow();
}

start();
