// libdbq in WebAssembly: reads a .dbq file and runs it. No dependency; for pages, workers and Node.
//
//     import { load } from "dbq-web";
//     const net = await load("net.dbq");
//     const logits = net.run(pixels);            // Uint8Array [height][width][channels]
//     const best = await net.classify(bitmap);   // ImageBitmap, canvas, <img>, <video>, ImageData
//
// Every network has a WebAssembly instance of its own. Nothing inside can throw: a call that fails leaves it to
// the host, and the instance is not used again.

const BAD_FILE = 2; // dbq_status of native/dbq.h
const MOST_PIXELS = 2 ** 27; // of an image: more than the 108 million of a telephone's camera
const NOT_SUPPORTED = 52; // WASI's ENOSYS
const DOT = 2; // native/wasm/relaxed.h

/** What was found, what was expected and what to do, in one line. */
export class DbqError extends Error {
  constructor(message) {
    super(message);
    this.name = "DbqError";
  }
}

/**
 * A network from the bytes of a .dbq file, or from its address. `wasm`: dbq.wasm, where it is not beside this file.
 * `relaxed: false` does without relaxed dot products; logits are the same, bit for bit.
 */
export async function load(source, { wasm, relaxed = true } = {}) {
  const [module, bytes] = await Promise.all([engine(wasm), bytesOf(source)]);
  return new Network(new Engine(module, relaxed ? await loopsOf(module) : null), bytes);
}

let standard; // dbq.wasm beside this file, compiled once

async function engine(wasm) {
  if (wasm instanceof WebAssembly.Module) return wasm;
  if (wasm !== undefined) return WebAssembly.compile(await bytesOf(wasm));
  standard ??= bytesOf(new URL("dbq.wasm", import.meta.url)).then((bytes) => WebAssembly.compile(bytes));
  return standard;
}

// The loops of relaxed dot products, a section of dbq.wasm, where this browser has such instructions.
async function loopsOf(module) {
  const [section] = WebAssembly.Module.customSections(module, "dbq.relaxed");
  return section && WebAssembly.validate(section) ? WebAssembly.compile(section) : null;
}

async function bytesOf(source) {
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  if (source instanceof URL && source.protocol === "file:" && globalThis.process?.versions?.node)
    return new Uint8Array(await (await import("node:fs/promises")).readFile(source));
  if (typeof source !== "string" && !(source instanceof URL))
    throw new DbqError("load takes the bytes of a .dbq file, or its address");
  const response = await fetch(source);
  if (!response.ok) throw new DbqError(`${source}: the server says ${response.status}; give the address of a .dbq file`);
  return new Uint8Array(await response.arrayBuffer());
}

// One instance of dbq.wasm, and what crosses its border.
class Engine {
  constructor(module, loops) {
    const wasi = {
      clock_time_get: (_clock, _precision, to) => this.writeClock(to),
      environ_sizes_get: (count, bytes) => this.writeZeros(count, bytes),
      environ_get: () => 0,
    };
    // The engine opens no files: all else that it could ask a system for is not there.
    const others = WebAssembly.Module.imports(module).filter((found) => found.module === "wasi_snapshot_preview1");
    for (const { name } of others) wasi[name] ??= () => NOT_SUPPORTED;
    const dbq = { failed: (status, text) => this.fail(status, this.text(text)) };
    this.exports = new WebAssembly.Instance(module, { wasi_snapshot_preview1: wasi, dbq }).exports;
    this.exports._initialize();
    this.failure = null;
    if (loops) this.link(new WebAssembly.Instance(loops, { env: { memory: this.exports.memory } }).exports);
  }

  // Which of the loops is fast depends on what the processor does with weights that these loops never have.
  link({ dbq_relaxed_kind: kindOf, dbq_relaxed_words: words, dbq_relaxed_dot: dot }) {
    const kind = kindOf(-1, 127, -128), table = this.exports.__indirect_function_table;
    if (kind) this.exports.dbq_use_relaxed(kind, table.grow(1, kind === DOT ? dot : words));
  }

