// Writing sums to all outputs of an operation.
#pragma once

#include "kernels/isa/simd.h"

namespace dbq {

class Outputs {
public:
    // No sum is larger than this in magnitude.
    Outputs(const std::vector<Output>& outputs, int branches, double largest_sum);

    // `finish` says where the sums are; channels [first, first + finish.channels) are written.
    void write(void (*kernel)(const Finish&), Finish finish, int first, const Planes* out) const;
    void write_element(const int32_t* sums, int channel, const Planes* out, size_t pixel) const;

    size_t size() const { return outputs_.size(); }
    // The part of Finish that depends on the output and channel.
    void describe(size_t output, int channel, const Planes* out, Finish& finish) const;

private:
    const std::vector<Output> outputs_;
    const int branches_;
    std::vector<bool> bounded_;
};

}  // namespace dbq
