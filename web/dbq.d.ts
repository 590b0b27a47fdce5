export class DbqError extends Error {}

export type Source = ArrayBuffer | ArrayBufferView | URL | string;

export interface Layer {
  name: string;
  kind: string;
  /** Of the weights, such as "2T" or "8b"; "" without weights. */
  precision: string;
  /** Such as "ternary-table wasm"; "" where nothing runs. */
  kernel: string;
  type: "u8" | "i8" | "i32" | "f32";
  channels: number;
  height: number;
  width: number;
  weightBytes: number;
  macs: number;
}

export interface Class {
  index: number;
  name: string;
  logit: number;
  probability: number;
}

/** What an OffscreenCanvas has: TypeScript before 5.0 does not know it by name. */
export interface Offscreen {
  readonly width: number;
  readonly height: number;
  transferToImageBitmap(): ImageBitmap;
}

export type Image = ImageBitmap | HTMLImageElement | HTMLVideoElement | HTMLCanvasElement | Offscreen | ImageData;

export class Network {
  private constructor();
  readonly name: string;
  readonly input: { height: number; width: number; channels: number };
  /** Shapes are [channels, height, width]. */
  readonly outputs: { name: string; shape: [number, number, number] }[];
  /** Floats of all outputs. */
  readonly outputSize: number;
  /** What the file says about the network: classes, and more. */
  readonly facts: Record<string, unknown>;
  readonly isa: string;
  readonly version: string;
  /** Of the file. */
  readonly bytes: number;
  readonly peakMemory: number;
  /** The logits of one image, uint8 [height][width][channels]: all outputs, one behind the other. */
  run(pixels: Uint8Array | Uint8ClampedArray): Float32Array;
  /** The microseconds of each layer, on one image. */
  profile(pixels: Uint8Array | Uint8ClampedArray): Float64Array;
  layers(): Layer[];
  /** The best classes of an image, best first. */
  classify(image: Image, top?: number): Promise<Class[]>;
  /** The same for logits. */
  best(logits: Float32Array, top?: number): Class[];
  /** An image as the bytes that `run` takes: scaled to cover the network's input, cropped at the centre. */
  pixelsOf(image: Image): Promise<Uint8Array>;
}

/**
 * A network from the bytes of a .dbq file, or from its address.
 * @param options.wasm dbq.wasm, where it is not beside this module: its bytes, address or compiled module.
 * @param options.relaxed false: without relaxed dot products, which are used where the browser has them.
 */
export function load(
  source: Source,
  options?: { wasm?: Source | WebAssembly.Module; relaxed?: boolean },
): Promise<Network>;
