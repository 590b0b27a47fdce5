// Bytes of a .dbq file -> Program. Reads and checks in one pass, in the order of docs/format.md.

#include <algorithm>

#include "file/check.h"
#include "file/program.h"

namespace dbq {

namespace {

constexpr uint8_t MAGIC[8] = {0x89, 'D', 'B', 'Q', '\r', '\n', 0x1A, '\n'};
constexpr uint32_t VERSION = 1;
constexpr size_t HEADER = 32;

class Parser {
public:
    explicit Parser(Bytes body) : in_(body) {}

    Program program() {
        program_.name = in_.text(in_.u16());
        program_.metadata = in_.text(in_.u32());
        const uint32_t tensors = in_range("tensors", in_.u32(), 1, MAX_TENSORS);
        for (uint32_t i = 0; i < tensors; ++i) program_.tensors.push_back(tensor());
        written_.resize(tensors);
        largest_.resize(tensors);
        program_.output = index(in_.u32());
        if (output().type != Type::F32) fail(DBQ_BAD_FILE, "the result is not of type f32");
        const uint32_t operations = in_range("operations", in_.u32(), 1, MAX_TENSORS);
        for (uint32_t i = 0; i < operations; ++i) operation(i);
        for (uint32_t i = 0; i < tensors; ++i)
            if (!written_[i]) fail(DBQ_BAD_FILE, "no operation writes tensor %u", i);
        if (in_.left() > 0) fail(DBQ_BAD_FILE, "%zu bytes after the last operation", in_.left());
        return std::move(program_);
    }

private:
    const Tensor& output() const { return program_.tensors[program_.output]; }

    Tensor tensor() {
        Tensor tensor;
        tensor.type = static_cast<Type>(in_range("type of a tensor", in_.u8(), 0, 3));
        tensor.shape.channels = static_cast<int>(in_range("channels of a tensor", in_.u32(), 1, MAX_SIDE));
        tensor.shape.height = static_cast<int>(in_range("height of a tensor", in_.u32(), 1, MAX_SIDE));
        tensor.shape.width = static_cast<int>(in_range("width of a tensor", in_.u32(), 1, MAX_SIDE));
        if (tensor.shape.pixels() > MAX_PIXELS)
            fail(DBQ_BAD_FILE, "%zu pixels in a tensor, expected at most %u", tensor.shape.pixels(),
                 MAX_PIXELS);
        tensor.scale = in_.f32();
        check_float("scale of a tensor", tensor.scale);
        if (tensor.scale <= 0) fail(DBQ_BAD_FILE, "scale of a tensor: not above 0");
        return tensor;
    }

    uint32_t index(uint32_t tensor) const {
        if (tensor >= program_.tensors.size())
            fail(DBQ_BAD_FILE, "tensor %u, but there are %zu", tensor, program_.tensors.size());
        return tensor;
    }

    // A tensor this operation reads: one that was written before.
    const Tensor& read(uint32_t tensor, Type widest) {
        if (!written_[index(tensor)]) fail(DBQ_BAD_FILE, "tensor %u is read before it is written", tensor);
        const Tensor& found = program_.tensors[tensor];
        if (found.type > widest)
            fail(DBQ_BAD_FILE, "tensor %u is of type %d, expected at most %d", tensor,
                 static_cast<int>(found.type), static_cast<int>(widest));
        return found;
    }

    const Tensor& input(Operation& op, Type widest) {
        op.inputs.push_back(in_.u32());
        return read(op.inputs.back(), widest);
    }

    // Written tensors are marked when the operation is complete: it cannot read its own.
    const Tensor& written(Operation& op) {
        op.outputs.push_back(index(in_.u32()));
        return program_.tensors[op.outputs.back()];
    }

    Shape results(Operation& op, uint32_t sums) {
        const uint8_t count = in_.u8();
        if (count == 0) fail(DBQ_BAD_FILE, "no results, expected at least one");
        for (int i = 0; i < count; ++i) {
            const Tensor& tensor = written(op);
            const Shape first = program_.tensors[op.outputs[0]].shape;
            check_same_channels("a result", tensor.shape, first);
            check_same_size("a result", tensor.shape, first);
            op.results.push_back(result(tensor, sums));
            const Output& last = op.results.back();
            largest_[op.outputs.back()] = static_cast<int32_t>(std::max(-last.low, last.high));
        }
        return program_.tensors[op.outputs[0]].shape;
    }

