// The forks of a run as a tree: children are below their parent.

import { make } from "./dom.js";
import { ForkMap } from "./fork_map.js";
import { ENDINGS, LaneView } from "./lane_view.js";
import { TokenDetails } from "./token_details.js";

/** With more forks than this, there is a map, and only the longest-lived ones are shown in full, the others on one
 *  line each. */
const SHOWN_IN_FULL = 4;

export class ForkTree {
  constructor(container, detailsPanel) {
    this._container = container;
    this._details = new TokenDetails(detailsPanel);
    this._map = new ForkMap();
    this._map.onpick = (fork) => this._views.get(fork)?.reveal();
    this.clear();
  }

  clear() {
    this._views = new Map();
    this._root = make("ul", { className: "tree", "aria-label": "Forks" });
    this._container.replaceChildren();
    this._details.clear();
  }

  /** Shows the changes of these lanes. `steps`: number of steps of the run so far. */
  update(lanes, { vocabulary, steps }) {
    if (lanes.length > 0 && !this._root.isConnected) this._container.append(this._root);
    for (const lane of lanes) {
      let view = this._views.get(lane.index);
      if (!view) {
        view = new LaneView(lane, vocabulary);
        view.onpick = (piece) => this._details.show(piece, vocabulary);
        this._views.set(lane.index, view);
        (this._views.get(lane.parent)?.children ?? this._root).append(view.element);
      }
      view.update();
    }
    if (this._views.size > SHOWN_IN_FULL) this._fold(steps);
  }

  /** Folds all forks but those that lived longest; folds all if these are too many. */
  _fold(steps) {
    this._root.classList.add("many");
    const lanes = [...this._views.values()].map((view) => view.lane);
    if (!this._map.element.isConnected) this._container.prepend(this._map.element);
    this._map.show(lanes, steps, ENDINGS);
    const last = Math.max(...lanes.map((lane) => lane.lived));
    const few = lanes.filter((lane) => lane.lived === last).length <= SHOWN_IN_FULL;
    for (const view of this._views.values()) view.fold.suggest(!few || view.lane.lived < last);
  }
}
