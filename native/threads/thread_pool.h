// Threads that wait for work: they spin briefly, because the next layer follows in microseconds, then sleep.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

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
    std::unique_lock<std::mutex> try_enter() { return {entered_, std::try_to_lock}; }

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
    void work(int thread);
    uint64_t next_job(uint64_t last);
    void wake();
    bool is_ours() const;  // false in a forked child

    // The number of the job and its next task, both in one word, so that a late thread can never take a task
    // of another job than the one whose fields it has read: job numbers never repeat.
    static constexpr int TASK_BITS = 24;
    static constexpr uint64_t TASK_MASK = (uint64_t{1} << TASK_BITS) - 1;
    static constexpr uint64_t STOP = ~uint64_t{0} >> TASK_BITS;
    alignas(64) std::atomic<uint64_t> ticket_{TASK_MASK};
    alignas(64) std::atomic<int> unfinished_{0};
    std::atomic<const void*> function_{nullptr};
    std::atomic<Call> call_{nullptr};
    std::atomic<int> tasks_{0};

    std::mutex entered_;
    std::mutex sleep_;
    std::condition_variable awake_;
    std::atomic<int> asleep_{0};
    std::vector<std::thread> workers_;
    const int owner_;  // the process that has the threads
};

}  // namespace dbq
