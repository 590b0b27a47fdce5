// The pure functions of the engine and its C interface, to be run under sanitizers:
//     engine_test net.dbq

#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <thread>

#include "engine/arena.h"
#include "expect.h"
#include "file/error.h"
#include "file/reader.h"
#include "kernels/cpu.h"
#include "kernels/isa/simd.h"

namespace {

using dbq::Block;
using dbq::Cpu;

dbq::Bytes bytes(const char* text) { return {reinterpret_cast<const uint8_t*>(text), std::strlen(text)}; }

void checksums() {
    EXPECT(dbq::crc32(bytes("")) == 0);
    EXPECT(dbq::crc32(bytes("123456789")) == 0xCBF43926);  // the check value of this CRC
    EXPECT(dbq::crc32(bytes("The quick brown fox jumps over the lazy dog")) == 0x414FA339);
}

bool refused(const Cpu& cpu, const char* wanted) {
    try {
        dbq::choose_simd(cpu, wanted);
        return false;
    } catch (const dbq::Error& error) {
        return error.status == DBQ_BAD_ISA && error.text.find(wanted) != std::string::npos;
    }
}

// A name is reported and accepted only if its kernels are in this build and can run.
void instruction_sets() {
    const Cpu plain, arm{"neon"}, avx2{"avx2"}, avx512{"avx2", "avx512bw", "avx512vnni"};
    EXPECT(!dbq::choose_simd(plain, nullptr) && !dbq::choose_simd(arm, nullptr));
    EXPECT(dbq::available_isas(plain) == "scalar" && dbq::available_isas(arm) == "scalar");
    EXPECT(refused(plain, "avx2") && refused(arm, "neon") && refused(arm, "sse9"));
    if (!dbq::AVX2_KERNELS) return;
    for (const Cpu& cpu : {avx2, avx512}) {
        EXPECT(dbq::choose_simd(cpu, nullptr) == dbq::AVX2_KERNELS);
        EXPECT(dbq::choose_simd(cpu, "") == dbq::AVX2_KERNELS);
        EXPECT(dbq::choose_simd(cpu, "avx2") == dbq::AVX2_KERNELS);
        EXPECT(!dbq::choose_simd(cpu, "scalar"));
        EXPECT(refused(cpu, "neon") && refused(cpu, "AVX2") && refused(cpu, "avx512bw"));
        EXPECT(dbq::available_isas(cpu) == "scalar avx2");
    }
}

// For any sizes and lifetimes, blocks alive together do not overlap and stay within the total.
void memory_plans() {
    std::mt19937 random(1);
    const auto below = [&](int limit) { return int(random() % static_cast<unsigned>(limit)); };
    for (int round = 0; round < 300; ++round) {
        std::vector<Block> blocks(size_t(below(40) + 1));
        for (Block& block : blocks) {
            block.bytes = size_t(below(20)) * 64;
            block.first = below(30);
            block.last = block.first + below(6);
        }
        const size_t total = dbq::plan_arena(blocks);
        size_t sum = 0;
        for (const Block& a : blocks) {
            sum += a.bytes;
            EXPECT(a.offset % 64 == 0 && a.offset + a.bytes <= total);
            for (const Block& b : blocks) {
                const bool together = a.first <= b.last && b.first <= a.last;
                const bool apart = a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
                EXPECT(&a == &b || !together || apart || a.bytes == 0 || b.bytes == 0);
            }
        }
        EXPECT(total <= sum);
    }
    // A chain needs room for its two largest neighbours, not for all.
    std::vector<Block> chain = {{640, 0, 1}, {1280, 1, 2}, {640, 2, 3}, {1280, 3, 4}, {64, 4, 5}};
    EXPECT(dbq::plan_arena(chain) == 1920);
}

std::vector<char> content_of(const char* path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void bad_arguments(dbq_net* net) {
    std::vector<uint8_t> image(1 << 16);
    std::vector<float> logits(dbq_output_size(net));
    dbq_layer layer;
    EXPECT(!dbq_load(nullptr) && dbq_last_status() == DBQ_BAD_ARGUMENT);
    EXPECT(!dbq_load_memory(nullptr, 5) && dbq_last_status() == DBQ_BAD_ARGUMENT);
    EXPECT(!dbq_load("/does/not/exist") && dbq_last_status() == DBQ_CANNOT_READ);
    EXPECT(std::strstr(dbq_last_error(), "/does/not/exist: cannot be read: No such file"));
    EXPECT(dbq_run(nullptr, image.data(), 1, logits.data()) == DBQ_BAD_ARGUMENT);
    EXPECT(dbq_run(net, nullptr, 1, logits.data()) == DBQ_BAD_ARGUMENT);
    EXPECT(dbq_run(net, image.data(), 1, nullptr) == DBQ_BAD_ARGUMENT);
    EXPECT(dbq_run(net, nullptr, 0, nullptr) == DBQ_OK);
    EXPECT(dbq_profile(net, image.data(), nullptr) == DBQ_BAD_ARGUMENT);
    EXPECT(dbq_set_threads(net, 0) == DBQ_BAD_ARGUMENT && dbq_set_threads(net, 257) == DBQ_BAD_ARGUMENT);
    EXPECT(dbq_layer_info(net, -1, &layer) == DBQ_BAD_ARGUMENT);
    EXPECT(dbq_layer_info(net, dbq_layers(net), &layer) == DBQ_BAD_ARGUMENT);
    EXPECT(dbq_threads(net) == 1);
    dbq_free(nullptr);
}

// What never fails according to dbq.h does not fail without a network, either.
void null_networks(dbq_net* net) {
    int a = 1, b = 1, c = 1;
    dbq_layer layer;
    double times[1];
    uint8_t image[1] = {};
    EXPECT(dbq_threads(nullptr) == 0 && dbq_layers(nullptr) == 0);
    EXPECT(dbq_output_size(nullptr) == 0 && dbq_peak_memory(nullptr) == 0 && dbq_work(nullptr) == 0);
    EXPECT(dbq_load_milliseconds(nullptr) == 0);
    for (const char* text : {dbq_name(nullptr), dbq_metadata(nullptr), dbq_isa(nullptr)})
        EXPECT(std::strlen(text) == 0);
    dbq_input_shape(nullptr, &a, &b, &c);
    EXPECT(a == 0 && b == 0 && c == 0);
    EXPECT(dbq_outputs(nullptr) == 0);
    for (const int index : {-1, 0, dbq_outputs(net)}) {
        dbq_net* const network = index == 0 ? nullptr : net;
        int shape[3] = {1, 1, 1};
        dbq_output_shape(network, index, shape);
        EXPECT(shape[0] == 0 && shape[1] == 0 && shape[2] == 0);
        EXPECT(std::strlen(dbq_output_name(network, index)) == 0);
    }
    dbq_input_shape(net, nullptr, nullptr, nullptr);
    dbq_output_shape(net, 0, nullptr);
    dbq_output_shape(nullptr, 0, nullptr);
    dbq_cancel(nullptr);
    EXPECT(dbq_set_threads(nullptr, 1) == DBQ_BAD_ARGUMENT);
    EXPECT(dbq_profile(nullptr, image, times) == DBQ_BAD_ARGUMENT);
    EXPECT(dbq_profile(net, nullptr, times) == DBQ_BAD_ARGUMENT);
    EXPECT(dbq_layer_info(nullptr, 0, &layer) == DBQ_BAD_ARGUMENT);
    EXPECT(dbq_layer_info(net, 0, nullptr) == DBQ_BAD_ARGUMENT);
}

// The network of the test has two outputs; the first has no name.
void outputs(const dbq_net* net) {
    EXPECT(dbq_outputs(net) == 2);
    EXPECT(std::strlen(dbq_output_name(net, 0)) == 0 &&
           std::strcmp(dbq_output_name(net, 1), "output 1") == 0);
    size_t size = 0;
    for (int index = 0; index < 2; ++index) {
        int shape[3];
        dbq_output_shape(net, index, shape);
        EXPECT(shape[0] > 0 && shape[1] > 0 && shape[2] > 0);
        size += size_t(shape[0]) * size_t(shape[1]) * size_t(shape[2]);
    }
    EXPECT(dbq_output_size(net) == size);
}

void limits(const std::vector<char>& content, const dbq_net* net) {
    const auto load = [&](uint64_t work, uint64_t memory) {
        const dbq_limits given = {work, memory};
        dbq_net* loaded = dbq_load_memory_limited(content.data(), content.size(), &given);
        dbq_free(loaded);
        return loaded != nullptr;
    };
    const uint64_t work = dbq_work(net), memory = UINT64_MAX;
    EXPECT(work > 0 && load(work, memory) && load(UINT64_MAX, memory));
    EXPECT(!load(work - 1, memory) && dbq_last_status() == DBQ_TOO_LARGE);
    EXPECT(!load(work, 1000) && dbq_last_status() == DBQ_TOO_LARGE);
}

// Several callers with batches of all sizes, while another thread changes the number of threads.
void concurrent_runs(dbq_net* net) {
    int height, width, channels;
    dbq_input_shape(net, &height, &width, &channels);
    constexpr size_t BATCH = 5;
    const size_t size = dbq_output_size(net);
    std::vector<uint8_t> images(BATCH * size_t(height * width * channels));
    for (size_t i = 0; i < images.size(); ++i) images[i] = uint8_t(i * i >> 3);
    std::vector<float> expected(BATCH * size);
    EXPECT(dbq_run(net, images.data(), BATCH, expected.data()) == DBQ_OK);
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 3; ++caller)
        callers.emplace_back([&] {
            for (int round = 0; round < 60; ++round) {
                const size_t count = size_t(round) % BATCH + 1;
                std::vector<float> logits(count * size);
                EXPECT(dbq_run(net, images.data(), count, logits.data()) == DBQ_OK);
                EXPECT(std::memcmp(logits.data(), expected.data(), logits.size() * sizeof(float)) == 0);
            }
        });
    for (int round = 0; round < 60; ++round) EXPECT(dbq_set_threads(net, round % 4 + 1) == DBQ_OK);
    for (std::thread& caller : callers) caller.join();
}

}  // namespace

int main(int argc, char** argv) {
    EXPECT(argc == 2);
    EXPECT(dbq_last_status() == DBQ_OK && std::strlen(dbq_last_error()) == 0);
    checksums();
    instruction_sets();
    memory_plans();
    dbq_net* net = dbq_load(argv[1]);
    if (!net) std::fprintf(stderr, "%s\n", dbq_last_error());
    EXPECT(net);
    bad_arguments(net);
    null_networks(net);
    outputs(net);
    limits(content_of(argv[1]), net);
    concurrent_runs(net);
    dbq_free(net);
    const std::vector<char> content = content_of(argv[1]);
    dbq_net* copy = dbq_load_memory(content.data(), content.size());
    EXPECT(copy);
    dbq_free(copy);
    std::puts("engine: fine");
}
