// Which kernel each layer of the shipped networks gets, on processors we have and on others.
//
// The layers are those of mobilenet_v1, mobilenet_v2 and shufflenet_v2 (images of 224 x 224) under the plans
// dbq-2t-4 and fx8-3, and of resnet20 (32 x 32) under resnet-1t-a8 and resnet-2t-a8: one row for each
// combination of kind, kernel, stride, precision and types that occurs, for the smallest number of output
// channels it occurs with.
#include "kernels/select.h"

#include <string>

#include "expect.h"
#include "kernels/isa/simd.h"

namespace {

using namespace dbq;

constexpr Type U8 = Type::U8, I8 = Type::I8, I32 = Type::I32, F32 = Type::F32;
const Cpu PLAIN, ARM{"neon"}, AVX2{"avx2"}, AVX512{"avx2", "avx512"};

struct Layer {
    const char* networks;
    Shape in, out;
    int kernel, stride, groups;
    const char* precision;  // of the weights: "2T", "8b" as in plans, "2J" joined
    Type in_type;
    std::vector<Type> out_types;
    const char* kernel_name;          // with AVX2
    const char* wide_name = nullptr;  // with AVX-512, unless it is the same
};

const Layer LAYERS[] = {
    // First layers
    {"all three for ImageNet",
     {3, 224, 224},
     {24, 112, 112},
     3,
     2,
     1,
     "8b",
     I8,
     {U8},
     "dense-words",
     "dense-quads"},
    {"resnet20", {3, 32, 32}, {16, 32, 32}, 3, 1, 1, "8b", I8, {U8, I32}, "dense-words", "dense-quads"},
    // Depthwise
    {"mobilenets",
     {32, 112, 112},
     {32, 112, 112},
     3,
     1,
     32,
     "8b",
     U8,
     {U8},
     "depthwise-3x3",
     "depthwise-quads"},
    {"mobilenets",
     {64, 112, 112},
     {64, 56, 56},
     3,
     2,
     64,
     "8b",
     U8,
     {U8},
     "depthwise-3x3",
     "depthwise-quads"},
    {"shufflenet_v2",
     {58, 28, 28},
     {58, 28, 28},
     3,
     1,
     58,
     "8b",
     U8,
     {I8},
     "depthwise-3x3",
     "depthwise-quads"},
    {"shufflenet_v2",
     {24, 56, 56},
     {24, 28, 28},
     3,
     2,
     24,
     "8b",
     U8,
     {I8},
     "depthwise-3x3",
     "depthwise-quads"},
    // Pointwise, two branches
    {"mobilenet_v1", {32, 112, 112}, {64, 112, 112}, 1, 1, 1, "2T", U8, {U8}, "ternary-table"},
    {"mobilenet_v2", {32, 112, 112}, {16, 112, 112}, 1, 1, 1, "2T", U8, {I8}, "ternary-table"},
    {"mobilenet_v2", {16, 112, 112}, {96, 112, 112}, 1, 1, 1, "2T", I8, {U8}, "ternary-table"},
    {"mobilenet_v2", {144, 56, 56}, {24, 56, 56}, 1, 1, 1, "2T", U8, {I32, I8}, "ternary-table"},
    {"mobilenet_v2", {320, 7, 7}, {1280, 7, 7}, 1, 1, 1, "2T", I8, {I32}, "ternary-table"},
    {"shufflenet_v2", {58, 28, 28}, {58, 28, 28}, 1, 1, 1, "2T", I8, {I32}, "ternary-table"},
    {"shufflenet_v2", {464, 7, 7}, {1024, 7, 7}, 1, 1, 1, "2T", U8, {I32}, "ternary-table"},
    // Two branches joined to one integer
    {"mobilenet_v1", {32, 112, 112}, {64, 112, 112}, 1, 1, 1, "2J", U8, {U8}, "dense-quads"},
    {"mobilenet_v2", {16, 112, 112}, {96, 112, 112}, 1, 1, 1, "2J", I8, {U8}, "dense-quads"},
    {"mobilenet_v2", {144, 56, 56}, {24, 56, 56}, 1, 1, 1, "2J", U8, {I32, I8}, "dense-quads"},
    {"resnet20", {16, 32, 32}, {16, 32, 32}, 3, 1, 1, "2J", U8, {U8}, "dense-quads"},
    {"resnet20", {32, 16, 16}, {64, 8, 8}, 3, 2, 1, "2J", U8, {I32}, "dense-quads"},
    {"none: joined depthwise",
     {32, 28, 28},
     {32, 28, 28},
     3,
     1,
     32,
     "2J",
     U8,
     {U8},
     "depthwise-3x3",
     "depthwise-quads"},
    // Pointwise, 8 bits
    {"mobilenet_v1", {32, 112, 112}, {64, 112, 112}, 1, 1, 1, "8b", U8, {U8}, "dense-words", "dense-quads"},
    {"mobilenet_v2", {16, 112, 112}, {96, 112, 112}, 1, 1, 1, "8b", I8, {U8}, "dense-words", "dense-quads"},
    {"mobilenet_v2", {96, 56, 56}, {24, 56, 56}, 1, 1, 1, "8b", U8, {I32, I8}, "dense-words", "dense-quads"},
    {"mobilenet_v2", {320, 7, 7}, {1280, 7, 7}, 1, 1, 1, "8b", I8, {I32}, "dense-words", "dense-quads"},
    // 3x3, one and two branches. With one branch, 16 sums do not pay for a table.
    {"resnet20", {16, 32, 32}, {16, 32, 32}, 3, 1, 1, "1T", U8, {U8}, "dense-bytes", "dense-quads"},
    {"resnet20", {16, 32, 32}, {16, 32, 32}, 3, 1, 1, "1T", U8, {I32}, "dense-bytes", "dense-quads"},
    {"resnet20", {16, 32, 32}, {32, 16, 16}, 3, 2, 1, "1T", U8, {U8}, "ternary-table", "dense-quads"},
    {"resnet20", {64, 8, 8}, {64, 8, 8}, 3, 1, 1, "1T", U8, {I32}, "ternary-table", "dense-quads"},
    {"resnet20", {16, 32, 32}, {16, 32, 32}, 3, 1, 1, "2T", U8, {U8}, "ternary-table"},
    {"resnet20", {32, 16, 16}, {64, 8, 8}, 3, 2, 1, "2T", U8, {U8}, "ternary-table"},
    // Classifiers
    {"all", {1024, 1, 1}, {1000, 1, 1}, 1, 1, 1, "8b", U8, {F32}, "dot-products"},
    {"resnet20", {64, 1, 1}, {10, 1, 1}, 1, 1, 1, "8b", U8, {F32}, "dot-products"},
    // What the shipped networks do not have
    // One branch beside dot products: from 96 inputs, 128 outputs and 128 pixels on.
    {"mobilenet_v1",
     {128, 56, 56},
     {128, 56, 56},
     1,
     1,
     1,
     "1T",
     U8,
     {U8},
     "ternary-table",
     "table-and-quads"},
    // In smaller images: from 256 inputs and 512 outputs on.
    {"mobilenet_v1",
     {1024, 7, 7},
     {1024, 7, 7},
     1,
     1,
     1,
     "1T",
     U8,
     {I32},
     "ternary-table",
     "shuffles-and-quads"},
    {"none", {256, 1, 127}, {512, 1, 127}, 1, 1, 1, "1T", I8, {U8}, "ternary-table", "shuffles-and-quads"},
    {"none: 128 pixels",
     {256, 1, 128},
     {512, 1, 128},
     1,
     1,
     1,
     "1T",
     I8,
     {U8},
     "ternary-table",
     "table-and-quads"},
    {"none: 255 inputs", {255, 7, 7}, {512, 7, 7}, 1, 1, 1, "1T", U8, {U8}, "ternary-table", "dense-quads"},
    {"none: 511 outputs", {256, 7, 7}, {511, 7, 7}, 1, 1, 1, "1T", U8, {U8}, "ternary-table", "dense-quads"},
    {"none: two branches", {256, 7, 7}, {512, 7, 7}, 1, 1, 1, "2T", U8, {U8}, "ternary-table"},
    {"mobilenet_v2",
     {96, 14, 14},
     {576, 14, 14},
     1,
     1,
     1,
     "1T",
     I8,
     {U8},
     "ternary-table",
     "table-and-quads"},
    {"none: 95 inputs", {95, 14, 14}, {128, 14, 14}, 1, 1, 1, "1T", U8, {U8}, "ternary-table", "dense-quads"},
    {"none: 127 outputs",
     {96, 14, 14},
     {127, 14, 14},
     1,
     1,
     1,
     "1T",
     U8,
     {U8},
     "ternary-table",
     "dense-quads"},
    {"none: 127 pixels",
     {96, 1, 127},
     {128, 1, 127},
     1,
     1,
     1,
     "1T",
     U8,
     {U8},
     "ternary-table",
     "dense-quads"},
    {"none: 2 groups", {192, 14, 14}, {256, 14, 14}, 1, 1, 2, "1T", U8, {U8}, "ternary-table", "dense-quads"},
    {"none: stride 2", {96, 28, 28}, {128, 14, 14}, 1, 2, 1, "1T", U8, {U8}, "ternary-table", "dense-quads"},
    {"none: 3x3", {96, 14, 14}, {128, 14, 14}, 3, 1, 1, "1T", U8, {U8}, "ternary-table", "dense-quads"},
    {"none: signed, few sums",
     {16, 32, 32},
     {16, 32, 32},
     3,
     1,
     1,
     "1T",
     I8,
     {U8},
     "dense-words",
     "dense-quads"},
    {"none: 31 sums", {16, 32, 32}, {31, 32, 32}, 1, 1, 1, "1T", U8, {U8}, "dense-bytes", "dense-quads"},
    {"none: 32 sums", {16, 32, 32}, {32, 32, 32}, 1, 1, 1, "1T", U8, {U8}, "ternary-table", "dense-quads"},
    {"none: 32 sums in 2 groups",
     {16, 32, 32},
     {32, 32, 32},
     1,
     1,
     2,
     "1T",
     U8,
     {U8},
     "dense-bytes",
     "dense-quads"},
    {"none: 3 pixels", {16, 1, 3}, {64, 1, 3}, 1, 1, 1, "2T", U8, {U8}, "dot-products"},
    {"none: 4 pixels", {16, 1, 4}, {64, 1, 4}, 1, 1, 1, "2T", U8, {U8}, "ternary-table"},
    {"none: wide depthwise",
     {32, 28, 28},
     {32, 28, 28},
     3,
     1,
     32,
     "8b",
     U8,
     {I32},
     "depthwise",
     "depthwise-quads"},
    {"none: depthwise twice",
     {32, 28, 28},
     {32, 28, 28},
     3,
     1,
     32,
     "8b",
     U8,
     {I32, U8},
     "depthwise",
     "depthwise-quads"},
    {"none: float depthwise", {32, 28, 28}, {32, 28, 28}, 3, 1, 32, "8b", U8, {F32}, "depthwise"},
    {"none: 5x5 depthwise",
     {32, 28, 28},
     {32, 28, 28},
     5,
     1,
     32,
     "8b",
     U8,
     {U8},
     "depthwise",
     "depthwise-quads"},
    {"none: ternary depthwise", {32, 28, 28}, {32, 28, 28}, 3, 1, 32, "2T", U8, {U8}, "depthwise"},
};

std::vector<Output> outputs_of(const std::vector<Type>& types, int channels, int sums) {
    std::vector<Output> outputs;
    for (const Type type : types) {
        Output output;
        output.type = type;
        output.high = 127;
        output.scale.assign(size_t(channels * sums), 0.01f);
        output.offset.assign(size_t(channels), 0);
        outputs.push_back(output);
    }
    return outputs;
}

ConvSpec spec_of(const Layer& layer) {
    ConvSpec spec;
    spec.in = layer.in;
    spec.out = layer.out;
    spec.in_type = layer.in_type;
    spec.window.kernel_h = spec.window.kernel_w = layer.kernel;
    spec.window.stride_h = spec.window.stride_w = layer.stride;
    spec.window.pad_top = spec.window.pad_left = layer.kernel / 2;
    spec.groups = layer.groups;
    const bool ternary = layer.precision[1] == 'T';
    spec.weights = ternary ? Weights::Ternary : Weights::Fixed;
    spec.branches = ternary ? layer.precision[0] - '0' : 1;
    spec.largest = ternary ? 1 : layer.precision[1] == 'J' ? 7 : 127;
    spec.outputs = outputs_of(layer.out_types, layer.out.channels, spec.branches);
    return spec;
}

// `vectors` is the expected kernel on processors with AVX2, `wide` with AVX-512, `plain` on all others.
template <class Spec>
void expect_kernel(const char* what, const Spec& spec, const std::string& vectors, const std::string& wide,
                   const std::string& plain) {
    for (const Cpu& cpu : {PLAIN, ARM, AVX2, AVX512}) {
        const bool has_vectors = AVX2_KERNELS && cpu.count("avx2"),
                   is_wide = AVX512_KERNELS && cpu.count("avx512");
        const std::string expected = is_wide       ? wide + " avx512"
                                     : has_vectors ? vectors + " avx2"
                                                   : plain + " scalar";
        const std::string found = kernel_name(spec, choose_simd(cpu, nullptr));
        if (found != expected)
            std::fprintf(stderr, "%s: %s, expected %s\n", what, found.c_str(), expected.c_str());
        EXPECT(found == expected);
    }
}

void convolutions() {
    for (const Layer& layer : LAYERS)
        expect_kernel(layer.networks, spec_of(layer), layer.kernel_name,
                      layer.wide_name ? layer.wide_name : layer.kernel_name, "convolution");
}

void other_operations() {
    const Shape shape{16, 32, 32};
    const CombineSpec add{shape, {I32, I8}, outputs_of({I32}, 16, 2)};
    const CombineSpec requantize{shape, {I32}, outputs_of({U8}, 16, 1)};
    const AveragePoolSpec average{{1024, 7, 7}, {1024, 1, 1}, I32, {7, 7}, outputs_of({U8}, 1024, 1)};
    const MaxPoolSpec largest{{24, 112, 112}, {24, 56, 56}, U8, {3, 3, 2, 2, 1, 1}};
    const LookupSpec colours{{3, 224, 224}, I8, std::vector<uint8_t>(3 * 256)};
    expect_kernel("add", add, "add", "add", "add");
    expect_kernel("requantize", requantize, "requantize", "requantize", "requantize");
    expect_kernel("average pool", average, "average pool", "average pool", "average pool");
    expect_kernel("max pool", largest, "max pool", "max pool", "max pool");
    expect_kernel("lookup", colours, "lookup", "lookup", "lookup");
    AveragePoolSpec mean = average;
    mean.is_mean = true;
    CurveSpec curve;
    curve.shape = shape;
    curve.outputs = outputs_of({U8}, 16, 1);
    const MultiplySpec gate{shape, {16, 1, 1}, {I32, I32}, outputs_of({U8}, 16, 1)};
    const PixelsSpec pixels{shape, {16, 64, 64}, I32, std::vector<uint16_t>(64), std::vector<uint16_t>(64)};
    const BilinearSpec bilinear{
        shape, {16, 64, 64}, I32, std::vector<Blend>(64), std::vector<Blend>(64), outputs_of({U8}, 16, 1)};
    expect_kernel("mean pool", mean, "mean pool", "mean pool", "mean pool");
    expect_kernel("curve", curve, "curve", "curve", "curve");
    expect_kernel("multiply", gate, "multiply", "multiply", "multiply");
    expect_kernel("bilinear", bilinear, "bilinear", "bilinear", "bilinear");
    for (const Cpu& cpu : {PLAIN, AVX2, AVX512})  // which moves whole lines already
        EXPECT(kernel_name(pixels, choose_simd(cpu, nullptr)) == "pixels scalar");
    const LookupSpec grey{{1, 28, 28}, I8, std::vector<uint8_t>(256)};
    for (const Cpu& cpu : {PLAIN, AVX2, AVX512})
        EXPECT(kernel_name(grey, choose_simd(cpu, nullptr)) == "lookup scalar");
}

// Without fast products of bytes, the table of sums serves joined branches, and 4-bit weights as three.
void kernels_of_narrow_registers() {
    if (!GENERIC_KERNELS) return;
    const auto name = [](int largest, std::vector<int8_t> codes) {
        codes.resize(16);
        ConvSpec spec = spec_of({"", {16, 28, 28}, {32, 28, 28}, 1, 1, 1, "8b", U8, {U8}, ""});
        spec.largest = largest;
        for (int k = 0; k < 32; ++k) spec.codes.insert(spec.codes.end(), codes.begin(), codes.end());
        return kernel_name(spec, choose_simd({"generic"}, nullptr));
    };
    EXPECT(name(7, {0, 3, -5, 2}) == "ternary-table generic");
    EXPECT(name(7, {1, -4, 6, 7, 2, -3, 5}) == "ternary-table generic");
    EXPECT(name(15, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}) == "dense-words generic");
    EXPECT(name(127, {1, 2, 3, 127}) == "dense-words generic");
}

