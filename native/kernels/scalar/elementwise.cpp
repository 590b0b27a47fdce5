// Operations that look at one pixel at a time, in plain loops.
#include "kernels/formula.h"
#include "kernels/ranges.h"
#include "kernels/scalar/scalar.h"

namespace dbq::scalar {
namespace {

// One or two inputs of the same shape through the formula.
class Combine final : public Op {
public:
    Combine(Shape shape, std::vector<Type> types, const std::vector<Output>& outputs, int threads)
        : shape_(shape),
          types_(std::move(types)),
          outputs_(outputs),
          parts_(parts_for(shape.channels, threads)) {}

    int tasks() const override { return parts_; }
    size_t scratch_bytes() const override { return 0; }
    std::string kernel() const override { return types_.size() == 2 ? "add scalar" : "requantize scalar"; }

    void run(int task, const Planes* in, const Planes* out, unsigned char*) const override {
        const Range channels = part(shape_.channels, parts_, task);
        for (int k = channels.begin; k < channels.end; ++k)
            for (size_t pixel = 0; pixel < shape_.pixels(); ++pixel) {
                int32_t codes[2];
                for (size_t i = 0; i < types_.size(); ++i)
                    codes[i] = read_code(types_[i], in[i].plane[k], pixel);
                for (size_t o = 0; o < outputs_.size(); ++o)
                    write_element(outputs_[o], codes, int(types_.size()), k, out[o].plane[k], pixel);
            }
    }

private:
    const Shape shape_;
    const std::vector<Type> types_;
    const std::vector<Output> outputs_;
    const int parts_;
};

class Lookup final : public Op {
public:
    Lookup(const LookupSpec& spec, int threads)
        : spec_(spec), parts_(parts_for(spec.shape.height, threads)) {}

    int tasks() const override { return parts_; }
    size_t scratch_bytes() const override { return 0; }
    std::string kernel() const override { return "lookup scalar"; }
    size_t weight_bytes() const override { return spec_.table.size(); }

    void run(int task, const Planes* in, const Planes* out, unsigned char*) const override {
        const Range rows = part(spec_.shape.height, parts_, task);
        const size_t channels = size_t(spec_.shape.channels), width = size_t(spec_.shape.width);
        for (size_t c = 0; c < channels; ++c) {
            const uint8_t* table = spec_.table.data() + 256 * c;
            const unsigned char* image = in[0].plane[0] + c;
            unsigned char* plane = out[0].plane[c];
            for (size_t p = size_t(rows.begin) * width; p < size_t(rows.end) * width; ++p)
                plane[p] = table[image[p * channels]];
        }
    }

private:
    const LookupSpec spec_;
    const int parts_;
};

}  // namespace

std::unique_ptr<Op> make_add(const AddSpec& spec, int threads) {
    return std::make_unique<Combine>(spec.shape, std::vector<Type>{spec.a, spec.b}, spec.outputs, threads);
}

std::unique_ptr<Op> make_requantize(const RequantizeSpec& spec, int threads) {
    return std::make_unique<Combine>(spec.shape, std::vector<Type>{spec.in_type}, spec.outputs, threads);
}

std::unique_ptr<Op> make_lookup(const LookupSpec& spec, int threads) {
    return std::make_unique<Lookup>(spec, threads);
}

}  // namespace dbq::scalar
