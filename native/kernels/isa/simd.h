// What the vector operations need from an instruction set: a table of functions on raw pointers.
//
// Everything that uses the standard library (packing weights, choosing tiles, cutting tasks) is compiled
// for the plain architecture; only the functions behind these pointers contain vector instructions, so a
// library with several instruction sets in it starts on every CPU.
//
// Pixels are processed in vectors of `lanes`, which is a property of the table. Functions may read and
// write up to the end of the last vector.
#pragma once

#include "kernels/op.h"

namespace dbq {

namespace table {

// The table of sums: a group of three rows a, b, c of codes has 13 sums ±a±b±c with digits in {-1, 0, 1} that
// differ by more than the sign, a group of four has 40. Sum number n = 1.. has the digits of n in balanced
// ternary, n = d_a + 3 d_b + 9 d_c + 27 d_d.
constexpr int sums_of_group(int rows) { return rows == 4 ? 40 : 13; }

// Lists of table rows are processed in pairs with equally many additions and equally many subtractions; the
// shorter list is filled up with a row of zeros. A run is pairs of equal lengths: branches predict.
struct Run {
    uint16_t adds = 0, subs = 0;
    uint32_t pairs = 0;
};

// What one block of groups contributes to all sums. The stream holds for each pair the numbers of its two
// sums, then the positions in the table (in bytes) of the rows to add and of those to subtract: four of the
// first list, four of the second, and so on; the last one to three likewise.
struct Lists {
    const Run* runs = nullptr;
    size_t count = 0;
    const uint16_t* stream = nullptr;
};

}  // namespace table

namespace dense {

constexpr int LISTS = 6;  // sums computed at a time

}  // namespace dense

namespace depthwise {

// out[i][x] = (above[i][x * stride], below[i][x * stride]) as int16, then zeros. In whole vectors.
struct PairLines {
    const uint8_t *above = nullptr, *below = nullptr;
    int pitch = 0, lines = 0, n = 0, zeros = 0;
    int stride = 1;  // or 2
    bool is_signed = false;
    int16_t* out = nullptr;
    int out_pitch = 0;  // in pairs
};

// One kernel over one channel: sums[y][x] = sum over taps t of weights[t] . pairs[y * line + taps[t] + x],
// where weights and pairs are pairs of int16: one multiply-add for two taps. With `next_weights`, two lines
// come from the same pairs: every second line has these weights, and `line` is the distance of two lines. The
// last vector of a line may spill into the next line and beyond the last one.
struct Lines {
    const int16_t *pairs = nullptr, *weights = nullptr, *next_weights = nullptr;
    const int* taps = nullptr;
    int count = 0, line = 0, height = 0, width = 0;
    int32_t* sums = nullptr;  // lines of `width`
};

// 3x3 kernels over whole planes of 8-bit codes, padded and read as flat arrays: see
// x86/avx2_depthwise_3x3.inc.
constexpr int WEIGHTS_3X3 = 11;  // int16 for each output
struct Planes3x3 {
    int stride = 1, multiplier = 1;  // outputs for each input
    bool signed_in = false, signed_out = false;
    int pad_top = 0, pad_left = 0, in_width = 0, out_width = 0, out_height = 0;
    int line = 0, odd_lines = 0;  // bytes of a padded line; where odd lines begin, with a stride of 2
    int out_line = 0;             // outputs computed for each line
    int copied_lines = 0, copied_columns = 0;
    int readable_lines = 0, writable_lines = 0;  // in whole vectors, without leaving the plane
    int band = 0, batch = 0;                     // lines and channels at a time
    int padded_bytes = 0, flat_bytes = 0;        // of one channel
    int16_t lowest = 0, highest = 0;
    const int16_t* weights = nullptr;
    const float *scale = nullptr, *offset = nullptr;
};

// The same for 3x3 and 5x5 kernels with a dot product, without copies.
struct Quads {
    int kernel = 3, stride = 1, multiplier = 1;
    bool signed_in = false;
    Type out = Type::U8;  // or I8, I32
    int pad_top = 0, pad_left = 0, in_height = 0, in_width = 0, out_width = 0;
    int line = 0, end_line = 0;  // of the output
    float low = 0, high = 0;
    // For each output: the weights of each line, four to a word; what sums start from, as in quads::Job.
    const int32_t *weights = nullptr, *start = nullptr;
    const float *scale = nullptr, *offset = nullptr;
};

}  // namespace depthwise

struct Finish;

namespace quads {

// Sums of products, four input channels at a time, for some vectors of pixels, through the formula to all
// outputs. Codes are unsigned less quad_offset: what sums start from makes up for it.
struct Job {
    const uint8_t* codes = nullptr;  // [group][vector][quad_lanes][4], as pack_quads writes them
    // Only for tables with quad_taps; null: groups follow each other. Otherwise the vectors of group g start
    // at codes + taps[g]: taps of a kernel are the same codes, read from another pixel.
    const uint32_t* taps = nullptr;
    const int8_t* weights = nullptr;  // [block][group][quad_block channels][4]
    const int32_t* start = nullptr;   // for each channel, in whole blocks
    // Only for tables with quad_shifts: what the weights of each channel are larger by.
    const int32_t* shifts = nullptr;
    // Only for tables with a quad_window: lengths of windows, in groups, and where those of each block begin.
    const uint16_t* windows = nullptr;
    const uint32_t* first_window = nullptr;
    int groups = 0, vectors = 0, channels = 0;
    bool half = false;                // only the first half of the last vector matters
    const Finish* outputs = nullptr;  // type, bounds, scales, planes and the first pixel
    int output_count = 0;
};

// The lines of up to four channels that some taps read, interleaved: out[line][x][4] is line top + line *
// stride, column x * stride + shift of the input, 0 outside of it. Strides are 1 if input and output lines
// are equally long, or 2. Writes in whole vectors of up to 64 pixels.
struct Copy {
    unsigned char* const* planes = nullptr;
    int count = 0;
    bool is_signed = false;
    int in_width = 0, in_height = 0, width = 0, lines = 0, top = 0, shift = 0;
    int begin = 0, end = 0;             // columns inside of the image
    const uint64_t* columns = nullptr;  // a stride of 1: the same as bits, for all pixels; otherwise null
    uint8_t* out = nullptr;
};

}  // namespace quads

namespace shuffles {

// One ternary branch, vectors along the outputs: 96 of each 128 go through tables in registers, the others
// through dot products, in steps of twelve input channels, which are four triples and three quads.
constexpr int PIXELS = 5;  // at a time, at most
constexpr int GROUP = 128, SHUFFLED = 96, STEP = 12;
constexpr int STEP_BYTES = 4 * SHUFFLED * 2 + 3 * (GROUP - SHUFFLED) * 4;  // of the weights of a group
constexpr int TABLE_BYTES = 64;                                            // of three channels of a pixel

// Some steps for a few pixels, and all groups. A window of weights cannot overflow 16 bits.
struct Job {
    // Three channels and one that does not matter, then the same as four channels, as pack_quads writes them.
    const uint8_t *triples = nullptr, *quads = nullptr;
    int vectors = 0;            // of what is packed
    int pixel = 0, pixels = 0;  // of these
    int steps = 0, groups = 0;
    // For each group and step: of each triple, numbers of sums of 96 outputs, as words: (w + 1) . (1, 3, 9)
    // of its weights w; of each quad, the weights of 32 outputs.
    const unsigned char* weights = nullptr;
    const int32_t* from = nullptr;  // sums start from these, for each output, ...
    size_t from_pitch = 0;          // ... and pixel
    int32_t* sums = nullptr;
    size_t pitch = 0;                 // from a pixel to the next, in elements
    unsigned char* tables = nullptr;  // for `pixels` and 4 * `steps` triples
};

}  // namespace shuffles

namespace values {

// CurveSpec of one plane.
struct Curve {
    Type type = Type::I32;
    float scale = 1, low = 0, high = 1, density = 1;
    bool times_x = false;
    int segments = 1;
    const float *knots = nullptr, *steps = nullptr;  // steps[i] = knots[i + 1] - knots[i]
};

// MultiplySpec of one plane; without b the factor is a number.
struct Product {
    Type types[2] = {Type::I32, Type::I32};
    const unsigned char *a = nullptr, *b = nullptr;
    float factor = 1;
};

}  // namespace values

// Sums of all branches of consecutive channels, to be written to one output.
struct Finish {
    const void* sums = nullptr;  // sum j of channel i starts at (i * branches + j) * stride
    size_t stride = 0;           // in elements
    int chunks = 1;              // int16 sums only: the true sum is that of so many arrays ...
    size_t chunk_stride = 0;     // ... this many elements apart
    int branches = 1, channels = 0, vectors = 0;
    Type type = Type::U8;
    bool bounded = false;  // |t| < 2^30 is known, so rounding before clamping is safe
    bool clamps = true;    // to low .. high; F32 may do without
    float low = 0, high = 0;
    const float *scale = nullptr, *offset = nullptr;
    unsigned char* const* out = nullptr;
    size_t pixel = 0;  // first pixel to write, a multiple of the vector length
    // finish_joined only: a channel has so many sums, two or three, and its true sum is that of factors times
    // these; factors of a channel are four numbers.
    int joined = 0;
    const int16_t* factors = nullptr;
};

// Functions marked optional may be null: select.cpp then chooses a kernel that does without them.
struct Simd {
    const char* name = nullptr;
    int lanes = 0;          // pixels in a vector; divides 64
    int table_vectors = 0;  // the most vectors add_lists takes

