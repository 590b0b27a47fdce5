/* As much of Linux as a static program of one thread needs that reads files, computes and prints.

   start.S calls main(). The disk begins with struct Disk, which emulated_x86.py writes; files follow, each
   from a new sector on. The first file is the program, ELF at fixed addresses. What the program prints goes
   to port 0xe9, which Bochs copies to its standard output. */
#include <asm/prctl.h>
#include <elf.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

enum { SECTOR = 512, FILES = 16 };
enum { OPENED = 8, FIRST = 3 }; /* so many files at a time, and the number of the first */

struct Disk {
    uint32_t memory; /* of the machine, in bytes */
    uint32_t arguments, files;
    struct {
        uint32_t name, sector, size; /* `name` is a place in `text` */
    } file[FILES];
    char text[16384 - 12 - 12 * FILES]; /* arguments, then names, each with a zero byte at its end */
};

static struct Disk disk;
static uint64_t heap_begin, heap_end, heap_limit;
static struct {
    int file; /* -1: closed */
    uint32_t at;
} opened[OPENED];

/* ---- The machine */

static inline void out8(uint16_t port, uint8_t value) {
    __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static inline uint8_t in8(uint16_t port) {
    uint8_t value;
    __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

static void set_msr(uint32_t msr, uint64_t value) {
    __asm__ volatile("wrmsr" : : "c"(msr), "a"((uint32_t)value), "d"((uint32_t)(value >> 32)));
}

static void print_bytes(const char* bytes, size_t n) {
    for (size_t i = 0; i < n; ++i) out8(0xe9, (uint8_t)bytes[i]);
}

static void print(const char* text) {
    while (*text) print_bytes(text++, 1);
}

static void print_number(uint64_t number, unsigned base) {
    char digits[24];
    int n = 0;
    do digits[n++] = "0123456789abcdef"[number % base];
    while (number /= base);
    while (n) print_bytes(&digits[--n], 1);
}

static void end(int code) __attribute__((noreturn));
static void end(int code) {
    print("\nthe program ended with ");
    print_number((uint64_t)code, 10);
    print("\n");
    for (const char* c = "Shutdown"; *c; ++c) out8(0x8900, (uint8_t)*c);
    for (;;) __asm__ volatile("cli; hlt");
}

static void stop(const char* why) __attribute__((noreturn));
static void stop(const char* why) {
    print(why);
    end(255);
}

void exception(const uint64_t* frame);
void exception(const uint64_t* frame) {
    print("exception ");
    print_number(frame[0], 10);
    print(", code ");
    print_number(frame[1], 16);
    print(", at ");
    print_number(frame[2], 16);
    print(", the instruction is");
    for (int i = 0; i < 15; ++i) {
        print(" ");
        print_number(((const uint8_t*)frame[2])[i], 16);
    }
    end(254);
}

/* Compilers make calls of these. */
void* memset(void* to, int value, size_t n) {
    void* at = to;
    __asm__ volatile("rep stosb" : "+D"(at), "+c"(n) : "a"(value) : "memory");
    return to;
}

void* memcpy(void* to, const void* from, size_t n) {
    void* at = to;
    __asm__ volatile("rep movsb" : "+D"(at), "+S"(from), "+c"(n) : : "memory");
    return to;
}

static int same(const char* a, const char* b) {
    while (*a && *a == *b) ++a, ++b;
    return *a == *b;
}

static void read_sector(uint32_t sector, void* to) {
    out8(0x1f6, (uint8_t)(0xe0 | sector >> 24));
    out8(0x1f2, 1);
    out8(0x1f3, (uint8_t)sector);
    out8(0x1f4, (uint8_t)(sector >> 8));
    out8(0x1f5, (uint8_t)(sector >> 16));
    out8(0x1f7, 0x20);
    uint8_t status;
    do status = in8(0x1f7);
    while (status & 0x80 || !(status & 0x09));
    if (status & 0x01) stop("the disk cannot be read");
    size_t words = SECTOR / 2;
    __asm__ volatile("rep insw" : "+D"(to), "+c"(words) : "d"((uint16_t)0x1f0) : "memory");
}

static void read_file(int file, uint32_t at, void* to, size_t n) {
    static char sector[SECTOR];
    static uint32_t held; /* 0 is no file's */
    char* out = to;
    while (n) {
        const uint32_t wanted = disk.file[file].sector + at / SECTOR, from = at % SECTOR;
        const size_t here = n < SECTOR - from ? n : SECTOR - from;
        if (here == SECTOR) read_sector(wanted, out);
        else {
            if (wanted != held) read_sector(held = wanted, sector);
            memcpy(out, sector + from, here);
        }
        out += here;
        at += (uint32_t)here;
        n -= here;
    }
}

/* ---- System calls */

struct Arguments {
    uint64_t a, b, c, d, e, f;
};

struct Part {
    uint64_t from, n;
};

static int64_t call_write(uint64_t fd, uint64_t from, uint64_t n) {
    if (fd != 1 && fd != 2) return -EBADF;
    print_bytes((const char*)from, n);
    return (int64_t)n;
}

static int64_t call_open(const char* name) {
    for (int f = 0; f < (int)disk.files; ++f)
        if (same(name, disk.text + disk.file[f].name))
            for (int i = 0; i < OPENED; ++i)
                if (opened[i].file < 0) {
                    opened[i].file = f;
                    opened[i].at = 0;
                    return i + FIRST;
                }
    return -ENOENT;
}

static int64_t call_read(uint64_t fd, uint64_t to, uint64_t n) {
    const uint64_t i = fd - FIRST;
    if (i >= OPENED || opened[i].file < 0) return -EBADF;
    const uint32_t rest = disk.file[opened[i].file].size - opened[i].at;
    if (n > rest) n = rest;
    read_file(opened[i].file, opened[i].at, (void*)to, n);
    opened[i].at += (uint32_t)n;
    return (int64_t)n;
}

static int64_t call_close(uint64_t fd) {
    if (fd - FIRST >= OPENED) return -EBADF;
    opened[fd - FIRST].file = -1;
    return 0;
}

/* Memory comes from here alone: mmap fails, and malloc does without. What is given back is cleared, as new
   memory must be. */
static int64_t call_brk(uint64_t wanted) {
    if (wanted < heap_begin || wanted > heap_limit) return (int64_t)heap_end;
    if (wanted < heap_end) memset((void*)wanted, 0, heap_end - wanted);
    return (int64_t)(heap_end = wanted);
}

static int64_t call_writev(uint64_t fd, const struct Part* parts, uint64_t count) {
    int64_t all = 0;
    for (; count; --count, ++parts) {
        const int64_t n = call_write(fd, parts->from, parts->n);
        if (n < 0) return n;
        all += n;
    }
    return all;
}

int64_t system_call(uint64_t number, const struct Arguments* x);
int64_t system_call(uint64_t number, const struct Arguments* x) {
    switch (number) {
        case SYS_openat: return call_open((const char*)x->b);
        case SYS_read: return call_read(x->a, x->b, x->c);
        case SYS_write: return call_write(x->a, x->b, x->c);
        case SYS_writev: return call_writev(x->a, (const struct Part*)x->b, x->c);
        case SYS_close: return call_close(x->a);
        case SYS_brk: return call_brk(x->a);
        case SYS_mmap: return -ENOMEM;
        case SYS_mprotect: return 0;
        case SYS_arch_prctl:
            if (x->a != ARCH_SET_FS) return -EINVAL;
            set_msr(0xc0000100, x->b); /* where fs begins: thread-local variables */
            return 0;
        case SYS_set_tid_address: return 1;
        case SYS_futex: return 0; /* nobody waits */
        case SYS_sched_getaffinity:
            if (x->b < 8) return -EINVAL;
            *(uint64_t*)x->c = 1; /* one processor */
            return 8;
        case SYS_tgkill: end(128 + (int)x->c); /* abort() */
        case SYS_exit:
        case SYS_exit_group: end((int)(x->a & 255));
        default: return -ENOSYS;
    }
}

/* ---- The program */

static uint64_t load(uint64_t* headers, uint64_t* header_count) {
    Elf64_Ehdr file;
    read_file(0, 0, &file, sizeof file);
    if (file.e_type != ET_EXEC || file.e_phentsize != sizeof(Elf64_Phdr))
        stop("the program is not linked statically at fixed addresses");
    for (unsigned i = 0; i < file.e_phnum; ++i) {
        Elf64_Phdr part;
        read_file(0, (uint32_t)(file.e_phoff + i * sizeof part), &part, sizeof part);
        if (part.p_type != PT_LOAD) continue;
        if (part.p_vaddr < 0x400000 || part.p_vaddr + part.p_memsz > disk.memory / 2)
            stop("the program does not fit into memory");
        read_file(0, (uint32_t)part.p_offset, (void*)part.p_vaddr, part.p_filesz);
        if (part.p_offset == 0) *headers = part.p_vaddr + file.e_phoff;
        if (part.p_vaddr + part.p_memsz > heap_begin) heap_begin = part.p_vaddr + part.p_memsz;
    }
    *header_count = file.e_phnum;
    return file.e_entry;
}

void start_program(uint64_t entry, const uint64_t* stack) __attribute__((noreturn));

int main(void) {
    for (size_t i = 0; i < sizeof disk / SECTOR; ++i) read_sector((uint32_t)i, (char*)&disk + i * SECTOR);
    for (size_t i = 0; i < OPENED; ++i) opened[i].file = -1;
    print("\nthe program starts\n");
    uint64_t headers = 0, header_count = 0;
    const uint64_t entry = load(&headers, &header_count);
    heap_end = heap_begin = (heap_begin + 4095) & ~(uint64_t)4095;
    heap_limit = disk.memory - 0x800000; /* above: the program's stack */

    const uint64_t top = disk.memory - 4096;
    uint64_t* const stack = (uint64_t*)(top - 8 * (((uint64_t)disk.arguments + 24) & ~(uint64_t)1));
    uint64_t* out = stack;
    *out++ = disk.arguments;
    const char* argument = disk.text;
    for (uint32_t i = 0; i < disk.arguments; ++i) {
        *out++ = (uint64_t)argument;
        while (*argument++) {
        }
    }
    *out++ = 0; /* end of the arguments */
    *out++ = 0; /* no environment */
    const Elf64_auxv_t auxiliary[] = {
        {AT_PHDR, {headers}}, {AT_PHNUM, {header_count}}, {AT_PHENT, {sizeof(Elf64_Phdr)}},
        {AT_ENTRY, {entry}},  {AT_PAGESZ, {4096}},        {AT_RANDOM, {top}},
        {AT_NULL, {0}}};
    memcpy(out, auxiliary, sizeof auxiliary);
    start_program(entry, stack);
}
