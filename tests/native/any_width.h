// Vector kernels in plain loops, for any number of lanes: with them the drivers are tested for vector widths
// that no instruction set of this build has. They read and write whole vectors, as real ones do.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/isa/simd.h"

template <int LANES> struct AnyWidth {
    static size_t whole(size_t n) { return (n + LANES - 1) / LANES * LANES; }
    static int code(bool is_signed, uint8_t byte) { return is_signed ? int8_t(byte) : byte; }

    static void build_table(const uint8_t* const* rows, int count, int group_rows, bool is_signed,
                            size_t pixel, int vectors, int pitch, int16_t* table) {
        for (int first = 0; first < count; first += group_rows)
            for (int n = 1; n <= dbq::table::sums_of_group(group_rows); ++n, table += pitch * LANES)
                for (int p = 0; p < vectors * LANES; ++p) {
                    int sum = 0;
                    for (int i = 0, rest = n; rest != 0; ++i) {
                        const int digit = (rest + 1) % 3 - 1;  // balanced ternary
                        rest = (rest - digit) / 3;
                        if (first + i < count)
                            sum += digit * code(is_signed, rows[first + i][pixel + size_t(p)]);
                    }
                    table[p] = int16_t(sum);
                }
    }

    static const uint16_t* apply(const uint16_t* positions, int count, int sign, const unsigned char* table,
                                 int pixels, int16_t* a, int16_t* b) {
        for (int i = 0; i < count; i += 4) {
            const int here = std::min(4, count - i);
            for (int16_t* sums : {a, b})
                for (int n = 0; n < here; ++n, ++positions) {
                    const auto row = reinterpret_cast<const int16_t*>(table + *positions);
                    for (int p = 0; p < pixels; ++p) sums[p] = int16_t(sums[p] + sign * row[p]);
                }
        }
        return positions;
    }

    static void add_lists(const dbq::table::Lists& lists, const int16_t* table, int vectors, int pitch,
                          bool fresh, int16_t* sums) {
        const uint16_t* stream = lists.stream;
        const int pixels = vectors * LANES;
        for (size_t r = 0; r < lists.count; ++r)
            for (uint32_t pair = 0; pair < lists.runs[r].pairs; ++pair) {
                int16_t* const a = sums + stream[0] * pitch * LANES;
                int16_t* const b = sums + stream[1] * pitch * LANES;
                if (fresh) std::fill(a, a + pixels, int16_t(0)), std::fill(b, b + pixels, int16_t(0));
                const auto bytes = reinterpret_cast<const unsigned char*>(table);
                stream = apply(stream + 2, lists.runs[r].adds, 1, bytes, pixels, a, b);
                stream = apply(stream, lists.runs[r].subs, -1, bytes, pixels, a, b);
            }
    }

    template <class T>
    static void pair_rows(const uint8_t* const* rows, int count, bool is_signed, size_t pixel, int vectors,
                          T* out) {
        for (int first = 0; first < count; first += 2)
            for (int p = 0; p < vectors * LANES; ++p)
                for (int i = first; i < first + 2; ++i)
                    *out++ = T(i < count ? code(is_signed, rows[i][pixel + size_t(p)]) : 0);
    }
    static void pair_bytes(const uint8_t* const* rows, int count, size_t pixel, int vectors, uint8_t* out) {
        pair_rows(rows, count, false, pixel, vectors, out);
    }

    template <class Code, class Weight, class Sum>
    static void dense(const Code* x, const Weight* weights, int pairs, int lists, int vectors, size_t stride,
                      Sum* sums) {
        for (int list = 0; list < lists; ++list)
            for (int p = 0; p < vectors * LANES; ++p) {
                int sum = 0;
                for (int pair = 0; pair < pairs; ++pair)
                    for (int i = 0; i < 2; ++i)
                        sum += x[(pair * vectors * LANES + p) * 2 + i] *
                               weights[(pair * dbq::dense::LISTS + list) * 2 + i];
                sums[size_t(list) * stride + size_t(p)] = Sum(sum);
            }
    }

    static void dots(const int16_t* x, const int8_t* weights, size_t n, int count, int32_t* out) {
        for (int k = 0; k < count; ++k, weights += n) {
            out[k] = 0;
            for (size_t i = 0; i < n; ++i) out[k] += x[i] * weights[i];
        }
    }

    static void take_even(const uint8_t* from, size_t n, uint8_t* to) {
        for (size_t i = 0; i < n; ++i) to[i] = from[2 * i];
    }

    static void pair_lines(const dbq::depthwise::PairLines& job) {
        for (int i = 0; i < job.lines; ++i) {
            int16_t* const out = job.out + ptrdiff_t(i) * 2 * job.out_pitch;
            for (int x = 0; x < int(whole(size_t(job.n))); ++x) {
                const ptrdiff_t at = ptrdiff_t(i) * job.pitch + x * job.stride;
                out[2 * x] = int16_t(code(job.is_signed, job.above[at]));
                out[2 * x + 1] = int16_t(code(job.is_signed, job.below[at]));
            }
            std::fill(out + 2 * job.n, out + 2 * (job.n + job.zeros), int16_t(0));
        }
    }

    static void depthwise(const dbq::depthwise::Lines& job) {
        const int step = job.next_weights ? 2 : 1;
        for (int y = 0; y < job.height; ++y)
            for (int x = 0; x < int(whole(size_t(job.width))); ++x) {
                const int16_t* const weights = y % step ? job.next_weights : job.weights;
                int32_t& sum = job.sums[y * job.width + x] = 0;
                for (int t = 0; t < job.count; ++t)
                    for (int i = 0; i < 2; ++i)
                        sum +=
                            job.pairs[2 * (y / step * job.line + job.taps[t] + x) + i] * weights[2 * t + i];
            }
    }

    static void write(const dbq::Finish& f, float t, unsigned char* plane, size_t pixel) {
        if (f.clamps) t = t < f.low ? f.low : t > f.high ? f.high : t;
        const int rounded = f.type == dbq::Type::F32 ? 0 : int(std::nearbyint(t));
        if (f.type == dbq::Type::F32) std::memcpy(plane + 4 * pixel, &t, 4);
        else if (f.type == dbq::Type::I32) std::memcpy(plane + 4 * pixel, &rounded, 4);
        else plane[pixel] = static_cast<unsigned char>(rounded);
    }

    template <class Sum> static void finish(const dbq::Finish& f) {
        for (int k = 0; k < f.channels; ++k)
            for (size_t p = 0; p < size_t(f.vectors * LANES); ++p) {
                float t = 0;
                for (int j = 0; j < f.branches; ++j) {
                    const Sum* sums =
                        static_cast<const Sum*>(f.sums) + size_t(k * f.branches + j) * f.stride + p;
                    int sum = 0;
                    for (int c = 0; c < f.chunks; ++c) sum += sums[size_t(c) * f.chunk_stride];
                    volatile float product = float(sum) * f.scale[k * f.branches + j];
                    t = j ? t + product : product;
                }
                write(f, t + f.offset[k], f.out[k], f.pixel + p);
            }
    }

    template <class Visit> static void for_type(dbq::Type type, const unsigned char* plane, Visit visit) {
        if (type == dbq::Type::U8) visit(plane);
        else if (type == dbq::Type::I8) visit(reinterpret_cast<const int8_t*>(plane));
        else visit(reinterpret_cast<const int32_t*>(plane));
    }

    static void combine(const unsigned char* const* in, const dbq::Type* types, size_t pixels,
                        const dbq::Finish& f) {
        for (size_t p = 0; p < whole(pixels); ++p) {
            float t = 0;
            for (int i = 0; i < f.branches; ++i)
                for_type(types[i], in[i], [&](auto* codes) {
                    volatile float product = float(codes[p]) * f.scale[i];
                    t = i ? t + product : product;
                });
            write(f, t + f.offset[0], f.out[0], p);
        }
    }

    static void finish_values(const dbq::Finish& f) {
        for (int k = 0; k < f.channels; ++k)
            for (size_t p = 0; p < size_t(f.vectors * LANES); ++p) {
                const float v = static_cast<const float*>(f.sums)[size_t(k) * f.stride + p];
                volatile float product = v * f.scale[k];
                write(f, product + f.offset[k], f.out[k], f.pixel + p);
            }
    }

    static void curve(const dbq::values::Curve& c, const unsigned char* plane, size_t n, float* v) {
        for_type(c.type, plane, [&](auto* codes) {
            for (size_t p = 0; p < whole(n); ++p) {
                const float x = float(codes[p]) * c.scale;
                const float u = x < c.low ? c.low : x > c.high ? c.high : x;
                const float place = (u - c.low) * c.density;
                const int i = std::min(int(std::floor(place)), c.segments - 1);
                volatile float rise = (place - float(i)) * c.steps[i];
                const float g = c.knots[i] + rise;
                v[p] = c.times_x ? x * g : g;
            }
        });
    }

    static void multiply(const dbq::values::Product& q, size_t n, float* v) {
        for_type(q.types[0], q.a, [&](auto* a) {
            for (size_t p = 0; p < whole(n); ++p) {
                v[p] = float(a[p]) * q.factor;
                if (q.b) for_type(q.types[1], q.b, [&](auto* b) { v[p] = float(a[p]) * float(b[p]); });
            }
        });
    }

    static void mix(const float* a, const float* b, float share, size_t n, float* v) {
        for (size_t p = 0; p < whole(n); ++p) {
            volatile float part = share * (b[p] - a[p]);
            v[p] = a[p] + part;
        }
    }

    static int32_t sum_plane(dbq::Type type, const unsigned char* plane, size_t pixels) {
        int32_t sum = 0;
        for_type(type, plane, [&](auto* codes) {
            for (size_t p = 0; p < pixels; ++p) sum += codes[p];
        });
        return sum;
    }

    static void add_row(dbq::Type type, const unsigned char* row, int n, int32_t* sums) {
        for_type(type, row, [&](auto* codes) {
            for (int x = 0; x < n; ++x) sums[x] += codes[x];
        });
    }

    static void max_rows(dbq::Type type, unsigned char* a, const unsigned char* b, int n) {
        for_type(type, b, [&](auto* codes) {
            auto* largest = reinterpret_cast<std::remove_const_t<std::remove_pointer_t<decltype(codes)>>*>(a);
            for (int x = 0; x < n; ++x) largest[x] = std::max(largest[x], codes[x]);
        });
    }

    static dbq::Simd kernels(const char* name) {
        dbq::Simd simd;
        simd.name = name;
        simd.lanes = LANES;
        simd.table_vectors = 3;
        simd.build_table = build_table;
        simd.add_lists = add_lists;
        simd.pair_bytes = pair_bytes;
        simd.pair_words = pair_rows<int16_t>;
        simd.dense_bytes = dense<uint8_t, int8_t, int16_t>;
        simd.dense_words = dense<int16_t, int16_t, int32_t>;
        simd.dots = dots;
        simd.take_even = take_even;
        simd.pair_lines = pair_lines;
        simd.depthwise = depthwise;
        simd.finish_i16 = finish<int16_t>;
        simd.finish_i32 = finish<int32_t>;
        simd.finish_values = finish_values;
        simd.curve = curve;
        simd.multiply = multiply;
        simd.mix = mix;
        simd.combine = combine;
        simd.sum_plane = sum_plane;
        simd.add_row = add_row;
        simd.max_rows = max_rows;
        return simd;
    }
};
