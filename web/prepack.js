// Puts dbq.wasm, which `cmake --preset wasm && cmake --build --preset wasm` makes, into the package.
import { copyFileSync, existsSync } from "node:fs";

const built = new URL("../build/wasm/dbq.wasm", import.meta.url);
if (!existsSync(built)) {
  console.error("build/wasm/dbq.wasm is missing: cmake --preset wasm && cmake --build --preset wasm");
  process.exit(1);
}
copyFileSync(built, new URL("dbq.wasm", import.meta.url));
