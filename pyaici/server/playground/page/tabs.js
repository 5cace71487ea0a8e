// Tabs: one panel is shown; arrow keys switch, and the address stores the selected tab.

export class Tabs {
  /** Called with the name of the selected tab. */
  onchange = () => {};

  constructor(...buttons) {
    this._buttons = buttons;
    for (const button of buttons) {
      button.addEventListener("click", () => this._show(button));
      button.addEventListener("keydown", (event) => this._move(event));
    }
    const wanted = buttons.find((button) => nameOf(button) === location.hash.slice(1).split("?")[0]);
    if (wanted) queueMicrotask(() => this._show(wanted));
  }

  _move(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const count = this._buttons.length;
    const next = this._buttons[(this._buttons.indexOf(event.currentTarget) + step + count) % count];
    next.focus();
    this._show(next);
  }

  _show(shown) {
    for (const button of this._buttons) {
      const selected = button === shown;
      button.setAttribute("aria-selected", selected);
      button.tabIndex = selected ? 0 : -1;
      document.getElementById(button.getAttribute("aria-controls")).hidden = !selected;
    }
    history.replaceState(null, "", `#${nameOf(shown)}`);
    this.onchange(nameOf(shown));
  }
}

function nameOf(button) {
  return button.id.replace("tab-", "");
}
