// The only exception of the library. It carries what the C interface reports: a status and a line of text.
#pragma once

#include <string>

#include "dbq.h"

namespace dbq {

struct Error {
    dbq_status status;
    std::string text;
};

[[noreturn]] __attribute__((format(printf, 2, 3))) void fail(dbq_status status, const char* format, ...);

}  // namespace dbq
