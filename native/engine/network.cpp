// Loading: from a file to kernels, a memory plan and descriptions of layers. Running is in run.cpp.

#include "engine/network.h"

#include <algorithm>
#include <thread>

#include "kernels/isa/simd.h"

namespace dbq {

namespace {

const char* type_name(Type type) {
    constexpr const char* NAMES[] = {"u8", "i8", "i32", "f32"};
    static_assert(sizeof NAMES / sizeof *NAMES == size_t(Type::F32) + 1);
    return NAMES[int(type)];
}

// How many threads tasks are cut for: no more than there are processors, and 16 keep any number busy.
int threads_to_cut_for() { return int(std::clamp(std::thread::hardware_concurrency(), 1u, 16u)); }

}  // namespace

Network::Network(Bytes file, const Simd* simd) : simd_(simd) {
    const Program program = parse(file);
    layout_ = lay_out(program, simd ? size_t(simd->lanes) : 1);
    name_ = program.name;
    metadata_ = program.metadata;
    output_tensor_ = program.output;
    input_ = program.tensors[program.operations[0].outputs[0]].shape;
    output_ = program.tensors[program.output].shape;
    const int threads = threads_to_cut_for();
    for (const Operation& operation : program.operations) add(program, operation, threads);
}

void Network::add(const Program& program, const Operation& operation, int threads) {
    Built built;
    try {
        if (operation.build) built = operation.build(simd_, threads);
    } catch (Error& error) {
        error.text = operation.name.substr(0, 80) + ": " + error.text;
        throw;
    }
    const Tensor& out = program.tensors[operation.outputs[0]];
    Layer layer;
    layer.name = operation.name;
    layer.kind = operation.kind;
    layer.precision = operation.precision;
    layer.kernel = built.kernel;
    layer.type = type_name(out.type);
    layer.shape = out.shape;
    layer.macs = operation.macs;
    if (built.op) {
        layer.weight_bytes = built.op->weight_bytes();
        scratch_bytes_ = std::max(scratch_bytes_, built.op->scratch_bytes());
    }
    layers_.push_back(std::move(layer));
    arguments_.push_back({operation.inputs, operation.outputs});
    operations_.push_back(std::move(built.op));
}

void Network::set_threads(int threads) {
    if (threads == this->threads()) return;
    std::shared_ptr<Pool> pool = Pool::start(threads);
    const std::lock_guard<std::mutex> lock(mutex_);
    pool_.swap(pool);
}

std::shared_ptr<Pool> Network::pool() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return pool_;
}

size_t Network::peak_memory() const {
    size_t bytes = layout_.bytes + scratch_bytes_ * size_t(threads());
    for (const Layer& layer : layers_) bytes += layer.weight_bytes;
    return bytes;
}

}  // namespace dbq
