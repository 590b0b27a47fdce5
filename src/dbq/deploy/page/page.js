// The page around a network. Everything that a file says is shown as text, never as HTML.

const element = (id) => document.getElementById(id);
const TOP = 5;
const DRAWN_UP_TO = 64; // pixels: small inputs can be drawn, if they are grey or the page was told so
const INK = 22; // width of the pen, in pixels of the pad
const MARGIN = 0.12; // around what was drawn, of its size

const decoded = (id) => Uint8Array.from(atob(element(id).textContent.trim()), (c) => c.charCodeAt(0));
const page = { net: null, labels: JSON.parse(element("labels").textContent), camera: null, busy: false };
globalThis.dbqPage = page; // for tests, and for whoever opens the console

function say(problem) {
  element("message").textContent = problem;
  element("message").hidden = !problem;
}

async function attempt(work) {
  try {
    say("");
    await work();
  } catch (error) {
    say(error instanceof DbqError ? error.message : `This did not work: ${error.message}`);
  }
}

function short(number) {
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]])
    if (number >= size) return `${(number / size).toPrecision(3)} ${unit}`;
  return `${number} `;
}

async function open(bytes) {
  page.wasm ??= await WebAssembly.compile(decoded("engine"));
  page.net = null;
  const net = await load(bytes, { wasm: page.wasm });
  if (page.labels && page.labels.length === net.outputs[0].shape[0]) net.facts.classes = page.labels;
  page.net = net;
  const { height, width, channels } = net.input;
  document.title = element("name").textContent = net.name || "A dbq network";
  element("about").textContent =
    `${short(net.bytes)}B file; images of ${width} x ${height}, ${channels === 1 ? "grey" : "colour"}; ` +
    `${net.outputSize} numbers out; runs here, with the ${net.isa} kernels of libdbq ${net.version}.`;
  const strokes = channels === 1 || document.body.dataset.draw === "always";
  const drawn = strokes && width <= DRAWN_UP_TO && height <= DRAWN_UP_TO;
  for (const id of ["pad", "clear", "inverted"]) element(id).hidden = !drawn;
  element("hint").textContent = drawn ? "Draw above, or drop or paste an image." : "Drop or paste an image here.";
  if (drawn) clear();
  showLayers(null);
}

function showLayers(times) {
  const rows = page.net.layers().map((layer, i) => {
    const row = document.createElement("tr");
    const size = `${layer.channels} x ${layer.height} x ${layer.width} ${layer.type}`;
    const time = times ? times[i].toFixed(0) : "";
    [layer.name, layer.precision, layer.kernel || "(nothing runs)", size, layer.macs ? layer.macs.toLocaleString("en") : "", time]
      .forEach((text, column) => {
        const cell = document.createElement("td");
        cell.textContent = text;
        if (column > 3) cell.className = "number";
        row.append(cell);
      });
    return row;
  });
  element("layers").replaceChildren(...rows);
}

// Runs the network on pixels and shows what it says, and what it saw.
function show(pixels, quick = false) {
  const { net } = page, start = performance.now(), logits = net.run(pixels);
  let taken = performance.now() - start;
  if (!quick) for (let i = 0; i < 4; ++i) { // the first run also warms up
    const again = performance.now();
    net.run(pixels);
    taken = Math.min(taken, performance.now() - again);
  }
  page.pixels = pixels;
  page.logits = logits;
  showPixels(pixels);
  const best = net.best(logits, TOP).map(({ name, probability }) => {
    const item = document.createElement("li"), bar = document.createElement("span");
    const what = document.createElement("span"), share = document.createElement("span");
    bar.className = "bar";
    bar.style.width = `${100 * probability}%`;
    what.className = "what";
    what.textContent = name;
    share.textContent = `${(100 * probability).toFixed(1)} %`;
    item.append(bar, what, share);
    return item;
  });
  element("classes").replaceChildren(...best);
  // The clock of browsers has steps of 0.1 ms.
  const time = taken < 0.1 ? "less than 0.1" : taken.toFixed(taken < 10 ? 1 : 0);
  element("time").textContent = `${time} ms for an image, one thread`;
  if (!quick) showLayers(net.profile(pixels));
}

function showPixels(pixels) {
  const { height, width, channels } = page.net.input, canvas = element("shown");
  const seen = new ImageData(width, height);
  for (let i = 0; i < width * height; ++i)
    for (let c = 0; c < 4; ++c) seen.data[4 * i + c] = c === 3 ? 255 : pixels[channels * i + (channels === 1 ? 0 : c)];
  canvas.width = width;
  canvas.height = height;
  canvas.getContext("2d").putImageData(seen, 0, 0);
  canvas.hidden = false;
}

