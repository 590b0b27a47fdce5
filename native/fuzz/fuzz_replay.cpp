// Feeds files to the fuzzer's entry one by one, so that a corpus can be a test with any compiler.
//
//     fuzz_replay FILE...           each file is an input
//     fuzz_replay --joined FILE     many inputs in one file, each behind its length as a u32

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

std::vector<uint8_t> content_of(const char* path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) std::fprintf(stderr, "%s: cannot be read\n", path);
    return {std::istreambuf_iterator<char>(file), {}};
}

void replay(const uint8_t* data, size_t size) {
    // A copy of exact size, so that sanitizers see a read one byte too far.
    const std::vector<uint8_t> input(data, data + size);
    LLVMFuzzerTestOneInput(input.data(), input.size());
}

int replay_joined(const std::vector<uint8_t>& joined) {
    int count = 0;
    for (size_t at = 0; at + 4 <= joined.size(); ++count) {
        uint32_t size;
        std::memcpy(&size, joined.data() + at, sizeof size);
        if (size > joined.size() - at - 4) break;
        replay(joined.data() + at + 4, size);
        at += 4 + size_t{size};
    }
    return count;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 3 && std::strcmp(argv[1], "--joined") == 0) {
        std::printf("%d files\n", replay_joined(content_of(argv[2])));
        return 0;
    }
    for (int i = 1; i < argc; ++i) {
        std::fprintf(stderr, "%s\n", argv[i]);  // before the call, so that a crash shows which file
        const std::vector<uint8_t> content = content_of(argv[i]);
        replay(content.data(), content.size());
    }
    std::printf("%d files\n", argc - 1);
    return 0;
}
