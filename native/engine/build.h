// An operation of the file -> a kernel ready to run.
#pragma once

#include "file/program.h"

namespace dbq {

// Null for Channels, which nothing has to run for. Throws Error if packed weights are not valid.
std::unique_ptr<Op> build(const Program& program, const Operation& operation, Isa isa, int threads);

uint64_t macs(const Program& program, const Operation& operation);
const char* kind_name(Kind kind);
const char* type_name(Type type);
std::string precision(const Operation& operation);  // of the weights: "2T", "8b", or ""

}  // namespace dbq
