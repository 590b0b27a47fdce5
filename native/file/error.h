// The only exception of the library. It carries what the C interface reports: a status and a line of text.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>

#include "dbq.h"

namespace dbq {

struct Error {
    dbq_status status;
    std::string text;
};

#if defined(__wasm__)
[[noreturn]] void failed(dbq_status status, const char* text);  // instead of throwing; see wasm/host.cpp
#endif

[[noreturn]]
__attribute__((format(printf, 2, 3))) inline void fail(dbq_status status, const char* format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
#if defined(__wasm__)
    failed(status, text);
#else
    throw Error{status, text};
#endif
}

}  // namespace dbq
