// Pooling: whole lines are combined first, in vectors; then neighbours within the resulting line.
#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/vector/values.h"
#include "threads/stop.h"

namespace dbq::vec {
namespace {

class AveragePool final : public RangeOp {
public:
    AveragePool(const AveragePoolSpec& spec, const Simd& simd, int threads)
        : RangeOp(spec.out.channels, threads), simd_(simd), spec_(spec),
          outputs_(spec.outputs, 1, 2147483648.0) {}

    size_t scratch_bytes() const override {
        return is_global() ? 0
                           : line_bytes() + plane_bytes(Type::I32, spec_.out.pixels(), size_t(simd_.lanes));
    }

private:
    void run_on(Range channels, const Planes* in, const Planes* out, unsigned char* scratch) const override {
        for (int k = channels.begin; k < channels.end; ++k) {
            if (is_global()) {
                const int32_t sum = simd_.sum_plane(spec_.in_type, in[0].plane[k], spec_.in.pixels());
                if (spec_.is_mean) outputs_.write_value(float(sum) / float(spec_.in.pixels()), k, out, 0);
                else outputs_.write_element(&sum, k, out, 0);
                continue;
            }
            auto sums = reinterpret_cast<int32_t*>(scratch + line_bytes());
            for (int y = 0; y < spec_.out.height && !stopped(); ++y)
                pool_line(in[0].plane[k], y, reinterpret_cast<int32_t*>(scratch), sums + y * spec_.out.width);
            if (spec_.is_mean) {
                const auto means = reinterpret_cast<float*>(scratch + line_bytes());
                divide(sums, means);
                write_values(simd_, outputs_, means, spec_.out.pixels(), k, 0, out);
                continue;
            }
            Finish finish;
            finish.sums = sums;
            finish.channels = 1;
            finish.vectors = ceil_div(int(spec_.out.pixels()), simd_.lanes);
            outputs_.write(simd_.finish_i32, finish, k, out);
        }
    }

    bool is_global() const {
        const Window& w = spec_.window;
        return spec_.out.pixels() == 1 && w.kernel_h - w.pad_top >= spec_.in.height &&
               w.kernel_w - w.pad_left >= spec_.in.width;
    }
    size_t line_bytes() const { return plane_bytes(Type::I32, size_t(spec_.in.width), size_t(simd_.lanes)); }

    // Each sum by the number of pixels it was made of; in place, through a copy of each number.
    void divide(const int32_t* sums, float* means) const {
        const Window& w = spec_.window;
        const auto inside = [](int first, int kernel, int size) {
            return std::min(first + kernel, size) - std::max(first, 0);
        };
        for (int y = 0; y < spec_.out.height && !stopped(); ++y) {
            const int rows = inside(y * w.stride_h - w.pad_top, w.kernel_h, spec_.in.height);
            for (int x = 0; x < spec_.out.width; ++x, ++sums, ++means) {
                const int columns = inside(x * w.stride_w - w.pad_left, w.kernel_w, spec_.in.width);
                int32_t sum;
                std::memcpy(&sum, sums, sizeof sum);
                const float mean = float(sum) / float(rows * columns);
                std::memcpy(means, &mean, sizeof mean);
            }
        }
    }

    void pool_line(const unsigned char* plane, int out_y, int32_t* columns, int32_t* sums) const {
        const Window& w = spec_.window;
        const int top = out_y * w.stride_h - w.pad_top, width = spec_.in.width;
        std::fill(columns, columns + width, 0);
        for (int y = std::max(top, 0); y < std::min(top + w.kernel_h, spec_.in.height); ++y)
            simd_.add_row(spec_.in_type, plane + size_t(y) * size_t(width) * size_of(spec_.in_type), width,
                          columns);
        for (int x = 0; x < spec_.out.width; ++x) {
            const int left = x * w.stride_w - w.pad_left;
            sums[x] = 0;
            for (int i = std::max(left, 0); i < std::min(left + w.kernel_w, width); ++i)
                sums[x] += columns[i];
        }
    }