    Output result(const Tensor& tensor, uint32_t sums) {
        const int32_t low = in_.i32(), high = in_.i32();
        check_clip(tensor.type, low, high);
        const uint32_t channels = static_cast<uint32_t>(tensor.shape.channels);
        Output result;
        result.type = tensor.type;
        result.low = static_cast<float>(low);
        result.high = static_cast<float>(high);
        result.scale = in_.floats(channels * sums);
        result.offset = in_.floats(channels);
        for (const float scale : result.scale) check_float("a scale", scale);
        for (const float offset : result.offset) check_float("an offset", offset);
        return result;
    }

    void window(Operation& op) {
        Window& w = op.window;
        for (int* value : {&w.kernel_h, &w.kernel_w, &w.stride_h, &w.stride_w, &w.pad_top, &w.pad_left})
            *value = in_.u16();
    }

    void operation(uint32_t i) {
        program_.operations.emplace_back();
        Operation& op = program_.operations.back();
        try {
            op.kind = static_cast<Kind>(in_range("kind", in_.u8(), 0, static_cast<uint32_t>(Kind::Channels)));
            op.name = in_.text(in_.u16());
            if ((i == 0) != (op.kind == Kind::Lookup))
                fail(DBQ_BAD_FILE, "a lookup must be the first operation, and no other");
            contents(op);
            for (const uint32_t tensor : op.outputs) {
                if (written_[tensor]) fail(DBQ_BAD_FILE, "tensor %u is written twice", tensor);
                written_[tensor] = true;
            }
        } catch (Error& error) {
            error.text = "operation " + std::to_string(i) + " (" + op.name.substr(0, 80) + "): " + error.text;
            throw;
        }
    }

    void contents(Operation& op) {
        switch (op.kind) {
            case Kind::Lookup: return lookup(op);
            case Kind::Convolution: return convolution(op);
            case Kind::Add: return add(op);
            case Kind::Requantize: return requantize(op);
            case Kind::AveragePool: return average_pool(op);
            case Kind::MaxPool: return max_pool(op);
            case Kind::Channels: return channels(op);
        }
    }

    void lookup(Operation& op) {
        const Tensor& out = written(op);
        if (out.type > Type::I8) fail(DBQ_BAD_FILE, "the table's tensor is not of type u8 or i8");
        largest_[op.outputs[0]] = 255;
        op.packed = in_.bytes(static_cast<uint64_t>(out.shape.channels) * 256);
    }

    void convolution(Operation& op) {
        const Shape in = input(op, Type::I8).shape;
        window(op);
        op.dilation_h = in_.u16();
        op.dilation_w = in_.u16();
        check_window(op.window, op.dilation_h, op.dilation_w);
        op.groups = static_cast<int>(in_range("groups", in_.u32(), 1, static_cast<uint32_t>(in.channels)));
        op.form = static_cast<Weights>(in_range("form of the weights", in_.u8(), 0, 1));
        const bool ternary = op.form == Weights::Ternary;
        op.size = static_cast<int>(ternary ? in_range("branches", in_.u8(), 1, 3)
                                           : in_range("bits of a weight", in_.u8(), 2, 8));
        const uint32_t branches = ternary ? static_cast<uint32_t>(op.size) : 1;
        const Shape out = results(op, branches);
        if (in.channels % op.groups != 0 || out.channels % op.groups != 0)
            fail(DBQ_BAD_FILE, "%d groups do not divide %d and %d channels", op.groups, in.channels,
                 out.channels);
        check_overlap(op, in, out);
        const uint64_t kernel =
            uint64_t(in.channels / op.groups) * uint64_t(op.window.kernel_h * op.window.kernel_w);
        if (kernel > MAX_KERNEL_WEIGHTS)
            fail(DBQ_BAD_FILE, "%llu weights in a kernel, expected at most %u",
                 static_cast<unsigned long long>(kernel), MAX_KERNEL_WEIGHTS);
        const uint64_t codes = kernel * uint64_t(out.channels) * branches;
        op.packed = in_.bytes(ternary ? (codes + 4) / 5 : (codes * uint64_t(op.size) + 7) / 8);
    }

