#include "kernels/vector/outputs.h"

#include "kernels/formula.h"

namespace dbq::vec {

bool is_bounded(const Output& output, int branches, double largest_sum) {
    for (size_t k = 0; k < output.offset.size(); ++k) {
        double t = std::fabs(double(output.offset[k]));
        for (size_t j = 0; j < size_t(branches); ++j)
            t += std::fabs(double(output.scale[k * size_t(branches) + j])) * largest_sum;
        if (!(t < double(1 << 30))) return false;
    }
    return true;
}

Outputs::Outputs(const std::vector<Output>& outputs, int branches, double largest_sum)
    : outputs_(outputs), branches_(branches) {
    for (const Output& output : outputs) bounded_.push_back(is_bounded(output, branches, largest_sum));
}

void Outputs::describe(size_t output, int channel, const Planes* out, Finish& finish) const {
    const Output& o = outputs_[output];
    finish.branches = branches_;
    finish.type = o.type;
    finish.bounded = bounded_[output];
    finish.clamps = o.clamps();
    finish.low = o.low;
    finish.high = o.high;
    finish.scale = o.scale.data() + size_t(channel) * size_t(branches_);
    finish.offset = o.offset.data() + channel;
    finish.out = out[output].plane + channel;
}

void Outputs::write(void (*kernel)(const Finish&), Finish finish, int first, const Planes* out) const {
    for (size_t o = 0; o < outputs_.size(); ++o) {
        describe(o, first, out, finish);
        kernel(finish);
    }
}

void Outputs::write_element(const int32_t* sums, int channel, const Planes* out, size_t pixel) const {
    for (size_t o = 0; o < outputs_.size(); ++o)
        dbq::write_element(outputs_[o], sums, branches_, channel, out[o].plane[channel], pixel);
}

void Outputs::write_value(float v, int channel, const Planes* out, size_t pixel) const {
    for (size_t o = 0; o < outputs_.size(); ++o)
        dbq::write_value(outputs_[o], v, channel, out[o].plane[channel], pixel);
}

}  // namespace dbq::vec