  fail(status, text) {
    this.failure = new DbqError(text + (status === BAD_FILE ? "; the file is damaged: copy or export it again" : ""));
    throw this.failure;
  }

  // Views are made again for every use: memory that grows is another buffer.
  view() {
    return new DataView(this.exports.memory.buffer);
  }

  writeClock(to) {
    this.view().setBigUint64(to, BigInt(Math.round(performance.now() * 1e6)), true);
    return 0;
  }

  writeZeros(...places) {
    for (const at of places) this.view().setUint32(at, 0, true);
    return 0;
  }

  text(at) {
    const bytes = new Uint8Array(this.exports.memory.buffer, at);
    return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
  }

  call(name, ...values) {
    if (this.failure) throw this.failure;
    try {
      return this.exports[name](...values);
    } catch (error) {
      this.failure = error instanceof DbqError ? error : new DbqError(`not enough memory for this network (${error.message})`);
      throw this.failure;
    }
  }

  allocate(bytes) {
    const at = this.call("malloc", bytes) >>> 0;
    if (!at) throw (this.failure = new DbqError(`not enough memory: ${bytes} bytes are not to be had`));
    return at;
  }

  copy(bytes, at = this.allocate(bytes.length)) {
    new Uint8Array(this.exports.memory.buffer, at, bytes.length).set(bytes);
    return at;
  }
}

/** A loaded network; `load` makes them. */
export class Network {
  #engine;
  #net;
  #pixels; // in the memory of the engine
  #logits;

