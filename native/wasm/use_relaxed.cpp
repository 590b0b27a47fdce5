// Test programs have the loops of relaxed.cpp inside, and use them whatever the processor makes of them.
#include "wasm/relaxed.h"

extern "C" void dbq_relaxed_words(const dbq::quads::Job&, int first, int count, int32_t* sums);
extern "C" void dbq_relaxed_dot(const dbq::quads::Job&, int first, int count, int32_t* sums);

namespace {

const bool used = [] {
#if defined(DBQ_TEST_DOT)
    dbq_use_relaxed(dbq::relaxed::DOT, dbq_relaxed_dot);
#else
    dbq_use_relaxed(dbq::relaxed::WORDS, dbq_relaxed_words);
#endif
    return true;
}();

}  // namespace