async function showImage(image) {
  const pixels = await page.net.pixelsOf(image);
  if (!element("inverted").hidden && element("invert").checked) for (let i = 0; i < pixels.length; ++i) pixels[i] = 255 - pixels[i];
  show(pixels);
}

async function take(file) {
  if (/\.dbq$/i.test(file.name)) return open(new Uint8Array(await file.arrayBuffer()));
  if (!page.net) throw new DbqError("there is no network: drop a .dbq file");
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new DbqError(`${file.name || "what was pasted"} is not an image that this browser can read`);
  }
  await showImage(bitmap);
  bitmap.close();
}

// ---- Drop, choose, paste

const drop = element("drop");
addEventListener("dragover", (event) => {
  event.preventDefault();
  drop.classList.add("over");
});
addEventListener("dragleave", () => drop.classList.remove("over"));
addEventListener("drop", (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  const [file] = event.dataTransfer.files;
  attempt(() => (file ? take(file) : Promise.reject(new DbqError("drop an image file; links are not followed"))));
});
element("file").addEventListener("change", () => {
  const [file] = element("file").files;
  if (file) attempt(() => take(file));
  element("file").value = "";
});
addEventListener("paste", (event) => {
  const [file] = event.clipboardData.files;
  attempt(() => (file ? take(file) : Promise.reject(new DbqError("what was pasted is not an image"))));
});

// ---- Camera

async function stopCamera() {
  page.camera?.getTracks().forEach((track) => track.stop());
  page.camera = null;
  element("video").hidden = true;
  element("camera").textContent = "Use the camera";
}

async function startCamera() {
  try {
    page.camera = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  } catch (error) {
    throw new DbqError(`no camera: ${error.message}`);
  }
  const video = element("video");
  video.srcObject = page.camera;
  video.hidden = false;
  element("camera").textContent = "Stop the camera";
  await video.play();
  const look = async () => {
    if (!page.camera) return;
    if (video.videoWidth) show(await page.net.pixelsOf(video), true);
    setTimeout(() => attempt(look), 100);
  };
  await look();
}
element("camera").addEventListener("click", () => attempt(page.camera ? stopCamera : startCamera));

// ---- Draw

const pad = element("pad"), pen = pad.getContext("2d", { willReadFrequently: true });

function clear() {
  pen.fillStyle = "black";
  pen.fillRect(0, 0, pad.width, pad.height);
  element("classes").replaceChildren();
  element("shown").hidden = true;
}

function at(event) {
  const box = pad.getBoundingClientRect();
  return [((event.clientX - box.left) / box.width) * pad.width, ((event.clientY - box.top) / box.height) * pad.height];
}

function stroke(from, to) {
  pen.strokeStyle = "white";
  pen.lineWidth = INK;
  pen.lineCap = pen.lineJoin = "round";
  pen.beginPath();
  pen.moveTo(...from);
  pen.lineTo(...to);
  pen.stroke();
}

// What was drawn fills the network's image, as the digits that such networks learn do.
async function readDrawing() {
  const { data } = pen.getImageData(0, 0, pad.width, pad.height);
  let left = pad.width, right = -1, top = pad.height, bottom = -1;
  for (let y = 0; y < pad.height; ++y)
    for (let x = 0; x < pad.width; ++x)
      if (data[4 * (y * pad.width + x)] > 127) (left = Math.min(left, x)), (right = Math.max(right, x)), (top = Math.min(top, y)), (bottom = Math.max(bottom, y));
  if (right < 0) return;
  const size = Math.round(Math.max(right - left, bottom - top, INK) * (1 + 2 * MARGIN));
  const square = new OffscreenCanvas(size, size), context = square.getContext("2d");
  context.fillStyle = "black";
  context.fillRect(0, 0, size, size);
  context.drawImage(pad, Math.round((size - right - left) / 2), Math.round((size - bottom - top) / 2));
  show(await page.net.pixelsOf(await createImageBitmap(square)));
}

let last = null;
pad.addEventListener("pointerdown", (event) => {
  pad.setPointerCapture(event.pointerId);
  last = at(event);
  stroke(last, last);
});
pad.addEventListener("pointermove", (event) => {
  if (!last) return;
  stroke(last, at(event));
  last = at(event);
});
pad.addEventListener("pointerup", () => {
  last = null;
  attempt(readDrawing);
});
element("clear").addEventListener("click", clear);

page.ready = attempt(() => open(decoded("network")));
