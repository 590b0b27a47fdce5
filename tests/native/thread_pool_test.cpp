// The thread pool under ThreadSanitizer: every task runs once, on one thread, whatever the timing.

#include "threads/thread_pool.h"

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

void starting_and_stopping() {
    for (int i = 0; i < 50; ++i) dbq::Pool::start(i % 5 + 1);
}

}  // namespace

int main() {
    for (const int threads : {1, 2, 3, 8}) every_task_runs_once(threads);
    only_one_caller_at_a_time();
    starting_and_stopping();
    std::puts("thread pool: fine");
}
