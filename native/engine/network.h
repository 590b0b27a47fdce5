// A loaded network: kernels in running order, and the threads that run them.
#pragma once

#include <mutex>

#include "engine/workspace.h"
#include "threads/free_list.h"
#include "threads/stop.h"
#include "threads/thread_pool.h"

namespace dbq {

class Network {
public:
    // Without `simd`: plain loops. Throws Error, also if the network needs more than `limits`.
    Network(Bytes file, const Simd* simd, dbq_limits limits);

    // images: [count][height][width][channels]; logits: [count], each all outputs one behind the other.
    void run(const uint8_t* images, size_t count, float* logits) const;
    void profile(const uint8_t* image, double* microseconds) const;

    void cancel() { ++cancellations_; }  // whatever runs now

    void set_threads(int threads);
    int threads() const { return pool()->threads(); }

    const Program& program() const { return program_; }
    const Simd* simd() const { return simd_; }
    Shape input() const { return program_.tensors[program_.operations[0].outputs[0]].shape; }
    Shape output(size_t number) const { return program_.tensors[program_.outputs[number].tensor].shape; }
    size_t output_size() const { return output_size_; }  // floats of all outputs
    dbq_layer layer(size_t operation) const;             // its strings live as long as the network
    size_t peak_memory() const;
    uint64_t work() const { return work_; }

private:
    using Scratch = FreeList<Memory>::Lease;
    struct Team;

    std::shared_ptr<Pool> pool() const;
    Built build(const Operation& operation, int threads) const;
    FreeList<Workspace>::Lease take_workspace() const;
    void count_work(uint64_t limit);
    void run_whole_images(const Team& team, const uint8_t* images, int count, float* logits) const;
    // With a pool, `scratch` is for each of its threads; without one, the caller works alone.
    void run_image(Workspace&, const uint8_t* image, float* logits, const Stop&, Pool*,
                   const Scratch* scratch) const;
    void run_operation(size_t operation, const Workspace&, const Stop&, Pool*, const Scratch* scratch) const;

    const Simd* const simd_;
    Program program_;
    Layout layout_;
    std::vector<Built> kernels_;  // for each operation
    size_t scratch_bytes_ = 0;    // for each thread
    uint64_t work_ = 0;
    size_t output_size_ = 0;
    std::atomic<uint64_t> cancellations_{0};

    mutable FreeList<Workspace> workspaces_;
    mutable FreeList<Memory> scratch_;
    mutable std::mutex mutex_;  // guards the pointer only; a running thread holds a copy of it
    std::shared_ptr<Pool> pool_ = Pool::start(1);
};

}  // namespace dbq
