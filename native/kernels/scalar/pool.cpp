// Pooling in plain loops.
#include <limits>

#include "kernels/formula.h"
#include "kernels/ranges.h"
#include "kernels/scalar/scalar.h"

namespace dbq::scalar {
namespace {

// Calls visit(pixel of the input) for every pixel of the window of (y, x) that is inside the image.
template <class Visit>
void for_window(const Window& w, const Shape& in, int y, int x, Visit visit) {
    const int top = y * w.stride_h - w.pad_top, left = x * w.stride_w - w.pad_left;
    for (int iy = std::max(top, 0); iy < std::min(top + w.kernel_h, in.height); ++iy)
        for (int ix = std::max(left, 0); ix < std::min(left + w.kernel_w, in.width); ++ix)
            visit(size_t(iy) * size_t(in.width) + size_t(ix));
}

class AveragePool final : public Op {
public:
    AveragePool(const AveragePoolSpec& spec, int threads)
        : spec_(spec), parts_(parts_for(spec.out.channels, threads)) {}

    int tasks() const override { return parts_; }
    size_t scratch_bytes() const override { return 0; }
    std::string kernel() const override { return "average pool scalar"; }

    void run(int task, const Planes* in, const Planes* out, unsigned char*) const override {
        const Range channels = part(spec_.out.channels, parts_, task);
        for (int k = channels.begin; k < channels.end; ++k)
            for (int y = 0; y < spec_.out.height; ++y)
                for (int x = 0; x < spec_.out.width; ++x) {
                    int32_t sum = 0;
                    for_window(spec_.window, spec_.in, y, x,
                               [&](size_t pixel) { sum += read_code(spec_.in_type, in[0].plane[k], pixel); });
                    const size_t pixel = size_t(y) * size_t(spec_.out.width) + size_t(x);
                    for (size_t o = 0; o < spec_.outputs.size(); ++o)
                        write_element(spec_.outputs[o], &sum, 1, k, out[o].plane[k], pixel);
                }
    }

private:
    const AveragePoolSpec spec_;
    const int parts_;
};

template <class T>
class MaxPool final : public Op {
public:
    MaxPool(const MaxPoolSpec& spec, int threads)
        : spec_(spec), parts_(parts_for(spec.out.channels, threads)) {}

    int tasks() const override { return parts_; }
    size_t scratch_bytes() const override { return 0; }
    std::string kernel() const override { return "max pool scalar"; }

    void run(int task, const Planes* in, const Planes* out, unsigned char*) const override {
        const Range channels = part(spec_.out.channels, parts_, task);
        for (int k = channels.begin; k < channels.end; ++k) {
            const T* from = reinterpret_cast<const T*>(in[0].plane[k]);
            T* to = reinterpret_cast<T*>(out[0].plane[k]);
            for (int y = 0; y < spec_.out.height; ++y)
                for (int x = 0; x < spec_.out.width; ++x) {
                    T largest = std::numeric_limits<T>::lowest();
                    for_window(spec_.window, spec_.in, y, x,
                               [&](size_t pixel) { largest = std::max(largest, from[pixel]); });
                    *to++ = largest;
                }
        }
    }

private:
    const MaxPoolSpec spec_;
    const int parts_;
};

}  // namespace

std::unique_ptr<Op> make_average_pool(const AveragePoolSpec& spec, int threads) {
    return std::make_unique<AveragePool>(spec, threads);
}

std::unique_ptr<Op> make_max_pool(const MaxPoolSpec& spec, int threads) {
    switch (spec.type) {
        case Type::U8: return std::make_unique<MaxPool<uint8_t>>(spec, threads);
        case Type::I8: return std::make_unique<MaxPool<int8_t>>(spec, threads);
        case Type::I32: return std::make_unique<MaxPool<int32_t>>(spec, threads);
        case Type::F32: break;
    }
    return std::make_unique<MaxPool<float>>(spec, threads);
}

}  // namespace dbq::scalar
