#include "engine/workspace.h"

#include <cstring>
#include <new>

namespace dbq {

Memory allocate(size_t bytes) {
    const size_t whole = (bytes / PLANE_ALIGNMENT + 1) * PLANE_ALIGNMENT;  // at least one: never null
    void* memory = std::aligned_alloc(PLANE_ALIGNMENT, whole);
    if (!memory) throw std::bad_alloc();
    return Memory(static_cast<unsigned char*>(memory));
}

Workspace::Workspace(const Layout& layout, const std::vector<Operation>& operations)
    : arena_(allocate(layout.bytes)) {
    std::memset(arena_.get() + layout.zeros, 0, layout.zero_bytes);
    for (const std::vector<size_t>& planes : layout.planes) {
        tensors_.push_back(table_.size());
        for (const size_t offset : planes) table_.push_back(arena_.get() + offset);
    }
    const auto add = [this](const std::vector<uint32_t>& tensors) {
        first_.push_back(planes_.size());
        for (const uint32_t tensor : tensors) planes_.push_back({table_.data() + tensors_[tensor]});
    };
    for (const Operation& operation : operations) {
        add(operation.inputs);
        if (operation.inputs.empty()) planes_.push_back({&image_});  // the lookup reads the image
        add(operation.outputs);
    }
}

// The const_cast is safe: kernels never write their inputs.
void Workspace::set_image(const uint8_t* image) { image_ = const_cast<unsigned char*>(image); }

}  // namespace dbq
