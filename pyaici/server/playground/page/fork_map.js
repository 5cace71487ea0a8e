// A map of many forks: a line for each, from the step in which it began to that of its end, below its parent's line.

import { svg } from "./dom.js";

const [WIDTH, ROW, LEFT] = [1000, 14, 34];
/** Most forks that the map shows: a run can have hundreds. */
const MAX_FORKS = 200;

export class ForkMap {
  /** Called with the number of the fork that the user selects. */
  onpick = () => {};

  constructor() {
    this.element = svg("svg", { class: "fork-map", role: "group", "aria-label": "Map of the forks" });
    const pick = (event) => {
      const group = event.target.closest("[data-fork]");
      if (group && (event.type === "click" || event.key === "Enter" || event.key === " ")) {
        event.preventDefault();
        this.onpick(Number(group.dataset.fork));
      }
    };
    this.element.addEventListener("click", pick);
    this.element.addEventListener("keydown", pick);
  }

  /** Shows these forks, of a run that has had so many steps. `endings`: words for the reasons of their ends. */
  show(lanes, steps, endings) {
    const rows = inOrder(lanes).slice(0, MAX_FORKS);
    const place = new Map(rows.map((lane, at) => [lane.index, ROW * at + ROW / 2]));
    const x = (step) => LEFT + ((WIDTH - LEFT - 8) * Math.min(step, steps)) / Math.max(1, steps);
    this.element.setAttribute("viewBox", `0 0 ${WIDTH} ${ROW * rows.length}`);
    this.element.replaceChildren(
      ...rows.map((lane) => {
        const [y, from, to] = [place.get(lane.index), x(lane.born), Math.max(x(lane.lived), x(lane.born) + 4)];
        const above = place.get(lane.parent);
        const ending = lane.finish ? endings[lane.finish] : "writes";
        const parent = lane.parent === null ? "" : `, from fork ${lane.parent}`;
        const words = `Fork ${lane.index}${parent}, ${lane.made} tokens: ${ending}`;
        return svg(
          "g", { role: "button", tabindex: 0, "data-fork": lane.index, "data-state": lane.finish || "writes", "aria-label": words },
          svg("title", {}, words),
          svg("rect", { class: "row-ground", x: 0, y: y - ROW / 2, width: WIDTH, height: ROW }),
          svg("text", { x: LEFT - 8, y: y + 4, "text-anchor": "end" }, String(lane.index)),
          ...(above === undefined ? [] : [svg("path", { d: `M${from} ${above}V${y}` })]),
          svg("path", { class: "life", d: `M${from} ${y}H${to}` }),
          svg("circle", { cx: to, cy: y, r: 3.5 }),
        );
      }),
    );
  }
}

/** Returns forks in the order of the tree: each one before its children, and these by their numbers. */
function inOrder(lanes) {
  const children = Map.groupBy(lanes, (lane) => lane.parent);
  const found = [];
  const left = [...(children.get(null) ?? [])].reverse();
  while (left.length > 0) {
    const lane = left.pop();
    found.push(lane);
    left.push(...[...(children.get(lane.index) ?? [])].reverse());
  }
  return found;
}
