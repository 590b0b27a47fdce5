// The vector form of every operation, for any instruction set that has a table of kernels.
#pragma once

#include "kernels/isa/simd.h"

namespace dbq {

std::unique_ptr<Op> make_table_conv(const ConvSpec&, const Simd&, int threads);  // ternary, many outputs
std::unique_ptr<Op> make_dense_conv(const ConvSpec&, const Simd&, int threads);  // fixed point, few outputs
std::unique_ptr<Op> make_dot_conv(const ConvSpec&, const Simd&, int threads);    // few pixels
std::unique_ptr<Op> make_depthwise_conv(const ConvSpec&, const Simd&,
                                        int threads);  // one input for each output
bool is_depthwise_3x3(const ConvSpec&, const Simd&);   // from 8 to 8 bits, 3x3: has a faster form
std::unique_ptr<Op> make_depthwise_conv_3x3(const ConvSpec&, const Simd&, int threads);

std::unique_ptr<Op> make_combine(Shape, std::vector<Type>, const std::vector<Output>&, const Simd&,
                                 int threads);
std::unique_ptr<Op> make_average_pool(const AveragePoolSpec&, const Simd&, int threads);
std::unique_ptr<Op> make_lookup(const LookupSpec&, const Simd&, int threads);
std::unique_ptr<Op> make_max_pool(const MaxPoolSpec&, const Simd&, int threads);

// The largest sum of a convolution, for Outputs.
inline double largest_sum(const ConvSpec& s) {
    const double taps = double(s.in.channels / s.groups) * s.kernel_h * s.kernel_w;
    return taps * 255 * (s.weights == Weights::Ternary ? 1 : 128);
}

}  // namespace dbq