    // table[g][sum], rows of `pitch` vectors: all sums of groups of three or four of the rows, from `pixel`
    // on.
    void (*build_table)(const uint8_t* const* rows, int count, int group_rows, bool is_signed, size_t pixel,
                        int vectors, int pitch, int16_t* table) = nullptr;
    // sums[list] (+)= the rows its list names; `fresh`: = instead of +=. Both with rows of `pitch` vectors,
    // up to `table_vectors` of them in use.
    void (*add_lists)(const table::Lists& lists, const int16_t* table, int vectors, int pitch, bool fresh,
                      int16_t* sums) = nullptr;

    // Pairs of rows interleaved pixel by pixel, as bytes and as int16: out[pair][pixel][2].
    void (*pair_bytes)(const uint8_t* const* rows, int count, size_t pixel, int vectors,
                       uint8_t* out) = nullptr;
    void (*pair_words)(const uint8_t* const* rows, int count, bool is_signed, size_t pixel, int vectors,
                       int16_t* out) = nullptr;
    // sums[list] = sum over pairs of weights[pair][list] . x[pair], up to dense::LISTS lists. Bytes: unsigned
    // codes, ternary weights, at most 64 pairs, since 255 * 128 < 2^15.
    void (*dense_bytes)(const uint8_t* x, const int8_t* weights, int pairs, int lists, int vectors,
                        size_t stride, int16_t* sums) = nullptr;
    void (*dense_words)(const int16_t* x, const int16_t* weights, int pairs, int lists, int vectors,
                        size_t stride, int32_t* sums) = nullptr;

