// Feeds files to the fuzzer's entry, one after the other: a corpus as a test, with any compiler.

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        std::ifstream file(argv[i], std::ios::binary);
        if (!file) return std::fprintf(stderr, "%s: cannot be read\n", argv[i]), 1;
        const std::vector<char> content{std::istreambuf_iterator<char>(file), {}};
        std::fprintf(stderr, "%s\n", argv[i]);  // before the call: a crash shows where
        LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(content.data()), content.size());
    }
    std::printf("%d files\n", argc - 1);
    return 0;
}
