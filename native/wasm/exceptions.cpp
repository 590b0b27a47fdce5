// Exceptions of the standard library end the call: the engine lets them happen only where memory runs out.
#include <cstdlib>

#include "file/error.h"

extern "C" void* __cxa_allocate_exception(size_t bytes) { return std::malloc(bytes); }

extern "C" [[noreturn]] void __cxa_throw(void*, void*, void (*)(void*)) {
    dbq::failed(DBQ_NO_MEMORY, "not enough memory: free some, or use a smaller network");
}
