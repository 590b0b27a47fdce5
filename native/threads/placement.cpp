#include "threads/placement.h"

#if defined(__linux__)

#include <pthread.h>
#include <sched.h>

namespace dbq {

void Placement::keep_off_this_processor(std::vector<std::thread>& workers) {
    const int here = sched_getcpu();
    if (here == taken_ || here < 0 || here >= CPU_SETSIZE) return;
    taken_ = here;
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;  // the caller's, which the user may set
    CPU_CLR(here, &allowed);
    if (CPU_COUNT(&allowed) == 0) return;
    for (std::thread& worker : workers)
        pthread_setaffinity_np(worker.native_handle(), sizeof allowed, &allowed);
}

}  // namespace dbq

#else

void dbq::Placement::keep_off_this_processor(std::vector<std::thread>&) {}

#endif