  constructor(engine, bytes) {
    this.#engine = engine;
    const file = engine.copy(bytes);
    this.#net = engine.call("dbq_load_memory", file, bytes.length);
    engine.call("free", file);
    const three = engine.allocate(12);
    const numbers = () => [0, 4, 8].map((offset) => engine.view().getInt32(three + offset, true));
    engine.call("dbq_input_shape", this.#net, three, three + 4, three + 8);
    const [height, width, channels] = numbers();
    this.input = { height, width, channels };
    this.outputs = [];
    for (let i = 0; i < engine.call("dbq_outputs", this.#net); ++i) {
      engine.call("dbq_output_shape", this.#net, i, three);
      const name = engine.text(engine.call("dbq_output_name", this.#net, i));
      this.outputs.push({ name, shape: numbers() });
    }
    engine.call("free", three);
    this.outputSize = engine.call("dbq_output_size", this.#net);
    this.name = engine.text(engine.call("dbq_name", this.#net));
    this.facts = JSON.parse(engine.text(engine.call("dbq_metadata", this.#net)));
    this.isa = engine.text(engine.call("dbq_isa", this.#net));
    this.version = engine.text(engine.call("dbq_version"));
    this.peakMemory = engine.call("dbq_peak_memory", this.#net);
    this.bytes = bytes.length;
    this.#pixels = engine.allocate(height * width * channels);
    this.#logits = engine.allocate(4 * this.outputSize);
  }

  #give(pixels) {
    const { height, width, channels } = this.input;
    const isBytes = pixels instanceof Uint8Array || pixels instanceof Uint8ClampedArray;
    if (!isBytes || pixels.length !== height * width * channels) {
      const found = isBytes ? `${pixels.length} bytes` : Object.prototype.toString.call(pixels);
      throw new DbqError(`${found}; expected a Uint8Array of ${height} x ${width} x ${channels} bytes`);
    }
    this.#engine.copy(pixels, this.#pixels);
  }

  /** The logits of one image, uint8 [height][width][channels]: all outputs, one behind the other. */
  run(pixels) {
    this.#give(pixels);
    this.#engine.call("dbq_run", this.#net, this.#pixels, 1, this.#logits);
    return new Float32Array(this.#engine.exports.memory.buffer, this.#logits, this.outputSize).slice();
  }

  /** The microseconds of each layer, on one image. */
  profile(pixels) {
    this.#give(pixels);
    const count = this.#engine.call("dbq_layers", this.#net), times = this.#engine.allocate(8 * count);
    this.#engine.call("dbq_profile", this.#net, this.#pixels, times);
    const found = new Float64Array(this.#engine.exports.memory.buffer, times, count).slice();
    this.#engine.call("free", times);
    return found;
  }

  /** What runs: the layers of the file, and the kernel that each got. */
  layers() {
    const engine = this.#engine, layer = engine.allocate(48), found = [];
    for (let i = 0; i < engine.call("dbq_layers", this.#net); ++i) {
      engine.call("dbq_layer_info", this.#net, i, layer);
      const view = engine.view();
      const text = (index) => engine.text(view.getUint32(layer + 4 * index, true));
      const number = (index) => view.getInt32(layer + 4 * index, true);
      found.push({
        name: text(0), kind: text(1), precision: text(2), kernel: text(3), type: text(4),
        channels: number(5), height: number(6), width: number(7), weightBytes: number(8),
        macs: Number(view.getBigUint64(layer + 40, true)),
      });
    }
    engine.call("free", layer);
    return found;
  }

  /** The best classes of an image, best first, as [{index, name, logit, probability}]. */
  async classify(image, top = 5) {
    return this.best(this.run(await this.pixelsOf(image)), top);
  }

  best(logits, top = 5) {
    const [classes, height, width] = this.outputs[0].shape;
    if (this.outputs.length !== 1 || height * width !== 1)
      throw new DbqError(`${this.name} gives ${this.outputs.length} outputs, the first of ${classes} x ${height} x ${width}, not one for classes`);
    const names = Array.isArray(this.facts.classes) && this.facts.classes.length === classes ? this.facts.classes : null;
    const largest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
    const shares = Array.from(logits, (logit) => Math.exp(logit - largest));
    const sum = shares.reduce((a, b) => a + b, 0);
    return Array.from(logits, (logit, index) => ({
      index, name: names ? String(names[index]) : String(index), logit, probability: shares[index] / sum,
    })).sort((a, b) => b.logit - a.logit || a.index - b.index).slice(0, top);
  }

  /** An image as the bytes that `run` takes: scaled to cover the network's input, and cropped at the centre. */
  async pixelsOf(image) {
    const { height, width, channels } = this.input;
    if (channels !== 1 && channels !== 3) throw new DbqError(`the network reads ${channels} channels; images have 1 or 3`);
    const wide = image.videoWidth || image.naturalWidth || image.width, high = image.videoHeight || image.naturalHeight || image.height;
    if (!(wide > 0 && high > 0)) throw new DbqError("the image has no pixels");
    if (wide * high > MOST_PIXELS) throw new DbqError(`an image of ${wide} x ${high} pixels; at most ${MOST_PIXELS} fit`);
    const scale = Math.max(width / wide, height / high);
    const w = Math.min(wide, width / scale), h = Math.min(high, height / scale);
    const canvas = new OffscreenCanvas(width, height);
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.fillStyle = "white"; // transparent images are laid on white, as viewers show them
    context.fillRect(0, 0, width, height);
    if (wide === width && high === height) {
      context.drawImage(image instanceof ImageData ? await createImageBitmap(image) : image, 0, 0);
    } else {
      const size = { resizeWidth: width, resizeHeight: height, resizeQuality: "high" };
      const part = await createImageBitmap(image, Math.round((wide - w) / 2), Math.round((high - h) / 2),
        Math.max(1, Math.round(w)), Math.max(1, Math.round(h)), size);
      context.drawImage(part, 0, 0);
      part.close();
    }
    const rgba = context.getImageData(0, 0, width, height).data;
    const pixels = new Uint8Array(width * height * channels);
    for (let from = 0, to = 0; from < rgba.length; from += 4) {
      const [r, g, b] = [rgba[from], rgba[from + 1], rgba[from + 2]];
      // Grey as Pillow has it.
      if (channels === 1) pixels[to++] = (r * 19595 + g * 38470 + b * 7471 + 32768) >> 16;
      else (pixels[to++] = r), (pixels[to++] = g), (pixels[to++] = b);
    }
    return pixels;
  }
}
