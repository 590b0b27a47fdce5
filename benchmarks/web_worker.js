// A network in a worker: takes it and an image first, then a time to run for; answers images a second.
import { load } from "/web/dbq.js";

let net, pixels;
onmessage = async ({ data: { file, bytes, budget } }) => {
  if (file) {
    net = await load(file, { wasm: new URL("/wasm/dbq.wasm", location) });
    pixels = bytes;
    net.run(pixels);
    postMessage("ready");
    return;
  }
  const begin = performance.now();
  let count = 0;
  for (; performance.now() < begin + budget; ++count) net.run(pixels);
  postMessage((1000 * count) / (performance.now() - begin));
};
