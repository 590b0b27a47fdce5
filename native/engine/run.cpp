// Running: images of a batch, or tasks of an operation, spread over threads.

#include <chrono>
#include <cstring>

#include "engine/network.h"

namespace dbq {

// The threads of one call: all of the pool's, or the caller alone while another call uses the pool.
struct Network::Team {
    explicit Team(const Network& network)
        : stop(network.cancellations_), pool(network.pool()), entered(pool->try_enter()) {
        const int threads = entered.owns_lock() ? pool->threads() : 1;
        for (int i = 0; i < threads; ++i)
            scratch.push_back(network.scratch_.take([&] { return allocate(network.scratch_bytes_); }));
    }
    Pool* pool_to_use() const { return scratch.size() > 1 ? pool.get() : nullptr; }
    void check() const {
        if (stop.requested()) fail(DBQ_CANCELLED, "dbq_cancel ended this call; its results mean nothing");
    }

    const Stop stop;
    const std::shared_ptr<Pool> pool;
    const std::unique_lock<std::mutex> entered;
    std::vector<Scratch> scratch;  // for each thread
};

FreeList<Workspace>::Lease Network::take_workspace() const {
    return workspaces_.take([this] { return Workspace(layout_, program_.operations); });
}

// Whole images are the best tasks: threads synchronise once per batch instead of once per operation. The
// remainder, less than one image per thread, is cut into the tasks of its operations.
void Network::run(const uint8_t* images, size_t count, float* logits) const {
    const Team team(*this);
    const size_t threads = team.scratch.size(), limit = Pool::MAX_TASKS;
    const size_t image_bytes = size_t(input().channels) * input().pixels();
    while (threads > 1 && count >= threads && !team.stop.requested()) {
        const size_t part = count < limit ? count - count % threads : limit;
        run_whole_images(team, images, int(part), logits);
        images += part * image_bytes;
        logits += part * output_size();
        count -= part;
    }
    if (count > 0) {
        const auto space = take_workspace();
        for (; count > 0 && !team.stop.requested(); --count, images += image_bytes, logits += output_size())
            run_image(*space, images, logits, team.stop, team.pool_to_use(), team.scratch.data());
    }
    team.check();
}

void Network::run_whole_images(const Team& team, const uint8_t* images, int count, float* logits) const {
    std::vector<FreeList<Workspace>::Lease> spaces;
    for (size_t i = 0; i < team.scratch.size(); ++i) spaces.push_back(take_workspace());
    const size_t image_bytes = size_t(input().channels) * input().pixels();
    team.pool->run(count, [&](int image, int thread) {
        const size_t i = size_t(image), t = size_t(thread);
        run_image(*spaces[t], images + i * image_bytes, logits + i * output_size(), team.stop, nullptr,
                  &team.scratch[t]);
    });
}

void Network::run_image(Workspace& space, const uint8_t* image, float* logits, const Stop& stop, Pool* pool,
                        const Scratch* scratch) const {
    space.set_image(image);
    for (size_t i = 0; i < kernels_.size(); ++i) run_operation(i, space, stop, pool, scratch);
    if (stop.requested()) return;  // the outputs may not have been written
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
        const unsigned char* const* planes = space.tensor(program_.outputs[i].tensor);
        const Shape shape = output(i);
        for (int channel = 0; channel < shape.channels; ++channel, logits += shape.pixels())
            std::memcpy(logits, planes[channel], shape.pixels() * sizeof *logits);
    }
}

void Network::run_operation(size_t operation, const Workspace& space, const Stop& stop, Pool* pool,
                            const Scratch* scratch) const {
    const Op* op = kernels_[operation].op.get();
    if (!op) return;
    const Planes *in = space.inputs(operation), *out = space.outputs(operation);
    const int tasks = op->tasks();
    const auto run = [&](int task, int thread) {
        if (stop.requested()) return;
        const StopHere here(stop);
        op->run(task, in, out, scratch[thread]->get());
    };
    if (pool && tasks > 1 && tasks <= Pool::MAX_TASKS) pool->run(tasks, run);
    else if (!stop.requested()) {
        const StopHere here(stop);
        op->run_all(in, out, scratch[0]->get());
    }
}

void Network::profile(const uint8_t* image, double* microseconds) const {
    using Clock = std::chrono::steady_clock;
    const Team team(*this);
    const auto space = take_workspace();
    space->set_image(image);
    for (size_t i = 0; i < kernels_.size(); ++i) {
        const auto start = Clock::now();
        run_operation(i, *space, team.stop, team.pool_to_use(), team.scratch.data());
        microseconds[i] = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    }
    team.check();
}

}  // namespace dbq