    // Optional, all together: products of bytes, four channels at a time.
    int quad_lanes = 0;         // pixels in a vector of quads
    int quad_vectors = 0;       // the most vectors that these functions take
    int quad_block = 0;         // channels whose weights follow each other
    int quad_largest = 0;       // the largest weight these functions take
    bool quad_taps = false;     // whether multiply_quads takes Job::taps
    bool quad_ternary = false;  // whether one branch of few outputs is faster in products than in a table
    // What packed codes are smaller than unsigned ones by: 128 where products are signed.
    int quad_offset = 0;
    bool quad_shifts = false;  // whether weights of a channel are made larger by one number: none is negative
    // Sums of 16 bits: the weights of channels 0 and 1 of all groups of a window, and those of channels 2 and
    // 3, add up to at most this, the positive ones and the negative ones; 0: no windows.
    int quad_window = 0;
    // out[group][vector][pixel][4]: groups of four of the rows, interleaved; signed codes become unsigned
    // ones, then all are less by quad_offset.
    void (*pack_quads)(const uint8_t* const* rows, int count, bool is_signed, size_t pixel, int vectors,
                       uint8_t* out) = nullptr;
    void (*multiply_quads)(const quads::Job&) = nullptr;
    // Optional, with quad_taps.
    void (*copy_quads)(const quads::Copy&) = nullptr;
    // Optional: add_lists for 32 or 64 pixels, and in the same loop multiply_quads for channels [begin, end)
    // of the job, which are whole blocks of eight; a job without taps.
    void (*add_lists_and_quads)(const table::Lists& lists, const int16_t* table, int vectors, int pitch,
                                bool fresh, int16_t* sums, const quads::Job&, int begin, int end) = nullptr;

