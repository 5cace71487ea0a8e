// Elements: found by id, made with their contents. Texts are always texts, never markup.

export function byId(id) {
  return document.getElementById(id);
}

/** A new element; `properties` are its own (className, hidden, ...), or attributes if they have a hyphen or are a role. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role" || name === "for") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

/** Shows a text in an element that is hidden while there is none. */
export function say(element, text) {
  element.textContent = text;
  element.hidden = !text;
}

/** Rows of a description list: name, value, and if need be a hint and a class. */
export function describe(list, rows) {
  list.replaceChildren(
    ...rows.map(([name, value, title = "", className = ""]) =>
      make("div", { title, className }, make("dt", {}, name), make("dd", {}, value)),
    ),
  );
}

/** The values of the named fields inside an element; empty numbers are left out. */
export function fieldValues(container) {
  const values = {};
  for (const field of container.querySelectorAll("[name]")) {
    if (field.type !== "number") values[field.name] = field.value;
    else if (field.value !== "") values[field.name] = Number(field.value);
  }
  return values;
}
