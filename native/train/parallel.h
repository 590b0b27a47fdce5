// Work of the training kernels, shared out over the threads that torch has already.
//
// Between torch's calls its OpenMP threads spin for a while. A pool of our own would fight with them for the
// cores (measured on two: half the speed), so the kernels run on torch's: Python finds the OpenMP library
// that torch has loaded and hands over two of its functions. Without it a kernel runs on the calling thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dbq {

struct OpenMP {
    void (*parallel)(void (*function)(void*), void* data, unsigned threads, unsigned flags);  // GOMP_parallel
    int (*thread)();   // omp_get_thread_num
    int (*threads)();  // omp_get_num_threads
};
extern OpenMP openmp;

// Calls work(first, last) for ranges that cover 0 to `count`, one range a thread, at most `most` of them.
template <class Work> void share_out(int64_t count, int threads, int64_t most, const Work& work) {
    const int64_t parts = std::min<int64_t>({threads, count, most});
    if (parts < 2 || !openmp.parallel) return work(int64_t{0}, count);
    struct Job {
        int64_t count;
        const Work& work;
    } job{count, work};
    openmp.parallel(
        [](void* data) {
            const Job& job = *static_cast<Job*>(data);
            const int64_t part = openmp.thread(), parts = openmp.threads();  // there may be fewer than asked
            job.work(job.count * part / parts, job.count * (part + 1) / parts);
        },
        &job, unsigned(parts), 0);
}

}  // namespace dbq
