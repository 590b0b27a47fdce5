// Ends the work of a call early. Long loops ask stopped() at every line or tile, and return if it says so:
// what they leave unwritten is never used.
#pragma once

#include <atomic>
#include <cstdint>

namespace dbq {

// One call, which ends early once the counter of cancellations moves on.
class Stop {
public:
    explicit Stop(const std::atomic<uint64_t>& cancellations)
        : cancellations_(cancellations), before_(cancellations.load()) {}
    bool requested() const { return cancellations_.load(std::memory_order_relaxed) != before_; }

private:
    const std::atomic<uint64_t>& cancellations_;
    const uint64_t before_;
};

// Makes stopped() ask `stop` on this thread, as long as the object exists.
class StopHere {
public:
    explicit StopHere(const Stop& stop);
    ~StopHere();
    StopHere(const StopHere&) = delete;
};

// Whether the call that this thread works for ends early. Not inline: code compiled for other instructions
// calls it, and must not bring its own copy.
bool stopped();

}  // namespace dbq
