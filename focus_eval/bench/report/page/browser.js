// Which questions are listed, in which order, and which is shown? All of it stands in the address.
const PAGE = 40;
const [ID, BENCHMARK, BUCKET, TEXT, VERDICTS, SECONDS, RECALLS] = [0, 1, 2, 3, 4, 5, 6];
const index = JSON.parse(byId("index").textContent);
const questions = index.questions;
const several = new Set(questions.map((one) => one[BENCHMARK])).size > 1;
const searched = questions.map((one) => `${one[ID]} ${one[TEXT]}`.toLowerCase());
const bases = [...new Set(index.series.map((series) => series.base))];
const frames = [...new Set(index.series.map((series) => series.k))].sort((a, b) => a - b);
const chunks = new Map();
// The controls by their name in the address, and what they say at first.
const CONTROLS = { find: "search", length: "bucket", k: "k", a: "series", b: "other", answer: "verdict", sort: "order" };
const first = { find: "", length: "", k: String(frames[0]), a: index.pair[0], b: index.pair[1], answer: "", sort: "" };
const usual = []; // drawn besides the pair
const state = { ...first, also: new Set(usual) };
let shown = [];
let page = 0;
let current = -1;
let drawn = null;

function seriesOf(base) {
  return index.series.findIndex((series) => series.base === base && series.k === Number(state.k));
}

function nameOf(i) {
  return frames.length > 1 ? `${index.series[i].base}, K=${index.series[i].k}` : index.series[i].base;
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

// ---- which questions, in which order

// Right, partly right or wrong (one that cannot be parsed is wrong); an error or a missing row says nothing.
const worth = (verdict) => ({ r: 1, p: 0.5, w: 0, u: 0 })[verdict];

function matching() {
  const words = state.find.toLowerCase().split(/\s+/).filter(Boolean);
  const [a, b] = [seriesOf(state.a), seriesOf(state.b)];
  const wanted = {
    d: (left, right) => left !== right,
    "+": (left, right) => left > right,
    "<": (left, right) => left < right,
  }[state.answer];
  return questions.map((_, i) => i).filter((i) => {
    const one = questions[i];
    if (state.length && one[BUCKET] !== state.length) return false;
    if (wanted) {
      const [left, right] = [worth(one[VERDICTS][a]), worth(one[VERDICTS][b])];
      if (left === undefined || right === undefined || !wanted(left, right)) return false;
    } else if (state.answer && one[VERDICTS][a] !== state.answer) return false;
    return words.every((word) => searched[i].includes(word));
  });
}

function sorted(places, order = state.sort) {
  const [a, b] = [seriesOf(state.a), seriesOf(state.b)];
  const recall = (i, series) => (questions[i][RECALLS] || [])[series] ?? null;
  const gap = (left, right) => (left === null || left === undefined || right === null || right === undefined ? -1 : Math.abs(left - right));
  const keys = {
    // First by their answers, then by the evidence in view.
    apart: (i) => 1000 * gap(worth(questions[i][VERDICTS][a]), worth(questions[i][VERDICTS][b])) + gap(recall(i, a), recall(i, b)) / 101,
    long: (i) => questions[i][SECONDS],
    short: (i) => -questions[i][SECONDS],
    low: (i) => (recall(i, a) === null ? -1000 : -recall(i, a)),
    high: (i) => (recall(i, a) === null ? -1000 : recall(i, a)),
  };
  const key = keys[order];
  return key ? places.map((i) => [key(i), i]).sort((x, y) => y[0] - x[0] || x[1] - y[1]).map((pair) => pair[1]) : places;
}

function filter() {
  shown = sorted(matching());
  const at = shown.indexOf(current);
  page = at < 0 ? 0 : Math.floor(at / PAGE);
  list();
}

// Something was chosen: the list, the question and the address follow.
function changed() {
  filter();
  if (!shown.length) nothing();
  else if (!shown.includes(current)) open(shown[0], false);
  else if (drawn) draw();
  address();
}

function nothing() {
  [current, drawn] = [-1, null];
  byId("detail").replaceChildren(make("p", { class: "empty" }, "No question matches. Change or clear the filters."));
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
  const others = bases.filter((base) => state.also.has(base) && base !== state.a && base !== state.b);
  for (const i of [...new Set([state.a, state.b, ...others])].map(seriesOf).filter((at) => at >= 0)) {
    const verdict = one[VERDICTS][i];
    marks.append(make("span", { class: verdict, title: `${nameOf(i)}: ${WORDS[verdict]}` }, MARKS[verdict]));
    spoken.push(`${nameOf(i)} ${WORDS[verdict]}`);
  }
  const kind = [clock(one[SECONDS]), several ? one[BENCHMARK] : ""].filter(Boolean).join(" · ");
  const meta = make("span", { class: "meta" }, make("span", { class: "id" }, one[ID]), kind, marks);
  const heard = make("span", { class: "spoken" }, [one[BUCKET], ...spoken].filter(Boolean).join(", "));
  const button = make("button", { type: "button" }, meta, make("span", { class: "ask" }, one[TEXT]), heard);
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
  const line = byId("list").querySelector("[aria-current=true]");
  if (line && !wanted) byId("list").scrollTop = line.parentElement.offsetTop;
  // Before drawing: a timeline takes the width of its place, and on a phone that is hidden until now.
  if (wanted) document.querySelector(".browser").classList.add("open");
  draw();
  address(wanted);
  if (wanted && byId("list").offsetParent === null) {
    byId("detail").focus({ preventScroll: true });
    byId("questions").scrollIntoView();
  }
}

function draw() {
  byId("detail").replaceChildren(...questionView(drawn.place, drawn.detail, state));
  for (const figure of byId("detail").querySelectorAll("svg.time")) timeline(figure);
}

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
