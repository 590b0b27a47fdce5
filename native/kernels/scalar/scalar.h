// The specification of every operation: plain loops that follow the words of op.h. Vector kernels must
// give the same bits.
#pragma once

#include "kernels/op.h"

namespace dbq::scalar {

std::unique_ptr<Op> make_conv(const ConvSpec&, int threads);
std::unique_ptr<Op> make_add(const AddSpec&, int threads);
std::unique_ptr<Op> make_requantize(const RequantizeSpec&, int threads);
std::unique_ptr<Op> make_average_pool(const AveragePoolSpec&, int threads);
std::unique_ptr<Op> make_max_pool(const MaxPoolSpec&, int threads);
std::unique_ptr<Op> make_lookup(const LookupSpec&, int threads);

}  // namespace dbq::scalar
