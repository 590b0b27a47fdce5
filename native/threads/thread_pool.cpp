#include "threads/thread_pool.h"

#include <unistd.h>

#include <chrono>

namespace dbq {

namespace {

constexpr std::chrono::microseconds SPIN{50};

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Waits a short while for `done`; returns whether it became true.
template <typename Condition> bool spin(const Condition& done) {
    const auto end = std::chrono::steady_clock::now() + SPIN;
    do {
        for (int i = 0; i < 64; ++i) {
            if (done()) return true;
            pause();
        }
    } while (std::chrono::steady_clock::now() < end);
    return false;
}

}  // namespace

Pool::Pool(int threads) : owner_(getpid()) {
    try {
        for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
    } catch (...) {
        stop();  // the threads that did start
        throw;
    }
}

std::shared_ptr<Pool> Pool::start(int threads) {
    return {new Pool(threads), [](Pool* pool) {
                if (pool->is_ours()) delete pool;
            }};
}

bool Pool::is_ours() const { return getpid() == owner_; }

void Pool::stop() {
    ticket_.store(STOP << TASK_BITS | TASK_MASK);
    wake();
    for (std::thread& worker : workers_) worker.join();
}

void Pool::run_job(int tasks, const void* function, Call call) {
    const uint64_t job = (ticket_.load() >> TASK_BITS) + 1;
    // Tasks are closed (the mask is beyond any count) while the fields change.
    ticket_.store(job << TASK_BITS | TASK_MASK);
    function_.store(function, std::memory_order_release);
    call_.store(call, std::memory_order_release);
    tasks_.store(tasks, std::memory_order_release);
    unfinished_.store(tasks, std::memory_order_release);
    ticket_.store(job << TASK_BITS);
    if (asleep_.load() > 0 && is_ours()) wake();
    take_tasks(job, 0);
    // The remaining tasks run on other threads; yield in case one of them was preempted.
    const auto done = [this] { return unfinished_.load(std::memory_order_acquire) == 0; };
    while (!spin(done)) std::this_thread::yield();
}

void Pool::take_tasks(uint64_t job, int thread) {
    uint64_t ticket = ticket_.load();
    for (;;) {
        const int task = int(ticket & TASK_MASK);
        if (ticket >> TASK_BITS != job || task >= tasks_.load(std::memory_order_acquire)) return;
        const void* function = function_.load(std::memory_order_acquire);
        const Call call = call_.load(std::memory_order_acquire);
        // A thread that has read a field of a later job also sees that job's ticket, so this fails.
        if (!ticket_.compare_exchange_weak(ticket, ticket + 1)) continue;
        call(function, task, thread);
        unfinished_.fetch_sub(1, std::memory_order_acq_rel);
        ticket = ticket_.load();
    }
}

void Pool::work(int thread) {
    uint64_t job = 0;
    while ((job = next_job(job)) != STOP) take_tasks(job, thread);
}

// The number of a job other than `last`.
uint64_t Pool::next_job(uint64_t last) {
    const auto arrived = [&] { return ticket_.load() >> TASK_BITS != last; };
    if (!spin(arrived)) {
        std::unique_lock<std::mutex> lock(sleep_);
        ++asleep_;  // before the last check of the ticket; run_job reads it after changing the ticket
        awake_.wait(lock, arrived);
        --asleep_;
    }
    return ticket_.load() >> TASK_BITS;
}

void Pool::wake() {
    // A thread that has checked the ticket but does not sleep yet holds the lock: wait until it sleeps.
    {
        const std::lock_guard<std::mutex> lock(sleep_);
    }
    awake_.notify_all();
}

}  // namespace dbq
