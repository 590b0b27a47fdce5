// Threads that wait for work: they spin briefly, because the next layer follows in microseconds, then sleep.
//
// Each thread has a share of the tasks of a job, the same part of all jobs, so that what it wrote in one is
// in its cache in the next. A thread that is done takes what is left of other shares. Getting a cache line
// from another processor takes 0.2 us: a job costs one to hand it out, and one for each thread to see that it
// is done.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "threads/placement.h"

namespace dbq {

class Pool {
public:
    // The caller of run() is one of the threads. In a forked child the others do not exist: there it takes
    // all tasks, nobody is woken (the lock and the condition may be as a thread left them half-way, and
    // would never be released), and the pool is never destroyed, because joining would never end.
    static std::shared_ptr<Pool> start(int threads);

    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int threads() const { return int(workers_.size()) + 1; }

    // A pool serves one caller at a time. A caller that does not get this lock works alone.
    std::unique_lock<std::mutex> try_enter();

    // Calls function(task, thread) for each task, on several threads; thread is 0 for the caller and below
    // threads() for the others. Returns when all are done. The caller must hold the lock of try_enter().
    template <typename Function> void run(int tasks, const Function& function) {
        run_job(tasks, &function, [](const void* f, int task, int thread) {
            (*static_cast<const Function*>(f))(task, thread);
        });
    }

    static constexpr int MAX_TASKS = 1 << 20;  // of one run

private:
    explicit Pool(int threads);
    ~Pool() { stop(); }
    void stop();

    using Call = void (*)(const void* function, int task, int thread);

    void run_job(int tasks, const void* function, Call call);
    void take_tasks(uint64_t job, int thread);
    bool is_done(uint64_t job, int tasks) const;
    void work(int thread);
    uint64_t next_job(uint64_t last);
    void wake();
    bool is_ours() const;  // false in a forked child

    // A count of tasks of one job, in one word with the job's number. Numbers never repeat.
    struct Count {
        static constexpr int BITS = 24;
        uint64_t job;
        int tasks;
        static Count of(uint64_t word) { return {word >> BITS, int(word & ((uint64_t{1} << BITS) - 1))}; }
        uint64_t word() const { return job << BITS | uint64_t(tasks); }
        int in(uint64_t other) const { return job == other ? tasks : 0; }
    };
    struct alignas(64) Share {
        std::atomic<uint64_t> taken{0};     // of this share, by any thread
        std::atomic<uint64_t> finished{0};  // by this thread, of any share
    };

    static constexpr uint64_t STOP = ~uint64_t{0} << 1;
    // Twice the number of the job. Odd while the fields below change.
    alignas(64) std::atomic<uint64_t> job_{0};
    std::atomic<const void*> function_{nullptr};
    std::atomic<Call> call_{nullptr};
    std::atomic<int> tasks_{0};
    std::vector<Share> shares_;  // for each thread

    std::mutex entered_;
    std::mutex sleep_;
    std::condition_variable awake_;
    std::atomic<int> asleep_{0};
    std::vector<std::thread> workers_;
    Placement placement_;  // guarded by entered_
    const int owner_;      // the process that has the threads
};

}  // namespace dbq
