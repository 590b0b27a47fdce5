// The fuzzer's entry: any bytes are the body of a .dbq file, of each version of the format. The header is
// made to fit them, because a checksum would stop nearly every input before it reaches the code worth
// testing. Networks that are small enough are run on one image.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "dbq.h"
#include "file/reader.h"

namespace {

constexpr size_t SMALL_MEMORY = 16 << 20;
constexpr uint64_t SMALL_WORK = 10'000'000;

void put(std::vector<uint8_t>& file, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) file.push_back(uint8_t(value >> 8 * i));
}

std::vector<uint8_t> with_header(const uint8_t* body, size_t size, uint32_t version) {
    std::vector<uint8_t> file = {0x89, 'D', 'B', 'Q', '\r', '\n', 0x1A, '\n'};
    put(file, version, 4);
    put(file, dbq::crc32({body, size}), 4);
    put(file, size, 8);
    put(file, 0, 8);
    file.insert(file.end(), body, body + size);
    return file;
}

void run(dbq_net* net) {
    int height, width, channels;
    dbq_input_shape(net, &height, &width, &channels);
    // Buffers of exact size, so that sanitizers see an access one byte too far.
    std::vector<uint8_t> image(size_t(height) * size_t(width) * size_t(channels));
    for (size_t i = 0; i < image.size(); ++i) image[i] = uint8_t(i * 37);
    std::vector<float> logits(dbq_output_size(net));
    if (dbq_run(net, image.data(), 1, logits.data()) != DBQ_OK) __builtin_trap();
    for (const float logit : logits)
        if (!(logit - logit == 0)) __builtin_trap();  // the limits of the format exclude infinities
}

}  // namespace

static void load(const std::vector<uint8_t>& file) {
    dbq_net* net = dbq_load_memory(file.data(), file.size());
    if (!net) {
        // Every refusal must have a named status and a text; DBQ_INTERNAL is a bug.
        if (dbq_last_status() == DBQ_INTERNAL || std::strlen(dbq_last_error()) == 0) __builtin_trap();
        return;
    }
    if (dbq_work(net) < SMALL_WORK && dbq_peak_memory(net) < SMALL_MEMORY) run(net);
    dbq_free(net);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    for (uint32_t version = 1; version <= 2; ++version) load(with_header(data, size, version));
    return 0;
}
