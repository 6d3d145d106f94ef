// Collects errors of a page. Runs before the page's own scripts.
window.found = [];
addEventListener("error", event => window.found.push(event.message || "a resource does not load"), true);
addEventListener("unhandledrejection", event => window.found.push(String(event.reason)));
console.error = (...text) => window.found.push(text.join(" "));
