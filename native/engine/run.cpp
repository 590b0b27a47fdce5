// Running: images of a batch, or tasks of an operation, spread over threads.

#include <chrono>
#include <cstring>

#include "engine/network.h"

namespace dbq {

Network::Team Network::make_team(Pool* pool) const {
    Team team;
    team.pool = pool;
    const int threads = pool ? pool->threads() : 1;
    for (int i = 0; i < threads; ++i)
        team.scratch.push_back(
            scratch_.take([this] { return std::make_unique<Scratch>(Scratch{allocate(scratch_bytes_)}); }));
    return team;
}

FreeList<Workspace>::Lease Network::take_workspace() const {
    return workspaces_.take([this] { return std::make_unique<Workspace>(layout_, arguments_); });
}

// Whole images are the best tasks: threads synchronise once per batch instead of once per operation. The
// remainder, less than one image per thread, is cut into the tasks of its operations.
void Network::run(const uint8_t* images, size_t count, float* logits) const {
    const std::shared_ptr<Pool> pool = this->pool();
    const std::unique_lock<std::mutex> entered = pool->try_enter();
    Team team = make_team(entered.owns_lock() && pool->threads() > 1 ? pool.get() : nullptr);
    const size_t threads = size_t(team.threads());
    const size_t image_bytes = size_t(input_.channels) * input_.pixels();
    while (team.pool && count >= threads) {
        const size_t limit = Pool::MAX_TASKS;
        const size_t part = count < limit ? count - count % threads : limit;
        run_whole_images(team, images, int(part), logits);
        images += part * image_bytes;
        logits += part * output_size();
        count -= part;
    }
    if (count == 0) return;
    const auto space = take_workspace();
    for (size_t i = 0; i < count; ++i)
        run_image(*space, images + i * image_bytes, logits + i * output_size(), team);
}

void Network::run_whole_images(Team& team, const uint8_t* images, int count, float* logits) const {
    std::vector<FreeList<Workspace>::Lease> spaces;
    std::vector<Team> alone(team.scratch.size());
    for (size_t i = 0; i < alone.size(); ++i) {
        spaces.push_back(take_workspace());
        alone[i].scratch.push_back(std::move(team.scratch[i]));
    }
    const size_t image_bytes = size_t(input_.channels) * input_.pixels();
    team.pool->run(count, [&](int image, int thread) {
        const size_t i = size_t(image), t = size_t(thread);
        run_image(*spaces[t], images + i * image_bytes, logits + i * output_size(), alone[t]);
    });
    for (size_t i = 0; i < alone.size(); ++i) team.scratch[i] = std::move(alone[i].scratch[0]);
}

void Network::run_image(Workspace& space, const uint8_t* image, float* logits, const Team& team) const {
    space.set_image(image);
    for (size_t i = 0; i < operations_.size(); ++i) run_operation(i, space, team);
    copy_output(space, logits);
}

void Network::run_operation(size_t operation, const Workspace& space, const Team& team) const {
    const Op* op = operations_[operation].get();
    if (!op) return;
    const Planes *in = space.inputs(operation), *out = space.outputs(operation);
    const int tasks = op->tasks();
    const auto run = [&](int task, int thread) {
        op->run(task, in, out, team.scratch[size_t(thread)]->memory.get());
    };
    if (team.pool && tasks > 1 && tasks <= Pool::MAX_TASKS) team.pool->run(tasks, run);
    else
        for (int task = 0; task < tasks; ++task) run(task, 0);
}

void Network::copy_output(const Workspace& space, float* logits) const {
    const unsigned char* const* planes = space.tensor(output_tensor_);
    for (int channel = 0; channel < output_.channels; ++channel, logits += output_.pixels())
        std::memcpy(logits, planes[channel], output_.pixels() * sizeof *logits);
}

void Network::profile(const uint8_t* image, double* microseconds) const {
    using Clock = std::chrono::steady_clock;
    const std::shared_ptr<Pool> pool = this->pool();
    const std::unique_lock<std::mutex> entered = pool->try_enter();
    const Team team = make_team(entered.owns_lock() && pool->threads() > 1 ? pool.get() : nullptr);
    const auto space = take_workspace();
    space->set_image(image);
    for (size_t i = 0; i < operations_.size(); ++i) {
        const auto start = Clock::now();
        run_operation(i, *space, team);
        microseconds[i] = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    }
}

}  // namespace dbq
