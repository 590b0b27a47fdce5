// The npm package in Node: node run_network.mjs DBQ.js DBQ.wasm NET.dbq IMAGE.bytes writes the logits' bytes, or
// the error's message, to stdout.
import { readFile, writeFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const [library, wasm, network, image] = process.argv.slice(2);
const { load } = await import(pathToFileURL(library));
try {
  const net = await load(await readFile(network), { wasm: await readFile(wasm) });
  const pixels = new Uint8Array(await readFile(image));
  const size = net.input.height * net.input.width * net.input.channels;
  for (let at = 0; at < pixels.length; at += size)
    process.stdout.write(Buffer.from(net.run(pixels.subarray(at, at + size)).buffer));
} catch (error) {
  process.stdout.write(`${error.name}: ${error.message}`);
}
