// A .dbq file, read and checked. What parse() returns obeys the rules of docs/format.md, so the code behind
// it, kernels included, checks nothing again; only packed weights are looked at later, when they are
// unpacked for a kernel.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "file/reader.h"
#include "kernels/op.h"

namespace dbq {

struct Simd;

struct Tensor {
    Type type = Type::U8;
    Shape shape;
    float scale = 1;
};

constexpr uint32_t ZEROS = 0xFFFFFFFF;  // as the tensor of a Source: a channel of zeros

struct Source {
    uint32_t tensor = ZEROS, channel = 0;
};

// A kernel ready to run, and its name.
struct Built {
    std::unique_ptr<Op> op;
    std::string kernel;
};

struct Operation {
    const char* kind = nullptr;
    std::string name;
    std::vector<uint32_t> inputs, outputs;  // tensors
    std::vector<Source> sources;            // "channels" only: the planes that its output consists of
    std::string precision;                  // of the weights: "2T", "8b", or ""
    uint64_t macs = 0, work = 0;            // work: what dbq_work counts
    // For the given vector kernels (null: none) and number of threads. Empty where nothing has to run.
    std::function<Built(const Simd*, int threads)> build;
};

// A tensor of floats that the network returns.
struct NamedOutput {
    uint32_t tensor = 0;
    std::string name;
};

struct Program {
    std::string name, metadata;
    std::vector<Tensor> tensors;
    std::vector<NamedOutput> outputs;  // at least one
    std::vector<Operation> operations;
};

// Throws Error. The program's `build` functions point into `file`.
Program parse(Bytes file);

}  // namespace dbq
