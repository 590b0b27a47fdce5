// How fast the kernels of the engine are, layer by layer, one thread.
//
//     kernel_bench [NAME...]      groups of layers whose name contains one of the words; all without words
//
// DBQ_ISA chooses the instruction set, as in the library. `make native` builds it: build/plain/kernel_bench.
//
// "limit" is the share of what the kernel's own bottleneck allows. A table of sums: two loads a cycle, each
// serving three weights of 16 pixels, if no weights are zero; zeros (44 % here) allow up to 1.09. Products of
// bytes: one dot product of 64 bytes a cycle, or 1.56 pairs of multiply-add and add of 32 bytes. Both in one
// loop: twelve weights of 128 pixels take eight loads of 64 bytes for the table, and six for twelve products.
// Shuffles: twelve weights of 128 outputs take 12 shuffles, 12 additions and 6 products, two of all a cycle.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "engine/workspace.h"
#include "kernels/isa/simd.h"
#include "kernels/select.h"

namespace {

using namespace dbq;
using Clock = std::chrono::steady_clock;

constexpr int ZERO_PERCENT = 44;
constexpr double BUDGET = 0.05;  // seconds for one layer

std::mt19937 generator(1);

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// Cycles a second: a chain of dependent additions takes one each. The fastest of many short runs.
double clock_rate() {
    double best = 0;
    for (int repeat = 0; repeat < 2000; ++repeat) {
        const long steps = 20'000;
        long x = 1;
        const auto start = Clock::now();
        for (long i = 0; i < steps; ++i) {
            x += i;
            asm volatile("" : "+r"(x));
        }
        best = std::max(best, double(steps) / seconds_since(start));
    }
    return best;
}

struct Activations {
    std::vector<Memory> memory;
    std::vector<unsigned char*> planes;
    explicit Activations(const Shape& shape) {
        for (int c = 0; c < shape.channels; ++c) {
            const size_t bytes = plane_bytes(Type::U8, shape.pixels(), 64);
            memory.push_back(allocate(bytes));
            planes.push_back(memory.back().get());
            for (size_t i = 0; i < bytes; ++i) planes.back()[i] = static_cast<unsigned char>(generator());
        }
    }
};

struct Layer {
    int in, out, size, times = 1, kernel = 1, stride = 1;
};

struct Network {
    const char* name;
    Weights weights;
    int branches;
    std::vector<Layer> layers;
    bool depthwise = false;
    int largest = 127;  // of fixed-point weights
};

// Multiply-adds a cycle.
double limit_of(const std::string& kernel) {
    if (kernel == "dense-quads avx512") return 64;
    if (kernel == "table-and-quads avx512") return 1536.0 / 14;
    if (kernel == "shuffles-and-quads avx512") return 1536.0 / 15;
    return kernel == "dense-quads avx2" ? 1.56 * 32 : 2 * 48;
}

// Two branches, joined as 3 : 2.
int8_t joined_code() {
    const auto trit = [] { return generator() % 100 < ZERO_PERCENT ? 0 : generator() & 1 ? 1 : -1; };
    return int8_t(3 * trit() + 2 * trit());
}

ConvSpec spec_of(const Layer& layer, const Network& network) {
    ConvSpec s;
    s.in = {layer.in, layer.size, layer.size};
    const int out = (layer.size - 1) / layer.stride + 1;
    s.out = {layer.out, out, out};
    s.window.kernel_h = s.window.kernel_w = layer.kernel;
    s.window.stride_h = s.window.stride_w = layer.stride;
    s.window.pad_top = s.window.pad_left = (layer.kernel - 1) / 2;
    if (network.depthwise) s.groups = layer.in;
    s.weights = network.weights;
    s.branches = network.branches;
    s.largest = s.weights == Weights::Fixed ? network.largest : 1;
    s.codes.resize(size_t(s.branches * s.out.channels) * size_t(s.taps()));
    for (int8_t& code : s.codes) {
        const bool zero = generator() % 100 < ZERO_PERCENT;
        code = s.weights == Weights::Fixed ? s.largest < 127 ? joined_code() : int8_t(generator() % 255 - 127)
               : zero                      ? int8_t(0)
               : generator() & 1           ? int8_t(1)
                                           : int8_t(-1);
    }
    Output output;
    output.high = 255;
    output.scale.assign(size_t(s.out.channels * s.branches), 0.03f);
    output.offset.assign(size_t(s.out.channels), 1.5f);
    s.outputs.push_back(output);
    return s;
}

// The fastest of many runs.
double time_of(const Op& op, const ConvSpec& s) {
    const Activations in(s.in), out(s.out);
    const Planes from = {in.planes.data()}, to = {out.planes.data()};
    const Memory scratch = allocate(op.scratch_bytes());
    double best = 1e9;
    const auto begin = Clock::now();
    for (int repeat = 0; repeat < 5 || seconds_since(begin) < BUDGET; ++repeat) {
        const auto start = Clock::now();
        for (int task = 0; task < op.tasks(); ++task) op.run(task, &from, &to, scratch.get());
        best = std::min(best, seconds_since(start));
    }
    return best;
}

void measure(const Network& network, const Simd* simd, double clock) {
    std::printf("\n%s\n%34s %10s %8s %6s\n", network.name, "", "us", "GMAC/s", "limit");
    double total = 0, total_macs = 0, best_seconds = 0;
    for (const Layer& layer : network.layers) {
        const ConvSpec s = spec_of(layer, network);
        const auto op = make_op(s, simd, 1);
        const double seconds = time_of(*op, s);
        const double macs = double(s.codes.size()) * double(s.out.pixels());
        const std::string kernel = kernel_name(s, simd);
        char name[64];
        std::snprintf(name, sizeof name, "%d -> %d, %dx%d%s @%d", layer.in, layer.out, layer.kernel,
                      layer.kernel, layer.stride > 1 ? " /2" : "", layer.size);
        std::printf("%-34s %10.1f %8.1f %6.2f  %s x%d\n", name, seconds * 1e6, macs / seconds / 1e9,
                    macs / seconds / (limit_of(kernel) * clock), kernel.c_str(), layer.times);
        best_seconds += macs * layer.times / (limit_of(kernel) * clock);
        total += seconds * layer.times;
        total_macs += macs * layer.times;
    }
    std::printf("%-34s %10.1f %8.1f %6.2f\n", "total", total * 1e6, total_macs / total / 1e9,
                best_seconds / total);
}

const std::vector<Layer> MOBILENET_V1 = {{32, 64, 112},     {64, 128, 56},  {128, 128, 56},
                                         {128, 256, 28},    {256, 256, 28}, {256, 512, 14},
                                         {512, 512, 14, 5}, {512, 1024, 7}, {1024, 1024, 7}};
const std::vector<Layer> MOBILENET_V1_QUARTER = {{8, 16, 112},      {16, 32, 56},  {32, 32, 56},
                                                 {32, 64, 28},      {64, 64, 28},  {64, 128, 14},
                                                 {128, 128, 14, 5}, {128, 256, 7}, {256, 256, 7}};
const std::vector<Layer> MOBILENET_V2 = {
    {32, 16, 112},    {16, 96, 112},    {96, 24, 56},     {24, 144, 56, 2}, {144, 24, 56},
    {144, 32, 28},    {32, 192, 28, 3}, {192, 32, 28, 2}, {192, 64, 14},    {64, 384, 14, 4},
    {384, 64, 14, 3}, {384, 96, 14},    {96, 576, 14, 3}, {576, 96, 14, 2}, {576, 160, 7},
    {160, 960, 7, 3}, {960, 160, 7, 2}, {960, 320, 7},    {320, 1280, 7}};
const std::vector<Layer> SHUFFLENET_V2 = {
    {24, 58, 56}, {58, 58, 28, 8}, {116, 116, 14, 16}, {232, 232, 7, 8}, {464, 1024, 7}};
const std::vector<Layer> RESNET20 = {
    {16, 16, 32, 6, 3}, {16, 32, 32, 1, 3, 2}, {32, 32, 16, 5, 3}, {32, 64, 16, 1, 3, 2}, {64, 64, 8, 5, 3}};
const std::vector<Layer> DEPTHWISE = {
    {32, 32, 112, 1, 3},     {64, 64, 112, 1, 3, 2},  {128, 128, 56, 1, 3},
    {128, 128, 56, 1, 3, 2}, {256, 256, 28, 1, 3},    {256, 256, 28, 1, 3, 2},
    {512, 512, 14, 5, 3},    {512, 512, 14, 1, 3, 2}, {1024, 1024, 7, 1, 3}};
const std::vector<Layer> FIXED = {{3, 32, 224, 1, 3, 2}, {3, 16, 32, 1, 3}, {3, 64, 224, 1, 7, 2},
                                  {128, 128, 28},        {512, 512, 14},    {64, 64, 56, 1, 3},
                                  {1024, 1000, 1}};
const std::vector<Layer> RESNET18 = {{64, 64, 56, 4, 3},      {64, 128, 56, 1, 3, 2}, {128, 128, 28, 3, 3},
                                     {128, 256, 28, 1, 3, 2}, {256, 256, 14, 3, 3},   {256, 512, 14, 1, 3, 2},
                                     {512, 512, 7, 3, 3}};

}  // namespace

