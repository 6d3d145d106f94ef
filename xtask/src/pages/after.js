// Describes a rendered page: errors, number of table rows, number of drawing marks.
addEventListener("load", () => setTimeout(() => {
  const describe = node => {
    const section = node.closest("section"), heading = section && section.querySelector("h2");
    return node.id || (heading ? heading.textContent : node.tagName.toLowerCase());
  };
  // Only data is coloured; text, rules and empty rows are grey.
  const coloured = canvas => {
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    let count = 0;
    for (let at = 0; at < pixels.length; at += 4) {
      const [red, green, blue] = pixels.subarray(at, at + 3);
      if (pixels[at + 3] > 0 && Math.max(red, green, blue) - Math.min(red, green, blue) > 60) count += 1;
    }
    return Math.floor(count / 100);
  };
  const tables = [...document.querySelectorAll("table")].map(node => [describe(node), node.querySelectorAll("tbody tr").length]);
  const drawings = [...document.querySelectorAll("svg")].map(node => [describe(node), node.querySelectorAll("circle, path, polyline, rect").length]);
  const canvases = [...document.querySelectorAll("canvas")].map(node => [describe(node), coloured(node)]);
  const node = document.createElement("pre");
  node.id = "found";
  node.hidden = true;
  node.textContent = JSON.stringify({ errors: window.found, parts: [...tables, ...drawings, ...canvases], height: document.documentElement.scrollHeight });
  document.documentElement.append(node);
}, 500));