    // Optional, both: see `shuffles`. out[channel][pixel] = in[pixel][channel], 16 channels of up to 64
    // pixels, in vectors of 16 pixels; lines of `pitch` and of 64 elements.
    void (*add_shuffled)(const shuffles::Job&) = nullptr;
    void (*transpose_sums)(const int32_t* in, size_t pitch, int vectors, int32_t* out) = nullptr;

    // out[k] = x . weights[k], n a multiple of `lanes`.
    void (*dots)(const int16_t* x, const int8_t* weights, size_t n, int count, int32_t* out) = nullptr;

    // to[i] = from[2 * i]; reads nothing beyond the last one.
    void (*take_even)(const uint8_t* from, size_t n, uint8_t* to) = nullptr;
    void (*pair_lines)(const depthwise::PairLines&) = nullptr;
    void (*depthwise)(const depthwise::Lines&) = nullptr;
    // Optional. Input channels [begin, end), to their outputs.
    void (*depthwise_3x3)(const depthwise::Planes3x3&, int begin, int end, unsigned char* const* in,
                          unsigned char* const* out, unsigned char* scratch) = nullptr;

    // Optional. The same without scratch memory.
    void (*depthwise_quads)(const depthwise::Quads&, int begin, int end, unsigned char* const* in,
                            unsigned char* const* out) = nullptr;

    // Optional. Pixels [begin, end) of an image of three interleaved channels through tables of 256 bytes;
    // returns where it stopped: what is left is less than a block.
    size_t (*lookup_three)(const uint8_t* image, const uint8_t* tables, size_t begin, size_t end,
                           unsigned char* const* out) = nullptr;

    void (*finish_i16)(const Finish&) = nullptr;
    void (*finish_i32)(const Finish&) = nullptr;
    // Optional: sums of 16 bits of branches that whole numbers join. With it, the table of sums serves these.
    void (*finish_joined)(const Finish&) = nullptr;
    void (*finish_values)(const Finish&) = nullptr;  // of floats, with one branch
    // v[i] of n pixels, see CurveSpec and MultiplySpec.
    void (*curve)(const values::Curve&, const unsigned char* codes, size_t n, float* v) = nullptr;
    void (*multiply)(const values::Product&, size_t n, float* v) = nullptr;
    // v[i] = a[i] + share * (b[i] - a[i])
    void (*mix)(const float* a, const float* b, float share, size_t n, float* v) = nullptr;
    // One or two planes of codes through the formula: the inputs are planes, not the sums of `finish`.
    void (*combine)(const unsigned char* const* in, const Type* types, size_t pixels,
                    const Finish&) = nullptr;

    int32_t (*sum_plane)(Type type, const unsigned char* plane, size_t pixels) = nullptr;
    void (*add_row)(Type type, const unsigned char* row, int n, int32_t* sums) = nullptr;
    // a = max(a, b), element by element.
    void (*max_rows)(Type type, unsigned char* a, const unsigned char* b, int n) = nullptr;
};

// Null in builds for processors that do not have these instructions. Data, not a function: asking for it
// must not execute anything that was compiled for them. GENERIC_KERNELS run on every processor of the build.
extern const Simd* const GENERIC_KERNELS;
extern const Simd* const NEON_KERNELS;
extern const Simd* const NEON_DOT_KERNELS;
extern const Simd* const NEON_I8MM_KERNELS;
extern const Simd* const WASM_KERNELS;
extern const Simd* const WASM_RELAXED_KERNELS;
extern const Simd* const WASM_DOT_KERNELS;
extern const Simd* const AVX2_KERNELS;
extern const Simd* const AVX512_KERNELS;

}  // namespace dbq