    const Simd& simd_;
    const AveragePoolSpec spec_;
    const Outputs outputs_;
};

template <class T> class MaxPool final : public RangeOp {
public:
    MaxPool(const MaxPoolSpec& spec, const Simd& simd, int threads)
        : RangeOp(spec.out.channels, threads), simd_(simd), spec_(spec),
          padded_(std::max((spec.out.width - 1) * spec.window.stride_w + spec.window.kernel_w,
                           spec.window.pad_left + spec.in.width)) {}

    size_t scratch_bytes() const override { return 2 * line_bytes(); }

private:
    void run_on(Range channels, const Planes* in, const Planes* out, unsigned char* scratch) const override {
        auto columns = reinterpret_cast<T*>(scratch), windows = reinterpret_cast<T*>(scratch + line_bytes());
        for (int k = channels.begin; k < channels.end; ++k)
            for (int y = 0; y < spec_.out.height && !stopped(); ++y)
                pool_line(reinterpret_cast<const T*>(in[0].plane[k]), y, columns, windows,
                          reinterpret_cast<T*>(out[0].plane[k]) + size_t(y) * size_t(spec_.out.width));
    }

    // Windows are computed in whole vectors: what lies behind the last one means nothing.
    size_t whole() const {
        return aligned(size_t(padded_ - spec_.window.kernel_w + 1) * sizeof(T)) / sizeof(T);
    }
    size_t line_bytes() const { return aligned((whole() + size_t(spec_.window.kernel_w)) * sizeof(T)); }

    void max_rows(T* a, const T* b, int n) const {
        simd_.max_rows(spec_.type, reinterpret_cast<unsigned char*>(a),
                       reinterpret_cast<const unsigned char*>(b), n);
    }

    void pool_line(const T* plane, int out_y, T* columns, T* windows, T* out) const {
        const Window& w = spec_.window;
        const int top = out_y * w.stride_h - w.pad_top, width = spec_.in.width, n = int(whole());
        std::fill(columns, columns + n + w.kernel_w - 1, std::numeric_limits<T>::lowest());
        for (int y = std::max(top, 0); y < std::min(top + w.kernel_h, spec_.in.height); ++y)
            max_rows(columns + w.pad_left, plane + size_t(y) * size_t(width), width);
        std::memcpy(windows, columns, size_t(n) * sizeof(T));
        for (int kx = 1; kx < w.kernel_w; ++kx) max_rows(windows, columns + kx, n);
        if (w.stride_w == 2 && sizeof(T) == 1)
            simd_.take_even(reinterpret_cast<const uint8_t*>(windows), size_t(spec_.out.width),
                            reinterpret_cast<uint8_t*>(out));
        else if (w.stride_w == 2)  // a constant that compilers vectorise
            for (int x = 0; x < spec_.out.width; ++x) out[x] = windows[2 * x];
        else
            for (int x = 0; x < spec_.out.width; ++x) out[x] = windows[x * w.stride_w];
    }

    const Simd& simd_;
    const MaxPoolSpec spec_;
    const int padded_;  // every window of a line, including what extends beyond the image on both sides
};

}  // namespace

std::unique_ptr<Op> make_average_pool(const AveragePoolSpec& spec, const Simd* simd, int threads) {
    return std::make_unique<AveragePool>(spec, *simd, threads);
}

std::unique_ptr<Op> make_max_pool(const MaxPoolSpec& spec, const Simd* simd, int threads) {
    if (spec.type == Type::U8) return std::make_unique<MaxPool<uint8_t>>(spec, *simd, threads);
    if (spec.type == Type::I8) return std::make_unique<MaxPool<int8_t>>(spec, *simd, threads);
    return std::make_unique<MaxPool<int32_t>>(spec, *simd, threads);
}

}  // namespace dbq::vec
