// Finds elements by id, and creates elements with their contents. Texts never become markup.

export function byId(id) {
  return document.getElementById(id);
}

/** Creates an element with these properties; `role`, `for` and names with a hyphen are set as attributes. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role" || name === "for") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

/** Shows a text in an element, and hides the element if the text is empty. */
export function showText(element, text) {
  element.textContent = text;
  element.hidden = !text;
}

/** Fills a description list with rows: name, value, and optionally a title and a class. */
export function describe(list, rows) {
  list.replaceChildren(
    ...rows.map(([name, value, title = "", className = ""]) =>
      make("div", { title, className }, make("dt", {}, name), make("dd", {}, value)),
    ),
  );
}

/** Returns the values of the named fields inside an element, without empty numbers. */
export function fieldValues(container) {
  const values = {};
  for (const field of container.querySelectorAll("[name]")) {
    if (field.type !== "number") values[field.name] = field.value;
    else if (field.value !== "") values[field.name] = Number(field.value);
  }
  return values;
}

/** Creates an element of SVG with these attributes. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Sets the named fields inside an element. Fields without a value become empty, or get their default. */
export function setFieldValues(container, values) {
  for (const field of container.querySelectorAll("[name]")) {
    field.value = values[field.name] ?? (field.type === "number" ? field.defaultValue : field.value);
  }
}
