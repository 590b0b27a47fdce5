// What ends test programs, in place of host.cpp: they have no host that takes messages.
#include <cstdlib>

#include "file/error.h"

void dbq::failed(dbq_status, const char* text) {
    std::fprintf(stderr, "%s\n", text);
    std::exit(1);
}
