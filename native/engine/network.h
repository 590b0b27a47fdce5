// A loaded network: kernels in running order, and the threads that run them.
#pragma once

#include <mutex>

#include "engine/workspace.h"
#include "threads/free_list.h"
#include "threads/thread_pool.h"

namespace dbq {

struct Layer {
    std::string name, kind, precision, kernel, type;
    Shape shape;
    size_t weight_bytes = 0;
    uint64_t macs = 0;
};

class Network {
public:
    Network(Bytes file, const Simd* simd);  // null: plain loops; throws Error

    // images: [count][height][width][channels]; logits: [count][channels][height][width] of output().
    void run(const uint8_t* images, size_t count, float* logits) const;
    void profile(const uint8_t* image, double* microseconds) const;

    void set_threads(int threads);
    int threads() const { return pool()->threads(); }

    const std::string& name() const { return name_; }
    const std::string& metadata() const { return metadata_; }
    const Simd* simd() const { return simd_; }
    Shape input() const { return input_; }
    Shape output() const { return output_; }
    size_t output_size() const { return size_t(output_.channels) * output_.pixels(); }
    const std::vector<Layer>& layers() const { return layers_; }
    size_t peak_memory() const;

private:
    struct Scratch {
        Memory memory;
    };
    // The threads that work on an image: the caller alone, or all of the pool's.
    struct Team {
        Pool* pool = nullptr;
        std::vector<FreeList<Scratch>::Lease> scratch;  // for each thread
        int threads() const { return int(scratch.size()); }
    };

    std::shared_ptr<Pool> pool() const;
    Team make_team(Pool* pool) const;
    FreeList<Workspace>::Lease take_workspace() const;
    void run_whole_images(Team& team, const uint8_t* images, int count, float* logits) const;
    void run_image(Workspace& space, const uint8_t* image, float* logits, const Team& team) const;
    void run_operation(size_t operation, const Workspace& space, const Team& team) const;
    void copy_output(const Workspace& space, float* logits) const;
    void add(const Program& program, const Operation& operation, int threads);

    const Simd* const simd_;
    std::string name_, metadata_;
    Shape input_, output_;
    uint32_t output_tensor_ = 0;
    Layout layout_;
    std::vector<std::unique_ptr<Op>> operations_;
    std::vector<Arguments> arguments_;
    std::vector<Layer> layers_;
    size_t scratch_bytes_ = 0;  // for each thread

    mutable FreeList<Workspace> workspaces_;
    mutable FreeList<Scratch> scratch_;
    mutable std::mutex mutex_;  // guards the pointer only; a running thread holds a copy of it
    std::shared_ptr<Pool> pool_ = Pool::start(1);
};

}  // namespace dbq
