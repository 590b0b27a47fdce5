// Reads the body of a .dbq file. The files in ops/ read their operations through it.
#pragma once

#include <set>

#include "file/check.h"
#include "kernels/select.h"

namespace dbq {

class Parser {
public:
    Parser(Bytes body, uint32_t version) : bytes(body), version_(version) {}

    Program program();

    // ---- For operations

    const Tensor& input(Operation& op, Type widest);  // a number of a tensor: one that was written before
    const Tensor& output(Operation& op);              // a number of a tensor
    std::vector<Output> results(Operation& op, uint32_t sums);  // all of one shape
    Window window(bool dilated = false);

    const Tensor& readable(uint32_t number, Type widest);
    const Tensor& tensor(uint32_t number) const { return program_.tensors[number]; }
    // No code of the tensor is larger in size.
    int32_t& largest(uint32_t number) { return largest_[number]; }

    Reader bytes;

private:
    Tensor read_tensor();
    void read_output();
    void read_operation(uint32_t i);
    Output result(const Tensor& tensor, uint32_t sums);
    uint32_t index(uint32_t tensor) const;

    const uint32_t version_;
    Program program_;
    std::vector<bool> written_;
    std::vector<int32_t> largest_;
    std::set<uint32_t> output_tensors_;
    std::set<std::string> output_names_;
};

// What Operation::build does for most operations.
template <class Spec> auto builder(Spec spec) {
    return [spec = std::move(spec)](const Simd* simd, int threads) {
        return Built{make_op(spec, simd, threads), kernel_name(spec, simd)};
    };
}

}  // namespace dbq
