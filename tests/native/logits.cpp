// What networks compute, as text that machines can compare: for each file a line with its hash of the logits
// of three images, bit for bit, and the kernels in use.
//
//     logits NET.dbq ...
//
// It uses the C interface alone and no exceptions, so it runs wherever the library does, WebAssembly
// included.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "dbq.h"

namespace {

// The bytes of images: Knuth's 64-bit generator, also in tests/native/networks.py.
struct Noise {
    uint64_t state = 1;
    uint8_t next() {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return uint8_t(state >> 56);
    }
};

// FNV-1a over the bits of each float, lowest byte first on every processor.
uint64_t hash_of(const std::vector<float>& logits) {
    uint64_t hash = 14695981039346656037u;
    for (const float logit : logits) {
        uint32_t bits;
        std::memcpy(&bits, &logit, 4);
        for (int i = 0; i < 4; ++i) hash = (hash ^ (bits >> 8 * i & 0xFF)) * 1099511628211u;
    }
    return hash;
}

bool read(const char* path, std::vector<unsigned char>& bytes) {
    std::FILE* const file = std::fopen(path, "rb");
    if (!file) return false;
    unsigned char part[4096];
    for (size_t n; (n = std::fread(part, 1, sizeof part, file)) > 0;)
        bytes.insert(bytes.end(), part, part + n);
    return std::fclose(file) == 0;
}

}  // namespace

int main(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        std::vector<unsigned char> bytes;
        if (!read(argv[i], bytes)) return std::printf("%s: cannot be read\n", argv[i]), 1;
        dbq_net* const net = dbq_load_memory(bytes.data(), bytes.size());
        if (!net) return std::printf("%s: %s\n", argv[i], dbq_last_error()), 1;
        int height, width, channels;
        dbq_input_shape(net, &height, &width, &channels);
        constexpr size_t COUNT = 3;
        std::vector<uint8_t> images(COUNT * size_t(height) * size_t(width) * size_t(channels));
        Noise noise;
        for (uint8_t& byte : images) byte = noise.next();
        std::vector<float> logits(COUNT * dbq_output_size(net));
        if (dbq_run(net, images.data(), COUNT, logits.data()) != DBQ_OK)
            return std::printf("%s: %s\n", argv[i], dbq_last_error()), 1;
        std::printf("%s %016llx %s\n", dbq_name(net), static_cast<unsigned long long>(hash_of(logits)),
                    dbq_isa(net));
        dbq_free(net);
    }
    return 0;
}
