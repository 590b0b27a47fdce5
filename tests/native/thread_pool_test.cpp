// The thread pool under ThreadSanitizer: every task runs once, on one thread, whatever the timing.

#include "threads/thread_pool.h"

#include <algorithm>
#include <chrono>

#include "expect.h"

namespace {

void every_task_runs_once(int threads) {
    const auto pool = dbq::Pool::start(threads);
    EXPECT(pool->threads() == threads);
    const auto entered = pool->try_enter();
    EXPECT(entered.owns_lock());
    std::vector<int> runs(257);                    // plain ints: a race would be reported
    std::vector<long> on_thread(pool->threads());  // each thread's own
    long expected = 0;
    for (int round = 0; round < 400; ++round) {
        const int tasks = round % 257 + 1;
        pool->run(tasks, [&](int task, int thread) {
            ++runs[size_t(task)];
            ++on_thread[size_t(thread)];
        });
        expected += tasks;
        // Now and then a pause in which the workers fall asleep, or nearly do.
        if (round % 50 == 0) std::this_thread::sleep_for(std::chrono::microseconds(round % 100 ? 50 : 2000));
    }
    long total = 0, counted = 0;
    for (const int run : runs) total += run;
    for (const long run : on_thread) counted += run;
    EXPECT(total == expected && counted == expected);
}

void only_one_caller_at_a_time() {
    const auto pool = dbq::Pool::start(2);
    const auto entered = pool->try_enter();
    bool second = true;
    std::thread([&] { second = pool->try_enter().owns_lock(); }).join();
    EXPECT(entered.owns_lock() && !second);
}

// A woken thread would be put where its caller runs, and take time from it.
void workers_leave_a_processor_to_their_caller() {
#if defined(__linux__)
    cpu_set_t allowed, left;
    EXPECT(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    std::mutex end;
    std::unique_lock<std::mutex> running(end);
    std::vector<std::thread> workers;
    workers.emplace_back([&] { const std::lock_guard<std::mutex> lock(end); });
    dbq::Placement().keep_off_this_processor(workers);
    EXPECT(pthread_getaffinity_np(workers[0].native_handle(), sizeof left, &left) == 0);
    EXPECT(CPU_COUNT(&left) == std::max(1, CPU_COUNT(&allowed) - 1));
    running.unlock();
    workers[0].join();
#endif
}

void starting_and_stopping() {
    for (int i = 0; i < 50; ++i) dbq::Pool::start(i % 5 + 1);
}

}  // namespace

int main() {
    for (const int threads : {1, 2, 3, 8}) every_task_runs_once(threads);
    only_one_caller_at_a_time();
    workers_leave_a_processor_to_their_caller();
    starting_and_stopping();
    std::puts("thread pool: fine");
}
