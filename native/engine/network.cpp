// Loading: file -> kernels, memory plan, facts for people. Running is in run.cpp.

#include "engine/network.h"

#include <algorithm>
#include <thread>

#include "engine/build.h"

namespace dbq {

namespace {

// Finer tasks than there are processors help nobody; a handful is enough to keep many busy.
int threads_to_cut_for() {
    return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 16u));
}

}  // namespace

Network::Network(Bytes file, Isa isa) : isa_(isa) {
    const Program program = parse(file);
    layout_ = lay_out(program);
    name_ = program.name;
    metadata_ = program.metadata;
    output_tensor_ = program.output;
    input_ = program.tensors[program.operations[0].outputs[0]].shape;
    output_ = program.tensors[program.output].shape;
    const int threads = threads_to_cut_for();
    for (const Operation& operation : program.operations) add(program, operation, threads);
}

void Network::add(const Program& program, const Operation& operation, int threads) {
    std::unique_ptr<Op> op;
    try {
        op = build(program, operation, isa_, threads);
    } catch (Error& error) {
        error.text = operation.name.substr(0, 80) + ": " + error.text;
        throw;
    }
    const Tensor& out = program.tensors[operation.outputs[0]];
    Layer layer;
    layer.name = operation.name;
    layer.kind = kind_name(operation.kind);
    layer.precision = precision(operation);
    layer.type = type_name(out.type);
    layer.shape = out.shape;
    layer.macs = macs(program, operation);
    if (op) {
        layer.kernel = op->kernel();
        layer.weight_bytes = op->weight_bytes();
        scratch_bytes_ = std::max(scratch_bytes_, op->scratch_bytes());
    }
    layers_.push_back(std::move(layer));
    arguments_.push_back({operation.inputs, operation.outputs});
    operations_.push_back(std::move(op));
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
    size_t bytes = layout_.bytes + scratch_bytes_ * static_cast<size_t>(threads());
    for (const Layer& layer : layers_) bytes += layer.weight_bytes;
    return bytes;
}

}  // namespace dbq
