// What the plain loops of operations share.
#pragma once

#include "kernels/formula.h"
#include "kernels/ranges.h"
#include "ops/specs.h"
#include "threads/stop.h"

namespace dbq::scalar {

// Calls visit(pixel of the input) for every pixel of the window of output (y, x) that is inside the image.
template <class Visit> void for_window(const Window& w, const Shape& in, int y, int x, const Visit& visit) {
    const int top = y * w.stride_h - w.pad_top, left = x * w.stride_w - w.pad_left;
    for (int iy = std::max(top, 0); iy < std::min(top + w.kernel_h, in.height); ++iy)
        for (int ix = std::max(left, 0); ix < std::min(left + w.kernel_w, in.width); ++ix)
            visit(in.pixel(iy, ix));
}

template <class Visit> void for_elements(const Shape& shape, Range channels, const Visit& visit) {
    for (int k = channels.begin; k < channels.end; ++k)
        for (int y = 0; y < shape.height; ++y)
            for (int x = 0; x < shape.width; ++x) {
                if (stopped()) return;
                visit(k, y, x);
            }
}

// Writes every element of some channels to all outputs; add_sums(k, y, x, sums) finds zeros in its sums.
template <class AddSums>
void write_elements(const std::vector<Output>& outputs, int branches, const Shape& shape, Range channels,
                    const Planes* out, const AddSums& add_sums) {
    for_elements(shape, channels, [&](int k, int y, int x) {
        int32_t sums[3] = {};
        add_sums(k, y, x, sums);
        for (size_t o = 0; o < outputs.size(); ++o)
            write_element(outputs[o], sums, branches, k, out[o].plane[k], shape.pixel(y, x));
    });
}

// The same for operations that compute a float for each element: value(k, y, x).
template <class Value>
void write_values(const std::vector<Output>& outputs, const Shape& shape, Range channels, const Planes* out,
                  const Value& value) {
    for_elements(shape, channels, [&](int k, int y, int x) {
        const float v = value(k, y, x);
        for (size_t o = 0; o < outputs.size(); ++o)
            write_value(outputs[o], v, k, out[o].plane[k], shape.pixel(y, x));
    });
}

template <class Spec> class Loops final : public RangeOp {
public:
    using Function = void(const Spec&, Range, const Planes* in, const Planes* out);

    Loops(const Spec& spec, Function* function, int n, int threads, size_t weight_bytes)
        : RangeOp(n, threads), spec_(spec), function_(function), weight_bytes_(weight_bytes) {}

    size_t weight_bytes() const override { return weight_bytes_; }

private:
    void run_on(Range range, const Planes* in, const Planes* out, unsigned char*) const override {
        function_(spec_, range, in, out);
    }

    const Spec spec_;
    Function* const function_;
    const size_t weight_bytes_;
};

// An operation that calls `function` for ranges of n channels, or of n lines.
template <class Spec>
std::unique_ptr<Op> make_loops(const Spec& spec, typename Loops<Spec>::Function* function, int n, int threads,
                               size_t weight_bytes = 0) {
    return std::make_unique<Loops<Spec>>(spec, function, n, threads, weight_bytes);
}

}  // namespace dbq::scalar
