// Selections of one question, each in its lane, over one time axis.
const LABELS = 14; // a row of text over each lane, so that no text stands on a mark
const MARK_ROW = 12; // and one for the diamonds of the evidence
const AXIS = 18;

// Radii tell arms apart only where they are smaller than the differences of the means.
function tellsApart(clips) {
  const known = clips.filter((clip) => clip[2] !== null && clip[3] !== null);
  if (known.length < 2) return false;
  const means = known.map((clip) => clip[2]);
  const radii = known.map((clip) => clip[3]).sort((a, b) => a - b);
  return 2 * radii[Math.floor(radii.length / 2)] < Math.max(...means) - Math.min(...means);
}

function timeline(figure) {
  const { lanes, detail } = figure.data;
  const width = Math.max(240, figure.clientWidth || 600);
  const last = Math.max(...lanes.map((lane) => lane.data.times.at(-1) || 0));
  const length = Math.max(detail.seconds, last, 0.001);
  const x = (seconds) => 6 + (seconds / length) * (width - 12);
  const parts = [figure.querySelector("title")];
  let top = 0;
  for (const lane of lanes) {
    parts.push(drawLane(lane, { top, width, x, evidence: detail.evidence }));
    top += laneHeight(lane);
  }
  for (const share of width < 420 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]) {
    const anchor = share === 0 ? "start" : share === 1 ? "end" : "middle";
    parts.push(svg("text", { class: "tick", x: x(share * length), y: top + AXIS - 5, "text-anchor": anchor }, clock(share * length)));
  }
  figure.setAttribute("viewBox", `0 0 ${width} ${top + AXIS}`);
  figure.setAttribute("height", top + AXIS);
  figure.replaceChildren(...parts);
}

function plotHeight(data) {
  return data.pulled[0].length || data.clips.length ? 60 : 8;
}

function laneHeight({ data }) {
  return LABELS + MARK_ROW + plotHeight(data) + 18;
}

function drawLane({ series, data }, { top, width, x, evidence }) {
  const group = svg("g", { class: series.css });
  const [ceiling, floor] = [top + LABELS + MARK_ROW, top + LABELS + MARK_ROW + plotHeight(data)];
  const [times, values] = data.pulled;
  const means = data.clips.map((clip) => clip[2]).filter((mean) => mean !== null);
  const most = Math.max(0.05, ...values, ...means);
  const y = (value) => floor - (Math.min(most, Math.max(0, value)) / most) * (floor - ceiling);
  group.append(svg("text", { class: "tick lane", x: 6, y: top + 11 }, series.name));
  if (times.length) group.append(svg("text", { class: "tick", x: width - 6, y: top + 11, "text-anchor": "end" }, `relevance up to ${most.toFixed(2)}`));
  const banded = tellsApart(data.clips);
  for (const [start, stop, mean, radius, final] of data.clips) {
    if (mean === null) continue;
    const kind = final ? " final" : "";
    const [left, right] = [x(start), x(stop)];
    if (banded && radius !== null) {
      const upper = y(mean + radius);
      group.append(svg("rect", { class: `clip${kind}`, x: left, y: upper, width: Math.max(0.5, right - left), height: Math.max(0, y(mean - radius) - upper) }));
    }
    group.append(svg("line", { class: `mean${kind}`, x1: left, x2: right, y1: y(mean), y2: y(mean) }));
  }
  const path = times.map((time, i) => `M${x(time).toFixed(1)} ${floor}V${y(values[i]).toFixed(1)}`).join("");
  if (path) group.append(svg("path", { class: "pull", d: path }));
  group.append(svg("line", { class: "base", x1: 6, x2: width - 6, y1: floor, y2: floor }));
  for (const time of evidence) {
    const at = x(time);
    group.append(svg("line", { class: "evidence", x1: at, x2: at, y1: top + LABELS + 8, y2: floor + 14 }));
    group.append(svg("path", { class: "diamond", d: `M${at} ${top + LABELS}l4.5 5l-4.5 5l-4.5 -5z` }));
  }
  for (const time of data.times) group.append(svg("path", { class: "key", d: `M${x(time)} ${floor + 3}l4.5 9h-9z` }));
  return group;
}
