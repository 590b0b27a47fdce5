// Objects that are costly to make and used by one thread at a time: taken, given back and reused.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

namespace dbq {

template <typename Thing> class FreeList {
public:
    struct GiveBack {
        FreeList* list = nullptr;
        void operator()(Thing* thing) const { list->give_back(std::unique_ptr<Thing>(thing)); }
    };
    using Lease = std::unique_ptr<Thing, GiveBack>;

    // A free object, or else what make() returns.
    template <typename Make> Lease take(const Make& make) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            if (!free_.empty()) {
                Lease lease(free_.back().release(), {this});
                free_.pop_back();
                return lease;
            }
            // Room for one more, so that giving back never has to allocate.
            free_.reserve(++made_);
        }
        return Lease(new Thing(make()), {this});
    }

private:
    void give_back(std::unique_ptr<Thing> thing) {
        const std::lock_guard<std::mutex> lock(mutex_);
        free_.push_back(std::move(thing));
    }

    std::mutex mutex_;
    std::vector<std::unique_ptr<Thing>> free_;
    size_t made_ = 0;
};

}  // namespace dbq