    void add(Operation& op) {
        const Shape a = input(op, Type::I32).shape, b = input(op, Type::I32).shape;
        check_same_shape("the second summand", b, a);
        check_same_shape("the sum", results(op, 2), a);
    }

    void requantize(Operation& op) {
        const Shape in = input(op, Type::I32).shape;
        check_same_shape("the output", results(op, 1), in);
    }

    void average_pool(Operation& op) {
        const Shape in = input(op, Type::I32).shape;
        window(op);
        check_window(op.window, 1, 1);
        check_window_sum(op.window, largest_[op.inputs[0]]);
        const Shape out = results(op, 1);
        check_same_channels("the output", out, in);
        check_overlap(op, in, out);
    }

    void max_pool(Operation& op) {
        const Tensor& in = input(op, Type::I32);
        window(op);
        check_window(op.window, 1, 1);
        const Tensor& out = written(op);
        check_same_channels("the output", out.shape, in.shape);
        check_same_meaning(out, in);
        check_overlap(op, in.shape, out.shape);
        largest_[op.outputs[0]] = largest_[op.inputs[0]];
    }

    void channels(Operation& op) {
        const Tensor& out = written(op);
        if (out.type == Type::F32) fail(DBQ_BAD_FILE, "channels of type f32, expected integers");
        const Bytes table = in_.bytes(static_cast<uint64_t>(out.shape.channels) * 8);
        bool zeros = true;
        for (Reader pairs(table); pairs.left() > 0;) {
            Source source;
            source.tensor = pairs.u32();
            source.channel = pairs.u32();
            if (source.tensor != ZEROS) {
                const Tensor& from = read(source.tensor, Type::I32);
                in_range("channel", source.channel, 0, static_cast<uint32_t>(from.shape.channels - 1));
                check_same_size("a channel", from.shape, out.shape);
                check_same_meaning(out, from);
                int32_t& largest = largest_[op.outputs[0]];
                largest = std::max(largest, largest_[source.tensor]);
            }
            op.sources.push_back(source);
            zeros = zeros && source.tensor == ZEROS;
        }
        if (zeros) fail(DBQ_BAD_FILE, "nothing but zeros, expected a channel of some tensor");
    }

    static void check_same_shape(const char* what, Shape found, Shape expected) {
        check_same_channels(what, found, expected);
        check_same_size(what, found, expected);
    }

    static void check_same_meaning(const Tensor& found, const Tensor& expected) {
        if (found.type != expected.type || found.scale != expected.scale)
            fail(DBQ_BAD_FILE, "type and scale of the output differ from those of the input");
    }

    Reader in_;
    Program program_;
    std::vector<bool> written_;
    std::vector<int32_t> largest_;  // no code of the tensor is larger in size
};

Bytes body_of(Bytes file) {
    if (file.size < HEADER || std::memcmp(file.data, MAGIC, sizeof MAGIC) != 0)
        fail(DBQ_BAD_FILE, "this is no .dbq file: it does not start with the 32 bytes of its header");
    Reader header(file);
    header.bytes(sizeof MAGIC);
    const uint32_t version = header.u32(), checksum = header.u32();
    const uint64_t length = header.u64(), reserved = header.u64();
    if (version != VERSION)
        fail(DBQ_BAD_VERSION, "format version %u, this library reads %u: update libdbq, or export again",
             version, VERSION);
    if (length != header.left())
        fail(DBQ_BAD_FILE, "%zu bytes after the header, %llu expected", header.left(),
             static_cast<unsigned long long>(length));
    if (reserved != 0) fail(DBQ_BAD_FILE, "the last 8 bytes of the header are not 0");
    const Bytes body = header.bytes(length);
    const uint32_t found = crc32(body);
    if (found != checksum) fail(DBQ_BAD_FILE, "checksum %08x, expected %08x", found, checksum);
    return body;
}

}  // namespace

Program parse(Bytes file) { return Parser(body_of(file)).program(); }

}  // namespace dbq
