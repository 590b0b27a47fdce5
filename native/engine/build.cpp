#include "engine/build.h"

namespace dbq {

namespace {

size_t kernel_weights(const Program& program, const Operation& op) {
    const int channels = program.tensors[op.inputs[0]].shape.channels / op.groups;
    return size_t(channels) * size_t(op.window.kernel_h) * size_t(op.window.kernel_w);
}

std::unique_ptr<Op> build_convolution(const Program& program, const Operation& op, Isa isa, int threads) {
    const Tensor& in = program.tensors[op.inputs[0]];
    ConvSpec spec;
    spec.in = in.shape;
    spec.in_type = in.type;
    spec.out = program.tensors[op.outputs[0]].shape;
    spec.kernel_h = op.window.kernel_h;
    spec.kernel_w = op.window.kernel_w;
    spec.stride_h = op.window.stride_h;
    spec.stride_w = op.window.stride_w;
    spec.pad_top = op.window.pad_top;
    spec.pad_left = op.window.pad_left;
    spec.dilation_h = op.dilation_h;
    spec.dilation_w = op.dilation_w;
    spec.groups = op.groups;
    spec.weights = op.form;
    spec.branches = op.form == Weights::Ternary ? op.size : 1;
    spec.outputs = op.results;
    const size_t kernels = size_t(spec.branches) * size_t(spec.out.channels);
    spec.codes = unpack(op, kernels * kernel_weights(program, op));
    return make_conv(spec, isa, threads);
}

}  // namespace

std::unique_ptr<Op> build(const Program& program, const Operation& op, Isa isa, int threads) {
    const Tensor& out = program.tensors[op.outputs[0]];
    const Tensor& in = op.inputs.empty() ? out : program.tensors[op.inputs[0]];
    switch (op.kind) {
        case Kind::Lookup: {
            const uint8_t* table = op.packed.data;
            return make_lookup({out.shape, out.type, {table, table + op.packed.size}}, isa, threads);
        }
        case Kind::Convolution: return build_convolution(program, op, isa, threads);
        case Kind::Add: {
            const Type second = program.tensors[op.inputs[1]].type;
            return make_add({out.shape, in.type, second, op.results}, isa, threads);
        }
        case Kind::Requantize: return make_requantize({out.shape, in.type, op.results}, isa, threads);
        case Kind::AveragePool:
            return make_average_pool({in.shape, out.shape, in.type, op.window, op.results}, isa, threads);
        case Kind::MaxPool: return make_max_pool({in.shape, out.shape, in.type, op.window}, isa, threads);
        case Kind::Channels: break;
    }
    return nullptr;
}

uint64_t macs(const Program& program, const Operation& op) {
    if (op.kind != Kind::Convolution) return 0;
    const Shape out = program.tensors[op.outputs[0]].shape;
    return uint64_t(out.channels) * out.pixels() * kernel_weights(program, op);
}

const char* kind_name(Kind kind) {
    constexpr const char* NAMES[] = {"lookup",       "convolution", "add",     "requantize",
                                     "average pool", "max pool",    "channels"};
    return NAMES[static_cast<int>(kind)];
}

const char* type_name(Type type) {
    constexpr const char* NAMES[] = {"u8", "i8", "i32", "f32"};
    return NAMES[static_cast<int>(type)];
}

std::string precision(const Operation& op) {
    if (op.size == 0) return "";
    return std::to_string(op.size) + (op.form == Weights::Ternary ? "T" : "b");
}

}  // namespace dbq
