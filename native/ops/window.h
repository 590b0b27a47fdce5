// The pixels under a window of a pool.
#pragma once

#include <algorithm>

#include "kernels/op.h"

namespace dbq {

// Calls visit(pixel of the input) for every pixel of the window of output (y, x) that is inside the image.
template <class Visit>
void for_window(const Window& w, const Shape& in, int y, int x, Visit visit) {
    const int top = y * w.stride_h - w.pad_top, left = x * w.stride_w - w.pad_left;
    for (int iy = std::max(top, 0); iy < std::min(top + w.kernel_h, in.height); ++iy)
        for (int ix = std::max(left, 0); ix < std::min(left + w.kernel_w, in.width); ++ix)
            visit(size_t(iy) * size_t(in.width) + size_t(ix));
}

}  // namespace dbq
