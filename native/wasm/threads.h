// WebAssembly has one thread. This is what the engine uses of the standard library's threads, which the
// library for WebAssembly leaves out: locks that are always free, and threads that cannot be started.
// Included before everything else (-include).
#pragma once

#include <chrono>
#include <cstdlib>
#include <mutex>

namespace std {

class mutex {
public:
    void lock() {}
    bool try_lock() { return true; }
    void unlock() {}
};

class condition_variable {
public:
    void notify_all() {}
    void notify_one() {}
    template <class Lock, class Condition> void wait(Lock&, const Condition&) { abort(); }
};

class thread {
public:
    template <class... Arguments> explicit thread(Arguments&&...) { abort(); }
    void join() {}
    static unsigned hardware_concurrency() { return 1; }
};

namespace this_thread {
inline void yield() {}
}  // namespace this_thread

}  // namespace std

extern "C" inline int getpid(void) { return 1; }
