// What ends a call inside WebAssembly, where nothing is thrown: the host takes the message and never calls
// this instance again.
#include "file/error.h"

extern "C" [[noreturn]] __attribute__((import_module("dbq"), import_name("failed"))) void dbq_host_failed(
    int status, const char* text);

void dbq::failed(dbq_status status, const char* text) { dbq_host_failed(status, text); }
