// Curves and products: a float for each pixel of one plane or two.
#include "kernels/vector/values.h"

#include "kernels/formula.h"
#include "threads/stop.h"

namespace dbq::vec {

void write_values(const Simd& simd, const Outputs& outputs, const float* v, size_t n, int channel,
                  size_t pixel, const Planes* out) {
    Finish finish;
    finish.sums = v;
    finish.channels = 1;
    finish.vectors = ceil_div(int(n), simd.lanes);
    finish.pixel = pixel;
    outputs.write(simd.finish_values, finish, channel, out);
}

namespace {

class Pixelwise : public PixelOp {
public:
    Pixelwise(const Shape& shape, const std::vector<Output>& outputs, const Simd& simd, int threads)
        : PixelOp(shape, threads), simd_(simd), outputs_(outputs, 1, LARGEST_VALUE) {}

    size_t scratch_bytes() const final { return TILE * sizeof(float); }

protected:
    const Simd& simd_;

private:
    // The floats of n pixels of a channel, in whole vectors.
    virtual void compute(int channel, size_t pixel, size_t n, const Planes* in, float* v) const = 0;

    void run_on(const Tile& tile, const Planes* in, const Planes* out, unsigned char* scratch) const final {
        const auto v = reinterpret_cast<float*>(scratch);
        const size_t end = size_t(tile.pixels.end);
        for (int k = tile.channels.begin; k < tile.channels.end; ++k)
            for (size_t p = size_t(tile.pixels.begin); p < end && !stopped(); p += TILE) {
                const size_t n = std::min(TILE, end - p);
                compute(k, p, n, in, v);
                write_values(simd_, outputs_, v, n, k, p, out);
            }
    }

    const Outputs outputs_;
};

class Curve final : public Pixelwise {
public:
    Curve(const CurveSpec& spec, const Simd& simd, int threads)
        : Pixelwise(spec.shape, spec.outputs, simd, threads), knots_(spec.knots) {
        for (int i = 0; i < spec.segments(); ++i) {
            const float step = knots_[size_t(i) + 1] - knots_[size_t(i)];
            steps_.push_back(step);
        }
        curve_.type = spec.in_type;
        curve_.scale = spec.scale;
        curve_.low = spec.low;
        curve_.high = spec.high;
        curve_.density = spec.density;
        curve_.times_x = spec.times_x;
        curve_.segments = spec.segments();
        curve_.knots = knots_.data();
        curve_.steps = steps_.data();
    }

    size_t weight_bytes() const override { return (knots_.size() + steps_.size()) * sizeof(float); }

private:
    void compute(int channel, size_t pixel, size_t n, const Planes* in, float* v) const override {
        simd_.curve(curve_, in[0].plane[channel] + pixel * size_of(curve_.type), n, v);
    }

    const std::vector<float> knots_;
    std::vector<float> steps_;
    values::Curve curve_;
};

class Multiply final : public Pixelwise {
public:
    Multiply(const MultiplySpec& spec, const Simd& simd, int threads)
        : Pixelwise(spec.shape, spec.outputs, simd, threads), spec_(spec) {}

private:
    void compute(int channel, size_t pixel, size_t n, const Planes* in, float* v) const override {
        const unsigned char* const b = in[1].plane[spec_.channel(channel)];
        values::Product product;
        std::copy(spec_.types, spec_.types + 2, product.types);
        product.a = in[0].plane[channel] + pixel * size_of(spec_.types[0]);
        if (spec_.factor.pixels() == 1) product.factor = float(read_code(spec_.types[1], b, 0));
        else product.b = b + pixel * size_of(spec_.types[1]);
        simd_.multiply(product, n, v);
    }

    const MultiplySpec spec_;
};

}  // namespace

std::unique_ptr<Op> make_curve(const CurveSpec& spec, const Simd* simd, int threads) {
    return std::make_unique<Curve>(spec, *simd, threads);
}

std::unique_ptr<Op> make_multiply(const MultiplySpec& spec, const Simd* simd, int threads) {
    return std::make_unique<Multiply>(spec, *simd, threads);
}

}  // namespace dbq::vec
