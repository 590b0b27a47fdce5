#include "file/error.h"

#include <cstdarg>
#include <cstdio>

namespace dbq {

void fail(dbq_status status, const char* format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    throw Error{status, text};
}

}  // namespace dbq
