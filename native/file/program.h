// A .dbq file as plain data. What parse() returns obeys every rule of docs/format.md, so the code behind
// it, kernels included, checks nothing again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "file/reader.h"
#include "kernels/op.h"

namespace dbq {

enum class Kind : uint8_t { Lookup, Convolution, Add, Requantize, AveragePool, MaxPool, Channels };

struct Tensor {
    Type type = Type::U8;
    Shape shape;
    float scale = 1;
};

constexpr uint32_t ZEROS = 0xFFFFFFFF;

struct Source {
    uint32_t tensor = ZEROS, channel = 0;
};

struct Operation {
    Kind kind = Kind::Lookup;
    std::string name;
    std::vector<uint32_t> inputs, outputs;  // tensors; those of Channels are in `sources`
    Window window;                          // Convolution, AveragePool, MaxPool
    int dilation_h = 1, dilation_w = 1, groups = 1;
    Weights form = Weights::Ternary;
    int size = 0;                 // branches of Ternary, bits of Fixed; 0 without weights
    std::vector<Output> results;  // the formula of each output, where there is one
    Bytes packed;                 // Convolution: weights. Lookup: table. Part of the file
    std::vector<Source> sources;  // Channels
};

struct Program {
    std::string name, metadata;
    std::vector<Tensor> tensors;
    uint32_t output = 0;
    std::vector<Operation> operations;
};

// Throws Error. The program points into `file`.
Program parse(Bytes file);

// Codes of a convolution, [branch][output channel][input channel of the group][row][column]. Throws
// Error: the values of packed weights are looked at here for the first time.
std::vector<int8_t> unpack(const Operation& convolution, size_t codes);

}  // namespace dbq
