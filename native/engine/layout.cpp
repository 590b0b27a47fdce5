#include "engine/layout.h"

#include <algorithm>

#include "engine/arena.h"

namespace dbq {

namespace {

size_t plane_bytes(const Tensor& tensor, size_t lanes) {
    return plane_bytes(tensor.type, tensor.shape.pixels(), lanes);
}

// A "channels" operation owns no memory: its planes are planes of other tensors. owners[t] says whose,
// for each channel; it is empty for tensors with memory of their own.
using Owners = std::vector<std::vector<Source>>;

Owners find_owners(const Program& program) {
    Owners owners(program.tensors.size());
    for (const Operation& op : program.operations) {
        if (op.sources.empty()) continue;
        std::vector<Source>& resolved = owners[op.outputs[0]];
        resolved = op.sources;
        for (Source& source : resolved)  // sources were written before, so they are resolved already
            if (source.tensor != ZEROS && !owners[source.tensor].empty())
                source = owners[source.tensor][source.channel];
    }
    return owners;
}

// One block for each tensor, without bytes for those that own none, and one for the plane of zeros.
std::vector<Block> make_blocks(const Program& program, const Owners& owners, size_t lanes) {
    const int steps = int(program.operations.size());
    std::vector<Block> blocks(program.tensors.size() + 1);
    Block& zeros = blocks.back();
    zeros.last = steps;
    for (int step = 0; step < steps; ++step) {
        const Operation& op = program.operations[size_t(step)];
        for (const uint32_t tensor : op.outputs) {
            Block& block = blocks[tensor];
            block.first = block.last = step;
            const size_t plane = plane_bytes(program.tensors[tensor], lanes);
            if (owners[tensor].empty()) block.bytes = plane * size_t(program.tensors[tensor].shape.channels);
            for (const Source& source : owners[tensor])
                if (source.tensor == ZEROS) zeros.bytes = std::max(zeros.bytes, plane);
        }
        for (const uint32_t tensor : op.inputs) {
            blocks[tensor].last = step;
            for (const Source& source : owners[tensor])
                if (source.tensor != ZEROS) blocks[source.tensor].last = step;
        }
    }
    for (const NamedOutput& output : program.outputs)
        blocks[output.tensor].last = steps;  // copied out after the last step
    return blocks;
}

// Memory of the tables of pointers through which planes are reached.
size_t table_bytes(const Program& program) {
    size_t channels = 0;
    for (const Tensor& tensor : program.tensors) channels += size_t(tensor.shape.channels);
    return channels * sizeof(size_t);
}

}  // namespace

void check_memory(size_t bytes, uint64_t limit) {
    if (bytes > limit)
        fail(DBQ_TOO_LARGE,
             "running needs %zu MiB, at most %zu are allowed: use smaller images, or raise the limit",
             bytes >> 20, size_t(limit >> 20));
}

Layout lay_out(const Program& program, size_t lanes, uint64_t limit) {
    const size_t tables = table_bytes(program);
    check_memory(tables, limit);
    const Owners owners = find_owners(program);
    std::vector<Block> blocks = make_blocks(program, owners, lanes);
    Layout layout;
    layout.bytes = plan_arena(blocks);
    check_memory(layout.bytes + tables, limit);
    layout.zeros = blocks.back().offset;
    layout.zero_bytes = blocks.back().bytes;
    for (size_t i = 0; i < program.tensors.size(); ++i) {
        const Tensor& tensor = program.tensors[i];
        const size_t stride = plane_bytes(tensor, lanes);  // the owners' too: type and size are the same
        std::vector<size_t> planes;
        planes.reserve(size_t(tensor.shape.channels));
        for (const Source& source : owners[i])
            planes.push_back(source.tensor == ZEROS ? layout.zeros
                                                    : blocks[source.tensor].offset + stride * source.channel);
        for (size_t channel = 0; planes.size() < planes.capacity(); ++channel)
            planes.push_back(blocks[i].offset + stride * channel);
        layout.planes.push_back(std::move(planes));
    }
    return layout;
}

}  // namespace dbq
