"use strict";
// Which question is shown, and how? Texts of the data reach the page through textContent alone.
(() => {
  const PAGE = 40;
  const MARKS = { r: "✓", w: "✗", p: "◐", n: "–", u: "?", e: "!", "-": "·", c: "·" };
  const WORDS = { r: "right", w: "wrong", p: "partly right", n: "not scored here", u: "not parsed", e: "error", "-": "not run", c: "frames chosen" };
  const [ID, BENCHMARK, BUCKET, TEXT, VERDICTS] = [0, 1, 2, 3, 4];
  const byId = (id) => document.getElementById(id);
  const index = JSON.parse(byId("index").textContent);
  const questions = index.questions;
  const several = new Set(questions.map((one) => one[BENCHMARK])).size > 1;
  const found = questions.map((one) => `${one[ID]} ${one[TEXT]}`.toLowerCase());
  const chunks = new Map();
  let shown = questions.map((_, i) => i);
  let page = 0;
  let current = -1;
  let drawn = null;
  // Which series are drawn; the reader chooses.
  const visible = index.series.map((series) => series.shown);

  function make(name, properties, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(properties || {})) {
      if (key === "class") element.className = value;
      else if (key.includes("-") || key === "role") element.setAttribute(key, value);
      else element[key] = value;
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  function svg(name, attributes, text) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  }

  function clock(seconds) {
    const whole = Math.floor(seconds);
    const pad = (value) => String(value).padStart(2, "0");
    const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
    return h ? `${h}:${pad(m)}:${pad(s)}` : `${m}:${pad(s)}`;
  }

  async function details(place) {
    const number = Math.floor(place / index.chunk);
    if (!chunks.has(number)) chunks.set(number, unpack(byId(`chunk${number}`).textContent));
    return (await chunks.get(number))[place % index.chunk];
  }

  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  // ---- filters and list

  function filter() {
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const bucket = byId("bucket").value;
    const series = Number(byId("series").value);
    const verdict = byId("verdict").value;
    const other = byId("other").value;
    shown = [];
    questions.forEach((one, i) => {
      if (bucket && one[BUCKET] !== bucket) return;
      if (verdict && one[VERDICTS][series] !== verdict) return;
      if (other !== "" && !differ(one[VERDICTS][series], one[VERDICTS][Number(other)])) return;
      if (!words.every((word) => found[i].includes(word))) return;
      shown.push(i);
    });
    page = 0;
    list();
  }

  // Right, partly right or wrong (one that cannot be parsed is wrong); an error or a missing row says nothing.
  function differ(a, b) {
    const known = (one) => "rpwu".includes(one);
    const worth = (one) => (one === "u" ? "w" : one);
    return known(a) && known(b) && worth(a) !== worth(b);
  }

  function list() {
    const pages = Math.max(1, Math.ceil(shown.length / PAGE));
    page = Math.min(page, pages - 1);
    byId("count").textContent = `${shown.length.toLocaleString("en")} of ${questions.length.toLocaleString("en")} questions`;
    byId("page").textContent = `${page + 1} / ${pages}`;
    byId("previous").disabled = page === 0;
    byId("next").disabled = page >= pages - 1;
    byId("list").replaceChildren(...shown.slice(page * PAGE, (page + 1) * PAGE).map(entry));
  }

  function entry(place) {
    const one = questions[place];
    const marks = make("span", { class: "marks", "aria-hidden": "true" });
    const spoken = [];
    [...one[VERDICTS]].forEach((verdict, i) => {
      if (!visible[i]) return;
      marks.append(make("span", { class: verdict, title: `${index.series[i].name}: ${WORDS[verdict]}` }, MARKS[verdict]));
      spoken.push(`${index.series[i].name} ${WORDS[verdict]}`);
    });
    const meta = make("span", { class: "meta" }, make("span", { class: "id" }, one[ID]), one[BUCKET], marks);
    const button = make("button", { type: "button" }, meta, make("span", { class: "ask" }, one[TEXT]));
    button.setAttribute("aria-label", `${one[ID]}, ${one[BUCKET]}: ${one[TEXT]}. ${spoken.join(", ")}`);
    button.setAttribute("aria-current", String(place === current));
    button.dataset.place = place;
    button.addEventListener("click", () => open(place, true));
    return make("li", {}, button);
  }

  // ---- one question

  async function open(place, wanted) {
    current = place;
    for (const button of byId("list").querySelectorAll("button")) {
      button.setAttribute("aria-current", String(Number(button.dataset.place) === place));
    }
    let detail;
    try {
      detail = await details(place);
    } catch (error) {
      byId("detail").replaceChildren(make("p", {}, `This browser cannot unpack the details (${error.message}); any from 2023 on can.`));
      return;
    }
    if (current !== place) return;
    drawn = { place, detail };
    // Before drawing: a timeline takes the width of its place, and on a phone that is hidden until now.
    if (wanted) document.querySelector(".browser").classList.add("open");
    draw();
    if (wanted) {
      const one = questions[place];
      history.replaceState(null, "", `#q=${encodeURIComponent(`${one[BENCHMARK]}/${one[ID]}`)}`);
      if (byId("list").offsetParent === null) {
        byId("detail").focus({ preventScroll: true });
        byId("questions").scrollIntoView();
      }
    }
  }

  function draw() {
    const { place, detail } = drawn;
    const one = questions[place];
    const back = make("button", { type: "button", class: "back" }, "← all questions");
    back.addEventListener("click", close);
    const parts = [
      back,
      make("h3", {}, one[TEXT]),
      facts([
        ["Question", several ? `${one[BENCHMARK]} ${one[ID]}` : one[ID]],
        ["Video", detail.video],
        ["Length", `${clock(detail.seconds)}, ${one[BUCKET]}`],
        ["Right answer", detail.correct],
        ["Evidence at", detail.evidence.map(clock).join(", ")],
      ]),
      index.series.length > 1 ? toggles() : null,
      legend(detail),
      ...index.series.map((series, i) => (visible[i] ? seriesSection(series, detail.series[i], one[VERDICTS][i], detail) : null)),
    ];
    byId("detail").replaceChildren(...parts.filter((part) => part !== null));
    for (const figure of byId("detail").querySelectorAll("svg.time")) timeline(figure);
  }

  function toggles() {
    const buttons = index.series.map((series, i) => {
      const button = make("button", { type: "button", "aria-pressed": String(visible[i]) }, make("span", { class: `dot ${series.css}` }), series.name);
      button.addEventListener("click", () => {
        visible[i] = !visible[i];
        list();
        draw();
        byId("detail").querySelectorAll(".shown button")[i].focus();
      });
      return button;
    });
    return make("div", { class: "shown", role: "group", "aria-label": "Samplers shown" }, ...buttons);
  }

  function facts(pairs) {
    const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
    return make("dl", { class: "facts" }, ...known.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  }

  function legend(detail) {
    const items = ["▲ chosen frame", "│ relevance of a scored frame"];
    if (detail.series.some((series) => series && series.clips.length)) items.push("▬ clip: mean and radius, darker where frames were drawn");
    if (detail.evidence.length) items.push("◆ evidence");
    return make("ul", { class: "key-legend" }, ...items.map((text) => make("li", {}, text)));
  }

  function seriesSection(series, data, verdict, detail) {
    const head = make("header", {}, make("h4", {}, make("span", { class: `dot ${series.css}` }), series.name));
    if (verdict !== "c") head.append(make("span", { class: `chip ${verdict}` }, `${MARKS[verdict]} ${WORDS[verdict]}`));
    const section = make("section", { class: "series" }, head);
    if (!data) return section;
    head.append(make("span", { class: "costs" }, costs(data)));
    if (data.answer !== undefined && data.answer !== null) section.append(make("p", { class: "said" }, `“${data.answer}”`));
    if (data.error) section.append(make("p", { class: "said e" }, data.error));
    if (!data.frames.length) return section;
    const figure = svg("svg", { class: `time ${series.css}`, role: "img" });
    figure.append(svg("title", {}, `${series.name}: frames chosen at ${data.times.map(clock).join(", ")}`));
    figure.data = { data, detail };
    section.append(figure, frames(data, detail));
    return section;
  }

  function costs(data) {
    const parts = [`${data.frames.length} of ${data.k} frames`];
    if (data.fed !== undefined && data.fed !== data.frames.length) parts.push(`${data.fed} fed`);
    if (data.pulls) parts.push(`${data.pulls.toLocaleString("en")} scored (${((100 * data.pulls) / Math.max(1, data.of)).toFixed(1)} %)`);
    if (data.fallback) parts.push(`fallback: ${data.fallback}`);
    return parts.join(" · ");
  }

  function frames(data, detail) {
    const near = (time) => detail.evidence.some((evidence) => Math.abs(evidence - time) <= 2);
    const pictured = data.frames.some((frame) => detail.pictures[frame]);
    const items = data.frames.map((frame, i) => {
      const hit = near(data.times[i]);
      const caption = make("span", hit ? { class: "hit", title: "within 2 s of the evidence" } : {}, `${hit ? "◆ " : ""}${clock(data.times[i])}`);
      if (!pictured) return make("li", { title: `frame ${frame}` }, caption);
      const source = detail.pictures[frame];
      // A linked picture waits until it is near the view; one in the page is there already.
      const loading = source && source.startsWith("data:") ? "eager" : "lazy";
      const image = source ? make("img", { loading, src: source, alt: `frame ${frame} at ${clock(data.times[i])}` }) : null;
      return make("li", { title: `frame ${frame}` }, image, caption);
    });
    return make("ul", { class: pictured ? "frames" : "frames chips", tabIndex: 0, "aria-label": "Chosen frames" }, ...items);
  }

  function timeline(figure) {
    const { data, detail } = figure.data;
    const width = Math.max(240, figure.clientWidth || 600);
    const [top, floor, height] = data.pulls || data.clips.length ? [12, 74, 104] : [12, 34, 64];
    const length = Math.max(detail.seconds, data.times.at(-1) || 0, 0.001);
    const [times, values] = data.pulled;
    const means = data.clips.map((clip) => clip[2]).filter((mean) => mean !== null);
    const most = Math.max(0.05, ...values, ...means) * 1.08;
    const x = (seconds) => 6 + (seconds / length) * (width - 12);
    const y = (value) => floor - (Math.min(most, Math.max(0, value)) / most) * (floor - top);
    const title = figure.querySelector("title");
    figure.setAttribute("viewBox", `0 0 ${width} ${height}`);
    figure.setAttribute("height", height);
    const parts = [title];
    for (const [start, stop, mean, radius, final] of data.clips) {
      if (mean === null) continue;
      const kind = final ? " final" : "";
      const [left, right] = [x(start), x(stop)];
      const upper = y(mean + (radius || 0));
      parts.push(svg("rect", { class: `clip${kind}`, x: left, y: upper, width: Math.max(0.5, right - left), height: Math.max(0, y(mean - (radius || 0)) - upper) }));
      parts.push(svg("line", { class: `mean${kind}`, x1: left, x2: right, y1: y(mean), y2: y(mean) }));
    }
    const path = times.map((time, i) => `M${x(time).toFixed(1)} ${floor}V${y(values[i]).toFixed(1)}`).join("");
    if (path) parts.push(svg("path", { class: "pull", d: path }));
    parts.push(svg("line", { class: "base", x1: 6, x2: width - 6, y1: floor, y2: floor }));
    for (const time of detail.evidence) {
      const at = x(time);
      parts.push(svg("line", { class: "evidence", x1: at, x2: at, y1: top - 4, y2: floor + 14 }));
      parts.push(svg("path", { class: "diamond", d: `M${at} 1l4.5 5l-4.5 5l-4.5 -5z` }));
    }
    for (const time of data.times) {
      const at = x(time);
      parts.push(svg("path", { class: "key", d: `M${at} ${floor + 3}l4.5 9h-9z` }));
    }
    for (const share of width < 420 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]) {
      const anchor = share === 0 ? "start" : share === 1 ? "end" : "middle";
      parts.push(svg("text", { class: "tick", x: x(share * length), y: height - 3, "text-anchor": anchor }, clock(share * length)));
    }
    if (times.length) parts.push(svg("text", { class: "tick", x: width - 6, y: top - 2, "text-anchor": "end" }, `relevance up to ${(most / 1.08).toFixed(2)}`));
    figure.replaceChildren(...parts);
  }

  // ---- moving about

  function close() {
    document.querySelector(".browser").classList.remove("open");
    const button = byId("list").querySelector("[aria-current=true]");
    if (button) button.focus();
  }

  function step(by) {
    if (!shown.length) return;
    const at = shown.indexOf(current);
    const next = at < 0 ? 0 : Math.min(shown.length - 1, Math.max(0, at + by));
    if (Math.floor(next / PAGE) !== page) {
      page = Math.floor(next / PAGE);
      list();
    }
    open(shown[next], true);
    const button = byId("list").querySelector(`[data-place="${shown[next]}"]`);
    if (button) {
      button.focus({ preventScroll: true });
      button.scrollIntoView({ block: "nearest" });
    }
  }

  function turn(by) {
    page += by;
    list();
    byId("list").scrollTop = 0;
  }

  function fromHash() {
    const match = /^#q=(.+)$/.exec(location.hash);
    if (!match) return -1;
    const name = decodeURIComponent(match[1]);
    return questions.findIndex((one) => `${one[BENCHMARK]}/${one[ID]}` === name);
  }

  function start() {
    for (const bucket of index.buckets) byId("bucket").append(make("option", { value: bucket }, bucket));
    index.series.forEach((series, i) => {
      byId("series").append(make("option", { value: String(i) }, series.name));
      byId("other").append(make("option", { value: String(i) }, series.name));
    });
    byId("filters").addEventListener("input", filter);
    byId("filters").addEventListener("submit", (event) => event.preventDefault());
    byId("filters").addEventListener("reset", () => setTimeout(filter));
    byId("previous").addEventListener("click", () => turn(-1));
    byId("next").addEventListener("click", () => turn(1));
    byId("theme").addEventListener("click", () => {
      const root = document.documentElement;
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
    });
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
      const inside = byId("questions").contains(event.target);
      if (event.key === "/" && !typing) byId("search").focus();
      else if (event.key === "Escape" && inside) close();
      else if (!typing && (event.key === "j" || (event.key === "ArrowDown" && inside))) step(1);
      else if (!typing && (event.key === "k" || (event.key === "ArrowUp" && inside))) step(-1);
      else return;
      event.preventDefault();
    });
    let waiting = 0;
    window.addEventListener("resize", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => drawn && draw(), 120);
    });
    list();
    const asked = fromHash();
    if (asked >= 0) {
      page = Math.floor(asked / PAGE);
      list();
      open(asked, true);
      byId("questions").scrollIntoView();
    } else if (questions.length) open(0, false);
  }

  start();
})();
