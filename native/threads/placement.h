// Which processors threads run on.
#pragma once

#include <thread>
#include <vector>

namespace dbq {

// Keeps workers off the processor that their caller runs on. Schedulers put a woken thread on the processor
// of the thread that woke it, where it only takes time from it: two threads were slower than one.
class Placement {
public:
    // To be called by the thread that waits for the workers, before it gives them work. Costs nothing while
    // it stays on its processor. Does nothing where the system cannot say which one that is, or where there
    // is only one.
    void keep_off_this_processor(std::vector<std::thread>& workers);

private:
    [[maybe_unused]] int taken_ = -1;  // the processor that the workers were last kept off
};

}  // namespace dbq
