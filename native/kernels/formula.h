// Codes in a plane, and the requantization formula of op.h for one element, as plain code.
#pragma once

#include <cmath>
#include <cstring>

#include "kernels/op.h"

namespace dbq {

inline int32_t read_code(Type type, const unsigned char* plane, size_t pixel) {
    if (type == Type::U8) return plane[pixel];
    if (type == Type::I8) return int8_t(plane[pixel]);
    int32_t wide;
    std::memcpy(&wide, plane + 4 * pixel, 4);
    return wide;
}

inline void write_code(Type type, unsigned char* plane, size_t pixel, int32_t code) {
    if (type == Type::I32) std::memcpy(plane + 4 * pixel, &code, 4);
    else plane[pixel] = static_cast<unsigned char>(code);
}

// The last two lines of the formula.
inline void write_term(const Output& out, float t, unsigned char* plane, size_t pixel) {
    if (out.clamps()) {
        t = t < out.low ? out.low : t;
        t = t > out.high ? out.high : t;
    }
    if (out.type == Type::F32) std::memcpy(plane + 4 * pixel, &t, 4);
    else
        write_code(out.type, plane, pixel,
                   int32_t(std::nearbyint(t)));  // half to even: the default rounding mode
}

inline void write_element(const Output& out, const int32_t* sums, int branches, int channel,
                          unsigned char* plane, size_t pixel) {
    const float* scale = out.scale.data() + size_t(channel) * size_t(branches);
    float t = float(sums[0]) * scale[0];
    for (int j = 1; j < branches; ++j) {
        const float term = float(sums[j]) * scale[j];
        t = t + term;
    }
    write_term(out, t + out.offset[size_t(channel)], plane, pixel);
}

inline void write_value(const Output& out, float v, int channel, unsigned char* plane, size_t pixel) {
    const float t = v * out.scale[size_t(channel)];
    write_term(out, t + out.offset[size_t(channel)], plane, pixel);
}

}  // namespace dbq
