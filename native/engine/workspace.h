// The memory that one image needs while it runs through the network.
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "engine/layout.h"

namespace dbq {

struct Free {
    void operator()(unsigned char* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<unsigned char[], Free>;

Memory allocate(size_t bytes);  // aligned to PLANE_ALIGNMENT; throws std::bad_alloc

class Workspace {
public:
    Workspace(const Layout& layout, const std::vector<Operation>& operations);
    Workspace(const Workspace&) = delete;  // planes_ points to image_

    void set_image(const uint8_t* image);
    const Planes* inputs(size_t operation) const { return planes_.data() + first_[2 * operation]; }
    const Planes* outputs(size_t operation) const { return planes_.data() + first_[2 * operation + 1]; }
    const unsigned char* const* tensor(size_t index) const { return table_.data() + tensors_[index]; }

private:
    Memory arena_;
    unsigned char* image_ = nullptr;
    std::vector<unsigned char*> table_;  // planes of all tensors, one tensor after the other
    std::vector<size_t> tensors_;        // where each starts in the table
    std::vector<Planes> planes_;         // inputs, then outputs of all operations
    std::vector<size_t> first_;          // where those of each start
};

}  // namespace dbq
