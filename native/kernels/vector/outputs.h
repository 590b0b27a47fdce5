// Writing sums to all outputs of an operation.
#pragma once

#include "kernels/isa/simd.h"
#include "kernels/ranges.h"
#include "ops/specs.h"

namespace dbq::vec {

// Whether |t| < 2^30 in the formula, if no sum is larger than this in magnitude.
bool is_bounded(const Output& output, int branches, double largest_sum);

class Outputs {
public:
    explicit Outputs(const ConvSpec& spec) : Outputs(spec.outputs, spec.branches, spec.largest_sum()) {}
    Outputs(const std::vector<Output>& outputs, int branches, double largest_sum);

    // `finish` says where the sums are; channels [first, first + finish.channels) are written.
    void write(void (*kernel)(const Finish&), Finish finish, int first, const Planes* out) const;
    void write_element(const int32_t* sums, int channel, const Planes* out, size_t pixel) const;

    void write_value(float v, int channel, const Planes* out, size_t pixel) const;

    size_t size() const { return outputs_.size(); }
    // The part of Finish that depends on the output and channel.
    void describe(size_t output, int channel, const Planes* out, Finish& finish) const;

private:
    const std::vector<Output> outputs_;
    const int branches_;
    std::vector<bool> bounded_;
};

}  // namespace dbq::vec
