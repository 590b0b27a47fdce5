#include "threads/stop.h"

namespace dbq {

namespace {
thread_local const Stop* current = nullptr;
}

StopHere::StopHere(const Stop& stop) { current = &stop; }
StopHere::~StopHere() { current = nullptr; }

bool stopped() { return current && current->requested(); }

}  // namespace dbq
