// A chart is one tab stop: arrows go from point to point, and the caption says what is pointed at or focused.
function pointable(figure) {
  const points = [...figure.querySelectorAll(".point")];
  const said = make("span", { class: "told" });
  figure.querySelector("figcaption").append(said);

  function tell(event) {
    const point = event.target.closest(".point");
    if (point) said.textContent = point.getAttribute("aria-label");
  }

  figure.addEventListener("focusin", tell);
  figure.addEventListener("pointerover", tell);
  figure.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const at = points.indexOf(document.activeElement);
    if (!step || at < 0) return;
    const next = points[(at + step + points.length) % points.length];
    points[at].setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
    event.preventDefault();
  });
}
