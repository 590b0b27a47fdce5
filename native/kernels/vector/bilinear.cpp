// Bilinear mixtures: lines are mixed along their columns first, pixel by pixel; then two lines, in vectors.
#include "kernels/vector/values.h"
#include "threads/stop.h"

namespace dbq::vec {
namespace {

template <class T> class Bilinear final : public RangeOp {
public:
    Bilinear(const BilinearSpec& spec, const Simd& simd, int threads)
        : RangeOp(spec.out.channels, threads), simd_(simd), spec_(spec),
          outputs_(spec.outputs, 1, LARGEST_VALUE) {}

    // Two lines and the floats of a plane, the last vector of which may reach beyond it.
    size_t scratch_bytes() const override {
        return 2 * line_bytes() + (spec_.out.pixels() + size_t(simd_.lanes)) * sizeof(float);
    }

private:
    size_t line_bytes() const { return plane_bytes(Type::F32, size_t(spec_.out.width), size_t(simd_.lanes)); }

    void run_on(Range channels, const Planes* in, const Planes* out, unsigned char* scratch) const override {
        const size_t width = size_t(spec_.out.width);
        float* lines[2] = {reinterpret_cast<float*>(scratch),
                           reinterpret_cast<float*>(scratch + line_bytes())};
        float* const v = reinterpret_cast<float*>(scratch + 2 * line_bytes());
        for (int k = channels.begin; k < channels.end; ++k) {
            int held[2] = {-1, -1};                         // which row of the input each line is
            const auto line_of = [&](int row, int other) {  // a line that is not `other`
                for (int i = 0; i < 2; ++i)
                    if (held[i] == row) return i;
                const int i = other == 0 ? 1 : 0;
                mix_columns(reinterpret_cast<const T*>(in[0].plane[k]) + spec_.in.pixel(row, 0), lines[i]);
                held[i] = row;
                return i;
            };
            for (size_t y = 0; y < spec_.rows.size() && !stopped(); ++y) {
                const Blend& row = spec_.rows[y];
                // The second first, if it is here already: the other line is then the one to replace.
                const bool second_is_here = held[0] == row.second || held[1] == row.second;
                const int b = second_is_here ? line_of(row.second, -1) : -1;
                const int a = line_of(row.first, b);
                const int c = line_of(row.second, a);
                simd_.mix(lines[a], lines[c], row.share, width, v + y * width);
            }
            write_values(simd_, outputs_, v, spec_.out.pixels(), k, 0, out);
        }
    }

    void mix_columns(const T* from, float* line) const {
        for (size_t x = 0; x < spec_.columns.size(); ++x) {
            const Blend& column = spec_.columns[x];
            line[x] = column.mix(float(from[column.first]), float(from[column.second]));
        }
    }

    const Simd& simd_;
    const BilinearSpec spec_;
    const Outputs outputs_;
};

}  // namespace

std::unique_ptr<Op> make_bilinear(const BilinearSpec& spec, const Simd* simd, int threads) {
    if (spec.in_type == Type::U8) return std::make_unique<Bilinear<uint8_t>>(spec, *simd, threads);
    if (spec.in_type == Type::I8) return std::make_unique<Bilinear<int8_t>>(spec, *simd, threads);
    return std::make_unique<Bilinear<int32_t>>(spec, *simd, threads);
}

}  // namespace dbq::vec
