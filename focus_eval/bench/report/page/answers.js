// What was right, what was given, and was the evidence in view?
const MARKS = { r: "✓", w: "✗", p: "◐", n: "–", u: "?", e: "!", "-": "·", c: "·" };
const WORDS = { r: "right", w: "wrong", p: "partly right", n: "not scored here", u: "not parsed", e: "error", "-": "not run", c: "frames chosen" };

function optionText(detail, letter) {
  const at = /^[A-Z]$/.test(letter || "") ? letter.charCodeAt(0) - 65 : -1;
  return detail.options[at] === undefined ? letter : `${letter}: ${detail.options[at]}`;
}

// "C: a cat (right) / B: a horse (given)"
function givenText(detail, data) {
  if (data.parsed === undefined || data.parsed === null) return "";
  const given = optionText(detail, data.parsed);
  if (detail.correct === null || detail.correct === undefined) return `${given} (given)`;
  if (data.parsed === detail.correct) return `${given} (given, right)`;
  return `${optionText(detail, detail.correct)} (right) / ${given} (given)`;
}

function optionList(detail, who) {
  if (!detail.options.length) return null;
  const items = detail.options.map((text, i) => {
    const letter = String.fromCharCode(65 + i);
    const item = make("li", { class: letter === detail.correct ? "r" : "" }, make("b", {}, `${letter}:`), ` ${text}`);
    if (letter === detail.correct) item.append(make("span", { class: "tag" }, "right"));
    const givers = who.filter((one) => one.parsed === letter).map((one) => one.name);
    if (givers.length) item.append(make("span", { class: "givers" }, `given by ${givers.join(", ")}`));
    return item;
  });
  return make("ul", { class: "options", "aria-label": "Options" }, ...items);
}

// The keyframe nearest to each annotated moment.
function nearestFrames(data, detail) {
  return detail.evidence.map((moment, i) => {
    const distances = data.times.map((time) => Math.abs(time - moment));
    const at = distances.indexOf(Math.min(...distances));
    return { moment, frame: data.frames[at], time: data.times[at], distance: distances[at], shows: detail.evidence_frames[i] };
  });
}

function evidenceLine(data, detail, near) {
  if (!detail.evidence.length || !data.frames.length) return null;
  const found = nearestFrames(data, detail);
  const hits = found.filter((one) => one.distance <= near);
  const best = found.reduce((a, b) => (b.distance < a.distance ? b : a));
  const at = `${clock(best.time)}, evidence at ${clock(best.moment)}`;
  const text = hits.length
    ? `◆ Evidence in view: ${hits.length} of ${found.length}; the nearest frame is ${apart(best.distance)} away (${at}).`
    : `No keyframe shows the evidence: the nearest is ${apart(best.distance)} away (${at}).`;
  const line = make("div", { class: hits.length ? "seen hit" : "seen" }, make("p", {}, text));
  const pair = [
    ["evidence", best.shows, best.moment],
    [hits.length ? "keyframe in view" : "nearest keyframe", best.frame, best.time],
  ].filter(([, frame]) => detail.pictures[frame]);
  if (pair.length) line.append(make("div", { class: "pair" }, ...pair.map(([what, frame, time]) => picture(detail, frame, time, `${what}, ${clock(time)}`))));
  return line;
}

function picture(detail, frame, time, text) {
  const source = detail.pictures[frame];
  // A linked picture waits until it is near the view; one in the page is there already.
  const image = make("img", { loading: source.startsWith("data:") ? "eager" : "lazy", src: source, alt: `frame ${frame}: ${text}` });
  const button = make("button", { type: "button", class: "enlarge", title: `frame ${frame}; click to enlarge` }, image, make("span", {}, text));
  if (index.videos !== null) button.dataset.video = `${index.videos}/${detail.video.split("/").map(encodeURIComponent).join("/")}#t=${time}`;
  button.addEventListener("click", () => enlarge(button));
  return button;
}

function frameList(data, detail, near) {
  const isNear = (time) => detail.evidence.some((moment) => Math.abs(moment - time) <= near);
  const pictured = data.frames.some((frame) => detail.pictures[frame]);
  const items = data.frames.map((frame, i) => {
    const hit = isNear(data.times[i]);
    const text = `${hit ? "◆ " : ""}${clock(data.times[i])}`;
    const content = detail.pictures[frame] ? picture(detail, frame, data.times[i], text) : make("span", {}, text);
    return make("li", { class: hit ? "hit" : "", title: hit ? `frame ${frame}, within ${near} s of the evidence` : `frame ${frame}` }, content);
  });
  return make("ul", { class: pictured ? "frames" : "frames chips", tabIndex: 0, "aria-label": "Chosen frames" }, ...items);
}

// ---- one picture, large

function enlarge(button) {
  const all = [...button.closest(".frames, .pair").querySelectorAll(".enlarge")];
  let at = all.indexOf(button);
  const image = make("img", {});
  const text = make("p", {});
  const show = (place) => {
    at = (place + all.length) % all.length;
    const source = all[at].querySelector("img");
    [image.src, image.alt] = [source.src, source.alt];
    still(`${source.alt} (${at + 1} of ${all.length})`);
  };
  const video = make("video", { controls: true, hidden: true, preload: "none" });
  video.addEventListener("error", () => still(`The video is no longer at ${index.videos}; ${text.textContent}`));
  function still(words) {
    [image.hidden, video.hidden, text.textContent] = [false, true, words];
    video.removeAttribute("src");
  }
  function play() {
    [image.hidden, video.hidden] = [true, false];
    video.src = all[at].dataset.video;
    video.play().catch(() => {}); // a video that is not there says so itself
  }
  const dialog = make("dialog", { class: "large", "aria-label": "Frame" }, image, video, text);
  const buttons = make("div", {});
  const playing = all[at].dataset.video ? [["Play from here", play]] : [];
  for (const [name, act] of [["Previous", () => show(at - 1)], ["Next", () => show(at + 1)], ...playing, ["Close", () => dialog.close()]]) {
    const one = make("button", { type: "button" }, name);
    one.addEventListener("click", act);
    buttons.append(one);
  }
  dialog.append(buttons);
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") show(at - 1);
    else if (event.key === "ArrowRight") show(at + 1);
    else if (event.key !== "Escape") return;
    event.stopPropagation();
  });
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", () => { dialog.remove(); all[at].focus(); });
  show(at);
  document.body.append(dialog);
  dialog.showModal();
  buttons.children[playing.length ? 2 : 1].focus(); // of itself the browser takes the video, which is hidden
}
