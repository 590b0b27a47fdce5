// Loading: from a file to kernels, a memory plan and descriptions of layers. Running is in run.cpp.

#include "engine/network.h"

#include <algorithm>
#include <thread>

#include "kernels/isa/simd.h"

namespace dbq {

namespace {

constexpr size_t MAX_SCRATCH = size_t{1} << 28;  // of a thread; only files made for that purpose need more

const char* type_name(Type type) {
    constexpr const char* NAMES[] = {"u8", "i8", "i32", "f32"};
    static_assert(sizeof NAMES / sizeof *NAMES == size_t(Type::F32) + 1);
    return NAMES[int(type)];
}

// How many threads tasks are cut for: no more than there are processors, and 16 keep any number busy.
int threads_to_cut_for() { return int(std::clamp(std::thread::hardware_concurrency(), 1u, 16u)); }

}  // namespace

Network::Network(Bytes file, const Simd* simd, dbq_limits limits) : simd_(simd), program_(parse(file)) {
    count_work(limits.work);
    for (size_t i = 0; i < program_.outputs.size(); ++i)
        output_size_ += size_t(output(i).channels) * output(i).pixels();
    layout_ = lay_out(program_, simd ? size_t(simd->lanes) : 1, limits.memory);
    const int threads = threads_to_cut_for();
    for (Operation& operation : program_.operations) {
        kernels_.push_back(build(operation, threads));
        operation.build = nullptr;  // it points into the file
        if (const Op* op = kernels_.back().op.get())
            scratch_bytes_ = std::max(scratch_bytes_, op->scratch_bytes());
    }
    check_memory(peak_memory(), limits.memory);
}

void Network::count_work(uint64_t limit) {
    for (const Operation& operation : program_.operations) {
        uint64_t work = operation.work;  // at most 2^60, and so is what follows
        for (const uint32_t tensor : operation.outputs) {
            const Shape& shape = program_.tensors[tensor].shape;
            work += uint64_t(shape.channels) * shape.pixels();
        }
        if (work > limit || work_ > limit - work)
            fail(DBQ_TOO_LARGE, "an image takes more than %llu steps: use smaller images, or raise the limit",
                 static_cast<unsigned long long>(limit));
        work_ += work;
    }
}

Built Network::build(const Operation& operation, int threads) const {
    if (!operation.build) return {};
    try {
        Built built = operation.build(simd_, threads);
        if (built.op->scratch_bytes() <= MAX_SCRATCH) return built;
        return operation.build(nullptr, threads);  // plain loops need none
    } catch (Error& error) {
        error.text = operation.name.substr(0, 80) + ": " + error.text;
        throw;
    }
}

dbq_layer Network::layer(size_t index) const {
    const Operation& operation = program_.operations[index];
    const Built& built = kernels_[index];
    const Tensor& out = program_.tensors[operation.outputs[0]];
    return {operation.name.c_str(), operation.kind,      operation.precision.c_str(),
            built.kernel.c_str(),   type_name(out.type), out.shape.channels,
            out.shape.height,       out.shape.width,     built.op ? built.op->weight_bytes() : 0,
            operation.macs};
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
    for (const Built& built : kernels_) bytes += built.op ? built.op->weight_bytes() : 0;
    return bytes;
}

}  // namespace dbq
