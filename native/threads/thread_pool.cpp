#include "threads/thread_pool.h"

#include <unistd.h>

#include <chrono>

#include "kernels/ranges.h"

namespace dbq {

namespace {

constexpr std::chrono::microseconds SPIN{200};

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

Pool::Pool(int threads) : shares_(size_t(threads)), owner_(getpid()) {
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

std::unique_lock<std::mutex> Pool::try_enter() {
    std::unique_lock<std::mutex> lock(entered_, std::try_to_lock);
    if (lock.owns_lock() && is_ours()) placement_.keep_off_this_processor(workers_);
    return lock;
}

bool Pool::is_ours() const { return getpid() == owner_; }

void Pool::stop() {
    job_.store(STOP);
    wake();
    for (std::thread& worker : workers_) worker.join();
}

void Pool::run_job(int tasks, const void* function, Call call) {
    const uint64_t job = job_.load() / 2 + 1;
    job_.store(2 * job - 1);
    function_.store(function, std::memory_order_release);
    call_.store(call, std::memory_order_release);
    tasks_.store(tasks, std::memory_order_release);
    job_.store(2 * job);
    if (asleep_.load() > 0 && is_ours()) wake();
    take_tasks(job, 0);
    // The remaining tasks run on other threads; yield in case one of them was preempted.
    while (!spin([&] { return is_done(job, tasks); })) std::this_thread::yield();
}

bool Pool::is_done(uint64_t job, int tasks) const {
    for (const Share& share : shares_)
        tasks -= Count::of(share.finished.load(std::memory_order_acquire)).in(job);
    return tasks == 0;
}

void Pool::take_tasks(uint64_t job, int thread) {
    const void* const function = function_.load(std::memory_order_acquire);
    const Call call = call_.load(std::memory_order_acquire);
    const int tasks = tasks_.load(std::memory_order_acquire);
    // A thread that has read a field of a later job also sees that this one is over.
    if (job_.load() != 2 * job) return;
    const int threads = int(shares_.size());
    std::atomic<uint64_t>& finished = shares_[size_t(thread)].finished;
    for (int i = 0; i < threads; ++i) {
        const int owner = (thread + i) % threads;
        const Range share = part(tasks, threads, owner);
        std::atomic<uint64_t>& taken = shares_[size_t(owner)].taken;
        for (uint64_t word = taken.load();;) {
            const Count count = Count::of(word);
            // All tasks of a finished job were taken, so that a late thread finds none.
            const int next = count.in(job);
            if (count.job > job || next >= share.size()) break;
            if (!taken.compare_exchange_weak(word, Count{job, next + 1}.word())) continue;
            call(function, share.begin + next, thread);
            const Count before = Count::of(finished.load(std::memory_order_relaxed));
            finished.store(Count{job, before.in(job) + 1}.word(), std::memory_order_release);
            word = taken.load();
        }
    }
}

void Pool::work(int thread) {
    for (uint64_t job = 0; (job = next_job(job)) != STOP / 2;) take_tasks(job, thread);
}

// The number of a job other than `last`.
uint64_t Pool::next_job(uint64_t last) {
    uint64_t word = 0;
    const auto arrived = [&] {
        word = job_.load();
        return word % 2 == 0 && word != 2 * last;
    };
    if (!spin(arrived)) {
        std::unique_lock<std::mutex> lock(sleep_);
        ++asleep_;  // before the last check of the job; run_job reads it after changing the job
        awake_.wait(lock, arrived);
        --asleep_;
    }
    return word / 2;
}

void Pool::wake() {
    // A thread that has checked the job but does not sleep yet holds the lock: wait until it sleeps.
    {
        const std::lock_guard<std::mutex> lock(sleep_);
    }
    awake_.notify_all();
}

}  // namespace dbq