int main(int argc, char** argv) {
    const Simd* const simd = choose_simd(this_cpu(), std::getenv("DBQ_ISA"));
    const double clock = clock_rate();
    std::printf("%.2f GHz, one thread, %d %% zeros\n", clock / 1e9, ZERO_PERCENT);
    const std::vector<Network> networks = {
        {"mobilenetv1-2t: pointwise, two branches", Weights::Ternary, 2, MOBILENET_V1},
        {"mobilenetv1-1t: pointwise, one branch", Weights::Ternary, 1, MOBILENET_V1},
        {"mobilenetv1-joined: pointwise, two branches as one integer", Weights::Fixed, 1, MOBILENET_V1, false,
         7},
        {"resnet20-joined: 3x3", Weights::Fixed, 1, RESNET20, false, 7},
        {"mobilenetv1-quarter-2t: pointwise of width 0.25", Weights::Ternary, 2, MOBILENET_V1_QUARTER},
        {"mobilenetv2-2t: pointwise", Weights::Ternary, 2, MOBILENET_V2},
        {"mobilenetv2-1t: pointwise", Weights::Ternary, 1, MOBILENET_V2},
        {"shufflenetv2-2t: pointwise", Weights::Ternary, 2, SHUFFLENET_V2},
        {"resnet20-1t: 3x3", Weights::Ternary, 1, RESNET20},
        {"resnet20-2t: 3x3", Weights::Ternary, 2, RESNET20},
        {"resnet18-1t: 3x3", Weights::Ternary, 1, RESNET18},
        {"depthwise: MobileNetV1, 8 bit", Weights::Fixed, 1, DEPTHWISE, true},
        {"fixed: first layers, convolutions, a classifier, 8 bit", Weights::Fixed, 1, FIXED},
    };
    for (const Network& network : networks) {
        bool wanted = argc == 1;
        for (int i = 1; i < argc; ++i) wanted |= std::strstr(network.name, argv[i]) != nullptr;
        if (wanted) measure(network, simd, clock);
    }
}