// An instruction set need not have every kernel.
void without_optional_kernels() {
    if (!AVX2_KERNELS) return;
    Simd simd = *AVX2_KERNELS;
    simd.depthwise_3x3 = nullptr;
    simd.lookup_three = nullptr;
    for (const Layer& layer : LAYERS)
        if (layer.kernel_name == std::string("depthwise-3x3"))
            EXPECT(kernel_name(spec_of(layer), &simd) == "depthwise avx2");
    EXPECT(kernel_name(LookupSpec{{3, 8, 8}, I8, {}}, &simd) == "lookup scalar");
    if (!AVX512_KERNELS) return;
    Simd wide = *AVX512_KERNELS;
    wide.multiply_quads = nullptr;
    wide.add_lists_and_quads = nullptr;
    wide.add_shuffled = nullptr;
    wide.depthwise_quads = nullptr;
    for (const Layer& layer : LAYERS) {
        const std::string avx2 = layer.kernel_name;
        const std::string rest = avx2 == "depthwise-3x3" ? "depthwise" : avx2;
        if (avx2 != "dense-quads") EXPECT(kernel_name(spec_of(layer), &wide) == rest + " avx512");
    }
}

}  // namespace

int main() {
    convolutions();
    other_operations();
    without_optional_kernels();
    kernels_of_narrow_registers();
    std::puts("kernel selection: fine");
}
